"""The cases of Kubernetes' end-to-end suite for DRA about pods and their claims (1.36).

test/e2e/dra/dra.go: control plane and kubelet, on one and several nodes. The suite runs most of
them twice, without and with a kubelet; here the pods run in each. Minutes are simulated.
"""

import pytest

from dralab.runtime.resources import CLAIMS, CLASSES, PODS, SLICES, Resource
from suitelab import NAME, SuiteLab

EXPECTED = {"user_a": "b", "admin_x": "y"}


@pytest.fixture
def lab():
    """One node with one device, and a class with parameters."""
    return SuiteLab(parameters={"x": "y"})


def sees(lab, pod, *containers, **expected):
    """Whether the containers of a running pod see what they should."""
    assert lab.is_running(pod), lab.get(pod)["status"]
    for container in containers or ("with-resource",):
        found = lab.env(pod, container)
        assert expected.items() <= found.items(), found
    return True


# --- on a single node -------------------------------------------------------------------------


def test_supports_claim_and_class_parameters(lab):
    lab.create(lab.template("t"), lab.pod("p", inline=["t"]))
    assert sees(lab, "p", **EXPECTED)


def test_supports_reusing_resources(lab):
    lab.create(*(lab.template(f"t{i}") for i in range(5)))
    lab.create(*(lab.pod(f"p{i}", inline=[f"t{i}"]) for i in range(5)))
    waiting = {f"p{i}" for i in range(5)}
    while waiting:
        running = [name for name in waiting if lab.phase(name) == "Running"]
        assert len(running) == 1, "there is one device"
        assert sees(lab, running[0], **EXPECTED)
        lab.delete("default", running[0])
        waiting -= set(running)
    assert lab.driver.prepared == {}


def test_supports_sharing_a_claim_concurrently(lab):
    lab.create(lab.claim("c"), *(lab.pod(f"p{i}", external=["c"]) for i in range(5)))
    assert all(sees(lab, f"p{i}", **EXPECTED) for i in range(5))
    assert len(lab.get("c", CLAIMS)["status"]["reservedFor"]) == 5


def test_retries_pod_scheduling_after_creating_device_class(lab):
    other = {**lab.get(NAME, CLASSES), "metadata": {"name": "later"}}
    lab.create(lab.template("t", lab.request("req-0", "later")), lab.pod("p", inline=["t"]))
    assert lab.why_pending("p")
    lab.create(other)
    assert sees(lab, "p", **EXPECTED)


def test_retries_pod_scheduling_after_updating_device_class(lab):
    right = lab.get(NAME, CLASSES)["spec"]["selectors"]
    lab.update_class(selectors=[{"cel": {"expression": "false"}}])
    lab.create(lab.template("t"), lab.pod("p", inline=["t"]))
    assert lab.why_pending("p")
    lab.update_class(selectors=right)
    assert sees(lab, "p", **EXPECTED)


def test_runs_a_pod_without_a_generated_resource_claim(lab):
    lab.create(lab.pod("p", inline=["not-there"]))
    assert lab.phase("p") == "Pending"
    status = {"resourceClaimStatuses": [{"name": "not-there"}]}
    lab.client.patch(PODS, "p", {"status": status}, "default", subresource="status")
    lab.wait(120)
    assert sees(lab, "p")
    assert lab.all(CLAIMS) == []


def test_supports_simple_pod_referencing_inline_resource_claim(lab):
    lab.create(lab.template("t"), lab.pod("p", inline=["t"]))
    assert sees(lab, "p", user_a="b")


def test_supports_inline_claim_referenced_by_multiple_containers(lab):
    names = ("first", "second", "third")
    lab.create(lab.template("t"), lab.pod("p", inline=["t"], containers=names))
    assert sees(lab, "p", *names, user_a="b")


def test_supports_simple_pod_referencing_external_resource_claim(lab):
    lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    assert sees(lab, "p", user_a="b", claim_c_req_0="true")


@pytest.mark.parametrize("containers", [("one",), ("one", "two", "three")], ids=["", "multiple"])
def test_supports_external_claim_referenced_by_containers_of_multiple_pods(lab, containers):
    pods = [lab.pod(f"p{i}", external=["c"], containers=containers) for i in range(3)]
    lab.create(lab.claim("c"), *pods)
    assert all(sees(lab, f"p{i}", *containers, user_a="b") for i in range(3))


def test_supports_init_containers(lab):
    init = lab.container("init", {"claims": [{"name": "t"}]}, "export")
    lab.create(lab.template("t"), lab.pod("p", inline=["t"], initContainers=[init]))
    assert sees(lab, "p", "init", "with-resource", user_a="b")


def test_must_deallocate_after_use(lab):
    lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    assert lab.results("c")
    assert sees(lab, "p")
    lab.delete("default", "p")
    assert "allocation" not in lab.get("c", CLAIMS)["status"]


def test_supports_extended_resources_together_with_resource_claim(lab):
    """The suite's device plugin is a capacity of the node here: there are no device plugins."""
    lab.client.patch(
        Resource("", "v1", "nodes", namespaced=False),
        "node-0",
        {"status": {part: {"example.com/resource": "2"} for part in ("capacity", "allocatable")}},
        subresource="status",
    )
    pod = lab.pod("p", external=["c"])
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] = resources["limits"] = {"example.com/resource": "1"}
    lab.create(lab.claim("c"), pod)
    assert sees(lab, "p", user_a="b")
    assert "extendedResourceClaimStatus" not in lab.get("p")["status"]


def test_requests_an_already_allocated_and_a_new_claim_for_a_pod():
    lab = SuiteLab(2)
    lab.create(lab.claim("first"), lab.claim("second"), lab.pod("p1", external=["first"]))
    assert sees(lab, "p1", claim_first_req_0="true")
    lab.create(lab.pod("p2", external=["first", "second"]))
    assert sees(lab, "p2", claim_first_req_0="true", claim_second_req_0="true")


# --- on multiple nodes ------------------------------------------------------------------------


def test_keeps_pod_pending_because_of_cel_runtime_errors():
    good = {"name": "one", "attributes": {"healthy": {"bool": True}, "exists": {"bool": True}}}
    bad = {"name": "two", "attributes": {"healthy": {"bool": False}}}
    lab = SuiteLab([[good], [bad]], nodes=2)
    assert {s["spec"]["devices"][0]["name"] for s in lab.all(SLICES)} == {"one", "two"}
    cel = {"cel": {"expression": f'device.attributes["{NAME}"].exists'}}
    lab.create(lab.template("t", lab.request("r", selectors=[cel])), lab.pod("p", inline=["t"]))
    pod = lab.get("p")
    [condition] = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert condition["status"] == "False"
    assert "CEL runtime error" in condition["message"]
    assert "nodeName" not in pod["spec"]


def test_uses_all_resources():
    lab = SuiteLab(1, nodes=8)
    lab.create(*(lab.template(f"t{i}") for i in range(8)))
    lab.create(*(lab.pod(f"p{i}", inline=[f"t{i}"]) for i in range(8)))
    lab.wait(30)
    assert all(sees(lab, f"p{i}") for i in range(8))
    assert len({lab.get(f"p{i}")["spec"]["nodeName"] for i in range(8)}) == 8


# --- prioritized list -------------------------------------------------------------------------


def device(name, version, root):
    values = {"version": version, "pcieRoot": root}
    return {
        "name": name,
        "attributes": {f"{NAME}/{key}": {"string": item} for key, item in values.items()},
    }


OTHER = "other-1.example.com"


@pytest.fixture
def two():
    """Two devices of one driver, and one of another."""
    devices = [device("device-1-1", "1.0.0", "bar"), device("device-1-2", "2.0.0", "foo")]
    lab = SuiteLab([devices], parameters={"driver": "1"})
    lab.run_driver("node-0", [device("device-2-1", "1.0.0", "foo")], name=OTHER)
    spec = {
        "selectors": [{"cel": {"expression": f"device.driver == '{OTHER}'"}}],
        "config": [lab.config({"driver": "2"}, driver=OTHER)],
    }
    lab.create(lab.object("DeviceClass", OTHER, spec=spec))
    return lab


def choice(*counts):
    """A request that takes the first of several numbers of devices."""
    parts = [
        {"name": f"sub-request-{i}", "deviceClassName": NAME, "count": count}
        for i, count in enumerate(counts, 1)
    ]
    return {"name": "request-1", "firstAvailable": parts}


def test_selects_the_first_subrequest_that_can_be_satisfied(two):
    two.create(two.claim("c", choice(3, 2, 1)), two.pod("p", external=["c"]))
    assert sees(two, "p")
    assert [r["request"] for r in two.results("c")] == ["request-1/sub-request-2"] * 2


def test_uses_the_config_for_the_selected_subrequest(two):
    config = [
        two.config({"a": "b"}, "request-1"),
        two.config({"c": "d"}, "request-1/sub-request-1"),
        two.config({"e": "f"}, "request-1/sub-request-2"),
    ]
    two.create(two.claim("c", choice(3, 2), config=config), two.pod("p", external=["c"]))
    assert sees(two, "p", user_a="b", user_e="f")
    assert "user_c" not in two.env("p")


def test_chooses_the_correct_subrequest_subject_to_constraints(two):
    constraints = [
        {"requests": ["request-1", "request-2"], "matchAttribute": f"{NAME}/version"},
        {
            "requests": ["request-1/sub-request-1", "request-2"],
            "matchAttribute": f"{NAME}/pcieRoot",
        },
    ]
    requests = [choice(1, 1), two.request("request-2", OTHER)]
    two.create(two.claim("c", *requests, constraints=constraints), two.pod("p", external=["c"]))
    assert sees(two, "p")
    assert [r["request"] for r in two.results("c")] == ["request-1/sub-request-2", "request-2"]


def test_filters_config_correctly_for_multiple_devices(two):
    config = [
        two.config({"a": "b"}, "request-1"),
        two.config({"c": "d"}, "request-1/sub-request-1"),
        two.config({"e": "f"}, "request-1/sub-request-2"),
        two.config({"g": "h"}, "request-2", driver=OTHER),
    ]
    claim = two.claim("c", choice(20, 1), two.request("request-2", OTHER), config=config)
    pod = two.pod("p", external=["c"], containers=("zero", "one"))
    for container, request in zip(
        pod["spec"]["containers"], ("request-1", "request-2"), strict=True
    ):
        container["resources"] = {"claims": [{"name": "c", "request": request}]}
    two.create(claim, pod)
    assert [r["request"] for r in two.results("c")] == ["request-1/sub-request-2", "request-2"]
    first = {"claim_c_request_1": "true", "user_a": "b", "user_e": "f", "admin_driver": "1"}
    second = {"claim_c_request_2": "true", "user_g": "h", "admin_driver": "2"}
    assert (two.env("p", "zero"), two.env("p", "one")) == (first, second)


# --- shared devices, older versions, taints ---------------------------------------------------


def test_must_allow_multiple_allocations_and_consume_capacity():
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    shared = {
        "name": "consumable-device-1",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8Gi", "requestPolicy": policy}},
    }
    lab = SuiteLab([[shared]])

    def ask(number, amount):
        request = lab.request("req-0", capacity={"requests": {"memory": amount}})
        lab.create(lab.claim(f"c{number}", request), lab.pod(f"p{number}", external=[f"c{number}"]))

    ask(1, "4Gi")
    assert sees(lab, "p1")
    ask(2, "8Gi")
    ask(3, "4Gi")
    assert sees(lab, "p3")
    lab.wait(20)
    assert lab.phase("p2") == "Pending"
    assert lab.why_pending("p2")
    lab.delete("default", "p1", "p3")
    assert sees(lab, "p2")


def test_must_consume_and_free_up_counters():
    four = [{"counterSet": "counter-1", "counters": {"memory": {"value": "4Gi"}}}]
    devices = [{"name": f"device-{i}", "consumesCounters": four} for i in (1, 2)]
    counters = [{"name": "counter-1", "counters": {"memory": {"value": "6Gi"}}}]
    lab = SuiteLab([devices], counters=counters)
    lab.create(lab.claim("c1"), lab.pod("p1", external=["c1"]))
    assert sees(lab, "p1")
    lab.create(lab.claim("c2"), lab.pod("p2", external=["c2"]))
    lab.wait(20)
    assert lab.why_pending("p2")
    lab.delete("default", "p1")
    assert sees(lab, "p2")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
class TestOlderVersions:
    def test_supports_simple_resource_claim(self, lab, version):
        template = {**lab.template("t"), "apiVersion": f"resource.k8s.io/{version}"}
        if version == "v1beta1":
            [request] = template["spec"]["spec"]["devices"]["requests"]
            request |= request.pop("exactly")
        lab.create(template, lab.pod("p", inline=["t"]))
        assert sees(lab, "p", **EXPECTED)

    def test_supports_requests_with_alternatives(self, lab, version):
        claim = {**lab.claim("c", choice(2, 1)), "apiVersion": f"resource.k8s.io/{version}"}
        lab.create(claim, lab.pod("p", external=["c"]))
        assert sees(lab, "p", **EXPECTED)
        held = lab.get("c", Resource("resource.k8s.io", version, "resourceclaims"))
        [result] = held["status"]["allocation"]["devices"]["results"]
        assert result["request"] == "request-1/sub-request-2"


def tainted(effect):
    taint = {"key": "example.com/taint", "value": "tainted", "effect": effect}
    return SuiteLab([[{"name": "device-0", "taints": [taint]}]])


def tolerant(lab, effect):
    toleration = {"effect": effect, "operator": "Exists"}
    return lab.template("t", lab.request("r", tolerations=[toleration]))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_pod_pending(effect):
    lab = tainted(effect)
    lab.create(lab.template("t"), lab.pod("p", inline=["t"]))
    assert lab.why_pending("p")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_can_be_tolerated(effect):
    lab = tainted(effect)
    lab.create(tolerant(lab, effect), lab.pod("p", inline=["t"]))
    lab.wait(60)
    assert sees(lab, "p", user_a="b")


def test_device_taint_rule_evicts_pod():
    lab = tainted("NoSchedule")
    pod = lab.pod("p", inline=["t"])
    pod["metadata"]["finalizers"] = ["e2e-test/dont-delete-me"]
    lab.create(tolerant(lab, "NoSchedule"), pod)
    assert sees(lab, "p")
    taint = {"key": "test.example.com/evict", "value": "now", "effect": "NoExecute"}
    spec = {"deviceSelector": {"driver": NAME}, "taint": taint}
    [rule] = lab.create(lab.object("DeviceTaintRule", "rule", version="v1alpha3", spec=spec))
    assert rule["spec"]["taint"]["timeAdded"] == rule["metadata"]["creationTimestamp"]
    held = lab.get("p")
    assert "deletionTimestamp" in held["metadata"]
    [found] = [c for c in held["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"], found["message"]) == (
        "True",
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
    )
