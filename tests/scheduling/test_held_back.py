"""What keeps a pod from being tried is told instead of a node, by the model and by a page."""

import copy

import pytest

from crowded import flat, gpu_node, waiter
from dralab.explanation.why import why
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import PodPlacement, Refusal

READY = {"type": "attached", "status": "True"}
FAILED = {"type": "broken", "status": "True"}


def told(objects, name="train"):
    """What the model decides of a pod; the page must tell the same."""
    model = ClusterModel(objects)
    pod = next(each for each in model.waiting if each.key.name == name)
    decided = model.try_pod(pod)
    cluster = Snapshot(objects)
    page = why(cluster, cluster.pending_of(pod.obj))
    if isinstance(decided, Refusal):
        assert page is not None
        assert page.code == decided.code
        assert decided.code in page.page()
    else:
        assert page is None
    return decided


def allocated(*conditions):
    """A pod whose claim has a device on n1 that must be attached first."""
    pod, claim = copy.deepcopy(waiter("train"))
    device = {"driver": "gpu.example.com", "pool": "n1-gpus", "device": "gpu-0"}
    claim["status"] = {
        "allocation": {
            "allocationTimestamp": "2026-11-01T08:00:00Z",
            "devices": {
                "results": [
                    {
                        "request": "gpus",
                        **device,
                        "bindingConditions": ["attached"],
                        "bindingFailureConditions": ["broken"],
                    }
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                ]
            },
        },
        "devices": [{**device, "conditions": list(conditions)}],
    }
    return [pod, claim]


def changed(**metadata):
    pod, claim = copy.deepcopy(waiter("train"))
    pod["metadata"] |= metadata
    return [pod, claim]


@pytest.mark.parametrize(
    ("pods", "code", "words"),
    [
        (waiter("train", schedulerName="volcano"), "DRA070", "left to scheduler volcano"),
        (changed(deletionTimestamp="2026-11-01T08:00:00Z"), "DRA071", "is being deleted"),
        (waiter("train", schedulingGates=[{"name": "a/b"}]), "DRA065", "scheduling gates"),
        (
            allocated(),
            "DRA072",
            "on node n1 for conditions attached of device gpu.example.com/n1-gpus/gpu-0, "
            "allocated 2026-11-01T08:00:00Z",
        ),
    ],
)
def test_a_pod_that_nobody_tries_goes_nowhere(pods, code, words):
    decided = told(flat(gpu_node("n1"), pods))
    assert decided.code == code
    assert words in str(decided.blocked)


@pytest.mark.parametrize("condition", [READY, FAILED])
def test_devices_that_are_ready_or_never_will_be_are_not_awaited(condition):
    assert isinstance(told(flat(gpu_node("n1"), allocated(condition))), PodPlacement)


def test_a_pod_that_is_made_again_is_not_being_deleted():
    pod, claim = changed(deletionTimestamp="2026-11-01T08:00:00Z")
    pod["spec"]["nodeName"] = "n1"
    model = ClusterModel(flat(gpu_node("n1"), [pod, claim]))
    (placed,) = model.running.values()
    assert isinstance(model.try_pod(model.take_away(placed.pod.uid)), PodPlacement)


def test_claims_that_cannot_be_used_are_told_by_their_code():
    pod, claim = changed()
    full = copy.deepcopy(claim)
    users = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(256)]
    full["status"] = {"reservedFor": users}
    assert told(flat(gpu_node("n1"), [pod, full])).code == "DRA069"

    made = copy.deepcopy(pod)
    entry = {"name": "gpus", "resourceClaimTemplateName": "gpus"}
    made["spec"]["resourceClaims"] = [entry]
    made["metadata"]["uid"] = "own"
    made["status"] = {
        "resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "train-gpus"}]
    }
    assert told(flat(gpu_node("n1"), [made, claim])).code == "DRA068"
