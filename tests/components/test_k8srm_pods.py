"""Pods of k8srm in a cluster that runs: they start with their devices, or not at all."""

import pytest

from devicelab import DeviceLab
from dralab.cli.schedule_server import Server
from dralab.objects.conditions import condition_of
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod
from dralab.runtime.resources import DEVICE_CLAIMS, DEVICE_POOLS, PODS

OBJECTS = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: toys}
spec: {driver: toys, nodeName: NODE, devices: [{name: d0}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: toy}
spec: {definition: {driver: toys}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c, image: x, command: [sleep, infinity], devices: [{name: toy}]}]
  deviceClaims: {devices: [{name: toy, class: toy}]}
"""


@pytest.fixture
def lab():
    return DeviceLab(profiles=("v1", "k8srm"))


def create(lab, node, bound_to=""):
    text = OBJECTS.replace("NODE", node)
    lab.create(
        text.replace("deviceClaims", f"nodeName: {bound_to}\n  deviceClaims", bool(bound_to))
    )


def pod(lab):
    return lab.pods("default").get("p")


def scheduled(lab):
    """What `dralab schedule --kubeconfig` does."""
    server = Server(lab.client, GENERATIONS["k8srm"])
    world = GENERATIONS["k8srm"].cluster(server.objects())
    found = pod(lab)
    placed = world.place(found)
    assert isinstance(placed, PlacedPod)
    server.write(placed, bind=not found["spec"].get("nodeName"))
    return placed.node


def test_todays_scheduler_leaves_a_pod_of_k8srm_to_its_own(lab):
    create(lab, "n1")
    lab.wait(60)
    assert "nodeName" not in pod(lab)["spec"]
    why = condition_of(pod(lab), "PodScheduled")["message"]
    assert "`dralab schedule --kubeconfig FILE --namespace default p`" in why
    assert scheduled(lab) == "n1"
    lab.wait(5)
    assert pod(lab)["status"]["phase"] == "Running"


def test_a_pod_that_names_its_node_starts_only_with_its_devices(lab):
    create(lab, "n1", bound_to="n1")
    lab.wait(60)
    assert pod(lab)["status"]["phase"] == "Pending"
    assert scheduled(lab) == "n1"
    [claim] = lab.client.list(DEVICE_CLAIMS).items
    assert claim["status"]["podNames"] == ["p"]
    lab.wait(200)
    assert pod(lab)["status"]["phase"] == "Running"


def test_a_node_that_only_a_pool_names_keeps_its_pods(lab):
    create(lab, "elsewhere")
    assert scheduled(lab) == "elsewhere"
    lab.wait(600)
    assert pod(lab)["spec"]["nodeName"] == "elsewhere"
    assert lab.client.list(DEVICE_CLAIMS).items
    # No kubelet is there to end it.
    lab.client.delete(PODS, "p", "default")
    lab.wait(60)
    assert pod(lab) is None
    lab.wait(60)
    assert not lab.client.list(DEVICE_CLAIMS).items


def test_pods_go_with_the_last_pool_that_named_their_node(lab):
    create(lab, "elsewhere")
    scheduled(lab)
    lab.client.delete(DEVICE_POOLS, "toys")
    lab.wait(120)
    assert pod(lab) is None
