"""Trials as a test: what a decorated test gets, and how it fails."""

import inspect

import pytest

import dralab
import sitescenarios
from siteoperators import LeavesOrphans, Sites


def test_a_test_gets_the_outcome_of_its_seeds_and_its_fixtures():
    @dralab.simulation_test(sitescenarios.scenario(Sites), seeds=2)
    def check(tmp_path, result):
        return tmp_path, result.seeds

    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    assert check(tmp_path="here") == ("here", 2)


def test_a_failure_tells_the_shortest_schedule_and_the_test_does_not_run():
    @dralab.simulation_test(sitescenarios.scenario(LeavesOrphans), seeds=1, first=14)
    def check():
        raise RuntimeError("not reached")

    with pytest.raises(AssertionError) as failure:
        check()
    text = str(failure.value)
    assert text.startswith("1 of 1 seeds fail\n\nseeds 14:\nfinal-state: configmaps default/")
    assert "\nthe shortest schedule: " in text


def test_a_file_is_found_beside_the_test(tmp_path):
    (tmp_path / "scenario.yaml").write_text(
        "programs: [{controller: job-controller}]\ncluster: {controllers: [], scheduler: false}\n"
    )
    test = tmp_path / "test_file.py"
    test.write_text("def check(result):\n    return result.scenario.name\n")
    names = {}
    exec(compile(test.read_text(), test, "exec"), names)  # noqa: S102 - a test file of its own
    checked = dralab.simulation_test("scenario.yaml", seeds=1)(names["check"])
    assert checked() == "scenario"


def test_no_seeds_are_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1: 0"):
        dralab.simulation_test("scenario.yaml", seeds=0)


def test_the_package_has_no_other_surprises():
    with pytest.raises(AttributeError, match="has no attribute 'simulate_test'"):
        _ = dralab.simulate_test
