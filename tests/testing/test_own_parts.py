"""dralab's own parts under faults: the scenarios in `own`, and the schedules that once failed."""

import importlib
import inspect
import os
import pkgutil
from functools import cache
from pathlib import Path

import pytest

from dralab import controllers
from dralab.controllers import registry
from dralab.controllers.classic_claims import ClassicClaims
from dralab.controllers.device_claims import DeviceClaims
from dralab.controllers.evolution_claims import EvolutionClaims
from dralab.controllers.evolution_pods import EvolutionPods
from dralab.controllers.load_balancers import LoadBalancers
from dralab.controllers.volume_folders import VolumeFolders
from dralab.runtime.manager import Manager
from dralab.testing.faults import READS, PlannedFault
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial, schedule

OWN = Path(__file__).parent / "own"
SCENARIOS = sorted(p.stem for p in OWN.glob("*.yaml") if "\nprograms:" in f"\n{p.read_text()}")
# `make nightly` runs 500 of each. Another range: DST_SEEDS=2000 DST_FIRST=50000.
FIRST = int(os.environ.get("DST_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("DST_SEEDS", "100")))
# Controllers that a cluster has only if asked for, by the program that is named after them.
ON_DEMAND = {LoadBalancers: "service-controller", VolumeFolders: "dralab-volumes"}
# Programs of scenarios that do what users of a controller do, and know what no script knows.
USERS = {"mover"}
# Trials serve today's device API alone.
OF_OLDER_APIS = {ClassicClaims, DeviceClaims, EvolutionClaims, EvolutionPods}


@cache
def scenario_of(name):
    """Return a scenario."""
    return load(OWN / f"{name}.yaml")


@cache
def expected_of(name):
    """Return how a scenario ends without faults."""
    return expected_end(scenario_of(name))


def programs(name):
    """Return the names of the programs of a scenario."""
    return {program.name for program in scenario_of(name).programs}


def is_controller(found, module):
    """Return whether a class of a module is made with a manager and reconciles something."""
    if not inspect.isclass(found) or found.__module__ != module or inspect.isabstract(found):
        return False
    begins = [each.__init__ for each in found.__mro__ if inspect.isfunction(each.__init__)]
    if not begins or Manager not in inspect.get_annotations(begins[0]).values():
        return False
    made = "".join(map(inspect.getsource, begins))
    return "manager.queue(" in made or "manager.every(" in made


def all_controllers():
    """Return every controller in `dralab.controllers`."""
    modules = [
        f"{controllers.__name__}.{m.name}" for m in pkgutil.iter_modules(controllers.__path__)
    ]
    return {
        found
        for name in modules
        for found in vars(importlib.import_module(name)).values()
        if is_controller(found, name)
    }


def test_every_controller_has_a_scenario():
    tested = set().union(*map(programs, SCENARIOS))
    assert tested - USERS == {*registry.CONTROLLERS, *ON_DEMAND.values(), "scheduler", "nodes"}


def test_every_controller_is_in_the_registry_or_known_to_be_elsewhere():
    found = all_controllers()
    assert len(found) > 20
    assert found == {*registry.CONTROLLERS.values(), *ON_DEMAND, *OF_OLDER_APIS}


@pytest.mark.conformance
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_seed_fails(name):
    scenario, expected = scenario_of(name), expected_of(name)
    busy = {who for who, verb, _ in expected.traffic.requests if verb not in READS}
    assert busy == programs(name)  # else its faults prove nothing
    found = search(scenario, expected, SEEDS)
    assert found.seeds == len(SEEDS)
    assert found.failures == {}


# (scenario, seed, schedule): each failed before the change that its comment names.
ONCE_FAILED = [
    # A throttle kept pods from being made, and the user gave up deleting one after a minute.
    (
        "deployments",
        10,
        [
            {
                "fault": "throttle",
                "program": "deployment-controller",
                "verb": "create",
                "resource": "replicasets.apps",
                "nth": 1,
                "duration": 40_000_000_000,
                "code": 429,
            }
        ],
    ),
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
    # A pod of a lost node that could not be marked as not ready at once was never marked.
    (
        "lifecycle",
        40001,
        [
            {
                "fault": "refuse",
                "program": "node-lifecycle-controller",
                "verb": "patch/status",
                "resource": "pods",
                "nth": 4,
                "code": 429,
            }
        ],
    ),
    # A node that reported again was lost again: its lease was seen a moment later.
    (
        "lifecycle",
        40038,
        [
            {
                "fault": "hold-watch",
                "program": "node-lifecycle-controller",
                "verb": "watch",
                "resource": "leases.coordination.k8s.io",
                "nth": 2,
                "duration": 50_000_000,
            }
        ],
    ),
    # A pod that an admission webhook keeps ended the collection of all others, with an error.
    (
        "gone-nodes",
        40041,
        [
            {
                "fault": "deny",
                "program": "pod-garbage-collector-controller",
                "verb": "delete",
                "resource": "pods",
                "nth": 3,
                "duration": 50_000_000,
                "code": 403,
            }
        ],
    ),
    # A Service that gave its address back took it again when an older change of it was seen.
    (
        "addresses",
        41015,
        [
            {
                "fault": "conflict",
                "program": "service-controller",
                "verb": "update/status",
                "resource": "services",
                "nth": 5,
            }
        ],
    ),
    # All collections were listed again after a long outage: told as a loop, and it is none.
    ("garbage", 41096, [{"fault": "outage", "at": 39117943527, "duration": 40000000000}]),
    # Accounts that a webhook refused were never made.
    (
        "garbage",
        41127,
        [
            {
                "fault": "deny",
                "program": "serviceaccount-controller",
                "verb": "create",
                "resource": "serviceaccounts",
                "nth": 2,
                "duration": 50000000,
                "code": 403,
            }
        ],
    ),
    # An address that was chosen for a Service and never written stayed taken.
    (
        "addresses",
        41029,
        [
            {
                "fault": "late-write",
                "program": "service-controller",
                "verb": "update/status",
                "resource": "services",
                "nth": 1,
                "duration": 50_000_000,
            },
            {
                "fault": "expire-credentials",
                "program": "service-controller",
                "at": 5_953_020_000,
                "duration": 15_000_000_000,
            },
        ],
    ),
    # The claim of an ephemeral volume that was refused, as by a quota, was not asked for again.
    (
        "volumes",
        0,
        [
            {
                "fault": "deny",
                "program": "persistentvolume-binder-controller",
                "verb": "create",
                "resource": "persistentvolumeclaims",
                "nth": 1,
                "duration": 2_000_000_000,
                "code": 403,
            }
        ],
    ),
    # The names of provisioned volumes are made of uids: to delete another one is no loss of data.
    ("volumes", 44000, []),
    # A pod that was seen later than the request for its eviction was said to have gone.
    (
        "evictions",
        1,
        [
            {
                "fault": "hold-watch",
                "program": "evictionrequest-controller",
                "verb": "watch",
                "resource": "pods",
                "nth": 1,
                "duration": 50_000_000,
            }
        ],
    ),
]


@pytest.mark.parametrize(("name", "seed", "faults"), ONCE_FAILED)
def test_a_schedule_that_once_failed_passes(name, seed, faults):
    planned = [PlannedFault.of(each) for each in faults]
    result = run_trial(scenario_of(name), expected_of(name), planned, seed)
    assert result.violations == ()
    assert set(result.fired) == set(planned)


def test_the_same_seed_gives_the_same_trial_of_all_parts():
    scenario, expected = scenario_of("jobs"), expected_of("jobs")
    faults = schedule(scenario, expected, 3)
    first, second = (run_trial(scenario, expected, faults, 3) for _ in range(2))
    assert first.history.entries == second.history.entries
