import pytest

from builders import claim, device, device_class, pod, pool, request
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.api.status import ApiError
from dralab.controllers.claims import FINALIZER, ResourceClaims
from dralab.controllers.garbage_collection import GarbageCollector
from dralab.controllers.generated_claims import base_name
from dralab.runtime.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CLASSES,
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    SLICES,
)
from dralab.scheduler.scheduler import Scheduler
from labs import Lab


def template(name, *requests):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "metadata": {"labels": {"from": name}},
            "spec": {"devices": {"requests": list(requests)}},
        },
    }


def from_template(name, entry="gpu", source="t", **more):
    made = pod(name, **more)
    made["spec"]["resourceClaims"] = [{"name": entry, "resourceClaimTemplateName": source}]
    return made


@pytest.fixture
def cluster(lab):
    """Claims controller, scheduler, one node with two devices."""
    ResourceClaims(lab.manager)
    Scheduler(lab.manager, CelSelectorCompiler())
    lab.add_node("n0")
    lab.patch(NODES, "n0", {"spec": {"taints": None}})
    lab.add(CLASSES, device_class("gpu"))
    lab.add(SLICES, *pool("n0", device("d0"), device("d1"), node="n0"))
    lab.start()
    return lab


def named(name, **more):
    return claim(name, request("r"), namespace="default", **more)


def test_a_claim_s_life_step_by_step():
    """Create → finalizer → allocation with reservation → release → deletion, from a watch."""
    lab = Lab()
    ResourceClaims(lab.manager)
    Scheduler(lab.manager, CelSelectorCompiler())
    lab.add_node("n0")
    lab.patch(NODES, "n0", {"spec": {"taints": None}})
    lab.add(CLASSES, device_class("gpu"))
    lab.add(SLICES, *pool("n0", device("d0"), node="n0"))
    lab.start()
    watch = lab.client.watch(CLAIMS, revision=lab.client.list(CLAIMS).revision)
    lab.add(CLAIM_TEMPLATES, template("t", request("r")))
    [owner] = lab.add(PODS, from_template("p"))
    lab.settle()
    lab.end_pod("p")
    lab.settle()
    steps = []
    while (event := watch.next(0)) is not None:
        obj = event.object
        status = obj.get("status") or {}
        steps.append(
            (
                event.type,
                FINALIZER in obj["metadata"].get("finalizers", []),
                "allocation" in status,
                [item["name"] for item in status.get("reservedFor", [])],
                "deletionTimestamp" in obj["metadata"],
            )
        )
    assert steps == [
        ("ADDED", False, False, [], False),
        ("MODIFIED", True, False, [], False),
        ("MODIFIED", True, True, ["p"], False),
        ("MODIFIED", True, False, [], False),
        ("MODIFIED", False, False, [], False),
        ("DELETED", False, False, [], False),
    ]
    assert owner["metadata"]["uid"]


def test_a_template_s_claim_belongs_to_its_pod_and_says_so(cluster):
    cluster.add(CLAIM_TEMPLATES, template("t", request("r")))
    [stored] = cluster.add(PODS, from_template("p"))
    cluster.settle()
    [made] = cluster.all(CLAIMS)
    metadata = made["metadata"]
    assert metadata["name"].startswith("p-gpu-")
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert metadata["labels"] == {"from": "t"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": stored["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert cluster.get(PODS, "p")["status"]["resourceClaimStatuses"] == [
        {"name": "gpu", "resourceClaimName": metadata["name"]}
    ]
    assert cluster.get(PODS, "p")["spec"]["nodeName"] == "n0"


def test_a_missing_template_is_told_and_waited_for(cluster):
    cluster.add(PODS, from_template("p"))
    cluster.settle()
    [event] = [e for e in cluster.all(EVENTS) if e["reason"] == "FailedResourceClaimCreation"]
    assert event["message"].startswith('PodResourceClaim gpu: resource claim template "t": ')
    assert event["source"]["component"] == "resource_claim"
    cluster.add(CLAIM_TEMPLATES, template("t", request("r")))
    cluster.wait(60)
    assert cluster.get(PODS, "p")["spec"]["nodeName"] == "n0"


def test_a_claim_made_before_its_name_was_noted_is_found_again(cluster):
    cluster.add(CLAIM_TEMPLATES, template("t", request("r")))
    cluster.add(PODS, from_template("p", schedulingGates=[{"name": "x/y"}]))
    cluster.settle()
    [made] = cluster.all(CLAIMS)
    cluster.set_status(PODS, "p", resourceClaimStatuses=[])
    cluster.settle()
    assert cluster.names(CLAIMS) == [made["metadata"]["name"]]


@pytest.mark.parametrize(
    ("owner", "entry", "start"),
    [
        ("web", "gpu", "web-gpu-"),
        ("a" * 52, "gpu", "a" * 52 + "-gpu-"),
        ("a" * 60, "b" * 20, "a" * 41 + "-" + "b" * 13),
    ],
)
def test_long_names_are_cut_in_proportion(owner, entry, start):
    assert base_name(owner, entry) == start
    assert len(base_name(owner, entry)) <= 57


def test_a_named_claim_stays_without_devices_when_its_pods_are_done(cluster):
    cluster.add(CLAIMS, named("c"))
    cluster.add(PODS, pod("p0", claims={"g": "c"}), pod("p1", claims={"g": "c"}))
    cluster.settle()
    assert len(cluster.get(CLAIMS, "c")["status"]["reservedFor"]) == 2
    cluster.end_pod("p0", "Failed")
    cluster.settle()
    status = cluster.get(CLAIMS, "c")["status"]
    assert [item["name"] for item in status["reservedFor"]] == ["p1"]
    cluster.delete(PODS, "p1", gracePeriodSeconds=0)
    cluster.settle()
    stored = cluster.get(CLAIMS, "c")
    assert not stored.get("status")
    assert not stored["metadata"].get("finalizers")


def test_a_claim_in_use_cannot_go_before_its_pod(cluster):
    cluster.add(CLAIMS, named("c"))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    cluster.settle()
    cluster.delete(CLAIMS, "c")
    cluster.settle()
    assert cluster.get(CLAIMS, "c")["metadata"]["deletionTimestamp"]
    cluster.end_pod("p")
    cluster.settle()
    assert cluster.find(CLAIMS, "c") is None


def test_devices_come_back_for_the_next_pod(cluster):
    cluster.add(CLAIMS, *(named(f"c{i}") for i in range(3)))
    cluster.add(PODS, *(pod(f"p{i}", claims={"g": f"c{i}"}) for i in range(3)))
    cluster.settle()
    assert "nodeName" not in cluster.get(PODS, "p2")["spec"]
    cluster.end_pod("p0")
    cluster.wait(2)
    assert cluster.get(PODS, "p2")["spec"]["nodeName"] == "n0"


def test_a_pod_bound_by_hand_is_reserved_on_an_allocated_claim(cluster):
    cluster.add(CLAIMS, named("c"))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    cluster.settle()
    cluster.add(PODS, pod("mine", claims={"g": "c"}, schedulerName="hand"))
    cluster.bind("mine", "n0")
    cluster.settle()
    users = [item["name"] for item in cluster.get(CLAIMS, "c")["status"]["reservedFor"]]
    assert users == ["p", "mine"]


def test_a_claim_goes_with_its_pod(cluster):
    GarbageCollector(cluster.manager)
    cluster.add(CLAIM_TEMPLATES, template("t", request("r")))
    cluster.add(PODS, from_template("p"))
    cluster.settle()
    assert len(cluster.all(CLAIMS)) == 1
    cluster.delete(PODS, "p", gracePeriodSeconds=0)
    cluster.settle()
    assert cluster.all(CLAIMS) == []


def test_a_generated_claim_that_was_deleted_is_made_anew(cluster):
    cluster.add(CLAIM_TEMPLATES, template("t", request("r")))
    cluster.add(PODS, from_template("p", schedulingGates=[{"name": "x/y"}]))
    cluster.settle()
    [first] = cluster.names(CLAIMS)
    cluster.delete(CLAIMS, first)
    cluster.settle()
    [second] = cluster.names(CLAIMS)
    assert second != first
    statuses = cluster.get(PODS, "p")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "gpu", "resourceClaimName": second}]


def test_a_pod_group_gets_one_claim_for_all_its_members(cluster):
    cluster.add(CLAIM_TEMPLATES, template("t", request("r")))
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        },
    }
    [stored] = cluster.add(POD_GROUPS, group)
    for name in ("p0", "p1"):
        cluster.add(PODS, from_template(name, schedulingGroup={"podGroupName": "g"}))
    cluster.wait(3)
    [made] = cluster.all(CLAIMS)
    assert made["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    users = made["status"]["reservedFor"]
    assert [(item["resource"], item["uid"]) for item in users] == [
        ("podgroups", stored["metadata"]["uid"])
    ]
    assert all(cluster.get(PODS, name)["spec"].get("nodeName") for name in ("p0", "p1"))
    for name in ("p0", "p1"):
        cluster.end_pod(name)
    cluster.settle()
    assert cluster.all(CLAIMS)[0]["status"].get("allocation"), "the group still holds it"
    cluster.delete(POD_GROUPS, "g")
    cluster.settle()
    assert not (cluster.all(CLAIMS)[0].get("status") or {}).get("allocation")


def test_a_conflict_is_no_reason_to_lose_a_release(cluster, monkeypatch):
    cluster.add(CLAIMS, named("c"))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    cluster.settle()
    real, failures = cluster.client.update, []

    def update(resource, body, *, subresource=""):
        if resource == CLAIMS and len(failures) < 2:
            failures.append(1)
            raise ApiError.conflict("resourceclaims", "c", "changed meanwhile")
        return real(resource, body, subresource=subresource)

    monkeypatch.setattr(cluster.client, "update", update)
    cluster.end_pod("p")
    cluster.settle()
    assert failures == [1, 1]
    assert not cluster.get(CLAIMS, "c").get("status")
