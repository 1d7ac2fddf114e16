"""The ways in which a partitionable device can be cut: every set of partitions that fits together.

A card is a connected component: devices that draw, directly or through others, on common counters.
"""

from collections.abc import Iterator, Mapping, Sequence

from dralab.allocation.problem import Device, Slice
from dralab.values.quantity import Number
from dralab.values.records import dataclass

Counter = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Devices of one pool that compete for counters; `left` are the counters' totals."""

    pool: str
    devices: tuple[Device, ...]
    left: Mapping[Counter, Number]

    @property
    def name(self) -> str:
        """The first device's name: drivers publish the whole card before its parts."""
        return self.devices[0].name


def cards(slices: Sequence[Slice]) -> list[Card]:
    """Return the cards of all pools, in the order in which their first device is published.

    Devices without counters are none. A counter that no set has counts as absent: such a device
    can never be used, and neither can it here.
    """
    pools: dict[tuple[str, str], list[Slice]] = {}
    for each in slices:
        pools.setdefault((each.driver, each.pool), []).append(each)
    return [card for (_, pool), parts in pools.items() for card in _cards(pool, parts)]


def _cards(pool: str, parts: Sequence[Slice]) -> Iterator[Card]:
    totals: dict[Counter, Number] = {
        (each.name, counter): amount
        for part in parts
        for each in part.counter_sets
        for counter, amount in each.counters.items()
    }
    groups: list[tuple[set[Counter], list[Device]]] = []
    for part in parts:
        for device in part.devices:
            needs = set(needs_of(device))
            if not needs:
                continue
            joined = [group for group in groups if group[0] & needs]
            if not joined:
                groups.append((needs, [device]))
                continue
            first = joined[0]
            first[0].update(needs)
            for other in joined[1:]:
                first[0].update(other[0])
                first[1].extend(other[1])
                groups.remove(other)
            first[1].append(device)
    for counters, devices in groups:
        left = {counter: totals[counter] for counter in counters if counter in totals}
        yield Card(pool=pool, devices=tuple(devices), left=left)


def partition_sets(card: Card) -> Iterator[tuple[Device, ...]]:
    """Yield every non-empty set of a card's devices that can be in use together.

    Depth first, devices in published order, each set before its extensions.
    """
    needs = [needs_of(device) for device in card.devices]
    left = dict(card.left)
    chosen: list[int] = []

    def extended(start: int) -> Iterator[tuple[Device, ...]]:
        for position in range(start, len(needs)):
            if not all(left.get(c, 0) >= amount for c, amount in needs[position].items()):
                continue
            for counter, amount in needs[position].items():
                left[counter] -= amount
            chosen.append(position)
            yield tuple(card.devices[at] for at in chosen)
            yield from extended(position + 1)
            chosen.pop()
            for counter, amount in needs[position].items():
                left[counter] += amount

    yield from extended(0)


def needs_of(device: Device) -> dict[Counter, Number]:
    """Return what a device draws from its pool's counters."""
    return {
        (drawn.counter_set, counter): amount
        for drawn in device.consumes
        for counter, amount in drawn.counters.items()
        if amount
    }
