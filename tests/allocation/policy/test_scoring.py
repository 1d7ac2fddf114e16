"""What a node can still serve of what is wanted, against trying all sets of devices."""

import itertools
from random import Random

import pytest

from allocation.test_fleet import CLASSES
from builders import counter_set, device, pool
from dralab.allocation.fleet import Fleet
from dralab.allocation.policy.scoring import LikelyRequest, ServableDemand

NODE = {"metadata": {"name": "node-1"}}


class Accepts:
    """Each alternative is the set of the numbers of the devices that serve it."""

    def accepts(self, alternative, number):
        return number in alternative


def cards(chance):
    """Return devices of one to three cards, and some without counters."""
    devices, counters, drawn = [], [], []
    alike = chance.random() < 0.5  # Cards that are alike are counted once.
    for card in range(chance.randrange(1, 4)):
        counters.append(counter_set(f"s{card}", m=3 if alike else chance.randrange(2, 5)))
        for number in range(2 if alike else chance.randrange(1, 5)):
            amount = 1 + number if alike else chance.randrange(1, 4)
            devices.append(device(f"c{card}-{number}", consumes={f"s{card}": {"m": amount}}))
            drawn.append((card, amount))
    for number in range(chance.randrange(3)):
        devices.append(device(f"plain-{number}"))
        drawn.append((None, 0))
    totals = [int(each["counters"]["m"]["value"]) for each in counters]
    return pool("p", *devices, counters=counters, driver="d"), drawn, totals


@pytest.mark.parametrize("seed", range(60))
def test_the_worth_of_a_node_is_the_most_that_any_set_of_devices_is_worth(seed):
    chance = Random(seed)
    slices, drawn, totals = cards(chance)
    state = Fleet([NODE], slices, CLASSES).node_state(0)
    node_devices = state.shape.node_devices
    names = [offer.device.name for offer in node_devices.offers]
    order = [each["name"] for part in slices for each in part["spec"].get("devices", ())]
    assert names == order
    wanted = [
        LikelyRequest({n for n in range(len(names)) if chance.random() < 0.5}, float(worth))
        for worth in chance.sample(range(1, 9), chance.randrange(1, 4))
    ]
    demand = ServableDemand(node_devices, Accepts(), wanted)
    start = state.shape.state(state.pools)
    for _ in range(3):
        free = chance.getrandbits(len(names))
        numbers = [n for n in range(len(names)) if free >> n & 1]
        worth = {
            n: max((each.worth for each in wanted if n in each.alternative), default=0.0)
            for n in numbers
        }
        most = max(
            sum(worth[n] for n in chosen)
            for size in range(len(numbers) + 1)
            for chosen in itertools.combinations(numbers, size)
            if all(
                sum(drawn[n][1] for n in chosen if drawn[n][0] == card) <= total
                for card, total in enumerate(totals)
            )
        )
        assert demand.usable(free, start) == most
