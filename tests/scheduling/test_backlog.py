"""What waits for devices: in files, everything that is written; in a cluster, what has no node."""

import pytest

from builders import claim, obj, pod, request
from dralab.objects.extended_resources import classes_by_resource
from dralab.scheduling.backlog import Backlog
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.reasons import CLAIM_NOT_FOUND, GATED, Reason


def stored(item, uid=None, created="2026-01-01T00:00:00Z", **metadata):
    """An object as a server has it."""
    own = {"uid": uid or f"uid-{item['metadata']['name']}", "creationTimestamp": created}
    return item | {"metadata": item["metadata"] | own | metadata}


def controlled_by(owner):
    reference = {"kind": owner["kind"], "name": owner["metadata"]["name"], "controller": True}
    return [reference | {"uid": owner["metadata"]["uid"]}]


def backlog(*objects):
    by_kind = {}
    for item in objects:
        by_kind.setdefault(item["kind"], []).append(item)
    claims = {
        ("default", item["metadata"]["name"]): item for item in by_kind.get("ResourceClaim", ())
    }
    return Backlog(by_kind, claims, classes_by_resource(by_kind.get("DeviceClass", ())))


def waiting(*objects, nodes=("n0",)):
    return [each.title for each in backlog(*objects).pending(nodes)]


def allocated(name):
    return claim(name, request("r0", "gpu"), status={"allocation": {"devices": {"results": []}}})


FREE = claim("free", request("r0", "gpu"))


def of(name, claim_name="free", **more):
    return pod(name, claims={"gpu": claim_name}, **more)


def test_pods_of_files_come_in_their_order_and_claims_of_no_pod_last():
    objects = [claim("alone", request("r0", "gpu")), FREE, of("b", priority=1), of("a", priority=9)]
    assert waiting(*objects) == ["pod default/b", "pod default/a", "claim default/alone"]


def test_pods_of_a_cluster_come_by_priority_then_age_and_those_of_files_after_them():
    found = waiting(
        of("written", priority=100),
        stored(of("young"), created="2026-01-02T00:00:00Z"),
        stored(of("old")),
        stored(of("first", priority=5), created="2026-01-03T00:00:00Z"),
        FREE,
    )
    assert found == [f"pod default/{name}" for name in ("first", "old", "young", "written")]


@pytest.mark.parametrize(
    "gone",
    [
        of("p", "held", nodeName="n0"),
        of("p", status={"phase": "Succeeded"}),
        of("p", status={"phase": "Failed"}, nodeName="n0"),
    ],
    ids=["running", "succeeded", "failed"],
)
def test_a_pod_of_a_cluster_that_has_its_devices_or_needs_none_does_not_wait(gone):
    assert waiting(stored(gone), FREE, allocated("held")) == [
        title for title in ["claim default/free"] if gone["spec"]["resourceClaims"][0]["resourceClaimName"] == "held"
    ]  # fmt: skip


def test_a_pod_that_is_being_deleted_does_not_wait():
    now = "2026-01-01T00:00:00Z"
    assert waiting(stored(of("p"), deletionTimestamp=now), FREE) == []


def test_a_pod_that_was_bound_without_its_devices_waits_for_them():
    assert waiting(stored(of("p", nodeName="n0")), FREE) == ["pod default/p"]


def test_a_pod_in_a_file_that_names_its_node_is_asked_about():
    assert waiting(of("p", "held", nodeName="n0"), allocated("held")) == ["pod default/p"]


def test_a_claim_made_from_a_template_has_the_name_that_the_status_says():
    made = claim("p-gpu-x7k2p", request("r0", "gpu"))
    item = pod(
        "p", status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}]}
    )
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    (found,) = backlog(stored(item), made).pending([])
    assert (found.claims, found.missing) == ((made,), None)
    (found,) = backlog(stored(item)).pending([])
    assert found.missing == Reason(CLAIM_NOT_FOUND, ("p-gpu-x7k2p",))


def test_an_entry_that_needs_no_claim_wants_nothing():
    item = pod("p", status={"resourceClaimStatuses": [{"name": "gpu"}]})
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    assert waiting(stored(item)) == []


def test_the_claim_for_extended_resources_is_the_one_that_the_status_names():
    device_class = obj("DeviceClass", "gpu", spec={"extendedResourceName": "example.com/gpu"})
    made = allocated("p-extended-resources-abcde")
    item = pod(
        "p",
        requests={"example.com/gpu": "1"},
        nodeName="n0",
        status={"extendedResourceClaimStatus": {"resourceClaimName": made["metadata"]["name"]}},
    )
    assert waiting(stored(item), made, device_class) == []
    assert waiting(stored(item), device_class) == ["pod default/p"]


def test_a_pod_with_scheduling_gates_waits_for_them():
    gated = of("p", schedulingGates=[{"name": "a/x"}, {"name": "b"}])
    model = ClusterModel([gated, FREE])
    assert model.try_pod(model.waiting[0]).blocked == Reason(GATED, ("a/x", "b"))


def workload(kind, name, **spec):
    template = {"spec": of("t")["spec"]}
    return obj(kind, name, api="apps/v1", spec={"template": template} | spec)


def test_a_workload_in_a_file_stands_for_its_pods():
    assert waiting(workload("Deployment", "d", replicas=2), FREE) == [
        "pod default/d-0",
        "pod default/d-1",
    ]


def test_a_workload_of_a_cluster_stands_for_no_pods_beside_its_own():
    deployment = stored(workload("Deployment", "d", replicas=2))
    replica_set = stored(
        workload("ReplicaSet", "d-5f", replicas=2), ownerReferences=controlled_by(deployment)
    )
    own = stored(of("d-5f-x"), ownerReferences=controlled_by(replica_set))
    assert waiting(deployment, replica_set, own, FREE) == ["pod default/d-5f-x"]
    # The ReplicaSet's are the Deployment's.
    assert waiting(deployment, replica_set, FREE) == ["pod default/d-0", "pod default/d-1"]
    assert waiting(replica_set, FREE) == ["pod default/d-5f-0", "pod default/d-5f-1"]


def test_a_job_that_is_over_wants_nothing():
    job = workload("Job", "j") | {
        "status": {"conditions": [{"type": "Complete", "status": "True"}]}
    }
    assert waiting(job, FREE) == ["claim default/free"]
    assert waiting(workload("Job", "j"), FREE) == ["pod default/j-0"]
