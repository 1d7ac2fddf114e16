"""What the page is told: the fleet, what waits, stories, explanations, what-if and moves."""

import json
from itertools import count

import orjson
import pytest

from builders import claim, device, pod, pool, request, worker
from dralab.allocation.explanation.answers import answers
from dralab.allocation.snapshot import Snapshot
from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, ManualClock
from dralab.web.desk import SHORTEST_LISTED, Desk
from dralab.web.pod_events import MOST_EVENTS
from dralab.web.sources import FixedSource, UnreadableClusterError
from web.pages import HOSTILE, cluster, stored


def desk(objects=None):
    return Desk(
        FixedSource(cluster() if objects is None else objects), ManualClock(), "lab", live=False
    )


@pytest.fixture
def fleet():
    return orjson.loads(desk().fleet())


def devices(fleet):
    """The devices as (node, name, state, holders, the card that they are cut from)."""
    found, at = [], 0
    columns, names = fleet["devices"], fleet["names"]
    for node, several in zip(fleet["nodes"]["name"], fleet["nodes"]["devices"], strict=True):
        for number in range(at, at + several):
            card = columns["card"][number]
            found.append(
                (
                    node,
                    names[columns["name"][number]],
                    fleet["states"][columns["state"][number]],
                    [fleet["holders"][each] for each in columns["holders"][number]],
                    "" if card < 0 else names[columns["name"][card]],
                )
            )
        at += several
    assert at == len(columns["name"])
    return found


def test_the_fleet_has_every_device_with_its_state_and_holders(fleet):
    assert devices(fleet) == [
        ("n1", "d0", "used", ["pod ml/runs"], ""),
        ("n1", "d1", "free", [], ""),
        ("n2", "half-0", "cordoned", [], "whole"),
        ("n2", "whole", "cordoned", [], ""),
        ("n2", "half-1", "cordoned", [], "whole"),
    ]


def test_nodes_have_a_zone_a_rack_and_what_keeps_pods_away(fleet):
    nodes = fleet["nodes"]
    assert [fleet["zones"][each] for each in nodes["zone"]] == ["z1", ""]
    assert [fleet["racks"][each] for each in nodes["rack"]] == ["r1", ""]
    assert nodes["status"] == ["", "cordoned"]


def of_device(objects, name, column):
    found = orjson.loads(desk(objects).fleet())
    places = found["devices"]["name"]
    return found["devices"][column][places.index(found["names"].index(name))]


def test_the_fleet_tells_how_full_a_shared_device_is():
    objects = [
        *cluster(),
        worker("n3"),
        *pool(
            "n3",
            device("wide", shared=True, capacity={"memory": "10Gi", "cores": "100"}),
            node="n3",
        ),
    ]
    sharing = claim("part", request("r0", "gpu"), namespace="ml")
    result = {
        "request": "r0", "driver": "gpu.example.com", "pool": "n3", "device": "wide",
        "shareID": "0b4a3f9e-0000-4000-8000-000000000001",
        "consumedCapacity": {"memory": "4Gi", "cores": "10"},
    }  # fmt: skip
    sharing["status"] = {"allocation": {"devices": {"results": [result]}}}
    assert of_device([*objects, stored(sharing)], "wide", "fill") == 40
    assert of_device(objects, "wide", "fill") == 0
    assert of_device(cluster(), "d0", "fill") == 100


@pytest.mark.parametrize(
    ("name", "health", "flags"),
    [("k8s.gpu/gpu=x-d0", "Unhealthy", 2), ("k8s.gpu/gpu=x-d0", "Healthy", 0)],
)
def test_the_fleet_marks_devices_that_the_kubelet_reports_as_unhealthy(name, health, flags):
    objects = cluster()
    runs = next(item for item in objects if item["metadata"]["name"] == "runs")
    reported = {"name": "claim:g/r0", "resources": [{"resourceID": name, "health": health}]}
    runs["status"] = {"containerStatuses": [{"name": "m", "allocatedResourcesStatus": [reported]}]}
    assert of_device(objects, "d0", "flags") == flags


def test_the_fleet_is_sent_once():
    asked = desk()
    version = orjson.loads(asked.fleet())["version"]
    assert orjson.loads(asked.fleet(version)) == {"version": version, "same": True}


def test_what_waits_comes_oldest_first():
    later = stored(
        pod("later", namespace="ml", claims={"g": "none"}),
        "2026-11-02T10:00:00Z",
    )
    found = orjson.loads(desk([later, *cluster()]).waiting())
    assert [each["name"] for each in found["items"]] == ["waits", "later"]
    assert found["total"] == 2
    assert found["items"][0]["claims"] == [{"name": "wants", "requests": ["r0"]}]
    assert found["items"][1]["missing"] == 'resourceclaim "none" not found'


def test_an_explanation_is_that_of_the_command():
    found = orjson.loads(desk().explanation("pod", "ml", "waits"))
    lab = Snapshot(cluster())
    pending = lab.pending()
    (told,) = answers(lab, pending, pending)
    assert {key: found[key] for key in told} == json.loads(orjson.dumps(told))
    assert found["fits"] is False
    assert found["code"].startswith("DRA")


def test_what_came_first_has_its_devices_in_whatever_order_one_asks():
    first = stored(
        pod(
            "first",
            namespace="ml",
            resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}],
        ),
        "2026-11-01T09:00:00Z",
    )
    second = stored(
        pod(
            "second",
            namespace="ml",
            resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}],
        ),
        "2026-11-01T09:30:00Z",
    )
    request = {
        "name": "r0",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    }
    template = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ml"}, "spec": {"spec": {"devices": {"requests": [request]}}},
    }  # fmt: skip
    objects = [*cluster(), first, second, template]
    told = {}
    for order in (["first", "second"], ["second", "first"]):
        asked = desk(objects)
        told[order[0]] = {
            name: orjson.loads(asked.explanation("pod", "ml", name))["fits"] for name in order
        }
    assert told["first"] == told["second"] == {"first": True, "second": False}


def test_a_pod_that_runs_has_its_devices():
    found = orjson.loads(desk().explanation("pod", "ml", "runs"))
    assert found["fits"] is True
    assert "gpu.example.com/n1/d0" in found["text"]


def test_a_story_counts_what_each_condition_leaves():
    found = orjson.loads(desk().story("pod", "ml", "waits"))
    (funnel,) = found["funnels"]
    assert funnel["steps"][0] == {"what": "devices", "text": "", "devices": 2}
    assert funnel["steps"][-1] == {"what": "free", "text": "", "devices": 1}
    assert (funnel["count"], funnel["blocked"], funnel["where"]) == (2, {"in-use": 1}, "n1")
    assert found["candidates"] == 1
    assert found["unfit"] == [{"reason": "node(s) were unschedulable", "nodes": 1}]


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


def event(about, name, minute, **more):
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{minute}", "namespace": "ml"},
        "involvedObject": {"kind": about, "name": name, "namespace": "ml"},
        "lastTimestamp": f"2026-11-01T10:{minute:02}:00Z",
        "reason": "Said",
        **more,
    }


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


def test_what_if_tells_who_starts():
    found = orjson.loads(desk().what_if({"changes": [{"add": "n1", "count": 1}]}))
    assert found["nodes"] == {"before": 2, "after": 3}
    assert [(each["name"], each["fate"]) for each in found["pods"]] == [("waits", "starts")]


def asks(number):
    return {"help": number, "of": {"kind": "pod", "namespace": "ml", "name": "waits"}}


def test_the_devices_that_a_waiting_pod_could_use_are_told():
    found = orjson.loads(desk().usable("pod", "ml", "waits"))
    driver = {"driver": "gpu.example.com", "pool": "n1"}
    assert found["now"] == [driver | {"devices": ["d1"]}]
    assert found["later"] == [driver | {"devices": ["d0"]}]


def test_each_help_can_be_tried_and_then_the_pod_starts():
    asked = desk()
    told = orjson.loads(asked.explanation("pod", "ml", "waits"))
    texts = [told["helps"][at]["text"] for at in told["whatIf"]]
    assert texts == [
        "wait until ml/runs ends",
        "ask for 1 device",
        "uncordon n2",
        "add a node like n1",
    ]
    for number in told["whatIf"]:
        found = orjson.loads(asked.what_if({"changes": [asks(number)]}))
        (fate,) = [
            (each["fate"], each["after"]) for each in found["pods"] if each["name"] == "waits"
        ]
        assert fate[0] == "starts", texts[number]


def test_what_if_tells_the_devices_that_a_pod_gets():
    found = orjson.loads(desk().what_if({"changes": [{"uncordon": "n2"}]}))
    (pod_,) = found["pods"]
    assert (pod_["after"], pod_["devices"]) == ("n2", ["n2/half-0", "n2/half-1"])


def test_a_pod_is_moved_to_another_node():
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    found = orjson.loads(desk(objects).what_if({"changes": [{"move": "ml/runs", "to": "n3"}]}))
    assert {each["name"]: (each["fate"], each["after"]) for each in found["pods"]} == {
        "runs": ("moves", "n3"),
        "waits": ("starts", "n1"),
    }


def test_a_pod_that_does_not_fit_where_it_is_moved_waits_and_says_why():
    found = orjson.loads(desk().what_if({"changes": [{"move": "ml/runs", "to": "n2"}]}))
    runs = next(each for each in found["pods"] if each["name"] == "runs")
    assert (runs["fate"], runs["after"]) == ("is displaced", None)
    assert runs["why"]


def test_a_pod_that_waits_can_be_moved_too():
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), device("d1"), node="n3")]
    objects += [worker("n4"), *pool("n4", device("d0"), device("d1"), node="n4")]
    found = orjson.loads(desk(objects).what_if({"changes": [{"move": "ml/waits", "to": "n4"}]}))
    assert [(each["fate"], each["after"]) for each in found["pods"]] == [("starts anyway", "n4")]


def test_moves_make_room():
    # One device is free on each of two nodes, and the pod wants two on one node.
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    found = orjson.loads(desk(objects).moves({"pod": "ml/waits"}))
    (clearing,) = found["clearings"]
    assert clearing["node"] == "n1"
    assert [(each["pod"], each["from"], each["to"]) for each in clearing["moves"]] == [
        ("ml/runs", "n1", "n3")
    ]
    assert any("ml" in line for line in found["commands"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (None, "a list of 1 to 100"),
        ([], "a list of 1 to 100"),
        ([{"remove": "n1"}] * 101, "a list of 1 to 100"),
        (["n1"], r"changes\[0\]: expected one of add, remove, cordon, uncordon, move"),
        ([{"move": "ml/runs"}], r"changes\[0\].to: None is not a name"),
        ([{"move": "ml/none", "to": "n1"}], "no pod 'ml/none'"),
        ([{"help": 0}], r"changes\[0\].of: expected kind, namespace, name"),
        ([asks(9)], r"changes\[0\].help: 9 is not one of 4 helps"),
        ([asks(True)], r"changes\[0\].help: True is not one of"),
        ([{"remove": 7}], r"changes\[0\].remove: 7 is not a name"),
        (
            [{"add": "n1", "count": 100_000}],
            r"changes\[0\].count: 100000 is not a number from 1 to 1000",
        ),
        ([{"add": "n1", "count": True}], r"changes\[0\].count: True"),
        ([{"cordon": "none"}], "none"),
        ([{"add": "n1", "count": 501}] * 2, "1002 new nodes are too many for the page"),
        ([{"add": "a100", "count": 1000}], "new devices are too many for the page"),
        ([{"add": "h100", "count": 60}, {"add": "a100", "count": 60}], "new devices are too many"),
    ],
)
def test_a_wrong_question_is_refused(changes, message):
    with pytest.raises(ApiError, match=message) as refused:
        desk().what_if({"changes": changes})
    assert refused.value.code == 400


@pytest.mark.parametrize(
    "question", [{"most": 0}, {"most": 1000}, {"most": "3"}, {"pod": "ml/none"}, {"pod": "ml/runs"}]
)
def test_a_wrong_question_about_moves_is_refused(question):
    with pytest.raises(ApiError) as refused:
        desk().moves(question)
    assert refused.value.code == 400


class CountedSource:
    """A cluster that only listing tells about, or (with `near`) one whose revision is known."""

    def __init__(self, *, near=False):
        self.reads = 0
        self.near = near
        self.objects = cluster()
        self.now = "1"

    def revision(self):
        return self.now if self.near else None

    def read(self):
        self.reads += 1
        return self.objects


def test_a_far_cluster_is_not_listed_for_every_question():
    source, clock = CountedSource(), ManualClock(10**18)
    asked = Desk(source, clock, "lab", live=True)
    for _ in range(5):
        asked.fleet()
        asked.waiting()
    assert source.reads == 1
    clock.advance(SHORTEST_LISTED)
    asked.fleet()
    assert source.reads == 2


def test_a_cluster_that_stayed_as_it_was_keeps_its_version():
    source, clock = CountedSource(), ManualClock(10**18)
    asked = Desk(source, clock, "lab", live=True)
    version = orjson.loads(asked.fleet())["version"]
    clock.advance(SHORTEST_LISTED)
    assert orjson.loads(asked.fleet(version)) == {"version": version, "same": True}
    source.objects = [*source.objects, stored(pod("new", namespace="ml"))]
    clock.advance(SHORTEST_LISTED)
    assert orjson.loads(asked.fleet(version))["version"] != version


def test_a_near_server_that_did_not_change_is_not_read_again():
    source, clock = CountedSource(near=True), ManualClock(10**18)
    asked = Desk(source, clock, "lab", live=True)
    asked.fleet()
    clock.advance(3600 * SECOND)
    asked.fleet()
    assert source.reads == 1
    source.now = "2"
    asked.fleet()
    assert source.reads == 2


class SlowClock:
    """Every look at it takes a second."""

    def __init__(self):
        self.seconds = count()

    def now(self):
        return next(self.seconds) * SECOND


def test_a_cluster_that_takes_long_to_read_is_read_more_rarely():
    source = CountedSource(near=True)
    asked = Desk(source, SlowClock(), "lab", live=True)
    for number in range(8):
        source.now = str(number)
        asked.waiting()
    assert source.reads == 1


def test_hostile_names_stay_names():
    objects = [*cluster(), *pool(HOSTILE, {"name": HOSTILE}, node="n1")]
    fleet = orjson.loads(desk(objects).fleet())
    assert HOSTILE in fleet["names"]
