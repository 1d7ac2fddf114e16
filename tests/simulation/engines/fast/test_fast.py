"""dralab's scheduler in memory: what it acts out, what it refuses, and that it can be resumed."""

import gc

import pytest

from dralab.scenarios.errors import InputError
from dralab.scheduler.attempts import Attempts
from dralab.scheduling.devices import ClusterDevices
from dralab.simulation.dispatch import begin
from dralab.simulation.scenario.schedulers import FAST
from scenarios_on_cluster import S, load, places, pod, tasks, times

CLAIMS = """
fleet: {nodes: [{name: n, count: 2, cpu: 8, gpus: 2}]}
workload: {pods: [{name: a, count: 5, cpu: 1, gpus: 1, duration: 100s},
                  {name: b, cpu: 1, gpus: 2, at: 10s, duration: 50s, priority: 5}]}
scheduler: dralab-fast
"""


def run(folder, text, manifests="", **files):
    return begin(load(folder, text, manifests, **files)).go()


def test_pods_with_claims_take_devices_and_give_them_back(tmp_path):
    found = run(tmp_path, CLAIMS.replace(", priority: 5", ""))
    assert found.scheduler == FAST
    assert places(found)["a-0"] == "n-0/gpu-0"
    assert times(found)["a-4"] == (100, 200)
    assert times(found)["b"] == (100, 150)
    assert all(task.state == "Succeeded" for task in found.tasks)
    assert not found.notes


def test_a_pod_of_higher_priority_takes_the_devices_of_others(tmp_path):
    found = run(tmp_path, CLAIMS)
    assert times(found)["b"] == (10, 60)
    assert sum(task.evictions for task in found.tasks) == 2


def test_what_can_never_fit_waits_and_says_why(tmp_path):
    found = run(tmp_path, CLAIMS.replace("gpus: 2, at", "gpus: 3, at"))
    (waiting,) = [task for task in found.tasks if task.state == "Pending"]
    assert waiting.id == "b"
    assert waiting.reason == "0/2 nodes are available: 2 cannot allocate all claims."
    assert found.refusals["cannot allocate all claims"]


def test_a_template_that_comes_later_lets_its_pods_go(tmp_path):
    late = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: late, annotations: {simulation.dralab.dev/arrives: 30s}}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
"""
    spec = "  resourceClaims: [{name: g, resourceClaimTemplateName: late}]\n"
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 8, gpus: 1}]}\nworkload: {manifests: pods.yaml}\n"
        "scheduler: dralab-fast\n",
        late + pod("p", spec=spec, resources="{claims: [{name: g}]}"),
    )
    assert times(found) == {"p": (30, 90)}


def test_a_lost_node_is_noticed_late_as_in_a_cluster(tmp_path):
    found = run(
        tmp_path,
        CLAIMS.replace(", priority: 5", "") + "faults: [{node: n-0, at: 20s, for: 60s}]\n",
    )
    assert tasks(found)["a-0"].evictions == 1
    assert times(found)["a-0"] == (80, 180)
    assert found.outages == [(0, 20 * S, 80 * S)]


def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path):
    loaded = load(tmp_path, CLAIMS.replace("count: 5", "count: 200"))
    whole = begin(loaded).go()
    run = begin(loaded)
    part = run.go(stop=lambda: True)
    assert not part.complete
    run.save(tmp_path / "checkpoint")
    resumed = begin(loaded, tmp_path / "checkpoint").go()
    assert resumed.tasks == whole.tasks
    assert resumed.samples == whole.samples


@pytest.mark.parametrize("scheduler", ["dralab", "dralab-fast"])
def test_an_init_container_takes_room_but_no_time(tmp_path, scheduler):
    spec = "  initContainers: [{name: i, resources: {requests: {cpu: 3}}}]\n"
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"
        f"scheduler: {scheduler}\nlifecycle: {{start: 2s}}\n",
        pod("a", runs="10s", cpu="1", spec=spec) + pod("b", runs="10s", cpu="2", spec=spec),
    )
    assert times(found) == {"a": (2, 12), "b": (14, 24)}


@pytest.mark.parametrize(
    ("more", "spec", "problem"),
    [
        ("", "  activeDeadlineSeconds: 5\n", "spec.activeDeadlineSeconds"),
        ("", "  initContainers: [{name: i, image: x, restartPolicy: Always}]\n", "sidecars"),
        ("faults: [{node: n, at: 1s, happens: 'prepare=error'}]\n", "", "no driver"),
        (
            "faults: [{node: n, device: d, at: 1s, taint: {key: k, effect: NoExecute}}]\n", "",
            "NoExecute taint of devices",
        ),
    ],
)  # fmt: skip
def test_what_it_cannot_act_out_is_refused(tmp_path, more, spec, problem):
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 8}]}\nworkload: {manifests: pods.yaml}\n"
        f"scheduler: dralab-fast\n{more}",
        pod("p", spec=spec),
    )
    with pytest.raises(InputError, match=problem) as caught:
        begin(loaded)
    assert "--scheduler dralab" in str(caught.value)


def test_objects_that_need_their_controller_are_refused(tmp_path):
    quota = (
        "---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 1}}\n"
    )
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 8}]}\nworkload: {manifests: pods.yaml}\n"
        "scheduler: dralab-fast\n",
        quota + pod("p"),
    )
    with pytest.raises(InputError, match="ResourceQuota q needs its controller"):
        begin(loaded)


def test_a_gang_finds_its_group_and_starts_together(tmp_path):
    gang = "{app: g, pod-group.scheduling.sigs.k8s.io: g}"
    members = [
        pod(f"g-{number}", runs="10s", arrives=f"{number}s", cpu="2").replace("{app: g}", gang)
        for number in range(2)
    ]
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, count: 2, cpu: 2}]}\nworkload: {manifests: pods.yaml}\n"
        "scheduler: dralab-fast\n",
        pod("a", runs="50s") + "".join(members),
    )
    assert times(found) == {"a": (0, 50), "g-0": (50, 60), "g-1": (50, 60)}


def test_devices_that_preemption_frees_as_an_extended_resource_are_kept_for_the_pod(tmp_path):
    important = "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p5}\nvalue: 5\n"
    gpu = "{requests: {cpu: 1}, limits: {nvidia.com/gpu: 1}}"
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 8, gpus: 1}]}\nworkload: {manifests: pods.yaml}\n"
        "scheduler: dralab-fast\n",
        important
        + pod("a", runs="100s", resources=gpu)
        + pod("b", runs="20s", arrives="10s", resources=gpu, spec="  priorityClassName: p5\n"),
    )
    assert times(found) == {"a": (30, 130), "b": (10, 30)}


def test_pods_of_a_queue_are_admitted_before_any_pod_of_the_instant_is_tried(tmp_path):
    found = run(
        tmp_path,
        """
fleet: {nodes: [{name: n, cpu: 2}]}
workload: {pods: [{name: a, cpu: 2, duration: 10s},
                  {name: b, cpu: 2, queue: q, priority: 5, duration: 10s}]}
queues: {q: {cpu: 4}}
scheduler: dralab-fast
""",
    )
    assert times(found) == {"a": (10, 20), "b": (0, 10)}
    assert not sum(task.evictions for task in found.tasks)


def test_the_scheduler_is_called_once_for_each_try(tmp_path, monkeypatch):
    tried = []
    attempt = Attempts.next
    monkeypatch.setattr(Attempts, "next", lambda self: tried.append(attempt(self)) or tried[-1])
    text = (
        "fleet: {nodes: [{name: a, cpu: 64}]}\nworkload: {generate: {count: 5, pods: [{cpu: 1}], "
    )
    text += "arrivals: {process: poisson, over: 1h}, duration: 1m}}\n"
    begin(load(tmp_path, f"{text}scheduler: {FAST}\n", "")).go()
    assert tried == [True] * 5


def test_a_node_that_is_known_to_lack_devices_is_not_searched_again(tmp_path, monkeypatch):
    searched = []
    plans = ClusterDevices.plans
    monkeypatch.setattr(
        ClusterDevices,
        "plans",
        lambda self, pod, *more: searched.append(pod.key.name) or plans(self, pod, *more),
    )
    nodes = "{nodes: [{name: a, cpu: 64, gpus: 1}, {name: b, cpu: 64, gpus: 1}]}"
    generated = (
        "{count: 8, arrivals: {process: poisson, over: 1h}, duration: 2h, pods: [{gpus: 1}]}"
    )
    text = f"fleet: {nodes}\nworkload: {{generate: {generated}}}\nscheduler: {FAST}\n"
    found = begin(load(tmp_path, text, "")).go()
    assert {task.state for task in found.tasks} == {"Succeeded"}
    assert len(searched) <= 8 + 2


def test_garbage_is_hardly_looked_for_while_a_run_is_prepared(tmp_path):
    text = "fleet: {nodes: [{name: a, cpu: 64}]}\nworkload: {pods: [{name: p, count: 2000}]}\n"
    loaded = load(tmp_path, f"{text}scheduler: {FAST}\n", "")
    before = sum(each["collections"] for each in gc.get_stats())
    begin(loaded)
    assert sum(each["collections"] for each in gc.get_stats()) - before < 3
