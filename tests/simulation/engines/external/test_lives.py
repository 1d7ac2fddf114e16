"""What happens to pods and nodes under an external scheduler: lives, faults, evictions, claims."""

import itertools
import os
import shutil

import pytest
from tests.simulation.engines.external.cases import WATCHING, ScenarioWriter, run, tasks

from dralab.cluster import Cluster
from dralab.kernel.clock import ManualClock
from dralab.runtime.resources import CLAIMS, CONFIG_MAPS, PODS
from dralab.scenarios.errors import InputError
from dralab.simulation.engines.external.capacity import ClusterCapacity
from dralab.simulation.engines.external.served_cluster import ServedCluster
from dralab.simulation.engines.external.submission import PodOptions
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.openb import GpuNode, PodRequest

KUBE_SCHEDULER = os.environ.get("DRALAB_KUBE_SCHEDULER") or shutil.which("kube-scheduler")
STOCK = {
    "command": f"[{KUBE_SCHEDULER}, '--config={{config}}', --secure-port=0]",
    "answer_timeout": 10,
}
needs_stock = pytest.mark.skipif(
    KUBE_SCHEDULER is None, reason="no kube-scheduler: set DRALAB_KUBE_SCHEDULER"
)


@pytest.fixture
def scenario(tmp_path):
    return ScenarioWriter(tmp_path, clock="virtual")


def test_pods_start_late_hold_their_place_a_while_and_fail_as_the_scenario_says(scenario):
    result, found = run(
        scenario("{name: p, count: 3, duration: 100s, cpu: 1}", program=WATCHING,
                 nodes="{name: node, cpu: 1}",
                 more="lifecycle: {start: 2s, release: 3s, failure: 1, retries: 1}\nseed: 5")
    )  # fmt: skip
    lives = tasks(result)
    assert {state for state, *_ in lives.values()} == {"Failed"}
    assert all(started == bound + 2 for _, bound, started, _, _ in lives.values())
    assert found["failed"] == 3
    # Each was tried once more, and had the place 3 s after the end of the one before.
    last = sorted((bound, ended) for _, bound, _, ended, _ in lives.values())
    assert last[0][0] > 0
    for (_, ended), (bound, _) in itertools.pairwise(last):
        assert bound == pytest.approx(ended + 3)
    assert "late binds: 0" in result.notes


def test_the_pods_of_a_node_that_goes_down_come_again_and_wait_for_it(scenario):
    result, _ = run(
        scenario("{name: p, count: 4, duration: 100s, cpu: 1}", program=WATCHING,
                 nodes="{name: node, count: 2, cpu: 2}",
                 more="faults: [{node: node-1, at: 40s, for: 20s}]")
    )  # fmt: skip
    assert sorted(tasks(result).values()) == [
        ("Succeeded", 0, 0, 100, 0),
        ("Succeeded", 0, 0, 100, 0),
        ("Succeeded", 60, 60, 160, 1),
        ("Succeeded", 60, 60, 160, 1),
    ]
    assert "late binds: 0" in result.notes


def preempted(result):
    """Two of low priority on two nodes, and at 100 s one of high priority that runs 200 s."""
    lives = tasks(result)
    # The victim's 30 s of grace are simulated ones; then it comes again, and waits.
    assert lives.pop("high") == ("Succeeded", 130, 130, 330, 0)
    assert sorted(lives.values()) == [
        ("Succeeded", 0, 0, 1000, 0),
        ("Succeeded", 330, 330, 1330, 1),
    ]
    assert "late binds: 0" in result.notes
    assert "1 running pods were deleted (preempted) and created again" in result.notes


PREEMPTING = (
    "{name: low, count: 2, duration: 1000s, cpu: 1}, "
    "{name: high, at: 100s, duration: 200s, cpu: 1, priority: 100}"
)


def test_a_victim_has_its_grace_in_simulated_time_and_comes_again(scenario):
    result, _ = run(
        scenario(PREEMPTING, program=WATCHING, arguments=("default-scheduler", "preempt"),
                 nodes="{name: node, count: 2, cpu: 1}")
    )  # fmt: skip
    preempted(result)


@pytest.mark.conformance
@needs_stock
def test_the_stock_scheduler_decides_the_same_each_time(scenario):
    loaded = scenario(
        "{name: low, count: 20, cpu: 1, duration: 100s}, "
        "{name: mid, count: 7, cpu: 2, at: 30s, every: 5s, priority: 10, duration: 60s}, "
        "{name: high, count: 4, cpu: 3, at: 45s, every: 20s, priority: 100, duration: 50s}",
        nodes="{name: node, count: 4, cpu: 4}", start="'2026-01-01T00:00:00Z'", **STOCK,
    )  # fmt: skip
    first = run(loaded)[0].tasks
    assert sum(task.evictions for task in first)
    assert run(loaded)[0].tasks == first


@pytest.mark.conformance
@needs_stock
def test_the_stock_scheduler_preempts_in_simulated_time(scenario):
    result, _ = run(scenario(PREEMPTING, nodes="{name: node, count: 2, cpu: 1}", **STOCK))
    preempted(result)


@pytest.mark.conformance
@needs_stock
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        # 32 GPUs: three waves, and two of four GPUs each.
        ("{name: p, count: 96, duration: 170s, cpu: 1, gpus: 1}", 510),
        ("{name: q, count: 16, duration: 60s, cpu: 1, gpus: 4}", 120),
        # Halves of GPUs: 64 at a time.
        ("{name: p, count: 128, duration: 100s, cpu: 0, gpus: 1, gpu_milli: 500}", 200),
    ],
)  # fmt: skip
def test_the_stock_scheduler_allocates_claims_in_simulated_time(scenario, pods, expected):
    result, found = run(
        scenario(pods, nodes="{name: n, count: 4, cpu: 64, gpus: 8}", claims="true", **STOCK)
    )
    # Now and then it tries again after a millisecond of its clock.
    assert found["makespan"] == pytest.approx(expected, abs=0.01)
    assert "late binds: 0" in result.notes


@pytest.mark.conformance
@needs_stock
def test_the_stock_scheduler_sees_a_node_go_and_come_back(scenario):
    result, found = run(
        scenario("{name: p, count: 16, duration: 100s, cpu: 1}",
                 nodes="{name: n, count: 4, cpu: 2}",
                 more="faults: [{node: n-1, at: 50s, for: 100s}, {node: n-2, at: 60s}]\n"
                      "lifecycle: {start: 2s, release: 3s}", **STOCK)
    )  # fmt: skip
    assert (found["makespan"], found["wait_mean"], found["evictions"]) == (357, 131.375, 4)
    assert "late binds: 0" in result.notes


def test_what_an_outside_scheduler_cannot_know_is_refused(scenario):
    loaded = scenario("{name: p}", more="queues: {a: {cpu: 1}}")
    with pytest.raises(InputError, match="does not see a scenario's quotas"):
        run(loaded)


MANIFESTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: cards}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cards-of-n}
spec:
  driver: cards.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: card-0}, {name: card-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: team}
spec: {spec: {devices: {requests: [{name: card, exactly: {deviceClassName: cards}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: team, annotations: {simulation.dralab.dev/runs: 60s}}
spec:
  parallelism: 5
  template:
    metadata: {labels: {app: job}}
    spec:
      tolerations: [{key: cards, operator: Exists}]
      resourceClaims: [{name: card, resourceClaimTemplateName: one}]
      containers:
      - {name: main, image: job, resources: {requests: {cpu: 100m}, claims: [{name: card}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere, annotations: {simulation.dralab.dev/runs: 10s}}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [fast]}]}]
  containers: [{name: main, image: job, resources: {requests: {cpu: 100m}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: later, annotations: {simulation.dralab.dev/arrives: 30s}}
"""


def from_manifests(scenario, **external):
    (scenario.folder / "all.yaml").write_text(MANIFESTS)
    return scenario(
        "", workload="{manifests: all.yaml}",
        nodes="{name: n, cpu: 4, taints: ['cards:NoSchedule']}, {name: m, cpu: 4, labels: {disk: fast}}",
        **external,
    )  # fmt: skip


@pytest.mark.conformance
@needs_stock
def test_manifests_are_submitted_as_they_were_written(scenario):
    result, _ = run(from_manifests(scenario, **STOCK))
    # Two cards on the tainted node: pairs of pods; the other pod goes where its affinity leads.
    ends = sorted((task.id, task.ended / 1e9) for task in result.tasks)
    assert ends[0] == ("elsewhere", 10)
    assert sorted(end for _, end in ends[1:]) == [60, 60, 120, 120, 180]
    lanes = {task.id: result.lanes[task.lanes[0]] for task in result.tasks}
    assert lanes == {"elsewhere": "m", **{f"team/job-{n}": "n" for n in range(5)}}
    assert "late binds: 0" in result.notes


def test_what_manifests_bring_is_there_and_claims_are_made_from_templates(scenario):
    loaded = from_manifests(scenario)
    clock = ManualClock(1_000_000_000_000)
    with Cluster(clock=clock, seed=1) as cluster:
        served = ServedCluster(
            cluster,
            clock,
            nodes=loaded.fleet.as_nodes(),
            pods=loaded.pods(),
            conditions=loaded.conditions,
            pod_options=PodOptions(),
            fleet_objects=loaded.fleet.objects,
            arrivals=loaded.work.objects,
        )
        with served.together():
            served.prepare()
            served.agenda.happen(clock.now())
        client = cluster.client
        assert {claim["metadata"]["name"] for claim in client.list(CLAIMS, "team").items} == {
            f"job-{n}-card" for n in range(5)
        }
        made = client.get(PODS, "job-0", "team")
        assert made["metadata"]["labels"] == {"app": "job"}
        assert made["status"]["resourceClaimStatuses"] == [
            {"name": "card", "resourceClaimName": "job-0-card"}
        ]
        assert served.pods["team/job-0"].needs.unsure
        with served.together():
            # Nobody allocated its claim; bound it is all the same, by someone who overrules.
            assert not served.bind("team/job-0", "n")
            served.agenda.happen(clock.now() + 60_000_000_000)
        assert served.pods["team/job-0"].state == "Succeeded"
        assert len(client.list(CLAIMS, "team").items) == 4
        assert client.get(CONFIG_MAPS, "later", "default")


def test_what_the_server_refuses_of_a_manifest_is_told_with_its_name(scenario):
    broken = MANIFESTS.replace("resourceClaimTemplateName: one", "resourceClaimTemplateName: two")
    (scenario.folder / "all.yaml").write_text(broken)
    loaded = scenario("", workload="{manifests: all.yaml}", program=WATCHING)
    with pytest.raises(InputError, match=r'Pod team/job-0: .*"two" not found'):
        run(loaded)


def pod(name, cpu=1000, **more):
    request = PodRequest(cpu, more.pop("milli", 0), more.pop("gpus", 0), more.pop("models", ""),
                  more.pop("labels", ""))  # fmt: skip
    return Pod(name=name, request=request, **more)


def test_there_is_room_where_cpu_gpus_labels_model_and_the_number_of_pods_allow():
    nodes = [
        GpuNode("a", 1000, 0, 0, "", 1),
        GpuNode("b", 4000, 0, 2, "T4", 110, frozenset({"zone=x"})),
    ]
    room = ClusterCapacity(nodes)

    def fits(name, **wish):
        return room.fits(name, room.needs_of(pod("p", **wish)))

    assert fits("a")
    room.take_for_pod("a", room.needs_of(pod("p", cpu=0)))
    assert not fits("a", cpu=0), "one pod is all it takes"
    for wish, placeable in (
        ({"labels": "zone=x"}, True),
        ({"labels": "zone=y"}, False),
        ({"gpus": 2, "milli": 1000, "models": "A100|T4"}, True),
        ({"gpus": 1, "milli": 1000, "models": "A100"}, False),
        ({"gpus": 3, "milli": 1000}, False),
        ({"cpu": 4001}, False),
    ):
        needs = room.needs_of(pod("q", **wish))
        room.add_waiting("q", needs)
        assert room.placeable() == ({"q"} if placeable else set()), wish
        room.remove_waiting("q", needs)
    room.down.add("b")
    assert not fits("b")


def test_room_after_evicting_counts_only_pods_of_lower_priority():
    room = ClusterCapacity([GpuNode("a", 1000, 0, 0, "", 110)])
    low, high = (room.needs_of(pod(str(n), priority=n)) for n in (1, 9))
    room.take_for_pod("a", low)
    room.add_waiting("high", high)
    room.add_waiting("low", low)
    assert room.placeable() == set()
    assert room.after_evicting([("a", low)]) == {"high"}


def test_a_step_is_late_for_a_pod_that_had_room_before_it_and_for_no_more_than_fit():
    room = ClusterCapacity([GpuNode("a", 1000, 0, 0, "", 110)])
    needs = room.needs_of(pod("p"))
    room.remember()
    assert [room.had_room("a", needs) for _ in range(2)] == [True, False]
    room.down.add("a")
    room.remember()
    room.down.clear()
    assert not room.had_room("a", needs), "it has just come back"
