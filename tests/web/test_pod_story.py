"""The story of a pod or a claim: what each condition leaves, why this device, ids, health, events."""

import orjson
import pytest

from builders import device, pool, worker
from dralab.api.status import ApiError
from dralab.kernel.clock import ManualClock
from dralab.web.desk import Desk
from dralab.web.pod_events import MOST_EVENTS
from dralab.web.sources import FixedSource, UnreadableClusterError
from web.pages import cluster, desk, event


def test_a_story_counts_what_each_condition_leaves():
    found = orjson.loads(desk().story("pod", "ml", "waits"))
    (funnel,) = found["funnels"]
    assert funnel["steps"][0] == {"what": "devices", "text": "", "devices": 2}
    assert funnel["steps"][-1] == {"what": "free", "text": "", "devices": 1}
    assert (funnel["count"], funnel["blocked"], funnel["where"]) == (2, {"in-use": 1}, "n1")
    assert found["candidates"] == 1
    assert found["unfit"] == [
        {"reason": "node(s) were unschedulable", "code": "DRA050", "nodes": 1, "names": ["n2"]}
    ]


def test_the_story_of_a_pod_that_runs_tells_its_devices():
    found = orjson.loads(desk().story("pod", "ml", "runs"))
    assert (found["node"], found["entries"]) == ("n1", {"g": "has"})
    (told,) = found["claims"]
    assert [each["device"] for each in told["devices"]] == ["d0"]
    assert told["reservedFor"] == ["pod runs"]


def test_the_story_of_a_pod_that_runs_counts_what_it_could_choose_from_and_says_why_this_one():
    other = [worker("n0"), *pool("n0", device("d9"), node="n0")]
    found = orjson.loads(desk([*cluster(), *other]).story("pod", "ml", "runs"))
    (funnel,) = found["funnels"]
    assert [step["devices"] for step in funnel["steps"]] == [3, 3]
    assert (funnel["claim"], funnel["blocked"]) == (found["claims"][0]["key"], {})
    (held,) = found["claims"][0]["devices"]
    assert held["why"] == {
        "among": "the first of 2 devices that could serve it",
        "earlier": "",
        "passed": [],
        "able": [],
    }


def test_why_this_one_names_what_was_passed_over():
    objects = cluster()
    (claim_that_has,) = [item for item in objects if item["metadata"]["name"] == "has"]
    (result,) = claim_that_has["status"]["allocation"]["devices"]["results"]
    result["device"] = "d1"
    tainted = next(item for item in objects if item["kind"] == "ResourceSlice")
    tainted["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    told = orjson.loads(desk(objects).story("pod", "ml", "runs"))
    (held,) = told["claims"][0]["devices"]
    assert held["why"]["among"] == "the only device that could serve it"
    assert held["why"]["passed"] == ["1 with taint broken:NoSchedule"]


def test_a_device_that_is_gone_has_no_reason():
    objects = [item for item in cluster() if item["kind"] != "ResourceSlice"]
    told = orjson.loads(desk(objects).story("pod", "ml", "runs"))
    assert [each["why"] for each in told["claims"][0]["devices"]] == [None]


def test_a_story_tells_the_ids_and_the_health_that_the_kubelet_reports():
    objects = cluster()
    (runs,) = [item for item in objects if item["metadata"]["name"] == "runs"]
    reported = {"resourceID": "k8s.gpu/gpu=d0", "health": "Unhealthy", "message": "too hot"}
    runs["status"] = {
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResourcesStatus": [{"name": "claim:g/r0", "resources": [reported]}],
            }
        ]
    }
    assert orjson.loads(desk(objects).story("pod", "ml", "runs"))["containers"] == [
        {
            "container": "main",
            "entry": "g",
            "request": "r0",
            "devices": [{"id": "k8s.gpu/gpu=d0", "health": "Unhealthy", "message": "too hot"}],
        }
    ]


def test_events_of_a_pod_and_its_claims_come_in_their_order():
    events = [
        event("Pod", "runs", 5, message="started", source={"component": "kubelet"}),
        event("ResourceClaim", "has", 3, count=4, type="Warning"),
        event("Pod", "waits", 4),
    ]
    found = orjson.loads(desk([*cluster(), *events]).events("pod", "ml", "runs"))
    assert [(each["about"], each["count"]) for each in found["items"]] == [
        ("ResourceClaim has", 4),
        ("Pod runs", 1),
    ]
    assert found["items"][1]["from"] == "kubelet"
    assert (found["total"], found["why"]) == (2, "")


def test_of_many_events_the_newest_are_told():
    events = [event("Pod", "runs", minute) for minute in (*range(60), *range(60))]
    found = orjson.loads(desk([*cluster(), *events]).events("pod", "ml", "runs"))
    assert (found["total"], len(found["items"])) == (120, MOST_EVENTS)
    assert found["items"][-1]["last"] == "2026-11-01T10:59:00Z"


class NoEvents(FixedSource):
    """A cluster whose user may not list events."""

    def events(self, kind, namespace, name):
        raise UnreadableClusterError("cannot list events: forbidden", 403)


def test_a_story_is_told_where_events_may_not_be_listed():
    asked = Desk(NoEvents(cluster()), ManualClock(), "lab", live=False)
    found = orjson.loads(asked.events("pod", "ml", "runs"))
    assert (found["items"], found["why"]) == ([], "cannot list events: forbidden")


def test_a_claim_has_a_story_too():
    assert orjson.loads(desk().story("claim", "ml", "has"))["claims"][0]["allocated"] is True
    assert orjson.loads(desk().story("claim", "ml", "wants"))["claims"][0]["allocated"] is False
    with pytest.raises(ApiError, match="claim ml/none not found"):
        desk().story("claim", "ml", "none")


def test_the_devices_that_a_waiting_pod_could_use_are_told():
    found = orjson.loads(desk().usable("pod", "ml", "waits"))
    driver = {"driver": "gpu.example.com", "pool": "n1"}
    assert found["now"] == [driver | {"devices": ["d1"]}]
    assert found["later"] == [driver | {"devices": ["d0"]}]
