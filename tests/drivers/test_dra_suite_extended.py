"""The cases of Kubernetes' end-to-end suite for DRA about extended resources (1.36).

test/e2e/dra/dra.go, feature gate DRAExtendedResource, which is on by default.
"""

import pytest

from dralab.api.status import ApiError
from dralab.runtime.resources import CLAIMS, NODES, PODS, Resource
from suitelab import NAME, SuiteLab

QUOTAS = Resource("", "v1", "resourcequotas")
IMPLICIT = f"deviceclass.resource.kubernetes.io/{NAME}"


def resource(number):
    return f"example.com/resource-{number}"


def class_of(lab, number):
    """A class of the driver's devices that provides an extended resource."""
    cel = [{"cel": {"expression": f"device.driver == '{NAME}'"}}]
    spec = {"selectors": cel, "extendedResourceName": resource(number)}
    return lab.object("DeviceClass", f"{NAME}-{number}", spec=spec)


@pytest.fixture
def lab():
    """Ten devices on one node; the driver's class provides a resource."""
    lab = SuiteLab(10)
    lab.update_class(extendedResourceName=resource(0))
    return lab


def asking(lab, name, *containers, command="export; sleep 100000", **more):
    """A pod whose containers ask for amounts of resources."""
    pod = lab.pod(name, containers=[f"container{i}" for i in range(len(containers))], **more)
    for container, amounts in zip(pod["spec"]["containers"], containers, strict=True):
        wanted = {key: str(value) for key, value in amounts.items()}
        container["resources"] = {"requests": wanted, "limits": wanted}
        container["command"][-1] = command
    return pod


def requests_seen(lab, pod, container):
    """The requests whose devices a container has, such as `container_0_request_0`."""
    return sorted(
        key[key.index("container_") :] for key in lab.env(pod, container) if "container_" in key
    )


def status_of(lab, pod):
    return lab.get(pod)["status"].get("extendedResourceClaimStatus")


NUMBERS = {
    "one container one resource": [[0]],
    "one container three resources": [[0, 1, 2]],
    "three containers one resource each": [[0], [1], [2]],
    "three containers multiple resources each": [[0], [1, 2], [3, 4, 5]],
}


@pytest.mark.parametrize("containers", NUMBERS.values(), ids=NUMBERS)
def test_must_run_a_pod_with_extended_resource(lab, containers):
    used = {number for numbers in containers for number in numbers}
    lab.create(*(class_of(lab, number) for number in used - {0}))
    lab.create(asking(lab, "p", *({resource(n): 1 for n in numbers} for numbers in containers)))
    assert lab.is_running("p")
    for index, numbers in enumerate(containers):
        expected = [f"container_{index}_request_{i}" for i in range(len(numbers))]
        assert requests_seen(lab, "p", f"container{index}") == expected


def with_init_containers(lab, amounts):
    """The suite's pod: two init containers and a sidecar that ask for the same, one for twice."""
    pod = asking(lab, "p", amounts)
    [main] = pod["spec"]["containers"]
    twice = {key: 2 * value for key, value in amounts.items()}
    begin = asking(lab, "x", twice, command="export")["spec"]["containers"][0]
    sidecar = {**main, "restartPolicy": "Always"}
    last = asking(lab, "x", amounts, command="export")["spec"]["containers"][0]
    made = {"init": begin, "sidecar": sidecar, "init-1": last}
    pod["spec"]["initContainers"] = [{**each, "name": name} for name, each in made.items()]
    return pod


def test_must_run_a_pod_with_both_implicit_and_explicit_extended_resource(lab):
    lab.create(with_init_containers(lab, {IMPLICIT: 1, resource(0): 1}))
    assert lab.is_running("p"), lab.get("p")["status"]
    # Init containers that end use the devices of those that stay; the sidecar's are container 1's.
    wanted = {"init": (1, 3), "sidecar": (1,), "init-1": (3,), "container0": (3,)}
    for name, indexes in wanted.items():
        expected = [f"container_{index}_request_{i}" for index in indexes for i in (0, 1)]
        assert requests_seen(lab, "p", name) == expected
    assert len(lab.results(status_of(lab, "p")["resourceClaimName"])) == 4


def test_must_run_a_pod_with_extended_resource_with_resource_quota(lab):
    devices = f"{NAME}.deviceclass.resource.k8s.io/devices"
    explicit, implicit = f"requests.{resource(0)}", f"requests.{IMPLICIT}"
    count = "count/resourceclaims.resource.k8s.io"
    hard = dict.fromkeys((count, explicit, implicit, devices), "10")
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}}
    lab.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    lab.create(with_init_containers(lab, {IMPLICIT: 1, resource(0): 1}))
    assert lab.is_running("p"), lab.get("p")["status"]
    assert requests_seen(lab, "p", "container0") == [f"container_3_request_{i}" for i in (0, 1)]
    lab.create(lab.claim("c"), lab.pod("p2", external=["c"]))
    assert lab.is_running("p2")
    lab.wait(60)
    used = lab.get("q", QUOTAS)["status"]["used"]
    # A server of 1.36 counts 5 devices by each name; here those of the pod's own claim are counted
    # with the pod, by the name under which it asks for them.
    assert used == {count: "2", explicit: "2", implicit: "3", devices: "3"}


ENDS = {"complete": ("sleep 2", "Succeeded"), "fail": ("sleep 2; exit 1", "Failed")}


@pytest.mark.parametrize(("command", "phase"), ENDS.values(), ids=ENDS)
def test_must_cleanup_extended_resource_claims_when_pods_end(lab, command, phase):
    lab.client.create(
        PODS, asking(lab, "p", {resource(0): 1}, command=command, restartPolicy="Never"), "default"
    )
    lab.wait(1)
    assert status_of(lab, "p")["resourceClaimName"] in {
        claim["metadata"]["name"] for claim in lab.all(CLAIMS)
    }
    lab.wait(60)
    assert lab.phase("p") == phase
    assert lab.all(CLAIMS) == []


def offer(lab, node, amount):
    """Have a node offer a resource, as a device plugin does: there are no plugins here."""
    offered = {resource(9): str(amount)}
    status = {"capacity": offered, "allocatable": offered}
    lab.client.patch(NODES, node, {"status": status}, subresource="status")


def test_process_extended_resources_after_device_plugin_uninstall(lab):
    offer(lab, "node-0", 2)
    offer(lab, "node-0", 0)
    lab.create(class_of(lab, 9), asking(lab, "p", {resource(9): 1}))
    assert lab.is_running("p")
    assert requests_seen(lab, "p", "container0") == ["container_0_request_0"]


def test_must_prevent_overcommitment_of_extended_resources(lab):
    lab.create(asking(lab, "p1", {resource(0): 10}))
    assert lab.is_running("p1")
    lab.create(asking(lab, "p2", {resource(0): 10}))
    assert lab.why_pending("p2")
    lab.delete("default", "p1")
    assert lab.is_running("p2")
    assert requests_seen(lab, "p2", "container0") == ["container_0_request_0"]


def test_must_reject_pod_with_invalid_extended_resource_name(lab):
    with pytest.raises(ApiError) as error:
        lab.create(asking(lab, "p", {"invalid_resource_name": 1}))
    assert error.value.reason == "Invalid"


def test_must_accurately_populate_extended_resource_claim_status(lab):
    lab.create(class_of(lab, 1), asking(lab, "p", {resource(0): 2, resource(1): 1}))
    assert lab.is_running("p")
    found = status_of(lab, "p")
    assert found["resourceClaimName"]
    assert found["requestMappings"] == [
        {
            "containerName": "container0",
            "resourceName": resource(i),
            "requestName": f"container-0-request-{i}",
        }
        for i in (0, 1)
    ]


def test_must_run_a_pod_with_extended_resource_requesting_zero(lab):
    lab.create(asking(lab, "p", {resource(0): 0}))
    assert lab.is_running("p")
    assert status_of(lab, "p") is None


def test_must_process_extended_resource_after_device_class_creation(lab):
    lab.create(asking(lab, "p", {resource(1): 1}))
    assert lab.why_pending("p")
    lab.create(class_of(lab, 1))
    assert lab.is_running("p")
    assert requests_seen(lab, "p", "container0") == ["container_0_request_0"]


def test_must_run_pods_with_extended_resource_on_dra_nodes_and_device_plugin_nodes():
    lab = SuiteLab([[{"name": "a"}, {"name": "b"}], []], nodes=2)
    offer(lab, "node-1", 2)
    lab.create(class_of(lab, 9), *(asking(lab, name, {resource(9): 2}) for name in ("p1", "p2")))
    lab.wait(20)
    pods = {lab.get(name)["spec"]["nodeName"]: name for name in ("p1", "p2")}
    assert all(map(lab.is_running, pods.values()))
    assert status_of(lab, pods["node-1"]) is None
    assert requests_seen(lab, pods["node-0"], "container0") == ["container_0_request_0"]
