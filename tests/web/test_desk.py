"""What the page is told of the fleet and of what waits, and how often a cluster is read for it."""

import json
from itertools import count

import orjson
import pytest

from builders import claim, device, pod, pool, request, worker
from dralab.explanation.answers import answers
from dralab.kernel.clock import SECOND, ManualClock
from dralab.scheduling.snapshot import Snapshot
from dralab.web.desk import SHORTEST_LISTED, Desk
from dralab.web.sources import FixedSource
from web.pages import HOSTILE, cluster, desk, stored, waiting_pods


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
    assert found["items"][1]["missing"] == 'resourceclaim.resource.k8s.io "none" not found'


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


class CountedSource:
    """A cluster that only listing tells about, or one that tells of its changes (`follows`)."""

    not_judged = ()

    def __init__(self, *, follows=False):
        self.reads = 0
        self.follows = follows
        self.objects = cluster()
        self.now = "1"

    def revision(self):
        return self.now if self.follows else None

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
    source, clock = CountedSource(follows=True), ManualClock(10**18)
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
    source = CountedSource(follows=True)
    asked = Desk(source, SlowClock(), "lab", live=True)
    for number in range(8):
        source.now = str(number)
        asked.waiting()
    assert source.reads == 1


def test_hostile_names_stay_names():
    objects = [*cluster(), *pool(HOSTILE, {"name": HOSTILE}, node="n1")]
    fleet = orjson.loads(desk(objects).fleet())
    assert HOSTILE in fleet["names"]


def test_what_waits_is_ranked_by_cause():
    objects = [
        *cluster(),
        *waiting_pods(3, namespace="a", count=9),
        *waiting_pods(2, namespace="b", count=9),
    ]
    found = orjson.loads(desk(objects).causes())
    shown = [(each["count"], each["namespaces"], each["since"]) for each in found["causes"]]
    assert shown == [
        (5, {"a": 3, "b": 2}, "2026-11-01T12:00:00Z"),
        (1, {"ml": 1}, "2026-11-01T11:00:00Z"),
    ]
    most = found["causes"][0]
    assert most["code"].startswith("DRA")
    assert sorted(each["name"] for each in most["pods"]) == ["a-0", "a-1", "a-2", "b-0", "b-1"]
    assert found["unexplained"] == 0


def test_equal_pods_before_the_last_get_their_devices_and_do_not_hide_why_it_waits():
    others = [item for item in cluster() if item["metadata"]["name"] not in {"wants", "waits"}]
    objects = [*others, *waiting_pods(2, namespace="a", count=1)]
    found = orjson.loads(desk(objects).causes())
    assert [each["count"] for each in found["causes"]] == [2]
    assert found["causes"][0]["code"]


def test_causes_that_take_too_long_are_left_out_and_counted():
    class Slow(ManualClock):
        def now(self):
            self.advance(SECOND)
            return super().now()

    objects = [
        *cluster(),
        *(item for at in range(30) for item in waiting_pods(1, namespace=f"s{at}")),
    ]
    source = FixedSource(objects)
    found = orjson.loads(Desk(source, Slow(), "lab", live=False).causes())
    explained = sum(each["count"] for each in found["causes"])
    assert 0 < explained < 31
    assert found["unexplained"] == 31 - explained
