"""What goes wrong in a simulated cluster, what it does to pods, and that a run repeats."""

import os
import subprocess
import sys

import pytest

from dralab.runtime.resources import EVENTS, NODES, PODS, SLICES
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios
from scenarios_on_cluster import S, load, places, run, tasks, times

GPU = "fleet: {nodes: [{name: g, count: 2, cpu: 8, gpus: 2, model: A}]}\n"
CLAIMING = "workload: {pods: [{name: p, cpu: 1, gpus: 1, duration: 100s}]}\n"


def messages(made):
    return " | ".join(event["message"] for event in made.cluster.client.list(EVENTS).items)


@pytest.mark.thorough
def test_a_node_that_is_down_is_noticed_late_and_its_pods_begin_anew_elsewhere(tmp_path):
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, count: 2, cpu: 1}]}\n"
        "workload: {pods: [{name: p, cpu: 1, duration: 100s}, "
        "{name: q, cpu: 1, duration: 100s}]}\n"
        "faults: [{node: n-0, at: 42s, for: 1h}]\n",
    )
    (lost,) = (task for task in found.tasks if task.evictions)
    # Last heartbeat 32 s after the beginning or later; 50 s of grace, 300 s of toleration.
    start, end = times(found)[lost.id]
    assert 42 + 340 < start <= 42 + 350
    assert end == start + 100
    assert places(found)[lost.id] == "n-1"
    assert sum(task.evictions for task in found.tasks) == 1


def test_a_node_that_is_back_before_anybody_notices_runs_its_pods_again(tmp_path):
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 1}]}\n"
        "workload: {pods: [{name: p, cpu: 1, duration: 100s}]}\n"
        "faults: [{node: n, at: 50s, for: 20s}]\n",
    )
    assert times(found) == {"p": (70, 170)}
    assert tasks(found)["p"].evictions == 1


def test_heartbeats_are_computed_not_executed(tmp_path):
    made = ClusterRun(
        load(
            tmp_path,
            "fleet: {nodes: [{name: n, count: 50, cpu: 1}]}\n"
            "workload: {pods: [{name: p, cpu: 1, duration: 7d}]}\nstop: {at: 7d}\n",
        )
    )
    found = made.go()
    assert times(found) == {"p": (0, 7 * 86_400)}
    # 50 nodes would have renewed their leases three million times.
    assert made._steps < 100_000
    assert all(
        condition["status"] == "True"
        for node in made.cluster.client.list(NODES).items
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    )


def test_a_taint_on_a_node_evicts_and_is_taken_away_again(tmp_path):
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 1}]}\n"
        "workload: {pods: [{name: p, cpu: 1, duration: 100s}]}\n"
        "faults: [{node: n, at: 10s, for: 60s, taint: {key: broken, effect: NoExecute}}]\n",
    )
    assert times(found) == {"p": (70, 170)}


def test_a_tainted_device_is_left_for_another_one(tmp_path):
    found = run(
        tmp_path,
        GPU
        + CLAIMING
        + "faults: [{node: g-0, device: gpu-0, at: 10s, taint: {key: hot, effect: NoExecute}}]\n",
    )
    assert times(found) == {"p": (10, 110)}
    assert places(found) == {"p": "g-0/gpu-1"}
    assert tasks(found)["p"].evictions == 1


@pytest.mark.parametrize(
    ("happens", "least", "words"),
    [
        ("prepare=slow:7", 7, ""),
        ("prepare=fail", 20, "NodePrepareResources: a fault was injected"),
        ("prepare=errorx2", 1, "a fault was injected"),
        ("prepare=skip", 20, "skipped 1 ResourceClaims"),
        ("prepare=crash-beforex1", 1, "the driver has died"),
    ],
)
def test_a_pod_outlives_what_happens_to_its_driver(tmp_path, happens, least, words):
    made = ClusterRun(
        load(tmp_path, GPU + CLAIMING + f"faults: [{{happens: '{happens}', at: 0, for: 20s}}]\n")
    )
    (task,) = made.go().tasks
    assert task.state == "Succeeded"
    assert least * S <= task.started < 90 * S
    assert task.bound == 0
    assert words in messages(made)


def test_slices_that_disappear_keep_pods_waiting_until_they_are_back(tmp_path):
    made = ClusterRun(
        load(
            tmp_path,
            GPU
            + "workload: {pods: [{name: p, cpu: 1, gpus: 1, duration: 100s, at: 10s}]}\n"
            + "faults: [{happens: 'slices=disappear:30', at: 5s, for: 25s}]\n",
        )
    )
    found = made.go()
    assert times(found) == {"p": (30, 130)}
    assert len(made.cluster.client.list(SLICES).items) == 2


def test_unhealthy_devices_are_told_in_the_pods_status(tmp_path):
    made = ClusterRun(
        load(
            tmp_path,
            GPU + CLAIMING + "faults: [{happens: health=unhealthy, node: g-0, at: 5s, for: 10s}]\n"
            "stop: {at: 8s}\n",
        )
    )
    made.go()
    (found,) = made.cluster.client.list(PODS).items
    (status,) = found["status"]["containerStatuses"]
    (resource,) = status["allocatedResourcesStatus"][0]["resources"]
    assert resource["health"] == "Unhealthy"


@pytest.mark.thorough
def test_stages_delay_start_and_release(tmp_path):
    base = (
        "fleet: {nodes: [{name: n, count: 16, cpu: 1}]}\n"
        "workload: {pods: [{name: p, count: 64, cpu: 1, duration: 170s}]}\n"
    )
    slow = metrics.metrics_of(run(tmp_path, base + "lifecycle: {release: 15s}\n"))
    assert (slow["makespan"], slow["wait_mean"]) == (4 * 170 + 45, 1.5 * 185)
    late = run(tmp_path, base + "lifecycle: {start: {delay: 5s, jitter: 2s}}\n")
    delays = [(task.started - task.bound) / S for task in late.tasks]
    assert 5 <= min(delays) < max(delays) <= 7


@pytest.mark.thorough
def test_runs_fail_by_chance_and_are_tried_again(tmp_path):
    base = (
        "fleet: {nodes: [{name: n, count: 4, cpu: 1}]}\n"
        "workload: {pods: [{name: p, count: 40, cpu: 1, duration: 60s}]}\n"
    )
    once = metrics.metrics_of(run(tmp_path, base + "lifecycle: {failure: 0.5}\n"))
    assert 10 < once["failed"] < 30
    often = metrics.metrics_of(run(tmp_path, base + "lifecycle: {failure: 0.5, retries: 20}\n"))
    assert often["succeeded"] == 40


def test_random_faults_evict_and_the_run_still_ends(tmp_path):
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, count: 4, cpu: 2}]}\n"
        "workload: {pods: [{name: p, count: 30, cpu: 1, duration: 1h}]}\n"
        "faults: {every: 6h, repair: 30m}\nstop: {at: 3d}\n",
    )
    assert sum(task.evictions for task in found.tasks) > 2
    assert all(task.state == "Succeeded" for task in found.tasks)


EVERYTHING = (
    GPU
    + "workload:\n  generate:\n    count: 16\n    users: 3\n"
    + "    arrivals: {process: poisson, over: 2h}\n"
    + "    duration: {distribution: lognormal, median: 10m, sigma: 1.0}\n"
    + "    pods:\n    - {weight: 2, cpu: 1, gpus: 1, gpu_milli: 400}\n"
    + "    - {weight: 1, cpu: 1, gpus: 1, gang: 2, queue: q, priority: 5}\n"
    + "queues: {q: {gpus: 2}}\n"
    + "lifecycle: {start: {delay: 5s, jitter: 2s}, release: 3s, failure: 0.1, retries: 1}\n"
    + "faults:\n- {node: g-1, at: 30m, for: 20m}\n"
    + "- {node: g-0, device: gpu-0, at: 10m, for: 5m, taint: {key: hot, effect: NoExecute}}\n"
    + "- {happens: 'prepare=slow:3', at: 1h, for: 10m}\n"
)


RIGID = (
    "fleet: {hosts: 8}\nworkload: {jobs: [{name: a, count: 30, every: 5s, machines: 3, "
    "duration: 1m, walltime: 2m}, {name: b, count: 30, every: 7s, duration: 20s, walltime: 1m}]}\n"
)
POLICIES = ("fgd", "random", "default", "allocation:pack")
PODS_ONLY = EVERYTHING[: EVERYTHING.index("faults:")] + "faults: [{node: g-1, at: 30m, for: 20m}]\n"


def of_a_policy(text, name):
    """A scenario under a policy; all but one of each kind are left to `make conformance`."""
    marks = [] if name in {"fgd", "easy"} else [pytest.mark.conformance]
    return pytest.param(f"{text}scheduler: {name}\n", id=name, marks=marks)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(EVERYTHING + "scheduler: dralab\n", id="dralab"),
        *(of_a_policy(PODS_ONLY, name) for name in POLICIES),
        *(of_a_policy(RIGID, name) for name in ("easy", "conservative", "fcfs")),
    ],
)
def test_the_same_scenario_and_seed_give_the_same_bytes_in_another_process(tmp_path, text):
    load(tmp_path, text)
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "dralab", "simulate", "run", str(tmp_path / "scenario.yaml"),
             "--write", str(folder)],
            env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True,
        )  # fmt: skip
        found.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert found[0] == found[1]
    assert {"summary.json", "tasks.csv", "samples.csv", "report.html"} <= set(found[0])


@pytest.mark.thorough
def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(tmp_path):
    whole = run(tmp_path, EVERYTHING)
    first = ClusterRun(scenarios.load(tmp_path / "scenario.yaml"))
    asked = iter([False] * 5 + [True])
    part = first.go(stop=lambda: next(asked))
    assert not part.complete
    first.save(tmp_path / "checkpoint")
    again = ClusterRun.resumed(scenarios.load(tmp_path / "scenario.yaml"), tmp_path / "checkpoint")
    assert again.go() == whole
    other = scenarios.load(tmp_path / "scenario.yaml", seed=9)
    with pytest.raises(InputError, match="another scenario, seed or scheduler"):
        ClusterRun.resumed(other, tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("[{node: x, at: 1}]", r"scenario.yaml:3: faults\[0\].node: there is no node 'x'"),
        ("[{happens: 'prepare=slowly', at: 1}]", r"faults\[0\].happens: prepare has no fault"),
        ("[{node: g-0, device: gpu-0, at: 1}]", r"faults\[0\].device: needs `taint`"),
        (
            "[{node: g-0, at: 1, taint: {key: a, effect: Never}}]",
            r"taint.effect: 'Never' is not one of",
        ),
        ("[{node: g-0, at: -1}]", r"faults\[0\].at: -1 is not a duration"),
    ],
)
def test_a_fault_that_cannot_be_is_named(tmp_path, faults, words):
    with pytest.raises(InputError, match=words):
        load(tmp_path, GPU + CLAIMING + f"faults: {faults}\n")


@pytest.mark.parametrize(
    "faults",
    [
        "[{happens: 'prepare=slow', at: 1}]",
        "[{node: g-0, device: gpu-0, at: 1, taint: {key: a, effect: NoExecute}}]",
    ],
)
def test_the_fast_world_refuses_faults_it_cannot_have_and_names_the_one_that_can(tmp_path, faults):
    loaded = load(tmp_path, GPU + CLAIMING + f"scheduler: fgd\nfaults: {faults}\n")
    with pytest.raises(InputError, match="--scheduler dralab"):
        dispatch.begin(loaded)
