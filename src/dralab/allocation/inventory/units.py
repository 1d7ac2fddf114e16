"""Counter groups one by one: what the partitions of one GPU can still provide.

What a group can give is a set of vectors: how many devices for each request of a claim. It depends
on the group's state alone, of which there are few, however different the nodes are. Which devices a
claim gets is left to `several`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from dralab.allocation.search.node_devices import (
    Consumption,
    NodeDevices,
    Remaining,
    bits,
    overdrawn,
)

# More vectors than this make sets too large to be quick.
MOST_VECTORS: Final = 64
MOST_ASKS: Final = 20_000
# States of groups that are remembered; beyond it they are forgotten, which costs time alone.
MOST_UNITS: Final = 50_000


class Needs:
    """How many devices each request asks for, and sets of vectors up to that, as bits."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        self.strides: list[int] = []
        size = 1
        for count in counts:
            self.strides.append(size)
            size *= count + 1
        self.size = size
        self.full = size - 1
        self._sums: dict[tuple[int, int], int] = {}

    def total(self, one: int, other: int) -> int:
        """Return the sums of vectors, one of each set, capped at what is needed."""
        key = (one, other)
        found = self._sums.get(key)
        if found is None:
            found = 0
            for left in bits(one):
                for right in bits(other):
                    found |= 1 << self._sum(left, right)
            self._sums[key] = found
        return found

    def _sum(self, one: int, other: int) -> int:
        found = 0
        for count, stride in zip(self.counts, self.strides, strict=True):
            both = one // stride % (count + 1) + other // stride % (count + 1)
            found += min(both, count) * stride
        return found


class Ask:
    """What requests may take of a group: the devices that suit each, counted from its first."""

    __slots__ = ("masks", "needs")

    def __init__(self, needs: Needs, masks: tuple[int, ...]) -> None:
        self.needs = needs
        self.masks = masks


class UnitKind:
    """What groups whose devices draw alike have in common, with their states."""

    def __init__(self, consumptions: Mapping[int, Consumption], spent: Remaining) -> None:
        self.consumptions = consumptions
        self._spent = spent
        self._fitting: dict[Remaining, int] = {}
        self._in_use: dict[tuple[int, int, int], UnitState] = {}
        self._states: dict[tuple[Remaining, int], UnitState] = {}

    def state(self, remaining: Remaining, free: int) -> "UnitState":
        """Return the one object for a state; `free` may have devices that do not fit any more.

        A group of which nothing is free has nothing left.
        """
        fitting = self._fitting.get(remaining)
        if fitting is None:
            fitting = 0
            for number, consumption in self.consumptions.items():
                if remaining.without(consumption) is not None:
                    fitting |= 1 << number
            self._fitting[remaining] = fitting
        free &= fitting
        key = (remaining if free else self._spent, free)
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= MOST_UNITS:
                self.forget()
            found = self._states[key] = UnitState(self, *key)
        return found

    def in_use(self, held: int, free: int, total: Remaining) -> "UnitState":
        """Return the state of a group with this total when these devices are in use.

        `free` are those that nobody holds whole.
        """
        # Totals live as long as their groups.
        key = (held, free, id(total))
        found = self._in_use.get(key)
        if found is None:
            rest = total
            for number in bits(held):
                rest = overdrawn(rest, self.consumptions[number])
            found = self.state(rest, free)
            if len(self._in_use) >= MOST_UNITS:
                self._in_use.clear()
            self._in_use[key] = found
        return found

    def forget(self) -> None:
        """Forget all states: they are computed again when needed."""
        for each in self._states.values():
            each.moves.clear()  # states hold on to those that follow them
        self._states.clear()
        self._fitting.clear()
        self._in_use.clear()


class UnitState:
    """A counter group in one state."""

    __slots__ = ("_can", "free", "kind", "moves", "remaining", "ways")

    def __init__(self, kind: UnitKind, remaining: Remaining, free: int) -> None:
        self.kind = kind
        self.remaining = remaining
        self.free = free
        self.moves: dict[int, UnitState] = {}
        # The devices that serve an ask from this group alone, None where it cannot.
        self.ways: dict[Ask, tuple[int, ...] | None] = {}
        self._can: dict[tuple[Ask, tuple[int, ...]], int] = {}

    def without(self, number: int) -> "UnitState":
        """Return the state once a free device is taken."""
        found = self.moves.get(number)
        if found is None:
            rest = self.remaining.without(self.kind.consumptions[number])
            if rest is None:
                raise ValueError(f"device {number} does not fit")
            found = self.moves[number] = self.kind.state(rest, self.free & ~(1 << number))
        return found

    def can(self, ask: Ask) -> int:
        """Return the set of vectors that this group can provide, smaller ones included."""
        return self._within(ask, ask.needs.counts)

    def _within(self, ask: Ask, counts: tuple[int, ...]) -> int:
        key = (ask, counts)
        found = self._can.get(key)
        if found is None:
            found = 1
            for request, count in enumerate(counts):
                if count:
                    none = (*counts[:request], 0, *counts[request + 1 :])
                    found = self._within(ask, none)
                    less = (*counts[:request], count - 1, *counts[request + 1 :])
                    for number in bits(self.free & ask.masks[request]):
                        more = self.without(number)._within(ask, less)  # noqa: SLF001 - its own kind
                        found |= more << ask.needs.strides[request]
                    break
            self._can[key] = found
        return found


class Units:
    """The counter groups of a pool's shape.

    `apart`: each has its devices in a row, none of another group's between them. `order` is the
    order of those rows.
    """

    def __init__(self, devices: NodeDevices) -> None:
        members = devices.members
        self.lows = [(mask & -mask).bit_length() - 1 for mask in members]
        self.members = members
        kinds: dict[object, UnitKind] = {}
        self.kinds: list[UnitKind] = []
        for mask, low in zip(members, self.lows, strict=True):
            drawn: dict[int, Consumption] = {}
            for number in bits(mask):
                consumption = devices.consumptions[number]
                if consumption is not None:
                    drawn[number - low] = consumption._replace(counter_group=0)
            total = devices.counter_groups[len(self.kinds)].total
            spent = Remaining((0,) * len(total.counters), (None,) * len(total.groups))
            key = (spent, tuple(drawn.items()))
            self.kinds.append(kinds.setdefault(key, UnitKind(drawn, spent)))
        order = sorted(range(len(members)), key=self.lows.__getitem__)
        self.apart = all(members) and all(
            members[one].bit_length() <= self.lows[next_] for one, next_ in pairwise(order)
        )
        self.order = order
        # The counter group of each device; -1 if it draws on none.
        self.group_of = [
            -1 if consumption is None else consumption.counter_group
            for consumption in devices.consumptions
        ]
        self._needs: dict[tuple[int, ...], Needs] = {}
        self._asks: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Ask] = {}

    def states(self, remaining: Sequence[Remaining], free: int) -> tuple[UnitState, ...]:
        """Return the states of the groups, by what they have left and which devices are free."""
        return tuple(
            [
                kind.state(rest, (free & members) >> low)
                for kind, rest, members, low in zip(
                    self.kinds, remaining, self.members, self.lows, strict=True
                )
            ]
        )

    def needs(self, counts: tuple[int, ...]) -> Needs:
        """Return the one object for so many devices of each request."""
        return self._needs.setdefault(counts, Needs(counts))

    def asked(self, counts: tuple[int, ...], masks: Sequence[int]) -> list[tuple[int, Ask]]:
        """Return what requests for so many of these devices ask of each group, in their order."""
        if len(self._asks) >= MOST_ASKS:
            self._asks.clear()
            for kind in self.kinds:
                kind.forget()
        needs = self.needs(counts)
        found = []
        for group in self.order:
            inside = tuple((mask & self.members[group]) >> self.lows[group] for mask in masks)
            if any(inside):
                key = (id(self.kinds[group]), counts, inside)
                found.append((group, self._asks.setdefault(key, Ask(needs, inside))))
        return found
