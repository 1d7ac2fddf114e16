"""Claims of several requests for partitions: always what the plain search finds, or nothing."""

import random

import pytest

from builders import ask, claim, counter_set, device, device_class, node, pool, request
from dralab.allocation import v1
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory import plans
from dralab.allocation.inventory.occupancy import nothing_in_use
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Problem
from dralab.allocation.search.alternatives import RefusedError
from dralab.allocation.search.backtracking import Effort, first
from dralab.allocation.search.node_devices import NodeDevices
from dralab.allocation.search.setup import prepare
from dralab.allocation.selectors import CelSelectorCompiler

CLASSES = [device_class("gpu")]


def kind_of(number):
    return f'device.attributes["gpu.example.com"].kind == {number}'


def at_least(number):
    return f'device.attributes["gpu.example.com"].kind >= {number}'


def cards(chance, count):
    """Some cards of places, and partitions of one to three places next to each other."""
    devices, counters = [], []
    for card in range(count):
        places = chance.randint(2, 5)
        counters.append(counter_set(f"card-{card}", **{f"p{n}": 1 for n in range(places)}))
        for size in (1, 2, 3):
            for start in range(places - size + 1):
                if chance.random() < 0.8:
                    drawn = {f"card-{card}": {f"p{n}": 1 for n in range(start, start + size)}}
                    devices.append(
                        device(f"d{len(devices)}", consumes=drawn, kind=size, card=card % 2)
                    )
    return pool("node-1", *devices, node="node-1", counters=counters)


def wanted(chance, number):
    selectors = [kind_of(1), kind_of(2), kind_of(3), at_least(2), "true"]
    requests = [
        request(f"r{position}", "gpu", chance.choice(selectors), count=chance.randint(1, 2))
        for position in range(chance.randint(2, 3))
    ]
    match = "gpu.example.com/card" if chance.random() < 0.5 else None
    return claim(f"c{number}", *requests, match=match)


def by_search(slices, asked, held):
    """The first solution of the search with plain backtracking, as pairs of request and device."""
    reader = v1.V1Reader(CelSelectorCompiler())
    problem = Problem(
        claims=(reader.claim(asked),),
        classes={"gpu": reader.device_class(CLASSES[0])},
        slices=tuple(map(reader.slice, slices)),
        in_use=v1.in_use(held),
    )
    where = v1.node(node("node-1"))
    devices = NodeDevices(
        SliceCatalog(problem.slices).view(where, problem.features), problem.features
    )
    try:
        setup = prepare(devices, problem.claims, problem.classes, problem.features, problem.in_use)
    except RefusedError:
        return None
    found = first(setup, Effort(10**9))
    if found is None:
        return None
    return [
        (each.alternative.name, devices.offers[number].device.name)
        for each in found
        for number in each.devices
    ]


@pytest.mark.parametrize("seed", range(40))
def test_each_claim_gets_what_backtracking_finds_until_none_fits(seed):
    chance = random.Random(seed)
    slices = cards(chance, chance.randint(1, 3))
    fleet = Fleet([node("node-1")], slices, CLASSES)
    held, answers = [], set()
    for number in range(8):
        asked = wanted(chance, number)
        expected = by_search(slices, asked, held)
        found = fleet.allocate([asked])
        answers.add(expected is None)
        if expected is None:
            assert not isinstance(found, DevicePlacement)
            continue
        results = found.allocations[0]["devices"]["results"]
        assert [(each["request"], each["device"]) for each in results] == expected
        held.append(asked | {"status": {"allocation": found.allocations[0]}})
        if chance.random() < 0.3:
            gone = held.pop(chance.randrange(len(held)))
            fleet.release(gone["status"]["allocation"])
    assert answers


@pytest.mark.parametrize("seed", range(20))
def test_equal_states_of_a_pool_are_one_object_however_they_came_about(seed):
    chance = random.Random(seed)
    slices = cards(chance, 3)
    fleet = Fleet([node("node-1")], slices, CLASSES)
    held = []
    for number in range(12):
        found = fleet.allocate([claim(f"c{number}", request("r0", "gpu", kind_of(1)))])
        if isinstance(found, DevicePlacement):
            held.append(found.allocations[0])
        if held and chance.random() < 0.4:
            fleet.release(held.pop(chance.randrange(len(held))))
        other = Fleet([node("node-1")], slices, CLASSES)
        other.pools = other.use.pools = fleet.pools
        other.use.occupancies = [nothing_in_use(record.shape) for record in fleet.pools.records]
        for each in chance.sample(held, len(held)):
            other.mark_in_use(each)
        assert other.use.occupancies == fleet.use.occupancies
        (used,), devices = fleet.use.occupancies, fleet.pools.records[0].shape.node_devices
        state = used.state
        fitting = devices.fitting(state.state) & ~used.held
        assert state.free == fitting & fleet.pools.records[0].shape.everything
    assert held


def test_claims_of_several_requests_are_served_without_the_search(monkeypatch):
    served = []
    original = plans.several_requests

    def noted(*given, **options):
        served.append(original(*given, **options))
        return served[-1]

    monkeypatch.setattr(plans, "several_requests", noted)
    for seed in range(10):
        chance = random.Random(seed)
        fleet = Fleet([node("node-1")], cards(chance, 2), CLASSES)
        for number in range(4):
            fleet.allocate([wanted(chance, number)])
    assert sum(each is not None for each in served) > 20


@pytest.mark.parametrize(
    "requests",
    [
        [request("one", "gpu")],
        [request("one", "gpu"), request("whole", "gpu", count="All")],
        [request("one", "gpu"), request("look", "gpu", adminAccess=True)],
        [request("many", "gpu", count=9), request("more", "gpu", count=9)],
        [request("one", "gpu"), {"name": "either", "firstAvailable": [{"name": "a", **ask("gpu")}, {"name": "b", **ask("gpu")}]}],
    ],
    ids=["one request", "all", "admin access", "many", "alternatives"],
)  # fmt: skip
def test_everything_else_is_left_to_the_search(requests, monkeypatch):
    served = []
    original = plans.several_requests

    def noted(*given, **options):
        served.append(original(*given, **options))
        return served[-1]

    monkeypatch.setattr(plans, "several_requests", noted)
    chance = random.Random(7)
    Fleet([node("node-1")], cards(chance, 2), CLASSES).allocate([claim("c", *requests)])
    assert served == [None]
