"""The fast engine decides as the whole cluster does, at the same times.

There is no tolerance: both take no simulated time for what a control plane does, but for what it
waits for on purpose (a node that is silent for 50 s, tolerations with seconds, `lifecycle`).
"""

import pytest

from dralab.scenarios.errors import InputError
from dralab.simulation.dispatch import begin
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.schedulers import FAST, OWN
from scenarios_in_both import S, nodes_seen, seen, write
from scenarios_on_cluster import load, pod


def both(folder, seed, pods):
    path = write(folder, seed, pods)
    return [begin(scenarios.load(path, scheduler=name)).go() for name in (OWN, FAST)]


@pytest.mark.parametrize("seed", range(12))
def test_small_scenarios_go_as_on_a_whole_cluster(tmp_path, seed):
    cluster, fast = both(tmp_path, seed, 5)
    assert seen(fast) == seen(cluster)


def assert_same_with_pools(folder, seed, pods):
    path = write(folder, seed, pods, pools=True)
    cluster, fast = [begin(scenarios.load(path, scheduler=name)).go() for name in (OWN, FAST)]
    assert seen(fast) == seen(cluster)
    until = min(fast.end, cluster.end)
    assert nodes_seen(fast, until) == nodes_seen(cluster, until)
    return fast


@pytest.mark.parametrize("seed", range(6))
def test_pools_grow_and_shrink_as_in_a_whole_cluster(tmp_path, seed):
    assert_same_with_pools(tmp_path, seed, 5)


# `second` fits once `first` is gone from its zone; `first`, made anew, would fit there, too.
IN_TURN = """
apiVersion: v1
kind: Node
metadata: {name: a, labels: {zone: a}}
status: {allocatable: {cpu: "8"}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {zone: b}}
status: {allocatable: {cpu: "8"}}
"""
SECOND = pod(
    "second", arrives="10s",
    spec="""  priority: 9
  nodeSelector: {zone: a}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: zone
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchExpressions: [{key: app, operator: Exists}]}
    nodeAffinityPolicy: Ignore
""",
)  # fmt: skip
FIRST = pod("first", spec="  nodeSelector: {zone: a}\n")
SET = """---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: first}
spec:
  selector: {matchLabels: {app: first}}
  template:
    metadata: {labels: {app: first}}
    spec: {nodeSelector: {zone: a}, containers: [{name: main, image: x}]}
"""
TEXT = "fleet: {manifests: nodes.yaml}\nworkload: {manifests: pods.yaml}\n"


@pytest.mark.parametrize("scheduler", [OWN, FAST])
def test_a_pod_that_was_preempted_comes_again_behind_its_preemptor(tmp_path, scheduler):
    loaded = load(tmp_path, f"{TEXT}scheduler: {scheduler}\n", FIRST + SECOND, nodes_yaml=IN_TURN)
    found = {task.id: task for task in begin(loaded).go().tasks}
    assert (found["second"].bound, found["first"].evictions) == (10 * S, 1)


def test_too_many_evictions_of_one_instant_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("dralab.simulation.engines.cluster.run.EVICTIONS", 0)
    loaded = load(tmp_path, TEXT, SET + SECOND, nodes_yaml=IN_TURN)
    with pytest.raises(InputError, match="at 10s pods are evicted and made anew without end"):
        begin(loaded).go()


@pytest.mark.parametrize("scheduler", [OWN, FAST])
def test_refusals_are_counted_by_reasons_without_the_names_of_gangs(tmp_path, scheduler):
    members = "".join(
        pod(f"{name}-{number}", arrives=f"{number}s", cpu="1").replace(
            "{app: ", f"{{pod-group.scheduling.sigs.k8s.io: {name}, app: "
        )
        for name in "gh"
        for number in range(2)
    )
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"
        f"scheduler: {scheduler}\n",
        members + pod("big", arrives="5s", cpu="9"),
    )
    assert begin(loaded).go().refusals == {"the gang is not complete": 2, "Insufficient cpu": 1}


# With quotas, pods that come again or wait for five minutes, evictions that once never ended.
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [14, 26, 96])
def test_scenarios_that_once_differed_go_as_on_a_whole_cluster(tmp_path, seed):
    cluster, fast = both(tmp_path, seed, 40)
    assert seen(fast) == seen(cluster)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_scenarios_go_as_on_a_whole_cluster(tmp_path, seed):
    cluster, fast = both(tmp_path, seed, 40)
    assert seen(fast) == seen(cluster)


# Gangs without nodes, pods on machines that are taken back at once, promises of preemption.
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [12, 14])
def test_scenarios_with_pools_that_once_differed_go_as_in_a_whole_cluster(tmp_path, seed):
    assert_same_with_pools(tmp_path, seed, 40)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_scenarios_with_pools_go_as_on_a_whole_cluster(tmp_path, seed):
    assert_same_with_pools(tmp_path, seed, 40)
