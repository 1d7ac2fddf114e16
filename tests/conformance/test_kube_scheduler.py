"""The unmodified kube-scheduler places a pod with its device."""

import time

import pytest

import stockparts
from dralab.runtime.client import Resource

PATIENCE = 60
pytestmark = [pytest.mark.conformance, stockparts.needs(stockparts.SCHEDULER)]
NODES = Resource("", "v1", "nodes", namespaced=False)
PODS = Resource("", "v1", "pods")
EVENTS = Resource("", "v1", "events")
CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims")
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "10"}


@pytest.fixture
def scheduler(kubeconfig, tmp_path):
    """A running kube-scheduler."""
    with stockparts.scheduler(kubeconfig, tmp_path) as running:
        yield running


def eventually(holds):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came to be")


def add_node(client, name):
    node = client.create(NODES, {"metadata": {"name": name}})
    ready = [{"type": "Ready", "status": "True", "reason": "Up", "message": "up"}]
    status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": ready}
    client.patch(NODES, name, {"status": status}, subresource="status")
    taints = [t for t in node["spec"].get("taints", ()) if "not-ready" not in t["key"]]
    client.patch(NODES, name, {"spec": {"taints": taints}})


def pod(name, claim):
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}
    claims = [{"name": "g", "resourceClaimName": claim}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": claims},
    }


def claim(name):
    request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def test_a_pod_gets_its_device_and_another_one_waits(scheduler, client):
    add_node(client, "n1")
    expression = 'device.driver == "gpu.example.com"'
    selectors = [{"cel": {"expression": expression}}]
    client.create(CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool}
    client.create(
        SLICES, {"metadata": {"name": "n1-gpus"}, "spec": spec | {"devices": [{"name": "gpu-0"}]}}
    )
    for name in ("one", "two"):
        client.create(CLAIMS, claim(name), "default")
    client.create(PODS, pod("first", "one"), "default")
    eventually(lambda: client.get(PODS, "first", "default")["spec"].get("nodeName") == "n1")
    found = client.get(CLAIMS, "one", "default")
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert result["device"] == "gpu-0"
    assert [user["name"] for user in found["status"]["reservedFor"]] == ["first"]
    client.create(PODS, pod("second", "two"), "default")
    events = eventually(
        lambda: [
            event
            for event in client.list(EVENTS, "default").items
            if event["reason"] == "FailedScheduling" and event["involvedObject"]["name"] == "second"
        ]
    )
    assert "cannot allocate all claims" in events[0]["message"]
    client.delete(PODS, "first", "default", options={"gracePeriodSeconds": 0})
    freed = {"status": {"allocation": None, "reservedFor": None}}
    client.patch(CLAIMS, "one", freed, "default", subresource="status")
    eventually(lambda: client.get(PODS, "second", "default")["spec"].get("nodeName") == "n1")
    assert scheduler.poll() is None
