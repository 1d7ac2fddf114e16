"""The devices of a cluster as pages and tables show them."""

import pytest

from builders import claim, counter_set, device, device_class, node, pod, pool, request, taint
from dralab.allocation.contention import fit_together
from dralab.objects.claims import holds
from dralab.scheduling.device_states import DeviceRow, device_rows, unhealthy_devices
from dralab.scheduling.snapshot import Snapshot

DRIVER = "gpu.example.com"


def result(name, pool_="n1", **more):
    return {"request": "r", "driver": DRIVER, "pool": pool_, "device": name, **more}


def held(name, *results, by=(), namespace="d"):
    users = [{"resource": f"{kind}s", "name": user, "uid": user} for kind, user in by]
    status = {"allocation": {"devices": {"results": list(results)}}}
    if users:
        status["reservedFor"] = users
    return claim(name, request("r"), namespace=namespace, status=status)


def rows(*objects):
    return list(device_rows(Snapshot([device_class("gpu"), node("n1"), node("n2"), *objects])))


def told(*objects):
    """Return each device with its state, its fill and its holders."""
    return {row.device: (row.state, row.fill, *row.holders) for row in rows(*objects)}


def test_a_device_has_a_place_and_a_state():
    slices = pool("n1", device("a"), device("b"), node="n1")
    assert rows(*slices)[0] == DeviceRow(
        driver=DRIVER, node="n1", pool="n1", device="a", state="free", holders=()
    )
    network = pool("net", device("c"), node=None)
    assert [(row.node, row.device) for row in rows(*network)] == [("(several)", "c")]


def test_devices_are_sorted_by_driver_and_node_and_keep_their_order_in_the_pool():
    slices = [
        *pool("n2", device("z"), device("a"), node="n2"),
        *pool("net", device("m"), node=None),
        *pool("n1", device("b"), node="n1"),
        *pool("a-n1", device("k"), node="n1", driver="a.example.com"),
    ]
    assert [row.device for row in rows(*slices)] == ["k", "m", "b", "z", "a"]


def test_who_holds_a_device_is_named():
    slices = pool("n1", *(device(f"d{number}") for number in range(4)), node="n1")
    claims = [
        held("one", result("d0"), by=[("pod", "p"), ("pod", "q")]),
        held("two", result("d1")),
        held("see", result("d2", adminAccess=True), by=[("pod", "admin")]),
        held("gang", result("d3"), by=[("podgroup", "g")]),
    ]
    assert told(*slices, *claims) == {
        "d0": ("used", 100, "pod d/p", "pod d/q"),
        "d1": ("used", 100, "claim d/two"),
        "d2": ("free", 0),
        "d3": ("used", 100, "podgroup d/g"),
    }


def test_what_keeps_a_device_from_being_used():
    tainted = [
        device("ok"),
        device("no", taints=[taint("k")]),
        device("out", taints=[taint("k", "NoExecute")]),
        device("note", taints=[taint("k", "None")]),
        device("used", taints=[taint("k")]),
    ]
    found = {
        row.device: (row.state, row.tainted)
        for row in rows(*pool("n1", *tainted, node="n1"), held("c", result("used")))
    }
    assert found == {
        "ok": ("free", False),
        "no": ("tainted", True),
        "out": ("tainted", True),
        "note": ("free", False),
        "used": ("used", True),
    }


def test_devices_of_a_lost_node_are_not_free():
    lost = node("n3")
    lost["status"] = lost.get("status", {}) | {
        "conditions": [{"type": "Ready", "status": "Unknown"}]
    }
    found = told(
        lost, *pool("n3", device("a"), device("b"), node="n3"), held("c", result("b", "n3"))
    )
    assert {name: state for name, (state, *_) in found.items()} == {"a": "unusable", "b": "used"}


def test_devices_of_a_cordoned_node_are_so_unless_they_are_used():
    cordoned = node("n3") | {"spec": {"unschedulable": True}}
    slices = pool("n3", device("a"), device("b"), device("c", taints=[taint("k")]), node="n3")
    found = told(cordoned, *slices, held("c", result("b", "n3")))
    assert {name: state for name, (state, *_) in found.items()} == {
        "a": "cordoned", "b": "used", "c": "tainted"
    }  # fmt: skip


def test_partitions_block_each_other():
    devices = [device("whole", consumes={"s": {"m": 4}})]
    devices += [device(f"half-{n}", consumes={"s": {"m": 2}}) for n in (0, 1)]
    slices = pool("n1", *devices, counters=[counter_set("s", m=4)], node="n1")
    found = told(*slices, held("c", result("half-0")))
    assert {name: state for name, (state, *_) in found.items()} == {
        "whole": "blocked", "half-0": "used", "half-1": "free"
    }  # fmt: skip


def test_a_pool_that_is_not_complete_cannot_be_used():
    [half] = pool("n1", device("a"), device("b", taints=[taint("k")]), node="n1")
    half["spec"]["pool"]["resourceSliceCount"] = 2
    assert set(told(half).values()) <= {("unusable", 0), ("free", 0)}


@pytest.mark.parametrize(
    ("consumed", "fill"),
    [
        ({"memory": "1Gi"}, 10),
        ({"memory": "1050Mi"}, 11),
        ({"memory": "1Gi", "cores": "4"}, 50),
        ({"memory": "20Gi"}, 100),
        ({}, 0),
    ],
)
def test_a_shared_device_is_as_full_as_its_scarcest_capacity(consumed, fill):
    shared = device("a", shared=True, capacity={"memory": "10Gi", "cores": "8"})
    slices = pool("n1", shared, node="n1")
    taken = held("c", result("a", shareID="s", consumedCapacity=consumed))
    ((state, found, *_),) = told(*slices, taken).values()
    assert (state, found) == ("used", fill)


def test_a_shared_device_without_capacity_is_full():
    slices = pool("n1", device("a", shared=True, capacity={"memory": "0"}), node="n1")
    assert told(*slices, held("c", result("a", shareID="s")))["a"][:2] == ("used", 100)


# --- health -----------------------------------------------------------------------------------------


def sick(*ids, name="claim:e", health="Unhealthy", claim_="c"):
    resources = [{"resourceID": each, "health": health} for each in ids]
    entry = {"name": name, "resources": resources}
    status = {"containerStatuses": [{"name": "m", "allocatedResourcesStatus": [entry]}, {}]}
    return pod("p", claims={"e": claim_}, namespace="d", status=status)


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        (sick("anything"), []),
        (sick("vendor.com/gpu=gpu-1"), ["gpu-1"]),
        (sick("vendor.com/gpu=gpu-11"), ["gpu-11"]),
        (sick("vendor.com/gpu=uid-gpu-11", "vendor.com/gpu=uid-gpu-1"), ["gpu-1", "gpu-11"]),
        (sick("vendor.com/gpu=uid-x-gpu-1"), ["x-gpu-1"]),
        (sick("vendor.com/gpu=agpu-1"), []),
        (sick("gpu-1"), ["gpu-1"]),
        (sick(f"{DRIVER}/n1/gpu-1"), ["gpu-1"]),
        (sick("=gpu-1", health="Healthy"), []),
        (sick("=gpu-1", name="claim:e/r"), ["gpu-1"]),
        (sick("=gpu-1", name="claim:e/other"), []),
        (sick("=gpu-1", name="claim:other"), []),
        (sick("=gpu-1", claim_="gone"), []),
    ],
)
def test_the_kubelet_says_which_devices_are_unhealthy(given, devices):
    names = ("gpu-1", "gpu-11", "x-gpu-1")
    claims = held("c", *(result(name) for name in names), by=[("pod", "p")])
    slices = pool("n1", *map(device, names), node="n1")
    cluster = Snapshot([device_class("gpu"), node("n1"), *slices, claims, given])
    found = sorted(each.device for each in unhealthy_devices(cluster))
    assert found == devices
    assert found == sorted(row.device for row in device_rows(cluster) if row.unhealthy)


def test_the_only_device_of_a_claim_needs_no_name():
    slices = pool("n1", device("gpu-1"), node="n1")
    cluster = Snapshot([node("n1"), *slices, held("c", result("gpu-1")), sick("anything")])
    assert [each.device for each in unhealthy_devices(cluster)] == ["gpu-1"]


# --- what can be held at once -----------------------------------------------------------------------


def share(name, memory):
    return result(name, shareID=f"s{memory}", consumedCapacity={"memory": f"{memory}Gi"})


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ([[result("whole")], [result("half-0")]], False),
        ([[result("half-0")], [result("half-1")]], True),
        ([[result("half-0")], [result("half-0")]], False),
        ([[result("half-0"), result("half-1")], [result("shared")]], True),
        ([[share("shared", 4)], [share("shared", 6)]], True),
        ([[share("shared", 4)], [share("shared", 7)]], False),
        ([[share("shared", 4)], [result("shared")]], False),
        ([[result("shared")], [share("shared", 4)]], False),
        ([[result("gone")], [result("half-0")]], True),
        ([[result("gone")], [result("gone")]], False),
        ([[result("half-0", "n2")], [result("half-0")]], True),
        ([], True),
    ],
)
def test_what_several_claims_hold_fits_together_or_not(claims, fits):
    devices = [device("whole", consumes={"s": {"m": 4}})]
    devices += [device(f"half-{n}", consumes={"s": {"m": 2}}) for n in (0, 1)]
    devices += [device("shared", shared=True, capacity={"memory": "10Gi"})]
    slices = pool("n1", *devices, counters=[counter_set("s", m=4)], node="n1")
    cluster = Snapshot([device_class("gpu"), node("n1"), node("n2"), *slices])
    held = [holds({"devices": {"results": results}}) for results in claims]
    assert fit_together(cluster.fleet, held) is fits
