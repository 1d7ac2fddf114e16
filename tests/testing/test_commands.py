"""Programs that are processes under the virtual clock, with faults where requests arrive."""

import sys
from pathlib import Path

import pytest

from dralab.scenarios.errors import InputError
from dralab.testing.faults import PlannedFault
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end, run_trial
from dralab.virtualtime import unavailable

SCENARIO = """
programs:
  - command: [{words}]
script:
  - apply: wish.yaml
cluster: {{controllers: [], scheduler: false}}
"""
WISH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wish, namespace: default}
data: {copy: "yes"}
"""
WATCHING = Path(__file__).parent / "watching.py"
POLLING = Path(__file__).parent / "polling.py"
clocked = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def scenario(folder, *words):
    (folder / "wish.yaml").write_text(WISH)
    file = folder / "scenario.yaml"
    file.write_text(SCENARIO.format(words=", ".join(f'"{word}"' for word in words)))
    return load(file)


def fault(name, verb, **given):
    return PlannedFault(fault=name, program="program", verb=verb, resource="configmaps", **given)


@clocked
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("command: []", "programs[0].command: must have at least one word"),
        ("command: [a]\n    replicas: 9", "programs[0].replicas: must be at most 5"),
        ("command: [a]\n  - command: [b]", "programs: two programs have the same name"),
        (
            "command: [/bin/kube-controller-manager]\ncluster: {scheduler: false}",
            "cluster.controllers: must be given beside kube-controller-manager",
        ),
        (
            "command: [env, A=b, kube-scheduler]\ncluster: {controllers: false}",
            "cluster.scheduler: must be given beside kube-scheduler",
        ),
    ],
)
def test_a_command_that_cannot_be_used_is_told(tmp_path, changed, told):
    file = tmp_path / "scenario.yaml"
    file.write_text(f"programs:\n  - {changed}\n")
    with pytest.raises(InputError) as error:
        load(file)
    assert told in str(error.value)


@clocked
@pytest.mark.conformance
def test_a_program_that_looks_first_passes_and_a_careless_one_does_not(tmp_path):
    careful = scenario(tmp_path, sys.executable, str(POLLING))
    assert search(careful, expected_end(careful), range(10)).failures == {}
    careless = scenario(tmp_path, sys.executable, str(POLLING), "--careless")
    expected = expected_end(careless)
    kill = fault("kill", "create", nth=1, moment="after", duration=10**9)
    result = run_trial(careless, expected, [kill], 0)
    assert "configmaps default/wish-*: 2 at the end, 1 without faults" in str(result.violations[0])
    again = run_trial(careless, expected, [kill], 0)
    assert again.history.entries == result.history.entries


@clocked
@pytest.mark.conformance
def test_a_program_that_ends_by_itself_is_told_with_its_last_output(tmp_path):
    ends = scenario(tmp_path, "sh", "-c", "echo no kubeconfig; exit 3")
    with pytest.raises(ScenarioFails, match="ends with exit code 3; last output: no kubeconfig"):
        expected_end(ends)


@clocked
@pytest.mark.conformance
def test_a_program_that_cannot_be_started_is_told(tmp_path):
    missing = scenario(tmp_path, "/no/such/program")
    with pytest.raises(ScenarioFails, match="cannot start /no/such/program: No such file"):
        expected_end(missing)


@clocked
@pytest.mark.conformance
def test_a_program_that_ignores_its_kubeconfig_is_told(tmp_path):
    ignores = scenario(tmp_path, "sleep", "100000")
    with pytest.raises(ScenarioFails, match="program sends no request: it must use the server"):
        expected_end(ignores)


# --- faults of processes ---------------------------------------------------------------------------


def watching(folder):
    found = scenario(folder, sys.executable, str(WATCHING))
    return found, expected_end(found)


def seen(result, *words):
    return [e for e in result.history.entries if all(word in e.text for word in words)]


@clocked
@pytest.mark.conformance
def test_the_watch_of_a_process_lags_ends_and_misses_changes(tmp_path):
    found, expected = watching(tmp_path)
    hold = fault("hold-watch", "watch", nth=1, duration=5 * 10**9)
    late = seen(run_trial(found, expected, [hold], 0), "sees ADDED", "wish")
    assert late[0].at == 10 * 10**9
    end = fault("end-watch", "watch", nth=1)
    result = run_trial(found, expected, [end], 0)
    assert result.violations == ()
    assert len(seen(result, "watch configmaps")) > len(seen(result, "list configmaps"))
    gap = fault("expire-watch", "watch", nth=1, duration=2 * 10**9)
    result = run_trial(found, expected, [gap], 0)
    assert result.violations == ()
    assert seen(result, "never sees ADDED", "wish")
    assert seen(result, "watch configmaps", "-> 410 Expired")


@clocked
@pytest.mark.conformance
def test_a_dead_process_sees_nothing(tmp_path):
    found, expected = watching(tmp_path)
    hold = fault("hold-watch", "watch", nth=1, duration=5 * 10**9)
    kill = PlannedFault(fault="restart", program="program", at=6 * 10**9, duration=8 * 10**9)
    result = run_trial(found, expected, [hold, kill], 0)
    assert set(result.fired) == {hold, kill}
    dead = [e for e in result.history.entries if 6 * 10**9 <= e.at < 14 * 10**9]
    assert not [e for e in dead if e.what in {"seen", "withheld"}]


@clocked
@pytest.mark.conformance
def test_a_process_stands_still_and_catches_up(tmp_path):
    found, expected = watching(tmp_path)
    pause = PlannedFault(fault="pause", program="program", at=3 * 10**9, duration=15 * 10**9)
    result = run_trial(found, expected, [pause], 0)
    assert result.violations == ()
    during = [e for e in result.history.entries if 3 * 10**9 < e.at < 18 * 10**9]
    assert not [e for e in during if e.what in {"write", "request", "seen"}]
    made = seen(result, "create configmaps")
    assert made[0].at >= 18 * 10**9


@clocked
@pytest.mark.conformance
def test_a_slow_request_of_a_process_takes_its_time(tmp_path):
    found, expected = watching(tmp_path)
    slow = fault("slow", "create", nth=1, duration=15 * 10**9)
    result = run_trial(found, expected, [slow], 0)
    assert result.violations == ()
    begun = seen(result, "takes 15s")[0].at
    assert [e.at for e in seen(result, "create configmaps") if e.what == "write"] == [
        begun + 15 * 10**9
    ]


@clocked
@pytest.mark.conformance
def test_the_clock_of_a_process_is_ahead(tmp_path):
    found, expected = watching(tmp_path)
    skew = PlannedFault(fault="skew", program="program", duration=40 * 10**9)
    result = run_trial(found, expected, [skew], 0)
    assert "data.at" in str(result.violations[0])


@clocked
@pytest.mark.conformance
def test_an_outage_breaks_the_watches_of_processes_and_they_may_end_for_it(tmp_path):
    found, expected = watching(tmp_path)
    outage = PlannedFault(fault="outage", at=2 * 10**9, duration=15 * 10**9)
    result = run_trial(found, expected, [outage], 0)
    assert result.violations == ()
    assert seen(result, "-> 503")


@clocked
@pytest.mark.conformance
def test_requests_that_are_refused_over_time_are_no_hot_loop(tmp_path, monkeypatch):
    """An outage refused 300 requests of kube-controller-manager, seconds apart."""
    from dralab.testing import world

    monkeypatch.setattr(world, "REFUSED_AT_ONCE", 5)
    found, expected = watching(tmp_path)
    outage = PlannedFault(fault="outage", at=2 * 10**9, duration=15 * 10**9)
    result = run_trial(found, expected, [outage], 0)
    assert len(seen(result, "-> 503")) > 5
    assert result.violations == ()


@clocked
@pytest.mark.conformance
def test_two_processes_are_told_apart(tmp_path):
    from dataclasses import replace

    found, _ = watching(tmp_path)
    one = found.programs[0]
    found = replace(found, programs=[replace(one, replicas=2)])
    kill = PlannedFault(fault="restart", program="program", at=2 * 10**9, duration=10**9)
    result = run_trial(found, expected_end(found), [kill], 0)
    assert result.violations == ()
    starts = [e.who for e in result.history.entries if e.text.startswith("starts")]
    assert starts == ["program-0", "program-1", "program-0"]
