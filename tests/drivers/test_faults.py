"""What happens to pods when drivers fail."""

import pytest

from dralab import SimulatedCluster
from dralab.drivers.driver import ContainerEdits, Driver
from dralab.drivers.fake.gpu import FakeGpus
from dralab.drivers.faults import CallFault, FaultyPlugin, parse
from dralab.runtime.resources import CLAIMS, EVENTS, PODS, SLICES

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


class Died(Exception):  # noqa: N818 - what happened
    pass


class FakeProcess:
    def __init__(self):
        self.paused = 0.0

    def pause(self, seconds):
        self.paused += seconds

    def now(self):
        return 0

    def die(self, code):
        raise Died(code)


@pytest.fixture
def lab():
    lab = SimulatedCluster(nodes=["n1"], drivers=[lambda node: FakeGpus(node, count=1)])
    (kubelet,) = lab.kubelets.nodes.values()
    plugin = kubelet.plugins.get("gpu.example.com")
    kubelet.plugins.deregister(plugin)
    lab.faulty = FaultyPlugin(plugin, FakeProcess())
    kubelet.plugins.register(lab.faulty)
    return lab


def messages(lab):
    return " | ".join(event["message"] for event in lab.client.list(EVENTS, "default").items)


def phase(lab):
    return lab.client.get(PODS, "p", "default")["status"]["phase"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fail", "NodePrepareResources: a fault was injected"),
        ("error", "NodePrepareResources failed for ResourceClaim c: a fault was injected"),
        ("skip", "NodePrepareResources skipped 1 ResourceClaims"),
        ("crash-before", "Died"),
        ("crash-after", "Died"),
    ],
)
def test_a_pod_outlives_a_failing_prepare(lab, kind, words):
    lab.faulty.inject(CallFault("prepare", kind, times=2))
    lab.create(CLAIM)
    lab.wait(15)
    if not kind.startswith("crash"):
        assert words in messages(lab)
    assert phase(lab) == "Running"
    assert "GPU_DEVICE_0='gpu-0'" in lab.log("default", "p")


@pytest.mark.parametrize("kind", ["fail", "error", "skip", "crash-after"])
def test_a_claim_is_given_back_after_a_failing_unprepare(lab, kind):
    lab.create(CLAIM)
    lab.faulty.inject(CallFault("unprepare", kind, times=2))
    lab.client.delete(PODS, "p", "default")
    lab.wait(0.5)
    assert lab.client.list(PODS, "default").items, "it ended although its devices are not back"
    lab.wait(15)
    assert not lab.client.list(PODS, "default").items
    assert "allocation" not in lab.client.get(CLAIMS, "c", "default").get("status", {})


def test_a_container_whose_cdi_files_are_lost_is_not_created(lab):
    lab.faulty.inject(CallFault("prepare", "lose-cdi", times=1))
    lab.create(CLAIM)
    assert phase(lab) == "Pending"
    assert "unresolvable CDI devices" in messages(lab)


def test_unhealthy_devices_are_told_in_the_pods_status(lab):
    lab.create(CLAIM)
    lab.faulty.inject(CallFault("health", "unhealthy"))
    (kubelet,) = lab.kubelets.nodes.values()
    kubelet.wake_all()
    lab.wait(1)
    (status,) = lab.client.get(PODS, "p", "default")["status"]["containerStatuses"]
    (resource,) = status["allocatedResourcesStatus"]
    assert resource["name"] == "claim:c"
    assert resource["resources"][0]["health"] == "Unhealthy"


def health(lab):
    (status,) = lab.client.get(PODS, "p", "default")["status"]["containerStatuses"]
    (resource,) = status["allocatedResourcesStatus"]
    return [each["health"] for each in resource["resources"]]


def test_health_is_unknown_where_the_driver_says_nothing(lab):
    lab.create(CLAIM)
    assert health(lab) == ["Unknown"]


def test_health_becomes_unknown_within_a_minute_after_the_driver_has_gone(lab):
    lab.faulty.inject(CallFault("health", "unhealthy"))
    lab.create(CLAIM)
    assert health(lab) == ["Unhealthy"]
    (kubelet,) = lab.kubelets.nodes.values()
    kubelet.plugins.deregister(lab.faulty)
    lab.wait(61)
    assert health(lab) == ["Unknown"]


def test_init_containers_have_no_health(lab):
    init = "  initContainers:\n  - {name: i, image: x, resources: {claims: [{name: c}]}}\n"
    lab.create(CLAIM + init.replace("image: x,", "image: x, command: [sh, -c, 'true'],"))
    status = lab.client.get(PODS, "p", "default")["status"]
    assert "allocatedResourcesStatus" not in status["initContainerStatuses"][0]
    assert health(lab) == ["Unknown"]


def test_slices_are_renewed_withdrawn_and_come_back(lab):
    (driver,) = lab.drivers
    lab.publisher.renew(driver)
    lab.wait(1)
    (held,) = lab.client.list(SLICES).items
    assert held["spec"]["pool"]["generation"] == 2
    lab.publisher.withdraw(driver)
    lab.wait(1)
    assert not lab.client.list(SLICES).items
    lab.publisher.publish(driver)
    lab.wait(1)
    assert len(lab.client.list(SLICES).items) == 1


def test_somebody_elses_change_of_a_slice_is_mended():
    lab = SimulatedCluster(nodes=["n1"], drivers=[lambda node: FakeGpus(node, count=2)])
    (held,) = lab.client.list(SLICES).items
    spec = {**held["spec"], "devices": held["spec"]["devices"][:1]}
    lab.client.update(SLICES, {**held, "spec": spec})
    lab.wait(5)
    (held,) = lab.client.list(SLICES).items
    assert len(held["spec"]["devices"]) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("prepare", "is not CALL=KIND"),
        ("sing=loud", "unknown call 'sing'"),
        ("prepare=loud", "prepare has no fault 'loud'"),
    ],
)
def test_a_fault_that_nobody_knows_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_a_fault_may_happen_a_number_of_times():
    assert parse("prepare=errorx2") == CallFault("prepare", "error", times=2)
    assert parse("prepare=crash-before:3x2") == CallFault("prepare", "crash-before", 3.0, 2)


def test_a_driver_of_one_method_and_one_list_is_enough():
    class Lamps(Driver):
        name = "gpu.example.com"

        def devices(self):
            return [{"name": "lamp-0"}]

        def edits(self, claim, result):
            return ContainerEdits(env=(f"LAMP={result.device}",))

    lab = SimulatedCluster(nodes=["n1"], drivers=[Lamps])
    lab.create(CLAIM)
    assert "export LAMP='lamp-0'\n" in lab.log("default", "p")
