"""The cases of Kubernetes' end-to-end suite for DRA that came with 1.36: pools and PodGroups.

test/e2e/dra/dra.go, feature gates DRAResourcePoolStatus, GenericWorkload and
DRAWorkloadResourceClaims.
"""

import pytest

from dralab.runtime.resources import CLAIMS, POOL_STATUS_REQUESTS, SLICES
from suitelab import NAME, SuiteLab, plain

# --- the status of pools ----------------------------------------------------------------------


def publish(lab, name, devices, *, pool, slices=1, **where):
    """Publish a slice without a driver, as the suite does with devices of a network."""
    spec = {
        "driver": NAME,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices},
        "devices": devices,
        **where,
    }
    lab.client.create(SLICES, {"metadata": {"name": name}, "spec": spec})


@pytest.fixture
def network():
    """A pool of ten devices that all nodes reach."""
    lab = SuiteLab(0)
    publish(lab, "network", plain(10), pool="network", allNodes=True)
    lab.wait(5)
    return lab


@pytest.fixture
def local():
    """Two nodes with a pool of one device each."""
    return SuiteLab(1, nodes=2)


def ask(lab, **spec):
    """Create a request, and return it as it is answered."""
    body = {"metadata": {"generateName": "e2e-"}, "spec": {"driver": NAME, **spec}}
    made = lab.client.create(POOL_STATUS_REQUESTS, body)
    lab.wait(15)
    return lab.get(made["metadata"]["name"], POOL_STATUS_REQUESTS)


def is_complete(request):
    conditions = request["status"]["conditions"]
    return ("Complete", "True") in [(each["type"], each["status"]) for each in conditions]


def test_should_report_pool_status_with_correct_device_counts(network):
    found = ask(network)
    assert is_complete(found)
    assert found["status"]["poolCount"] == 1
    assert found["status"]["pools"] == [
        {
            "driver": NAME,
            "poolName": "network",
            "generation": 1,
            "resourceSliceCount": 1,
            "totalDevices": 10,
            "allocatedDevices": 0,
            "availableDevices": 10,
            "unavailableDevices": 0,
        }
    ]


def test_should_reflect_allocated_devices_after_pod_is_scheduled(network):
    network.create(network.template("t"), network.pod("p", inline=["t"]))
    [claim] = network.all(CLAIMS)
    assert claim["status"]["allocation"]
    found = ask(network)
    assert is_complete(found)
    [pool] = found["status"]["pools"]
    assert (pool["totalDevices"], pool["allocatedDevices"], pool["availableDevices"]) == (10, 1, 9)
    assert pool["unavailableDevices"] == 0


def test_should_populate_status_for_all_matching_pools(local):
    found = ask(local)
    assert is_complete(found)
    assert (found["status"]["poolCount"], len(found["status"]["pools"])) == (2, 2)


def test_should_filter_by_pool_name(local):
    name = ask(local)["status"]["pools"][0]["poolName"]
    found = ask(local, poolName=name)["status"]
    assert found["poolCount"] == 1
    assert [pool["poolName"] for pool in found["pools"]] == [name]


def test_should_truncate_results_when_limit_is_reached(local):
    found = ask(local, limit=1)["status"]
    assert (found["poolCount"], len(found["pools"])) == (2, 1)


def test_should_return_empty_pools_for_unknown_driver(local):
    found = ask(local, driver="nonexistent.driver.example.com")["status"]
    assert (found["poolCount"], found.get("pools", [])) == (0, [])


def test_should_not_reprocess_after_status_is_set(local):
    first = ask(local)
    publish(local, "more", plain(1), pool="more", allNodes=True)
    local.wait(30)
    assert local.get(first["metadata"]["name"], POOL_STATUS_REQUESTS) == first


def test_should_set_node_name_when_all_slices_share_the_same_node(local):
    found = ask(local)
    assert is_complete(found)
    assert sorted(pool["nodeName"] for pool in found["status"]["pools"]) == ["node-0", "node-1"]


def test_should_clear_node_name_when_pool_has_slices_on_different_nodes(local):
    for number in range(2):
        device = [{"name": f"device-{number}"}]
        where = {"pool": "mixed-node-pool", "slices": 2, "nodeName": f"node-{number}"}
        publish(local, f"mixed-{number}", device, **where)
    found = ask(local, poolName="mixed-node-pool")
    assert is_complete(found)
    [pool] = found["status"]["pools"]
    assert "nodeName" not in pool
    assert pool["totalDevices"] == 2


# --- claims of PodGroups ----------------------------------------------------------------------


def group_of(*, external="", inline=""):
    """A Workload with one group that has a claim, and the PodGroup made from it."""
    claim = {"resourceClaimName": external} if external else {"resourceClaimTemplateName": inline}
    parts = {
        "schedulingPolicy": {"basic": {}},
        "resourceClaims": [{"name": "resource-claim", **claim}],
    }
    api = {"apiVersion": "scheduling.k8s.io/v1alpha2"}
    workload = {
        **api,
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"podGroupTemplates": [{"name": "group", **parts}]},
    }
    template = {"workload": {"workloadName": "w", "podGroupTemplateName": "group"}}
    group = {
        **api,
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"podGroupTemplateRef": template, **parts},
    }
    return workload, group


def member(lab, name="p", **claim):
    """A pod of the group that uses the group's claim."""
    pod = lab.pod(name, **claim, schedulingGroup={"podGroupName": "g"})
    pod["spec"]["resourceClaims"][0]["name"] = "resource-claim"
    pod["spec"]["containers"][0]["resources"]["claims"][0]["name"] = "resource-claim"
    return pod


def is_the_group_s(lab):
    """Whether the only claim is reserved for the group, as its pods share it."""
    [claim] = lab.all(CLAIMS)
    [consumer] = claim["status"]["reservedFor"]
    return (consumer["resource"], consumer["name"]) == ("podgroups", "g")


def tainted():
    taint = {"key": "example.com/taint", "value": "tainted", "effect": "NoSchedule"}
    return SuiteLab([[{"name": "device-0", "taints": [taint]}]])


def tolerating(lab):
    toleration = {"effect": "NoSchedule", "operator": "Exists"}
    return lab.template("t", lab.request("r", tolerations=[toleration]))


def test_allocates_devices_for_pod_groups():
    lab = SuiteLab()
    lab.create(*group_of(external="c"), lab.claim("c"), member(lab, external=["c"]))
    assert lab.is_running("p")
    assert lab.env("p")["user_a"] == "b"
    assert is_the_group_s(lab)


def test_generates_claims_from_templates_for_pod_groups():
    lab = SuiteLab()
    pods = member(lab, "p", inline=["t"]), member(lab, "q", inline=["t"])
    lab.create(*group_of(inline="t"), lab.template("t"), *pods)
    assert lab.is_running("p")
    assert lab.is_running("q")
    assert lab.env("p") == lab.env("q")
    assert lab.env("p")["user_a"] == "b"
    assert is_the_group_s(lab)


def test_no_schedule_keeps_pod_with_pod_group_claim_pending():
    lab = tainted()
    lab.create(*group_of(inline="t"), member(lab, inline=["t"]), lab.template("t"))
    assert lab.why_pending("p")


def test_no_schedule_can_be_tolerated_for_pod_group_claims():
    lab = tainted()
    lab.create(*group_of(inline="t"), member(lab, inline=["t"]), tolerating(lab))
    lab.wait(60)
    assert lab.is_running("p")
    assert lab.env("p")["user_a"] == "b"


def test_device_taint_rule_evicts_pod_with_pod_group_claim():
    lab = tainted()
    pod = member(lab, inline=["t"])
    pod["metadata"]["finalizers"] = ["e2e-test/dont-delete-me"]
    lab.create(*group_of(inline="t"), tolerating(lab), pod)
    lab.wait(60)
    assert lab.is_running("p")
    taint = {"key": "test.example.com/evict", "value": "now", "effect": "NoExecute"}
    spec = {"deviceSelector": {"driver": NAME}, "taint": taint}
    [rule] = lab.create(lab.object("DeviceTaintRule", "rule", version="v1beta2", spec=spec))
    assert rule["spec"]["taint"]["timeAdded"] == rule["metadata"]["creationTimestamp"]
    held = lab.get("p")
    assert "deletionTimestamp" in held["metadata"]
    [found] = [c for c in held["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (found["reason"], found["message"]) == (
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
    )
