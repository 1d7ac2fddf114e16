"""What a node gives back of pods that vanished while it was down, in simulated time."""

import pytest

from dralab import SimulatedCluster
from dralab.contracts.cdi_cache import MemoryDirectory
from dralab.contracts.plugin import PluginError
from dralab.drivers.catalog import device_class
from dralab.drivers.fake.gpu import FakeGpus
from dralab.node.checkpoint import NodeFileCheckpoint
from dralab.node.node_spec import NodeSpec
from dralab.runtime.resources import CLAIMS, CLASSES, EVENTS, PODS

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  resourceClaims: [{name: c, resourceClaimName: c}]
  containers:
  - {name: ctr0, image: x, command: [sh, -c, "export; sleep 1d"], resources: {claims: [{name: c}]}}
"""


class Noting:
    """A plugin of whose calls a list is kept, and which may refuse some."""

    driver = "gpu.example.com"

    def __init__(self, plugin, calls, refuse):
        self.plugin, self.calls, self.refuse = plugin, calls, refuse

    def prepare(self, claims):
        self.calls.append(("prepare", claims[0].uid))
        if "prepare" in self.refuse:
            raise PluginError("not now")
        return self.plugin.prepare(claims)

    def unprepare(self, claims):
        self.calls.append(("unprepare", claims[0].uid))
        if "unprepare" in self.refuse:
            raise PluginError("not now")
        return self.plugin.unprepare(claims)

    def health(self):
        return self.plugin.health()


class RestartLab(SimulatedCluster):
    """A cluster whose node can be stopped and started, with its files as they were."""

    def __init__(self, path):
        super().__init__(nodes=())
        self.client.create(CLASSES, device_class("gpu.example.com"))
        self.path, self.cdi, self.calls, self.refuse = path, MemoryDirectory(), [], set()
        self.drivers = [FakeGpus("n1", count=1)]
        inner = self.kubelets.on_node

        def on_node(kubelet):
            inner(kubelet)
            plugin = kubelet.plugins.get("gpu.example.com")
            kubelet.plugins.deregister(plugin)
            kubelet.register(Noting(plugin, self.calls, self.refuse))

        self.kubelets.on_node = on_node
        self.start()

    def start(self):
        self.kubelet = self.kubelets.add_node(
            NodeSpec(name="n1"),
            directories=[self.cdi],
            checkpoint=NodeFileCheckpoint(self.path / "dra_manager_state"),
        )
        self.wait(1)

    def stop(self):
        del self.kubelets.nodes["n1"]

    def force_delete(self):
        self.client.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
        self.client.delete(CLAIMS, "c", "default")
        self.wait(10)

    def uid(self):
        return self.client.get(CLAIMS, "c", "default")["metadata"]["uid"]

    def events(self):
        return {(e["reason"], e["involvedObject"]["kind"]) for e in self.client.list(EVENTS).items}


@pytest.fixture
def lab(tmp_path):
    return RestartLab(tmp_path)


def test_a_pod_force_deleted_while_its_node_is_down_is_unprepared_at_the_start(lab):
    lab.create(CLAIM)
    uid = lab.uid()
    lab.stop()
    lab.force_delete()
    assert lab.cdi.texts()
    lab.start()
    lab.wait(5)
    assert lab.calls == [("prepare", uid), ("unprepare", uid)]
    assert NodeFileCheckpoint(lab.path / "dra_manager_state").load() == []
    assert ("UnpreparedStaleClaims", "Node") in lab.events()


def test_what_cannot_be_given_back_is_tried_again_every_minute(lab):
    lab.create(CLAIM)
    lab.stop()
    lab.force_delete()
    lab.calls.clear()
    lab.refuse.add("unprepare")
    lab.start()
    lab.wait(130)
    assert [verb for verb, _ in lab.calls] == ["unprepare"] * 3
    assert ("FailedUnprepareDynamicResources", "Node") in lab.events()
    lab.refuse.clear()
    lab.wait(60)
    assert not lab.kubelet.claims.users()


def test_a_pod_and_claim_recreated_under_the_same_names_start(lab):
    lab.create(CLAIM)
    lab.stop()
    lab.force_delete()
    lab.refuse.add("unprepare")
    lab.start()
    lab.create(CLAIM)
    old = "old ResourceClaim with same name c and different UID"
    assert any(old in e["message"] for e in lab.client.list(EVENTS, "default").items)
    lab.refuse.clear()
    lab.wait(180)
    assert lab.pods("default")["p"]["status"]["phase"] == "Running"


def test_a_driver_whose_answer_never_came_is_told_of_the_end_after_a_restart(lab):
    lab.refuse.add("prepare")
    lab.create(CLAIM)
    uid = lab.uid()
    lab.stop()
    lab.force_delete()
    lab.calls.clear()
    lab.start()
    lab.wait(5)
    assert lab.calls == [("unprepare", uid)]


def test_claims_of_pods_that_are_there_stay_prepared(lab):
    lab.create(CLAIM)
    lab.stop()
    lab.start()
    lab.wait(180)
    assert [verb for verb, _ in lab.calls] == ["prepare", "prepare"]


def test_a_device_that_a_vanished_pod_still_holds_is_named_in_an_event(lab):
    lab.create(CLAIM)
    uid = lab.uid()
    lab.stop()
    lab.force_delete()
    lab.refuse.add("unprepare")
    lab.start()
    lab.create(CLAIM.replace("name: c", "name: d").replace("ClaimName: c", "ClaimName: d"))
    (event,) = [
        e for e in lab.client.list(EVENTS, "default").items if e["reason"] == "DeviceStillInUse"
    ]
    assert event["involvedObject"]["name"] == "p"
    assert event["message"] == (
        "device gpu.example.com/n1/gpu-0 was allocated to ResourceClaim d while ResourceClaim "
        f"default/c ({uid}) still holds it on this node (previous pod force-deleted?!)"
    )
