"""What would be free: partitions, free devices, and devices given back, each tried plainly."""

import itertools
from random import Random

import pytest

from allocation.test_fleet import CLASSES, random_claim, random_fleet
from builders import counter_set, device, pool
from dralab.allocation import v1
from dralab.allocation.fleet import Fleet
from dralab.allocation.free_devices import FreeDeviceCounter
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.partitions import cards, partition_sets
from dralab.allocation.releasing import fits_without, freed_at_most, wanted_devices
from smallselectors import SmallEnvironment

SEEDS = range(25)


def busy_fleet(seed, *, network=True):
    """Return a fleet with some claims in it, and others that could come."""
    chance = Random(seed)
    nodes, slices = random_fleet(chance)
    if not network:
        slices = [each for each in slices if each["metadata"]["name"].startswith("node-")]
    fleet = Fleet(nodes, slices, CLASSES)
    held = []
    for number in range(chance.randrange(1, 8)):
        placed = fleet.allocate([random_claim(chance, number)])
        if isinstance(placed, DevicePlacement):
            held += placed.allocations
    asked = [[random_claim(chance, 50 + number)] for number in range(3)]
    return chance, nodes, slices, fleet, held, asked


def in_use(fleet):
    return [(each.held, each.whole, each.sharers) for each in fleet.use.occupancies]


def fits(fleet, number, claims):
    return isinstance(fleet.find_on_node(number, claims), list)


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_fit_without_others_where_they_do_once_those_are_gone(seed):
    chance, nodes, slices, fleet, held, asked = busy_fleet(seed)
    gone = [each for each in held if chance.random() < 0.5]
    after = Fleet(nodes, slices, CLASSES)
    for each in held:
        if not any(each is one for one in gone):
            after.mark_in_use(each)
    before = in_use(fleet)
    for number, claims in itertools.product(range(len(nodes)), asked):
        found = fits_without(fleet, number, claims, gone)
        assert found in {None, fits(after, number, claims)}
        if found is None and fleet.node_state(number) is not None:
            assert not fits(after, number, claims)  # A selector fails.
        assert fits_without(fleet, number, claims, ()) in {None, fits(fleet, number, claims)}
    assert before == in_use(fleet)


@pytest.mark.parametrize("seed", SEEDS)
def test_free_devices_are_those_that_a_request_would_take(seed):
    _, nodes, _, fleet, _, asked = busy_fleet(seed, network=False)
    counter = FreeDeviceCounter(fleet)
    numbers = range(len(nodes))
    for claims in asked:
        found = counter.on(numbers, claims)
        assert found == counter.on(numbers, claims)
        for number, each in enumerate(found):
            state = fleet.node_state(number)
            if state is None:
                assert (each.free, each.fits) == (0, False)
                continue
            wanted = wanted_devices(fleet, number, claims)
            # Where nothing is free, what only looks on fits all the same; it is not asked.
            assert each.fits == (bool(each.free) and fits(fleet, number, claims))
            if wanted is not None:
                assert each.free == wanted.free.bit_count()


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_that_fit_find_as_many_devices_as_they_need(seed):
    _, nodes, _, fleet, held, asked = busy_fleet(seed)
    for number, claims in itertools.product(range(len(nodes)), asked):
        wanted = wanted_devices(fleet, number, claims)
        if wanted is None:
            continue
        assert wanted.free & ~wanted.wanted == 0
        if fits(fleet, number, claims):
            assert wanted.free.bit_count() >= wanted.needed
        if fits_without(fleet, number, claims, held):
            freed = freed_at_most(fleet, number, held)
            assert (wanted.wanted & (wanted.free | freed)).bit_count() >= wanted.needed


@pytest.mark.parametrize("seed", SEEDS)
def test_what_becomes_free_is_among_what_may(seed):
    chance, nodes, _, fleet, held, asked = busy_fleet(seed)
    gone = [each for each in held if chance.random() < 0.5]
    before = {
        (number, at): wanted_devices(fleet, number, claims)
        for number in range(len(nodes))
        for at, claims in enumerate(asked)
    }
    freed = [freed_at_most(fleet, number, gone) for number in range(len(nodes))]
    assert all(freed_at_most(fleet, number, ()) in {0, -1} for number in range(len(nodes)))
    for each in gone:
        fleet.release(each)
    for (number, at), known in before.items():
        now = wanted_devices(fleet, number, asked[at])
        if now is not None and known is not None:
            assert (now.wanted, now.needed) == (known.wanted, known.needed)
            assert now.free & ~known.free & ~freed[number] == 0
            assert known.free & ~now.free == 0


def test_what_shares_counters_with_a_device_may_become_free_with_it():
    devices = [device("whole", consumes={"s": {"m": 4}})]
    devices += [device(f"half-{n}", consumes={"s": {"m": 2}}) for n in (0, 1)]
    devices += [device("other"), device("far", consumes={"t": {"m": 1}})]
    counters = [counter_set("s", m=4), counter_set("t", m=1)]
    fleet = Fleet(
        [{"metadata": {"name": "node-1"}}, {"metadata": {"name": "node-2"}}],
        pool("p", *devices, counters=counters, driver="d"),
        CLASSES,
    )

    def held(*names):
        results = [{"request": "r", "driver": "d", "pool": "p", "device": name} for name in names]
        return {"devices": {"results": results}}

    assert freed_at_most(fleet, 0, [held("half-0")]) == 0b00111
    assert freed_at_most(fleet, 0, [held("other")]) == 0b01000
    assert freed_at_most(fleet, 0, [held("other"), held("far")]) == 0b11000
    assert freed_at_most(fleet, 1, [held("half-0")]) == 0


# --- partitions -----------------------------------------------------------------------------------


def needs(one):
    return {
        (drawn.counter_set, counter): amount
        for drawn in one.consumes
        for counter, amount in drawn.counters.items()
        if amount
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_cards_and_their_sets_are_what_trying_all_finds(seed):
    chance, reader = Random(seed), v1.V1Reader(SmallEnvironment())
    sets = [counter_set(name, m=chance.randrange(1, 6), n=3) for name in "stu"]
    devices = []
    for number in range(chance.randrange(1, 8)):
        drawn = {
            name: {counter: chance.randrange(4) for counter in chance.sample("mn", 1)}
            for name in chance.sample("stuv", chance.choice((0, 1, 1, 2)))
        }
        devices.append(device(f"d{number}", consumes=drawn))
    half = chance.randrange(len(devices) + 1)
    parts = [*pool("p", *devices[:half], counters=sets), *pool("p", *devices[half:])]
    slices = [reader.slice(each) for each in [*parts, *pool("q", *devices, counters=sets)]]
    totals = {(each["name"], name): int(item["value"]) for each in sets
              for name, item in each["counters"].items()}  # fmt: skip
    found = cards(slices)
    assert [card.pool for card in found] == sorted(card.pool for card in found)
    for name in "pq":
        mine = [card for card in found if card.pool == name]
        everything = [one for each in slices if each.pool == name for one in each.devices]
        drawing = [one for one in everything if needs(one)]
        # Each device that draws is on one card, and cards have no counter in common.
        assert sorted(one.name for card in mine for one in card.devices) == sorted(
            one.name for one in drawing
        )
        for card in mine:
            assert card.name == card.devices[0].name
            assert card.left == {
                key: totals[key] for one in card.devices for key in needs(one) if key in totals
            }
        for one, other in itertools.combinations(mine, 2):
            keys = [{key for each in card.devices for key in needs(each)} for card in (one, other)]
            assert not keys[0] & keys[1]
        for card in mine:
            assert is_connected(card.devices)
            possible = [
                chosen
                for size in range(1, len(card.devices) + 1)
                for chosen in itertools.combinations(card.devices, size)
                if all(
                    sum(needs(each).get(key, 0) for each in chosen) <= totals.get(key, 0)
                    for key in {key for each in chosen for key in needs(each)}
                )
            ]
            got = list(partition_sets(card))
            assert len(got) == len(possible)
            assert {tuple(each.name for each in one) for one in got} == {
                tuple(each.name for each in one) for one in possible
            }
            assert list(partition_sets(card)) == got


def is_connected(devices):
    reached, todo = {devices[0]}, [devices[0]]
    while todo:
        one = todo.pop()
        for other in devices:
            if other not in reached and needs(one).keys() & needs(other).keys():
                reached.add(other)
                todo.append(other)
    return reached == set(devices)
