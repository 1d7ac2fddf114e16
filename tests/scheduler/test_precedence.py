"""Which of two allocations of the same devices counts; the other scheduler is played by the tests."""

import pytest

from builders import claim, counter_set, device, device_class, pod, pool, request, worker
from dralab.api.status import ApiError
from dralab.runtime.client import WatchEvent
from dralab.runtime.resources import CLAIMS, CLASSES, EVENTS, NODES, PODS, SLICES
from dralab.scheduler.precedence import AllocationOrder
from dralab.scheduler.scheduler import Scheduler
from dralab.scheduler.withdrawal import withdraw
from smallselectors import SmallEnvironment

LATER, NOW = "2027-01-15T08:00:05Z", "2027-01-15T08:00:00Z"


def result(name, **more):
    return {"request": "r", "driver": "gpu.example.com", "pool": "n0", "device": name, **more}


def allocation(*results, at=NOW):
    return {"devices": {"results": list(results)}, "allocationTimestamp": at}


def allocate(lab, name, *results, user=None, at=NOW):
    """Do what another scheduler does: allocate a claim, and reserve it for a pod."""
    status = {"allocation": allocation(*results, at=at)}
    if user:
        uid = lab.get(PODS, user)["metadata"]["uid"]
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": uid}]
    return lab.set_status(CLAIMS, name, **status)


def devices_of(lab, name):
    given = (lab.get(CLAIMS, name).get("status") or {}).get("allocation") or {}
    return [item["device"] for item in given.get("devices", {}).get("results", ())]


def events(lab, name):
    return [each["message"] for each in lab.all(EVENTS) if each["involvedObject"]["name"] == name]


def wanting(lab, *names, **asked):
    """Create pods with claims of their names."""
    lab.add(CLAIMS, *(claim(name, request("r", **asked), namespace="default") for name in names))
    return lab.add(PODS, *(pod(name, claims={"g": name}) for name in names))


@pytest.fixture
def one_node(lab):
    """One node with two devices, of which d0 is taken first."""
    lab.server.add(NODES, worker("n0"))
    lab.add(CLASSES, device_class("gpu"))
    lab.add(SLICES, *pool("n0", device("d0"), device("d1"), node="n0"))
    lab.add(CLAIMS, claim("other", request("r"), namespace="default"))
    lab.start()
    return lab


def test_the_allocation_that_was_stored_first_counts(one_node):
    lab = one_node
    lab.server.before_next(
        "update status", "resourceclaims", lambda: allocate(lab, "other", result("d0"))
    )
    wanting(lab, "p")
    assert lab.node_of("p") is None
    lab.wait(3)
    assert (lab.node_of("p"), devices_of(lab, "p"), devices_of(lab, "other")) == (
        "n0",
        ["d1"],
        ["d0"],
    )
    why = "claim default/p: device gpu.example.com/n0/d0 is held by claim default/other, which was "
    assert any(text == why + "allocated first" for text in events(lab, "p"))


def test_an_allocation_that_was_stored_later_changes_nothing(one_node):
    lab = one_node
    lab.server.before_next("binding", "pods", lambda: allocate(lab, "other", result("d0")))
    wanting(lab, "p")
    assert (lab.node_of("p"), devices_of(lab, "p")) == ("n0", ["d0"])
    lab.wait(3)
    assert devices_of(lab, "p") == ["d0"]
    assert not any("held by" in text for text in events(lab, "p"))


def test_a_pod_is_bound_once_the_watch_has_told_of_its_allocation(one_node):
    lab = one_node
    (watch,) = [each for each in lab.server.watches if each.resource == CLAIMS]
    lab.add(CLAIMS, claim("p", request("r"), namespace="default"))
    lab.settle()
    watch.silence()
    lab.add(PODS, pod("p", claims={"g": "p"}))
    lab.wait(4)
    assert devices_of(lab, "p") == ["d0"]
    assert lab.node_of("p") is None
    lab.wait(2)  # it lists again
    assert lab.node_of("p") == "n0"


def both_allocated(lab, *, bound=()):
    """Two claims with one device, left behind by schedulers that are gone; y was the later one."""
    lab.server.add(NODES, worker("n0"))
    lab.add(CLASSES, device_class("gpu"))
    lab.add(SLICES, *pool("n0", device("d0"), device("d1"), node="n0"))
    wanting(lab, "x", "y")
    allocate(lab, "y", result("d0"), user="y", at=LATER)
    allocate(lab, "x", result("d0"), user="x")
    for name in bound:
        lab.bind(name, "n0")
    lab.start()
    lab.wait(3)
    return [(lab.node_of(name), *devices_of(lab, name)) for name in "xy"]


def test_of_two_found_allocations_the_one_with_the_earlier_time_is_kept(lab):
    assert both_allocated(lab) == [("n0", "d0"), ("n0", "d1")]
    assert any("held by claim default/x" in text for text in events(lab, "y"))


def test_nothing_is_taken_from_a_pod_that_is_bound(lab):
    assert both_allocated(lab, bound="y") == [("n0", "d1"), ("n0", "d0")]
    assert any("held by claim default/y" in text for text in events(lab, "x"))


def test_what_two_bound_pods_share_by_mistake_stays_as_it_is(lab):
    assert both_allocated(lab, bound="xy") == [("n0", "d0"), ("n0", "d0")]


def test_a_claim_of_another_scheduler_is_left_alone_where_the_order_is_not_known(lab):
    lab.server.add(NODES, worker("n0"))
    lab.add(CLASSES, device_class("gpu"))
    lab.add(SLICES, *pool("n0", device("d0"), device("d1"), node="n0"))
    wanting(lab, "x")
    lab.add(CLAIMS, claim("y", request("r"), namespace="default"))
    lab.add(PODS, pod("y", claims={"g": "y"}, schedulerName="another"))
    allocate(lab, "x", result("d0"), user="x")
    allocate(lab, "y", result("d0"), user="y", at=LATER)
    lab.start()
    lab.wait(3)
    assert [devices_of(lab, name) for name in "xy"] == [["d1"], ["d0"]]


SHARE = {"shareID": "00000000-0000-4000-8000-000000000001", "consumedCapacity": {"memory": "6Gi"}}


@pytest.mark.parametrize(
    ("parts", "asked", "held"),
    [
        (
            [device("d0", shared=True, capacity={"memory": "10Gi"})],
            {"capacity": {"requests": {"memory": "6Gi"}}},
            result("d0", **SHARE),
        ),
        (
            [
                counter_set("gpu", memory="10Gi"),
                device("a", consumes={"gpu": {"memory": "6Gi"}}),
                device("b", consumes={"gpu": {"memory": "6Gi"}}),
            ],
            {},
            result("b"),
        ),
    ],
    ids=["capacity", "counters"],
)
def test_what_would_be_overdrawn_is_taken_back_as_well(lab, parts, asked, held):
    lab.server.add(NODES, worker("n0"))
    lab.add(CLASSES, device_class("gpu"))
    sets = [part for part in parts if "counters" in part]
    devices = [part for part in parts if "counters" not in part]
    lab.add(SLICES, *pool("n0", *devices, node="n0", counters=sets))
    lab.add(CLAIMS, claim("other", request("r", **asked), namespace="default"))
    lab.start()
    lab.server.before_next("update status", "resourceclaims", lambda: allocate(lab, "other", held))
    wanting(lab, "p", **asked)
    lab.wait(3)
    assert (lab.node_of("p"), devices_of(lab, "p")) == (None, [])
    assert any("default/other, which was allocated first" in text for text in events(lab, "p"))


def test_a_device_that_two_claims_hold_is_not_free_when_one_gives_it_back(one_node):
    lab = one_node
    lab.add(CLAIMS, claim("another", request("r"), namespace="default"))
    for name in ("other", "another"):
        allocate(lab, name, result("d0"))
    lab.settle()
    lab.delete(CLAIMS, "another")
    lab.settle()
    wanting(lab, "p", "q")
    lab.wait(1)
    assert sorted([*devices_of(lab, "p"), *devices_of(lab, "q")]) == ["d1"]


# --- bindings


def test_a_binding_that_was_under_way_is_refused_once_its_devices_are_taken_back(one_node):
    lab = one_node
    late = []

    def hold(*_):
        late.append(lab.get(PODS, "p")["metadata"]["resourceVersion"])
        raise ApiError("ServiceUnavailable", "the connection was cut")

    lab.server.before_next("binding", "pods", hold)
    lab.scheduler.manager.engine.settle()
    wanting(lab, "p")
    found = lab.get(CLAIMS, "p")
    withdraw(lab.client, found, "for a test", lab.manager.now())
    body = {
        "metadata": {"name": "p", "resourceVersion": late[0]},
        "target": {"kind": "Node", "name": "n0"},
    }
    with pytest.raises(ApiError, match="Precondition failed"):
        lab.client.post(PODS, "p", "binding", body, "default")
    lab.wait(3)
    assert (lab.node_of("p"), len(devices_of(lab, "p"))) == ("n0", 1)


def test_devices_of_a_bound_pod_are_not_taken_back(one_node):
    lab = one_node
    wanting(lab, "p")
    with pytest.raises(ApiError, match="pod default/p is bound"):
        withdraw(lab.client, lab.get(CLAIMS, "p"), "for a test", lab.manager.now())
    assert devices_of(lab, "p") == ["d0"]


def test_an_allocation_that_another_scheduler_was_taking_back_is_made_anew(lab):
    """It stopped between marking the pod and changing the claim, and may go on at any time."""
    lab.server.add(NODES, worker("n0"))
    lab.add(CLASSES, device_class("gpu"))
    lab.add(SLICES, *pool("n0", device("d0"), node="n0"))
    wanting(lab, "p")
    before = allocate(lab, "p", result("d0"), user="p")
    lab.server.fail_next("update status", "resourceclaims", ApiError("Timeout", "stopped"))
    with pytest.raises(ApiError, match="stopped"):
        withdraw(lab.client, before, "for a test", lab.manager.now())
    lab.start()
    lab.wait(3)
    assert (lab.node_of("p"), devices_of(lab, "p")) == ("n0", ["d0"])
    late = {**before, "status": {}}
    with pytest.raises(ApiError, match="has been modified"):
        lab.client.update(CLAIMS, late, subresource="status")


def test_a_pod_that_only_got_a_label_meanwhile_is_bound_at_once(one_node):
    lab = one_node
    label = {"metadata": {"labels": {"a": "b"}}}
    lab.server.before_next("binding", "pods", lambda: lab.patch(PODS, "p", label))
    wanting(lab, "p")
    assert lab.node_of("p") == "n0"


def test_a_binding_whose_answer_was_lost_is_found_out(one_node):
    lab = one_node

    def bind_and_cut():
        lab.bind("p", "n0")
        raise ApiError("ServiceUnavailable", "the connection was cut")

    lab.server.before_next("binding", "pods", bind_and_cut)
    lab.server.fail_next("get", "pods", ApiError("ServiceUnavailable", "still"))
    wanting(lab, "p")
    lab.wait(1)
    (text,) = events(lab, "p")
    assert text == "Successfully assigned default/p to n0"


def test_two_schedulers_that_act_at_once_give_no_device_twice(one_node):
    from dralab.kernel.randomness import Randomness
    from dralab.runtime.manager import Manager

    lab = one_node
    lab.add(SLICES, *pool("more", *(device(f"m{i}") for i in range(6)), node="n0"))
    manager = Manager(lab.engine, lab.client, Randomness(8))
    Scheduler(manager, SmallEnvironment())
    manager.start()
    lab.settle()
    names = [f"p{i}" for i in range(8)]
    wanting(lab, *names)
    lab.wait(5)
    assert all(lab.node_of(name) == "n0" for name in names)
    given = [device for name in names for device in devices_of(lab, name)]
    assert len(set(given)) == len(given) == 8


# --- the order


def seen(*steps):
    """Follow claims: `"a=5"` allocates a at revision 5, `"-a=6"` takes it back."""
    order = AllocationOrder()
    for step in steps:
        if isinstance(step, tuple):
            items, at = step
            order.listed([stored(text) for text in items], str(at))
        else:
            order.changed(WatchEvent("MODIFIED", stored(step)))
    return order


def stored(text):
    name, _, at = text.partition("=")
    metadata = {"name": name.strip("-"), "uid": name.strip("-"), "namespace": "x"}
    status = {} if name.startswith("-") else {"allocation": allocation(result(name.strip("-")))}
    return {"metadata": {**metadata, "resourceVersion": at}, "status": status}


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        (["a=5", "b=6"], "a"),
        (["b=5", "a=6"], "b"),
        (["a=5", "b=6", "a=7"], "a"),  # something else of a has changed
        (["a=5", "b=6", "-a=7", "a=8"], "b"),
        ([(["a=5", "b=6"], 9)], ""),
        ([(["a=5"], 9), "b=10"], "a"),
        ([(["a=5"], 9), (["a=5", "b=11"], 12)], "a"),
        ([(["a=5"], 9), (["a=10", "b=11"], 12)], ""),  # a may have been made anew
        (["a=5", (["a=5", "b=11"], 12)], "a"),
        (["a=9", "-a=10", "b=11", ([], 12), (["a=14", "b=13"], 15)], ""),
        (["a=90", (["a=5", "b=6"], 9)], ""),  # another server, or one that began again
    ],
)
def test_the_order_is_that_of_the_writes_as_far_as_it_was_seen(steps, first):
    order = seen(*steps)
    a, b = order.get("a"), order.get("b")
    assert ("a" if a.is_before(b) else "b" if b.is_before(a) else "") == first
