"""The devices of one node, numbered in the order of the search, and what of them is left.

A `Board` never changes; a `State` says what is in use on it, and taking a device makes a new one.
Sets of devices are integers used as bit sets: bit i stands for device i.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dralab.allocation.pools import Offer, Pool, View
from dralab.allocation.problem import Device, DeviceId, Features, InUse
from dralab.values.quantity import Number

# States of units that one board remembers; beyond it they are forgotten.
MOST_REMEMBERED: Final = 100_000


class Draw(NamedTuple):
    """What a device takes from its unit: (position, amount), and (position, groups) per set."""

    unit: int
    amounts: tuple[tuple[int, Number], ...]
    groups: tuple[tuple[int, frozenset[str]], ...]


class Left(NamedTuple):
    """What a unit has left: counters, and per counter set the groups in force (None: unused)."""

    counters: tuple[Number, ...]
    groups: tuple[frozenset[str] | None, ...]

    def without(self, draw: Draw) -> "Left | None":
        """Return what is left after a device drew, or None where that does not fit."""
        counters = list(self.counters)
        for position, amount in draw.amounts:
            rest = counters[position] - amount
            if rest < 0:
                return None
            counters[position] = rest
        groups = self.groups
        for position, mine in draw.groups:
            ruling = groups[position]
            # KEP-5963: nobody has groups, or all have at least one in common.
            agreed = mine if ruling is None else ruling & mine
            if ruling is not None and not agreed and (ruling or mine):
                return None
            groups = (*groups[:position], agreed, *groups[position + 1 :])
        return Left(tuple(counters), groups)


class State(NamedTuple):
    """What is in use on a board.

    `used`     devices that nobody else may have
    `charged`  shared devices whose counters are paid for already
    `left`     per unit
    `room`     per shared device that is in use: what is left of its capacities
    """

    used: int
    charged: int
    left: tuple[Left, ...]
    room: Mapping[int, tuple[Number, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Counter sets of one pool that some device draws on together, hence devices that compete."""

    pool: int
    counters: tuple[tuple[str, str], ...]
    sets: tuple[str, ...]
    total: Left


class Board:
    """The devices that a node sees in usable pools."""

    def __init__(self, view: View, features: Features) -> None:
        self.view = view
        self.features = features
        self.offers: Sequence[Offer] = view.offers()
        self.index: dict[DeviceId, int] = {
            offer.id: number for number, offer in enumerate(self.offers)
        }
        self.units: list[Unit] = []
        self._positions: dict[tuple[int, str], tuple[int, int, dict[str, int]]] = {}
        for number, pool in enumerate(view.pools):
            if pool.counter_sets:
                self._add_units(number, pool)
        self.draws: list[Draw | None] = []
        self.shareable = 0
        pool_of = {pool.id: number for number, pool in enumerate(view.pools)}
        for number, offer in enumerate(self.offers):
            device = offer.device
            self.draws.append(
                self.draw(pool_of[offer.id.driver, offer.id.pool], device)
                if device.consumes and features.partitionable_devices
                else None
            )
            if device.shareable and features.consumable_capacity:
                self.shareable |= 1 << number

        self.members = [0] * len(self.units)
        for number, draw in enumerate(self.draws):
            if draw is not None:
                self.members[draw.unit] |= 1 << number
        self.drawing = sum(self.members)
        self._fitting: dict[tuple[int, Left], int] = {}

    def fitting(self, state: State) -> int:
        """Return the devices whose counters are paid for, or would still suffice for one."""
        mask = ~self.drawing | state.charged
        for unit, left in enumerate(state.left):
            mask |= self.fitting_in(unit, left)
        return mask

    def fitting_in(self, unit: int, left: Left) -> int:
        """Return the devices of a unit that fit into what it has left."""
        key = (unit, left)
        found = self._fitting.get(key)
        if found is None:
            if len(self._fitting) >= MOST_REMEMBERED:
                self._fitting.clear()
            found = 0
            for number in bits(self.members[unit]):
                draw = self.draws[number]
                if draw is not None and left.without(draw) is not None:
                    found |= 1 << number
            self._fitting[key] = found
        return found

    def state(self, in_use: InUse) -> State:
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
        left = [unit.total for unit in self.units]
        for number, pool in enumerate(self.view.pools):
            if not pool.counter_sets or not held:
                continue
            for drawing in pool.drawing:
                if drawing.consumes and DeviceId(pool.driver, pool.name, drawing.name) in held:
                    draw = self.draw(number, drawing)
                    left[draw.unit] = overdrawn(left[draw.unit], draw)
        return State(used, charged, tuple(left), room)

    def take(self, state: State, number: int, amounts: tuple[Number, ...] | None) -> State | None:
        """Return the state in which device `number` is taken too, or None where it does not fit.

        `amounts` are what is taken of each capacity of a shared device, in their order.
        """
        bit = 1 << number
        used, charged, left, room = state.used, state.charged, state.left, state.room
        if used & bit:
            return None
        draw = self.draws[number]
        if draw is not None and not charged & bit:
            rest = left[draw.unit].without(draw)
            if rest is None:
                return None
            left = (*left[: draw.unit], rest, *left[draw.unit + 1 :])
        if amounts is None:
            return State(used | bit, charged | bit, left, room)
        had = self.room(state, number)
        rest_of = tuple(have - taken for have, taken in zip(had, amounts, strict=True))
        if any(rest < 0 for rest in rest_of):
            return None
        return State(used, charged | bit, left, {**room, number: rest_of})

    def room(self, state: State, number: int) -> tuple[Number, ...]:
        """Return what is left of each capacity of a device."""
        left = state.room.get(number)
        if left is None:
            return tuple(item.value for item in self.offers[number].device.capacity.values())
        return left

    def draw(self, pool: int, device: Device) -> Draw:
        """Return what a device of a pool takes from its unit."""
        unit = 0
        amounts: list[tuple[int, Number]] = []
        groups: list[tuple[int, frozenset[str]]] = []
        for drawn in device.consumes:
            unit, position, counters = self._positions[pool, drawn.counter_set]
            amounts += [(counters[name], amount) for name, amount in drawn.counters.items()]
            groups.append((position, drawn.groups))
        return Draw(unit, tuple(amounts), tuple(groups))

    def _add_units(self, number: int, pool: Pool) -> None:
        """Find the counter sets that are tied together by devices that draw on several."""
        leader = {name: name for name in pool.counter_sets}

        def find(name: str) -> str:
            while leader[name] != name:
                leader[name] = leader[leader[name]]
                name = leader[name]
            return name

        for device in pool.drawing:
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
                self._positions[number, name] = (len(self.units), position, places)
            self.units.append(
                Unit(
                    number,
                    tuple(counters),
                    tuple(sets),
                    Left(tuple(total), (None,) * len(sets)),
                )
            )


def _room(device: Device, consumed: Mapping[str, Number]) -> tuple[Number, ...]:
    return tuple(
        item.value - consumed.get(device.written(name), consumed.get(name, 0))
        for name, item in device.capacity.items()
    )


def overdrawn(left: Left, draw: Draw) -> Left:
    """Subtract even beyond zero: drivers may publish less than is in use already."""
    counters = list(left.counters)
    for position, amount in draw.amounts:
        counters[position] -= amount
    groups = list(left.groups)
    for position, mine in draw.groups:
        ruling = groups[position]
        groups[position] = mine if ruling is None else ruling & mine
    return Left(tuple(counters), tuple(groups))


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
