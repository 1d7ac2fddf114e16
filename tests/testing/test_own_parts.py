"""dralab's own parts under faults: the scenarios in `own`, and the schedules that once failed."""

import os
from pathlib import Path

import pytest

from dralab.testing.faults import PlannedFault
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial, schedule

OWN = Path(__file__).parent / "own"
SCENARIOS = ("deployments", "sets", "jobs", "claims", "garbage", "nodes")
# More with DST_SEEDS=2000; the goal of a long run is 10,000 for all of them.
SEEDS = int(os.environ.get("DST_SEEDS", "100"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_parts_that_there_are(name):
    assert load(OWN / f"{name}.yaml").programs


@pytest.mark.conformance
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_seed_fails(name):
    scenario = load(OWN / f"{name}.yaml")
    found = search(scenario, expected_end(scenario), range(SEEDS))
    assert found.seeds == SEEDS
    assert found.failures == {}


# (scenario, seed, schedule): each failed before the change that its comment names.
ONCE_FAILED = [
    # A DaemonSet was deleted behind a watch that lagged: its pods were made again without end.
    (
        "sets",
        140,
        [
            {
                "fault": "hold-watch",
                "program": "daemonset-controller",
                "verb": "watch",
                "resource": "daemonsets.apps",
                "nth": 4,
                "duration": 40_000_000_000,
            }
        ],
    ),
    # A pod too many, made by a request that came late, was counted as failed when it was removed.
    (
        "jobs",
        291,
        [
            {
                "fault": "late-write",
                "program": "job-controller",
                "verb": "create",
                "resource": "pods",
                "nth": 4,
                "duration": 5_000_000_000,
            }
        ],
    ),
    # A service account that was there unseen kept the root certificate out of its namespace.
    (
        "garbage",
        10757,
        [
            {
                "fault": "late-write",
                "program": "serviceaccount-controller",
                "verb": "create",
                "resource": "serviceaccounts",
                "nth": 4,
                "duration": 50_000_000,
            },
            {
                "fault": "expire-watch",
                "program": "serviceaccount-controller",
                "verb": "watch",
                "resource": "serviceaccounts",
                "nth": 1,
                "duration": 15_000_000_000,
            },
        ],
    ),
    # After a refused binding the scheduler forgot an allocation that its cache had not seen yet,
    # and gave the device to another pod.
    (
        "claims",
        10983,
        [
            {
                "fault": "refuse",
                "program": "scheduler",
                "verb": "create/binding",
                "resource": "pods",
                "nth": 5,
                "code": 429,
            }
        ],
    ),
    # Claims that could not be written for a moment were asked for without end by three pods in turn.
    (
        "claims",
        20005,
        [
            {
                "fault": "deny",
                "program": "scheduler",
                "verb": "update",
                "resource": "resourceclaims.resource.k8s.io",
                "nth": 4,
                "duration": 50_000_000,
                "code": 500,
            }
        ],
    ),
    # A binding that came late was answered with conflicts, which were asked for without end.
    (
        "claims",
        11370,
        [
            {
                "fault": "late-write",
                "program": "scheduler",
                "verb": "create/binding",
                "resource": "pods",
                "nth": 5,
                "duration": 5_000_000_000,
            }
        ],
    ),
]


@pytest.mark.parametrize(("name", "seed", "faults"), ONCE_FAILED)
def test_a_schedule_that_once_failed_passes(name, seed, faults):
    scenario = load(OWN / f"{name}.yaml")
    planned = [PlannedFault.of(each) for each in faults]
    result = run_trial(scenario, expected_end(scenario), planned, seed)
    assert result.violations == ()
    assert set(result.fired) == set(planned)


def test_the_same_seed_gives_the_same_trial_of_all_parts():
    scenario = load(OWN / "jobs.yaml")
    expected = expected_end(scenario)
    faults = schedule(scenario, expected, 3)
    first, second = (run_trial(scenario, expected, faults, 3) for _ in range(2))
    assert first.history.entries == second.history.entries
