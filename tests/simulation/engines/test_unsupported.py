"""Nothing of a scenario is left out in silence."""

import pytest

from dralab.simulation.dispatch import begin
from dralab.simulation.engines import objects, unsupported
from dralab.simulation.errors import InputError
from scenarios_on_cluster import load, pod

ONE = "fleet: {nodes: [{name: n, cpu: 4, taints: ['a=b:NoSchedule']}]}\nworkload: {manifests: pods.yaml}\n"
OTHERS = """---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 5
"""
RULES = """  priorityClassName: high
  tolerations: [{key: a, operator: Exists}]
  overhead: {cpu: 1m}
  initContainers: [{name: i, image: x}]
"""


LICENSED = '{requests: {cpu: "1"}, limits: {example.com/licence: "1"}}'


def test_a_fast_world_says_what_it_leaves_out_and_who_heeds_it(tmp_path):
    loaded = load(
        tmp_path,
        ONE + "scheduler: firstfit\n",
        OTHERS + pod("p", spec=RULES, resources=LICENSED) + pod("q"),
    )
    notes = begin(loaded).go().notes
    assert all("--scheduler dralab" in note for note in notes)
    found = " | ".join(notes)
    for words in (
        "taints of 1 node",
        "1 ConfigMap",
        "overhead of 1 pod",
        "tolerations of 1 pod",
        "initContainers of 1 pod",
        "request example.com/licence of 1 pod",
        "there is no preemption",
    ):
        assert words in found
    assert "PriorityClass" not in found


def test_a_plain_scenario_has_no_notes(tmp_path):
    loaded = load(
        tmp_path, "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"
        "scheduler: firstfit\n", pod("p") + pod("q"),
    )  # fmt: skip
    assert not begin(loaded).go().notes


def test_outside_schedulers_get_everything_but_drivers_and_deadlines(tmp_path):
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4, taints: ['a=b:NoSchedule'], drivers: [gpu]}]}\n"
        "workload: {manifests: pods.yaml}\nscheduler: external\n",
        OTHERS + pod("p", spec=RULES + "  activeDeadlineSeconds: 5\n", resources=LICENSED),
    )
    (node,) = loaded.fleet.nodes
    assert objects.node(node, 0)["spec"]["taints"] == [
        {"key": "a", "value": "b", "effect": "NoSchedule"}
    ]
    assert [
        note.split(";")[0] for note in unsupported.notes_outside(loaded.fleet, loaded.work)
    ] == [
        "drivers of 1 node are ignored",
        "activeDeadlineSeconds of 1 pod is ignored",
    ]


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ("faults: [{node: n, at: 1}]\n", "faults: is for pods"),
        ("faults: {every: 1h, repair: 1m}\nstop: {at: 1d}\n", "faults: is for pods"),
        ("queues: {q: {cpu: 1}}\n", "queues: is for pods"),
        ("lifecycle: {release: 1s}\n", "lifecycle: is for pods"),
    ],
)
def test_rigid_jobs_have_no_faults_queues_or_stages(tmp_path, more, where):
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 1}]}\nworkload: {jobs: [{name: a, duration: 5}]}\n"
        "scheduler: easy\n" + more,
    )
    with pytest.raises(InputError, match=where):
        begin(loaded)


def test_drivers_on_nodes_need_the_world_that_asks_them(tmp_path):
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 1, drivers: [gpu]}]}\n"
        "workload: {pods: [{name: a, cpu: 1, duration: 5}]}\nscheduler: fgd\n",
    )
    with pytest.raises(InputError, match="--scheduler dralab"):
        begin(loaded)


def test_pods_that_name_another_scheduler_are_decided_for_and_that_is_said(tmp_path):
    loaded = load(
        tmp_path, "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n",
        pod("p", spec="  schedulerName: elsewhere\n") + pod("q"),
    )  # fmt: skip
    found = begin(loaded).go()
    assert [task.state for task in found.tasks] == ["Succeeded", "Succeeded"]
    assert found.notes == ["pods that name another scheduler: 1; dralab schedules them all"]


@pytest.mark.parametrize("scheduler", ["packing", "allocation:pack", "ticks"])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("  resourceClaims: [{name: g, resourceClaimTemplateName: t}]\n", "resourceClaims"),
        ("  affinity: {podAffinity: {}}\n", "affinity"),
    ],
)
def test_what_decides_where_a_pod_goes_is_not_left_out(tmp_path, scheduler, spec, field):
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"
        f"scheduler: {scheduler}\n",
        pod("p", spec=spec),
    )
    problem = f"{scheduler} does not know spec.{field}; `--scheduler dralab-fast` does"
    with pytest.raises(InputError, match=problem):
        begin(loaded)
