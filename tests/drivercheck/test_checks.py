"""Each check lets a good driver pass, and catches the driver that breaks its rule alone."""

import itertools
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS  # noqa: E402 - beside this file
from referencedriver import Lamps, bench, target  # noqa: E402

from dralab.drivercheck.catalog import MUST, Catalog, selected  # noqa: E402
from dralab.drivercheck.groups import CHECKS  # noqa: E402
from dralab.drivercheck.runner import Outcome, Runner  # noqa: E402

# One of each kind that takes milliseconds; `make conformance` tries them all.
QUICK = ["registration.type", "registration.endpoint-absolute", "slices.owner"]


@pytest.fixture(autouse=True)
def quiet():
    """Drivers that are killed, and mutants, have much to complain about."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(driver, ids, lanes=8):
    return Runner(bench(driver), selected(CHECKS, ids), lanes=lanes).run()


def failed(report):
    return [
        each.check.id
        for each in report.results
        if each.outcome in (Outcome.FAILED, Outcome.BLOCKED)
    ]


def test_every_check_has_a_mutant_and_every_mutant_a_check():
    assert [check.id for check in CHECKS if check.id not in MUTANTS] == []
    assert set(MUTANTS) <= {check.id for check in CHECKS}
    assert len(set(MUTANTS.values())) == len(MUTANTS)


def test_every_check_says_what_it_is_about_and_where_that_comes_from():
    for check in CHECKS:
        assert check.sentence.endswith("."), check.id
        assert len(check.source) > 5, check.id


def test_a_good_driver_passes_and_some_bad_ones_are_caught():
    assert failed(run(target(), QUICK, lanes=1)) == []
    for each in QUICK:
        report = run(MUTANTS[each](), QUICK, lanes=1)
        assert failed(report) == [each]
        [result] = [one for one in report.results if one.check.id == each]
        assert result.text
        assert result.check.source


@pytest.mark.conformance
def test_a_good_driver_passes_all_checks():
    report = run(target(), [])
    skipped = [r.check.id for r in report.results if r.outcome is Outcome.SKIPPED]
    assert (failed(report), skipped) == ([], [])


@pytest.mark.conformance
@pytest.mark.parametrize("id", [check.id for check in CHECKS])
def test_a_mutant_is_caught_by_the_check_of_its_rule_alone(id):
    assert failed(run(MUTANTS[id](), [])) == [id]


class Unordered(Lamps):
    """Lists its devices in another order after each start, as the map of a Go program does."""

    starts = itertools.count()

    def __init__(self, node):
        super().__init__(node)
        self.backwards = next(self.starts) % 2

    def inventory(self):
        counters, lamps, halves = super().inventory()
        step = -1 if self.backwards else 1
        return [counters, replace(lamps, devices=lamps.devices[::step]), halves]


@pytest.mark.conformance
def test_a_driver_that_lists_devices_in_no_order_fails_by_its_writes_alone():
    assert failed(run(target(Unordered), ["slices"])) == ["slices.quiet-restart"]


class Ignorant(Lamps):
    """Knows nothing of its devices' health, and says so once."""

    def health(self):
        return [replace(one, health="Unknown") for one in super().health()]


@pytest.mark.conformance
def test_unknown_health_need_not_be_reported_again():
    server = MUTANTS["health.refresh"]().parts.server
    report = run(target(Ignorant, server=server), ["health.refresh"], lanes=1)
    assert [each.outcome for each in report.results] == [Outcome.SKIPPED]


def test_patterns_select_checks_and_a_wrong_one_is_refused():
    catalog = Catalog()
    for name in ("crash.a", "crash.b", "load.a"):
        catalog.check(MUST, "source", id=name)(lambda bench: None)
    ids = [check.id for check in selected(catalog.checks, ["crash"])]
    assert ids == ["crash.a", "crash.b"]
    assert [c.id for c in selected(catalog.checks, ["*.a"])] == ["crash.a", "load.a"]
    with pytest.raises(ValueError, match="'crush' names no check"):
        selected(catalog.checks, ["crush"])
    with pytest.raises(ValueError, match="a check with this id exists"):
        catalog.check(MUST, "source", id="load.a")(print)
    with pytest.raises(ValueError, match="the group is not one of"):
        catalog.check(MUST, "source", id="other.a")(print)
