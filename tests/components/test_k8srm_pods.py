"""Pods of k8srm in a cluster that runs: they start with their devices, or not at all."""

import pytest

from dralab import SimulatedCluster as LabCluster
from dralab.api.resource.features import DEFAULT_1_36
from dralab.api.status import ApiError
from dralab.cli._placing_server import Server
from dralab.components.nodes import equip
from dralab.components.simulated import SimulatedCluster
from dralab.objects.conditions import condition_of
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod
from dralab.runtime.resources import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_POOLS,
    PODS,
    RESOURCE_QUOTAS,
)
from dralab.values.patches import copied
from labs import create_all

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
    made = LabCluster(nodes=["n1"], profiles=("v1", "k8srm"))
    equip(made.kubelets.nodes["n1"], DEFAULT_1_36)
    return made


def create(lab, node, bound_to=""):
    text = OBJECTS.replace("NODE", node)
    lab.create(
        text.replace("deviceClaims", f"nodeName: {bound_to}\n  deviceClaims", bool(bound_to))
    )


def pod(lab):
    return lab.pods("default").get("p")


def scheduled(lab):
    """What `dralab allocate --apply` does."""
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
    assert "`dralab allocate --kubeconfig FILE --apply default/p`" in why
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
    lab.wait(1)
    assert pod(lab) is None
    lab.wait(60)
    assert not lab.client.list(DEVICE_CLAIMS).items


def test_pods_go_with_the_last_pool_that_named_their_node(lab):
    create(lab, "elsewhere")
    scheduled(lab)
    lab.client.delete(DEVICE_POOLS, "toys")
    lab.wait(120)
    assert pod(lab) is None


def status(lab, resource, name, namespace=""):
    return lab.client.get(resource, name, namespace).get("status") or {}


def ready(part):
    [condition] = part["conditions"]
    return condition["type"], condition["status"], condition["reason"]


def test_pools_and_classes_say_what_is_free_and_who_serves(lab):
    create(lab, "n1")
    lab.create(
        "apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DeviceClass\n"
        "metadata: {name: vlan}\nspec: {deviceType: vlan}\n"
    )
    assert status(lab, DEVICE_POOLS, "toys") == {"availableDevices": 1, "deviceStatuses": []}
    assert status(lab, DEVICE_CLASSES, "toy")["drivers"] == ["toys"]
    assert ready(status(lab, DEVICE_CLASSES, "toy")) == ("Ready", "True", "DriversFound")
    assert ready(status(lab, DEVICE_CLASSES, "vlan")) == ("Ready", "False", "NoDriver")
    scheduled(lab)
    lab.wait(1)
    [claim] = lab.client.list(DEVICE_CLAIMS).items
    found = status(lab, DEVICE_POOLS, "toys")
    assert found["availableDevices"] == 0
    [device] = found["deviceStatuses"]
    assert (device["name"], device["claimUIDs"]) == ("d0", [claim["metadata"]["uid"]])
    assert ready(device) == ("Ready", "True", "Allocated")
    before = lab.client.get(DEVICE_POOLS, "toys")["metadata"]["resourceVersion"]
    lab.wait(600)
    assert lab.client.get(DEVICE_POOLS, "toys")["metadata"]["resourceVersion"] == before


def test_drivers_report_the_devices_of_a_claim_and_addresses_of_network_devices(lab):
    lab.create(
        "apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DeviceDriver\n"
        "metadata: {name: toys}\ndeviceTypes: [sriov-nic]\n"
    )
    create(lab, "n1")
    assert scheduled(lab) == "n1"
    lab.wait(1)
    [claim] = lab.client.list(DEVICE_CLAIMS).items
    [device] = claim["status"]["deviceStatuses"]
    assert (device["devicePoolName"], device["deviceName"]) == ("toys", "d0")
    assert ready(device) == ("Ready", "True", "ReportedByServer")
    assert device["deviceIPs"] == [{"ip": device["deviceIP"]}] == [{"ip": "198.18.0.1"}]
    assert device["deviceInfo"] == [{"driver": "toys", "attributes": {}}]
    stored = copied(lab.client.get(DEVICE_POOLS, "toys"))
    stored["spec"]["devices"][0]["attributes"] = [{"name": "model", "stringValue": "new"}]
    lab.client.update(DEVICE_POOLS, stored)
    lab.wait(1)
    [again] = lab.client.list(DEVICE_CLAIMS).items[0]["status"]["deviceStatuses"]
    assert again == device | {"deviceInfo": [{"driver": "toys", "attributes": {"model": "new"}}]}


def test_a_quota_counts_the_devices_that_claims_of_a_class_ask_for(lab):
    name = "toy.deviceclass.devmgmtproto.k8s.io/devices"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {name: "2"}}}
    lab.client.create(RESOURCE_QUOTAS, quota, "default")
    create(lab, "n1")
    assert scheduled(lab) == "n1"
    lab.wait(5)
    assert status(lab, RESOURCE_QUOTAS, "q", "default")["used"] == {name: "1"}


REPORTED = {
    "devicePoolName": "toys",
    "deviceName": "d0",
    "conditions": [{"type": "Ready", "status": "False", "reason": "NoLink"}],
    "deviceIP": "10.1.2.3",
    "deviceIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}],
    "deviceInfo": [{"mac": "aa:bb"}],
}


def test_what_a_driver_reports_of_a_claim_stays_as_it_wrote_it(lab):
    lab.create(
        OBJECTS.replace("NODE", "n1").replace("devices: [{name: toy, class: toy}]", "claimName: c"),
        "apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DeviceClaim\n"
        "metadata: {name: c, namespace: default}\n"
        "spec: {devices: [{name: toy, allOf: [{class: toy}]}]}\n",
    )
    server = Server(lab.client, GENERATIONS["k8srm"])
    world = GENERATIONS["k8srm"].cluster(server.objects())
    # The driver reports after `dralab allocate` has read the claim.
    claim = lab.client.get(DEVICE_CLAIMS, "c", "default")
    wrong = REPORTED | {"deviceIPs": [{"ip": "fd00::1"}]}
    with pytest.raises(ApiError, match=r"deviceIPs\[0\].ip: .*must be deviceIP, which is"):
        lab.client.update(
            DEVICE_CLAIMS, claim | {"status": {"deviceStatuses": [wrong]}}, subresource="status"
        )
    reported = claim | {"status": {"deviceStatuses": [REPORTED]}}
    lab.client.update(DEVICE_CLAIMS, reported, subresource="status")
    server.write(world.place(pod(lab)))
    lab.wait(60)
    found = status(lab, DEVICE_CLAIMS, "c", "default")
    assert found["allocations"] == [{"devicePoolName": "toys", "deviceName": "d0"}]
    assert found["podNames"] == ["p"]
    assert found["deviceStatuses"] == [REPORTED]


def test_a_shared_claim_gives_its_devices_back_with_its_last_pod(lab):
    lab.create(
        OBJECTS.replace("NODE", "n1").replace("devices: [{name: toy, class: toy}]", "claimName: c"),
        "apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DeviceClaim\n"
        "metadata: {name: c, namespace: default}\n"
        "spec: {devices: [{name: toy, allOf: [{class: toy}]}]}\n",
    )
    assert scheduled(lab) == "n1"
    lab.wait(5)
    assert status(lab, DEVICE_CLAIMS, "c", "default")["podNames"] == ["p"]
    lab.client.delete(PODS, "p", "default")
    lab.wait(60)
    assert status(lab, DEVICE_CLAIMS, "c", "default") == {}
    assert status(lab, DEVICE_POOLS, "toys")["availableDevices"] == 1


def test_two_claims_of_network_devices_have_different_addresses(lab):
    lab.create(
        "apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DeviceDriver\n"
        "metadata: {name: toys}\ndeviceTypes: [nic]\n",
        OBJECTS.replace("NODE", "n1").replace("{name: d0}", "{name: d0}, {name: d1}"),
        OBJECTS.partition("---\n")[2].partition("---\n")[2].replace("name: p,", "name: q,"),
    )
    # Both are allocated before the drivers hear of either.
    server = Server(lab.client, GENERATIONS["k8srm"])
    world = GENERATIONS["k8srm"].cluster(server.objects())
    for each in world.pods():
        placed = world.place(each)
        world.apply(placed)
        server.write(placed)
    lab.wait(1)
    claims = lab.client.list(DEVICE_CLAIMS).items
    found = [claim["status"]["deviceStatuses"][0]["deviceIP"] for claim in claims]
    assert sorted(found) == ["198.18.0.1", "198.18.0.2"]


def test_without_todays_api_a_deleted_pod_goes_with_its_claim():
    cluster = SimulatedCluster(profiles=("k8srm",))
    kinds = cluster.server.resources.kinds
    create_all(cluster.client, kinds, OBJECTS.replace("NODE", "elsewhere"))
    server = Server(cluster.client, GENERATIONS["k8srm"])
    world = GENERATIONS["k8srm"].cluster(server.objects())
    placed = world.place(world.pods()[0])
    server.write(placed)
    cluster.wait(1)
    assert cluster.client.get(DEVICE_POOLS, "toys")["status"]["availableDevices"] == 0
    cluster.client.delete(PODS, "p", "default")
    cluster.wait(60)
    assert not cluster.client.list(PODS).items
    assert not cluster.client.list(DEVICE_CLAIMS).items
    assert cluster.client.get(DEVICE_POOLS, "toys")["status"]["availableDevices"] == 1
