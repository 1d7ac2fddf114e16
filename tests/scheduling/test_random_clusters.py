"""The generator of random clusters makes what it promises."""

import json
from collections import Counter

import pytest

from clusters import DEVICES, HELD, PARTS, random_cluster
from ourverdicts import is_tried, our_verdict

OTHERS = {
    "no-zone", "taint", "prefer-taint", "execute-taint", "pressure", "lost", "cordon", "dongles",
    "no-devices", "shared-device", "binding-conditions", "device-taint", "partitions",
    "incomplete-pool", "taint-rule", "network-devices", "selected-nodes", "running-anti-affinity",
    "running-affinity", "running-wish", "running-port", "running-volume", "leaving-pod", "holder",
    "no-cpu", "no-memory", "cannot-preempt", "names-node", "device-toleration", "allocated-claim",
    "volume-zonal", "volume-single", "volume-labelled", "volume-unbound", "volume-provisioned",
    "volume-local", "group", "other-namespace", "finished", "resized", "group-devices", "budget",
    "older-slice", "device-nodes", "share-holder", "partition-holder", "extended-holder",
}  # fmt: skip
# The beginnings of what kube-scheduler says of nodes, and of pods that it does not try.
CAUSES = (
    "node(s) were unschedulable",
    "node(s) had untolerated taint",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    "node(s) didn't have free ports",
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient example.com/dongle",
    "Too many pods",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) had no available volume zone",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "cannot allocate all claims",
    "resourceclaim not available on the node",
    "pod has unbound immediate PersistentVolumeClaims",
    'persistentvolumeclaim "nowhere" not found',
    'resourceclaim.resource.k8s.io "nothing" not found',
    "request r: device class nothing does not exist",
    "exceeded quota",
)


def test_a_seed_is_a_cluster():
    one, other = random_cluster(5), random_cluster(5)
    assert json.dumps(one.objects) == json.dumps(other.objects)
    assert json.dumps(one.objects) != json.dumps(random_cluster(6).objects)


def test_every_feature_occurs():
    found = Counter(name for seed in range(400) for name in random_cluster(seed).features)
    expected = OTHERS | {*PARTS, *HELD} | {f"devices-{name}" for name in DEVICES}
    assert expected <= found.keys()
    assert min(found[name] for name in expected) >= 3


def test_what_is_left_out_does_not_occur():
    without = frozenset({"taint", "group", "volume", "matched"})
    for seed in range(100):
        features = random_cluster(seed, without=without).features
        assert not features & {"taint", "group", "volume", "devices-matched"}


def test_one_waiting_pod_stands_alone():
    cluster = next(made for seed in range(50) if len((made := random_cluster(seed)).waiting()) > 2)
    name = cluster.waiting()[0]["metadata"]["name"]
    pods = [item for item in cluster.alone(name) if item["kind"] == "Pod"]
    waiting = [item["metadata"]["name"] for item in pods if not item["spec"].get("nodeName")]
    assert waiting == [name]
    assert len(pods) == 1 + sum(bool(p["spec"].get("nodeName")) for p in cluster.of("Pod"))


@pytest.mark.thorough
def test_every_cause_occurs_also_beside_others():
    found: Counter[str] = Counter()
    several = placed = 0
    for seed in range(400):
        cluster = random_cluster(seed)
        for pod in cluster.waiting():
            if is_tried(pod):
                name = pod["metadata"]["name"]
                verdict = our_verdict(cluster.alone(name), name)
                placed += bool(verdict.node)
                told = [verdict.blocked, *verdict.reasons]
                causes = {cause for cause in CAUSES for text in told if text.startswith(cause)}
                found.update(causes)
                several += len(causes) > 1
    assert {cause for cause in CAUSES if not found[cause]} == set()
    assert placed > 100
    assert several > 100
