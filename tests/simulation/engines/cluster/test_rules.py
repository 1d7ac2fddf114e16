"""Kubernetes' rules in simulated time: they are the real scheduler's, and hold here as live."""

import pytest

from scenarios_on_cluster import places, pod, run, tasks, times

TWO = "fleet: {nodes: [{name: n, count: 2, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"
ONE = "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload: {manifests: pods.yaml}\n"


IMPORTANT = """---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: important}
value: 1000
"""


def test_a_pod_of_higher_priority_preempts_and_the_victim_begins_anew(tmp_path):
    found = run(
        tmp_path,
        ONE,
        IMPORTANT
        + pod("low", runs="100s", cpu="3")
        + pod("high", runs="50s", cpu="3", arrives="10s", spec="  priorityClassName: important\n"),
    )
    assert times(found) == {"high": (10, 60), "low": (60, 160)}
    assert tasks(found)["low"].evictions == 1


def test_a_pod_preempts_for_the_devices_of_an_extended_resource(tmp_path):
    gpus = "{limits: {nvidia.com/gpu: 2}}"
    urgent = "  priorityClassName: important\n"
    found = run(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4, gpus: 2}]}\nworkload: {manifests: pods.yaml}\n",
        IMPORTANT
        + pod("low", runs="100s", resources=gpus)
        + pod("high", runs="50s", arrives="10s", resources=gpus, spec=urgent),
    )
    assert times(found) == {"high": (10, 60), "low": (60, 160)}
    assert tasks(found)["low"].evictions == 1


def test_pods_that_repel_each_other_never_meet(tmp_path):
    rule = """  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}
"""
    found = run(tmp_path, TWO, "".join(pod(f"web-{n}", spec=rule) for n in range(3)))
    assert sorted(places(found).values()) == ["n-0", "n-0", "n-1"] or sorted(
        places(found).values()
    ) == ["n-0", "n-1", "n-1"]
    assert sorted(times(found).values()) == [(0, 60), (0, 60), (60, 120)]
    assert any("anti-affinity" in reason for reason in found.refusals)


def test_pods_go_where_their_affinity_sends_them(tmp_path):
    fleet = "fleet: {nodes: [{name: a, cpu: 4}, {name: b, cpu: 4, labels: {zone: east}}]}\n"
    rule = """  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: zone, operator: In, values: [east]}]
"""
    pods = "".join(pod(f"p-{n}", spec=rule) for n in range(3))
    found = run(tmp_path, fleet + "workload: {manifests: pods.yaml}\n", pods)
    assert set(places(found).values()) == {"b"}


def test_a_taint_keeps_away_whoever_does_not_tolerate_it(tmp_path):
    fleet = (
        "fleet: {nodes: [{name: kept, cpu: 4, taints: ['team=ml:NoSchedule']}, "
        "{name: free, cpu: 1}]}\n"
    )
    allowed = "  tolerations: [{key: team, operator: Equal, value: ml, effect: NoSchedule}]\n"
    found = run(
        tmp_path,
        fleet + "workload: {manifests: pods.yaml}\n",
        pod("a-0") + pod("a-1", arrives="1s") + pod("b-0", cpu="2", spec=allowed),
    )
    assert places(found) == {"a-0": "free", "a-1": "free", "b-0": "kept"}
    assert times(found)["a-1"] == (60, 120)


def test_pods_are_spread_over_zones(tmp_path):
    fleet = (
        "fleet: {nodes: [{name: a, cpu: 16, labels: {zone: a}}, "
        "{name: b, cpu: 4, labels: {zone: b}}]}\n"
    )
    rule = """  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: w}}}
"""
    pods = "".join(pod(f"w-{n}", spec=rule) for n in range(4))
    found = run(tmp_path, fleet + "workload: {manifests: pods.yaml}\n", pods)
    assert sorted(places(found).values()) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("gang", [2, 3])
def test_a_gang_starts_together_or_not_at_all(tmp_path, gang):
    text = (
        "fleet: {nodes: [{name: a, cpu: 3}]}\nworkload:\n  jobs:\n"
        f"  - {{name: one, machines: {gang}, duration: 10s}}\n"
        "  - {name: two, machines: 2, duration: 10s}\n"
    )
    found = times(run(tmp_path, text))
    assert {found[f"one-{n}"] for n in range(gang)} == {(0, 10)}
    assert {found["two-0"], found["two-1"]} == {(10, 20)}


def test_a_quota_holds_back_and_a_higher_priority_goes_first(tmp_path):
    text = (
        "fleet: {nodes: [{name: a, cpu: 2}]}\nqueues: {small: {cpu: 1}}\nworkload:\n  pods:\n"
        "  - {name: first, cpu: 2, duration: 10s, queue: small-no}\n"
        "  - {name: low, cpu: 1, duration: 10s, at: 1s, queue: small}\n"
        "  - {name: high, cpu: 1, duration: 10s, at: 1s, queue: small, priority: 5}\n"
        "  - {name: free, cpu: 1, duration: 10s, at: 3s}\n"
    )
    text = text.replace(", queue: small-no", "")
    found = run(tmp_path, text)
    # The one with priority may take the place of the first one; the other waits for the quota.
    ended = times(found)
    assert ended["high"][0] < ended["low"][0]
    assert ended["low"][0] >= ended["high"][1]


def test_a_resource_quota_refuses_pods_until_others_have_ended(tmp_path):
    quota = """---
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: default}
spec: {hard: {pods: "1"}}
"""
    found = run(tmp_path, ONE, quota + "".join(pod(f"p-{n}", arrives="2s") for n in range(2)))
    (first, second) = sorted(times(found).values())
    assert first == (2, 62)
    assert second[0] == 63
    assert any("exceeded quota" in reason for reason in found.refusals)


def test_a_job_makes_its_pods_and_tries_again(tmp_path):
    job = """---
apiVersion: batch/v1
kind: Job
metadata: {name: j, annotations: {simulation.dralab.dev/runs: 30s}}
spec:
  completions: 3
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {requests: {cpu: "2"}}}]
"""
    found = run(tmp_path, ONE, job)
    assert sorted(times(found).values()) == [(0, 30), (0, 30), (30, 60)]


def test_pods_that_count_gpus_get_devices(tmp_path):
    fleet = "fleet: {nodes: [{name: g, cpu: 8, gpus: 2, model: A}]}\n"
    counting = pod("p", resources='{requests: {cpu: "1"}, limits: {nvidia.com/gpu: "2"}}')
    found = run(tmp_path, fleet + "workload: {manifests: pods.yaml}\n", counting)
    assert places(found) == {"p": "g/gpu-0 g/gpu-1"}


LAMPS = """
from dralab.drivers.driver import Driver

class Lamps(Driver):
    name = "lamps.example.com"

    def devices(self):
        return [{"name": f"lamp-{n}", "attributes": {"bright": {"bool": n == 1}}} for n in range(2)]
"""


def test_a_driver_of_the_users_own_serves_claims_in_simulated_time(tmp_path):
    fleet = "fleet: {nodes: [{name: n, cpu: 8, drivers: ['lamps.py:Lamps', gpu]}]}\n"
    template = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: bright}
spec:
  spec:
    devices:
      requests:
      - name: lamp
        exactly:
          deviceClassName: lamps.example.com
          selectors: [{cel: {expression: 'device.attributes["lamps.example.com"].bright'}}]
"""
    claims = "  resourceClaims: [{name: lamp, resourceClaimTemplateName: bright}]\n"
    wants = "".join(
        pod(f"p-{n}", spec=claims).replace("}}}]", "}, claims: [{name: lamp}]}}]") for n in range(2)
    )
    found = run(
        tmp_path, fleet + "workload: {manifests: pods.yaml}\n", template + wants, lamps_py=LAMPS
    )
    assert set(places(found).values()) == {"n/lamp-1"}
    assert sorted(times(found).values()) == [(0, 60), (60, 120)]


def test_nodes_slices_and_classes_of_manifests_are_used_as_they_are(tmp_path):
    nodes = """
apiVersion: v1
kind: Node
metadata: {name: m}
spec: {taints: [{key: only, value: us, effect: NoSchedule}]}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10", example.com/licence: "1"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic}
spec: {selectors: [{cel: {expression: 'device.driver == "nic.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: m-nics}
spec:
  driver: nic.example.com
  nodeName: m
  pool: {name: m, generation: 1, resourceSliceCount: 1}
  devices: [{name: nic-0}]
"""
    claim = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: nic}}]}}
"""
    spec = (
        "  resourceClaims: [{name: c, resourceClaimName: c}]\n"
        "  tolerations: [{key: only, operator: Exists}]\n"
    )
    licensed = pod("a", spec="  tolerations: [{key: only, operator: Exists}]\n").replace(
        '{cpu: "1"}', '{cpu: "1"}, limits: {example.com/licence: "1"}'
    )
    found = run(
        tmp_path,
        "fleet: {manifests: nodes.yaml}\nworkload: {manifests: pods.yaml}\n",
        claim
        + pod("p", spec=spec).replace("}}}]", "}, claims: [{name: c}]}}]")
        + licensed
        + licensed.replace("name: a", "name: b"),
        nodes_yaml=nodes,
    )
    assert places(found)["p"] == "m/nic-0"
    assert sorted([times(found)["a"], times(found)["b"]]) == [(0, 60), (60, 120)]


def test_a_pod_that_fits_nowhere_says_why_and_holds_up_no_end(tmp_path):
    found = run(tmp_path, ONE, pod("big", cpu="5") + pod("small"))
    assert tasks(found)["big"].reason.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert found.refusals == {"Insufficient cpu": 1}
    assert found.complete
