"""The devices of one node, numbered in search order, and what is left of them.

A `NodeDevices` never changes. A `DeviceState` records what is in use on it; taking a device creates
a new one. Sets of devices are integers used as bit sets: bit i is device i.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import Final, NamedTuple

from dralab.allocation.pools import Offer, Pool, PoolView
from dralab.allocation.problem import AllocationFeatures, Device, DeviceId, InUse
from dralab.values.quantity import Number
from dralab.values.records import dataclass

# States of counter groups that one node remembers; beyond it they are forgotten.
MOST_REMEMBERED: Final = 100_000


class Consumption(NamedTuple):
    """What a device takes of its counter group: (position, amount); (position, groups) per set."""

    counter_group: int
    amounts: tuple[tuple[int, Number], ...]
    groups: tuple[tuple[int, frozenset[str]], ...]


class Remaining(NamedTuple):
    """What a counter group has left: counters; per set the groups in force (None: unused)."""

    counters: tuple[Number, ...]
    groups: tuple[frozenset[str] | None, ...]

    def without(self, consumption: Consumption) -> "Remaining | None":
        """Return what is left after a device drew, or None if that does not fit."""
        counters = list(self.counters)
        for position, amount in consumption.amounts:
            rest = counters[position] - amount
            if rest < 0:
                return None
            counters[position] = rest
        groups = self.groups
        for position, mine in consumption.groups:
            ruling = groups[position]
            # KEP-5963: no device has groups, or all have at least one in common.
            agreed = mine if ruling is None else ruling & mine
            if ruling is not None and not agreed and (ruling or mine):
                return None
            groups = (*groups[:position], agreed, *groups[position + 1 :])
        return Remaining(tuple(counters), groups)


class DeviceState(NamedTuple):
    """What is in use on a node.

    `used`      devices that are held exclusively
    `charged`   shared devices whose counters are paid for already
    `remaining` per counter group
    `room`      per shared device that is in use: what is left of its capacities
    """

    used: int
    charged: int
    remaining: tuple[Remaining, ...]
    room: Mapping[int, tuple[Number, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class CounterGroup:
    """Counter sets of one pool that some device draws on together, hence devices that compete."""

    pool: int
    counters: tuple[tuple[str, str], ...]
    sets: tuple[str, ...]
    total: Remaining


class NodeDevices:
    """The devices that a node sees in usable pools."""

    def __init__(self, view: PoolView, features: AllocationFeatures) -> None:
        self.view = view
        self.features = features
        self.offers: Sequence[Offer] = view.offers()
        self.index: dict[DeviceId, int] = {
            offer.id: number for number, offer in enumerate(self.offers)
        }
        self.counter_groups: list[CounterGroup] = []
        self._positions: dict[tuple[int, str], tuple[int, int, dict[str, int]]] = {}
        for number, pool in enumerate(view.pools):
            if pool.counter_sets:
                self._add_units(number, pool)
        self.consumptions: list[Consumption | None] = []
        self.shareable = 0
        pool_of = {pool.id: number for number, pool in enumerate(view.pools)}
        for number, offer in enumerate(self.offers):
            device = offer.device
            self.consumptions.append(
                self.consumption_of(pool_of[offer.id.driver, offer.id.pool], device)
                if device.consumes and features.partitionable_devices
                else None
            )
            if device.shareable and features.consumable_capacity:
                self.shareable |= 1 << number

        self.members = [0] * len(self.counter_groups)
        for number, consumption in enumerate(self.consumptions):
            if consumption is not None:
                self.members[consumption.counter_group] |= 1 << number
        self.consuming = sum(self.members)
        self._fitting: dict[tuple[int, Remaining], int] = {}
        # The answer before: the next state differs from it in few counter groups.
        self._last_fitting: tuple[Sequence[Remaining | None], int] = (
            (None,) * len(self.counter_groups),
            0,
        )

    def part_left(self, number: int, room: Sequence[Number]) -> float:
        """Return the least part of its capacities that a shared device has left: 0 to 1."""
        capacities = self.offers[number].device.capacity.values()
        parts = (
            float(left) / float(item.value)
            for item, left in zip(capacities, room, strict=True)
            if item.value
        )
        return max(0.0, min(parts, default=1.0))

    def fitting(self, state: DeviceState) -> int:
        """Return the devices whose counters are accounted for, or would still suffice for one."""
        before, mask = self._last_fitting
        for counter_group in changed(before, state.remaining):
            mask &= ~self.members[counter_group]
            mask |= self.fitting_in(counter_group, state.remaining[counter_group])
        self._last_fitting = (state.remaining, mask)
        return mask | ~self.consuming | state.charged

    def fitting_in(self, counter_group: int, remaining: Remaining) -> int:
        """Return the devices of a counter group that fit into what it has left."""
        key = (counter_group, remaining)
        found = self._fitting.get(key)
        if found is None:
            if len(self._fitting) >= MOST_REMEMBERED:
                self._fitting.clear()
            found = 0
            for number in bits(self.members[counter_group]):
                consumption = self.consumptions[number]
                if consumption is not None and remaining.without(consumption) is not None:
                    found |= 1 << number
            self._fitting[key] = found
        return found

    def state(self, in_use: InUse) -> DeviceState:
        """Return what is left when these devices are in use."""
        held = in_use.devices()
        used = charged = 0
        room: dict[int, tuple[Number, ...]] = {}
        for device in held:
            number = self.index.get(device)
            if number is None:
                continue
            bit = 1 << number
            charged |= bit
            # A device that is shared already is not free for one claim alone, nor the reverse.
            if device in in_use.exclusive or not self.shareable & bit:
                used |= bit
            elif device in in_use.consumed:
                room[number] = _room(self.offers[number].device, in_use.consumed[device])
        remaining = [counter_group.total for counter_group in self.counter_groups]
        for number, pool in enumerate(self.view.pools):
            if not pool.counter_sets or not held:
                continue
            for consuming in pool.consuming:
                if consuming.consumes and DeviceId(pool.driver, pool.name, consuming.name) in held:
                    consumption = self.consumption_of(number, consuming)
                    remaining[consumption.counter_group] = overdrawn(
                        remaining[consumption.counter_group], consumption
                    )
        return DeviceState(used, charged, tuple(remaining), room)

    def take_device(
        self, state: DeviceState, number: int, amounts: tuple[Number, ...] | None
    ) -> DeviceState | None:
        """Return the state in which device `number` is taken too, or None if it does not fit.

        `amounts` are what is taken of each capacity of a shared device, in their order.
        """
        bit = 1 << number
        used, charged, remaining, room = state.used, state.charged, state.remaining, state.room
        if used & bit:
            return None
        consumption = self.consumptions[number]
        if consumption is not None and not charged & bit:
            rest = remaining[consumption.counter_group].without(consumption)
            if rest is None:
                return None
            remaining = (
                *remaining[: consumption.counter_group],
                rest,
                *remaining[consumption.counter_group + 1 :],
            )
        if amounts is None:
            return DeviceState(used | bit, charged | bit, remaining, room)
        had = self.room(state, number)
        rest_of = tuple(have - taken for have, taken in zip(had, amounts, strict=True))
        if any(rest < 0 for rest in rest_of):
            return None
        return DeviceState(used, charged | bit, remaining, {**room, number: rest_of})

    def room(self, state: DeviceState, number: int) -> tuple[Number, ...]:
        """Return what is left of each capacity of a device."""
        remaining = state.room.get(number)
        if remaining is None:
            return tuple(item.value for item in self.offers[number].device.capacity.values())
        return remaining

    def consumption_of(self, pool: int, device: Device) -> Consumption:
        """Return what a device of a pool takes from its counter group."""
        counter_group = 0
        amounts: list[tuple[int, Number]] = []
        groups: list[tuple[int, frozenset[str]]] = []
        for drawn in device.consumes:
            counter_group, position, counters = self._positions[pool, drawn.counter_set]
            amounts += [(counters[name], amount) for name, amount in drawn.counters.items()]
            groups.append((position, drawn.groups))
        return Consumption(counter_group, tuple(amounts), tuple(groups))

    def _add_units(self, number: int, pool: Pool) -> None:
        """Find the counter sets that are connected by devices that draw on several."""
        leader = {name: name for name in pool.counter_sets}

        def find(name: str) -> str:
            while leader[name] != name:
                leader[name] = leader[leader[name]]
                name = leader[name]
            return name

        for device in pool.consuming:
            for drawn in device.consumes[1:]:
                leader[find(drawn.counter_set)] = find(device.consumes[0].counter_set)
        members: dict[str, list[str]] = {}
        for name in pool.counter_sets:
            members.setdefault(find(name), []).append(name)
        for sets in members.values():
            counters: list[tuple[str, str]] = []
            total: list[Number] = []
            for position, name in enumerate(sets):
                places = {}
                for counter, amount in pool.counter_sets[name].items():
                    places[counter] = len(counters)
                    counters.append((name, counter))
                    total.append(amount)
                self._positions[number, name] = (len(self.counter_groups), position, places)
            self.counter_groups.append(
                CounterGroup(
                    number,
                    tuple(counters),
                    tuple(sets),
                    Remaining(tuple(total), (None,) * len(sets)),
                )
            )


def _room(device: Device, consumed: Mapping[str, Number]) -> tuple[Number, ...]:
    return tuple(
        item.value - amount
        for item, amount in zip(device.capacity.values(), device.amounts_of(consumed), strict=True)
    )


def overdrawn(remaining: Remaining, consumption: Consumption) -> Remaining:
    """Subtract even below zero: drivers may publish less than is in use already."""
    counters = list(remaining.counters)
    for position, amount in consumption.amounts:
        counters[position] -= amount
    groups = list(remaining.groups)
    for position, mine in consumption.groups:
        ruling = groups[position]
        groups[position] = mine if ruling is None else ruling & mine
    return Remaining(tuple(counters), tuple(groups))


def changed(before: Sequence[object], after: Sequence[object]) -> Iterator[int]:
    """Yield the positions whose objects have changed."""
    return compress(count(), map(is_not, before, after))


def bits(mask: int) -> list[int]:
    """Return the positions of the bits of a set, lowest first.

    >>> bits(0b1011)
    [0, 1, 3]
    """
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def lowest_first(mask: int) -> Iterator[int]:
    """Yield the positions of the bits of a set, lowest first, as far as they are asked for."""
    while mask:
        low = mask & -mask
        mask ^= low
        yield low.bit_length() - 1


def mask_of(numbers: Sequence[int]) -> int:
    """Return the set of these positions.

    >>> bin(mask_of([0, 1, 3]))
    '0b1011'
    """
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
