"""What is in use of a pool is the same however it came about, and as counted anew."""

from collections import Counter
from random import Random

import pytest

from builders import ask, claim, counter_set, device, device_class, node, pool, request
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory import occupancy
from dralab.allocation.inventory.holdings import HeldByClaim, Holdings
from dralab.allocation.inventory.occupancy import nothing_in_use
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.objects.claims import holds

MEMORY = {"value": "8", "requestPolicy": {"default": "1"}}
SLICES = pool(
    "node-1",
    *(device(f"whole-{number}") for number in range(2)),
    *(device(f"part-{number}", shared=True, capacity={"memory": MEMORY}) for number in range(3)),
    *(device(f"card-{number}", consumes={"set": {"slots": "2"}}) for number in range(3)),
    node="node-1",
    counters=[counter_set("set", slots="4")],
)
CLASSES = [device_class("gpu")]


def wanted(chance, name):
    capacity = {"capacity": {"requests": {"memory": str(chance.randint(1, 6))}}}
    more = chance.choice([{}, {}, capacity])
    asked = ask("gpu", count=1 if more else chance.randint(1, 3), **more)
    return claim(name, request("r", exactly=asked))


def loaded():
    return Fleet([node("node-1")], SLICES, CLASSES)


@pytest.mark.parametrize("seed", range(30))
def test_the_same_devices_in_use_are_one_object_in_whatever_order_they_were_taken(seed):
    chance, fleet, held = Random(seed), loaded(), {}
    for number in range(14):
        found = fleet.allocate([wanted(chance, f"c{number}")])
        if isinstance(found, DevicePlacement):
            held[number] = found.allocations[0]
        if held and chance.random() < 0.4:
            fleet.release(held.pop(chance.choice(list(held))))
        other = loaded()
        other.pools = other.use.pools = fleet.pools
        other.use.occupancies = [nothing_in_use(record.shape) for record in fleet.pools.records]
        for each in chance.sample(list(held), len(held)):
            other.mark_in_use(held[each])
        assert other.use.occupancies == fleet.use.occupancies
        [used], names = fleet.use.occupancies, fleet.pools.records[0].names
        users = Counter(item.device for each in held.values() for item in holds(each))
        assert {names[at] for at in range(len(names)) if used.held >> at & 1} == set(users)
        shared = {names[at]: count for at, count in used.sharers}
        assert shared == {name: users[name] for name in users if name.startswith("part")}
    assert held


@pytest.mark.parametrize("seed", range(10))
def test_a_pool_that_is_counted_anew_is_as_it_was(seed):
    chance, fleet, holdings = Random(seed), loaded(), Holdings()
    for number in range(6):
        found = fleet.allocate([wanted(chance, f"c{number}")])
        if isinstance(found, DevicePlacement):
            holdings.add_claim(f"c{number}", HeldByClaim(f"c{number}", holds(found.allocations[0])))
    [before] = fleet.use.occupancies
    record = fleet.pools.records[0]
    key = record.driver, record.name
    fleet.replace_pools([(key, record.slices, holdings.pool_use(key))])
    assert before.held
    assert fleet.use.occupancies == [before]


def test_what_is_forgotten_is_worked_out_again(monkeypatch):
    monkeypatch.setattr(occupancy, "MOST_OCCUPANCIES", 2)
    monkeypatch.setattr(occupancy, "MOST_FOLLOWING", 1)
    chance, few, all_ = Random(3), loaded(), loaded()
    gone = []
    for number in range(40):
        asked = [wanted(chance, f"c{number}")]
        found = few.allocate(asked)
        assert found == all_.allocate(asked)
        if isinstance(found, DevicePlacement):
            gone.append(found.allocations[0])
        if gone and chance.random() < 0.6:
            each = gone.pop(0)
            few.release(each)
            all_.release(each)
    shapes = {each.state.shape for each in few.use.occupancies}
    assert all(len(shape.occupancies) <= 2 for shape in shapes)
