"""Nothing of a scenario is left out in silence."""

import pytest

from dralab.scenarios.errors import InputError
from dralab.simulation.dispatch import begin
from dralab.simulation.engines import objects, unsupported
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


def test_policies_heed_what_the_scheduler_heeds(tmp_path):
    tolerates = "  tolerations: [{key: a, operator: Exists}]\n"
    loaded = load(
        tmp_path, ONE + "scheduler: firstfit\n",
        OTHERS + pod("p", spec=f"  priorityClassName: high\n{tolerates}") + pod("q"),
    )  # fmt: skip
    found = begin(loaded).go()
    assert [task.state for task in found.tasks] == ["Succeeded", "Pending"]
    assert "untolerated taint {a: b}" in found.tasks[1].reason
    assert not found.notes


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


def test_pods_that_name_another_scheduler_are_decided_for_and_that_is_said(tmp_path):
    loaded = load(
        tmp_path, "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n",
        pod("p", spec="  schedulerName: elsewhere\n") + pod("q"),
    )  # fmt: skip
    found = begin(loaded).go()
    assert [task.state for task in found.tasks] == ["Succeeded", "Succeeded"]
    assert found.notes == ["pods that name another scheduler: 1; dralab schedules them all"]


CLAIM = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}}
"""


@pytest.mark.parametrize("scheduler", ["packing", "fgd", "ticks", "dralab-fast"])
def test_claims_are_met_by_drivers_whatever_chooses_the_node(tmp_path, scheduler):
    spec = "  resourceClaims: [{name: g, resourceClaimTemplateName: t}]\n"
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: m, cpu: 4}, {name: n, cpu: 4, drivers: [gpu]}]}\n"
        f"workload: {{manifests: pods.yaml}}\nscheduler: {scheduler}\n",
        CLAIM + pod("p", spec=spec),
    )
    found = begin(loaded).go()
    assert [task.state for task in found.tasks] == ["Succeeded"]
    assert found.lanes[found.tasks[0].lanes[0]].startswith("n/")


@pytest.mark.parametrize("scheduler", ["packing", "allocation:pack", "ticks"])
def test_affinity_counts_whatever_chooses_the_node(tmp_path, scheduler):
    near = (
        "  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: "
        "kubernetes.io/hostname, labelSelector: {matchLabels: {app: nobody}}}]}}\n"
    )
    loaded = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"
        f"scheduler: {scheduler}\n",
        pod("p", spec=near),
    )
    assert "didn't match pod affinity rules" in begin(loaded).go().tasks[0].reason


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("lifecycle: {gangs: wait}", "lifecycle.gangs: only `alone`"),
        ("workload: {pods: [{name: p, until: 1h, cpu: 1}]}", "Pod default/p: `until`"),
    ],
)
@pytest.mark.parametrize("scheduler", ["dralab", "external", "ticks"])
def test_lives_that_only_the_fast_engine_acts_out_are_refused(tmp_path, scheduler, written, where):
    workload = "" if "workload" in written else "workload: {pods: [{name: p, duration: 1, cpu: 1}]}"
    text = (
        f"fleet: {{nodes: [{{name: n, cpu: 4}}]}}\n{workload}\n{written}\nscheduler: {scheduler}\n"
    )
    with pytest.raises(InputError, match=where):
        begin(load(tmp_path, text))
