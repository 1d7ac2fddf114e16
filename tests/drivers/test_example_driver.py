"""The end-to-end checks of kubernetes-sigs/dra-example-driver, by their numbers there.

19 to 21 are about its admission webhook: tests/conformance/test_example_driver_binary.py.
"""

from functools import partial

import pytest

from dralab import SimulatedCluster
from dralab.api.resource.features import with_gates
from dralab.drivers.fake.cpu import FakeCpus
from dralab.drivers.fake.gpu import FakeGpus
from dralab.drivers.fake.nic import FakeNics
from dralab.objects.pods import is_ready
from dralab.runtime.resources import CLAIMS, DEPLOYMENTS, SLICES
from exampledriver import SHARED, gpus, of_gpu
from readydevices import ReadyDevices

EXAMPLES = SHARED / "dra-example-driver" / "examples"

pytestmark = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason="the example driver's demos are not beside this checkout"
)

GPU = partial(FakeGpus, count=2)


def demonstrated(name, *drivers, before=lambda lab: None, change=lambda text: text, **options):
    """Run a demonstration on one node until its pods are ready."""
    lab = SimulatedCluster(nodes=["n1"], drivers=drivers or [GPU], **options)
    before(lab)
    lab.create(change((EXAMPLES / name / f"{name}.yaml").read_text()))
    lab.wait(30)
    pods = lab.pods(name)
    assert pods
    for pod in pods.values():
        assert pod["status"]["phase"] == "Running", pod["status"]
        assert is_ready(pod), pod["status"]
    return lab, pods


def one_gpu(lab, namespace, pod, container="ctr0"):
    found = gpus(lab.log(namespace, pod, container))
    assert len(found) == 1, found
    return found[0]


def claims(lab, namespace):
    return list(lab.client.list(CLAIMS, namespace).items)


def results(claim):
    return claim["status"]["allocation"]["devices"]["results"]


def shared_by_time(lab, namespace, *places):
    """Check that containers see the same GPU, shared by time; return it."""
    found = {one_gpu(lab, namespace, *place) for place in places}
    assert len(found) == 1
    gpu = found.pop()
    for place in places:
        log = lab.log(namespace, *place)
        assert of_gpu(log, gpu, "SHARING_STRATEGY") == "TimeSlicing"
        assert of_gpu(log, gpu, "TIMESLICE_INTERVAL") == "Default"
    return gpu


def test_01_each_pod_has_a_gpu_of_its_own():
    name = "basic-resourceclaimtemplate"
    lab, pods = demonstrated(name, partial(GPU, tell_status=True))
    assert one_gpu(lab, name, "pod0") != one_gpu(lab, name, "pod1")
    for pod in pods.values():
        assert all(s["resourceClaimName"] for s in pod["status"]["resourceClaimStatuses"])
    for claim in claims(lab, name):
        (device,) = claim["status"]["devices"]
        assert device["data"]["uuid"]["string"]
        assert device["data"]["model"]["string"]
        assert device["data"]["driverVersion"]["version"]


def test_02_one_container_has_two_gpus():
    name = "basic-multiple-requests"
    lab, _ = demonstrated(name)
    assert len(set(gpus(lab.log(name, "pod0")))) == 2


def test_03_containers_share_a_gpu():
    name = "basic-shared-claim-across-containers"
    lab, _ = demonstrated(name)
    shared_by_time(lab, name, ("pod0", "ctr0"), ("pod0", "ctr1"))


def test_04_pods_share_a_gpu():
    name = "basic-shared-claim-across-pods"
    lab, _ = demonstrated(name)
    shared_by_time(lab, name, ("pod0",), ("pod1",))


def test_05_a_claim_says_how_its_gpus_are_shared():
    name = "basic-resourceclaim-opaque-config"
    lab, _ = demonstrated(name)
    slicing = {one_gpu(lab, name, "pod0", each) for each in ("ts-ctr0", "ts-ctr1")}
    space = {one_gpu(lab, name, "pod0", each) for each in ("sp-ctr0", "sp-ctr1")}
    assert len(slicing) == len(space) == len(slicing | space) - 1
    log, gpu = lab.log(name, "pod0", "ts-ctr0"), slicing.pop()
    assert of_gpu(log, gpu, "SHARING_STRATEGY") == "TimeSlicing"
    assert of_gpu(log, gpu, "TIMESLICE_INTERVAL") == "Long"
    log, gpu = lab.log(name, "pod0", "sp-ctr0"), space.pop()
    assert of_gpu(log, gpu, "SHARING_STRATEGY") == "SpacePartitioning"
    assert of_gpu(log, gpu, "PARTITION_COUNT") == "10"


def test_06_an_init_container_has_the_gpu_of_the_container():
    name = "initcontainer-shared-gpu"
    lab, _ = demonstrated(name)
    shared_by_time(lab, name, ("pod0", "init0"), ("pod0", "ctr0"))


def test_07_admin_access_is_told():
    name = "admin-access"
    lab, _ = demonstrated(name)
    assert 'declare -x DRA_ADMIN_ACCESS="true"\n' in lab.log(name, "pod0")


def test_08_extended_resources_become_claims():
    name = "extended-resource-request"
    lab, pods = demonstrated(name, extended="example.com/gpu")
    assert one_gpu(lab, name, "pod0") != one_gpu(lab, name, "pod1")
    wanted = {
        "pod0": "deviceclass.resource.kubernetes.io/gpu.example.com",
        "pod1": "example.com/gpu",
    }
    for pod, resource in wanted.items():
        status = pods[pod]["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"]
        (mapping,) = status["requestMappings"]
        assert mapping["containerName"] == "ctr0"
        assert mapping["resourceName"] == resource
        assert mapping["requestName"]


def test_09_selectors_choose_a_gpu():
    name = "cel-selector"
    lab, _ = demonstrated(name)
    one_gpu(lab, name, "pod0")


def test_10_the_first_alternative_that_exists_is_taken():
    name = "prioritized-alternatives"
    lab, pods = demonstrated(name)
    assert one_gpu(lab, name, "pod0") != one_gpu(lab, name, "pod1")
    by_name = {claim["metadata"]["name"]: claim for claim in claims(lab, name)}
    chosen = {}
    for pod in pods.values():
        (status,) = pod["status"]["resourceClaimStatuses"]
        (result,) = results(by_name[status["resourceClaimName"]])
        chosen[pod["metadata"]["name"]] = result["request"]
    assert chosen == {"pod0": "gpu/older-gpu", "pod1": "gpu/latest-gpu"}


def test_11_a_pod_group_shares_a_claim():
    name = "podgroup-resourceclaimtemplate"
    lab, pods = demonstrated(name)
    for deployment in lab.client.list(DEPLOYMENTS, name).items:
        assert deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
        assert deployment["status"]["availableReplicas"] == 2
    groups = {}
    for pod_name, pod in pods.items():
        group = pod["spec"]["schedulingGroup"]["podGroupName"]
        groups.setdefault(group, []).append(pod_name)
    assert {len(members) for members in groups.values()} == {2}
    found = {shared_by_time(lab, name, *((pod,) for pod in pods)) for pods in groups.values()}
    assert len(found) == 2


def test_12_network_cards_are_shared_by_bandwidth():
    name = "net-consumable-capacity"
    lab, _ = demonstrated(name, partial(FakeNics, count=4))
    for pod in ("pod0", "pod1"):
        assert "GRESS_RATE=" in lab.log(name, pod)


@pytest.mark.parametrize("partitions", [0, 4], ids=["13_whole", "15_partitioned"])
def test_13_and_15_devices_that_many_may_have_say_in_which_steps(partitions):
    lab = SimulatedCluster(nodes=["n1"], drivers=[partial(GPU, shared=True, partitions=partitions)])
    devices = [
        device for obj in lab.client.list(SLICES).items for device in obj["spec"].get("devices", ())
    ]
    assert devices
    for device in devices:
        assert device["allowMultipleAllocations"]
        for key in ("memory", "compute"):
            policy = device["capacity"][key]["requestPolicy"]["validRange"]
            assert {"min", "step", "max"} <= policy.keys()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("gpu-allow-multiple-allocations", 0),
        ("gpu-allow-multiple-allocations-partitionable", 4),
    ],
    ids=["14_whole", "16_partitioned"],
)
def test_14_and_16_claims_share_a_gpu_by_capacity(name, partitions):
    lab, pods = demonstrated(name, partial(GPU, shared=True, partitions=partitions))
    found = [result for claim in claims(lab, name) for result in results(claim)]
    assert len({result["shareID"] for result in found}) == len(pods)
    for result in found:
        assert result["consumedCapacity"]["memory"] not in {"", "0"}
        assert result["consumedCapacity"]["compute"] not in {"", "0"}
    for pod in pods:
        log = lab.log(name, pod)
        for gpu in gpus(log):
            assert of_gpu(log, gpu, "MEMORY")
            assert of_gpu(log, gpu, "COMPUTE")


def test_17_partitions_are_devices():
    name = "partitionable-devices"
    lab, _ = demonstrated(name, partial(GPU, partitions=4))
    assert len(set(gpus(lab.log(name, "pod0")))) == 2


@pytest.mark.parametrize("form", ["nodeAllocatableResources", "nodeAllocatableResourceMappings"])
def test_18_cpus_of_a_device_are_cpus_of_the_node(form):
    name = "native-resource-request"
    cpus = partial(
        FakeCpus, numa_nodes=1, cpus_per_numa_node=2, as_of_1_36=form.endswith("Mappings")
    )
    lab, pods = demonstrated(name, cpus, features=with_gates("DRANodeAllocatableResources=true"))
    for obj in lab.client.list(SLICES).items:
        for device in obj["spec"]["devices"]:
            mapping = device[form]["cpu"]
            assert mapping.get("mapping", mapping)["capacityKey"] == "cpu.example.com/cpu"
    (claim,) = claims(lab, name)
    (status,) = pods["pod0"]["status"]["nodeAllocatableResourceClaimStatuses"]
    assert status == {
        "resourceClaimName": claim["metadata"]["name"],
        "containers": ["ctr0"],
        "resources": {"cpu": "2"},
        "mapping": [{"name": "cpu", "quantity": "2"}],
    }
    assert "CPU_DEVICE_0_CONSUMED_CPU=" in lab.log(name, "pod0")
    first, second = results(claim)
    assert first["device"] == second["device"]
    assert first["shareID"]
    assert second["shareID"]
    assert first["shareID"] != second["shareID"]


def test_18_without_the_feature_cpus_of_a_device_are_none_of_the_node():
    name = "native-resource-request"
    lab, pods = demonstrated(name, partial(FakeCpus, numa_nodes=1, cpus_per_numa_node=2))
    assert "nodeAllocatableResourceClaimStatuses" not in pods["pod0"]["status"]
    for obj in lab.client.list(SLICES).items:
        assert not any("nodeAllocatable" in str(device) for device in obj["spec"]["devices"])


def test_22_devices_name_their_binding_conditions():
    lab = SimulatedCluster(nodes=["n1"], drivers=[partial(GPU, binding=True)])
    devices = [d for obj in lab.client.list(SLICES).items for d in obj["spec"]["devices"]]
    assert devices
    assert all(device["bindingConditions"] for device in devices)


def test_23_a_pod_waits_for_its_device_to_be_ready():
    name = "binding-conditions"
    lab, _ = demonstrated(
        name,
        partial(GPU, binding=True),
        before=lambda lab: ReadyDevices(lab.manager, "gpu.example.com"),
    )
    one_gpu(lab, name, "pod0")


def test_23_without_the_controller_it_waits():
    name = "binding-conditions"
    lab = SimulatedCluster(nodes=["n1"], drivers=[partial(GPU, binding=True)])
    lab.create((EXAMPLES / name / f"{name}.yaml").read_text())
    lab.wait(30)
    assert lab.pods(name)["pod0"]["status"]["phase"] == "Pending"
