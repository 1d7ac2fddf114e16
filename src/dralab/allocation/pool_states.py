"""Pools of a fleet: what equal pools have in common, and the states that they go through.

Two pools are of one shape when no selector in use can tell their devices apart. A `PoolState` says
what is in use in a pool; equal states of one shape are one object, so that what was worked out
for one node holds for every other that comes to look the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.allocation.board import Board, Left, State, bits, overdrawn
from dralab.allocation.pools import Pool, View
from dralab.allocation.problem import Device, Features, Node, Path, Slice
from dralab.values.quantity import Number

Amounts = tuple[Number, ...] | None
Taking = tuple[tuple[int, Amounts], ...]
NOWHERE: Final = Node("")
# States that one shape remembers; beyond it they are forgotten, which costs time alone.
MOST_STATES: Final = 200_000


class PoolState:
    """What is in use in a pool of one shape; equal states are one object.

    `free` are the devices that nobody has and whose counters would still do.
    """

    __slots__ = ("free", "moves", "shape", "state")

    def __init__(self, shape: "PoolShape", state: State, free: int) -> None:
        self.shape = shape
        self.state = state
        self.free = free
        self.moves: dict[Taking, PoolState] = {}

    def after(self, taking: Taking) -> "PoolState":
        """Return the state once these devices are taken; they must fit."""
        found = self.moves.get(taking)
        if found is None:
            state = self.state
            for number, amounts in taking:
                following = self.shape.board.take(state, number, amounts)
                if following is None:
                    raise ValueError(f"device {number} does not fit")
                state = following
            found = self.moves[taking] = self.shape.interned(state, self)
        return found


class PoolShape:
    """What all pools of one shape have in common, by the example of one of them."""

    def __init__(self, pool: Pool, features: Features) -> None:
        self.pool = pool
        self.board = Board(View(node=NOWHERE, pools=(pool,)), features)
        self.size = len(self.board.offers)
        self.everything = (1 << self.size) - 1
        self.members = [0] * len(self.board.units)
        for number, draw in enumerate(self.board.draws):
            if draw is not None:
                self.members[draw.unit] |= 1 << number
        self.drawing = sum(self.members)
        self._fitting: dict[tuple[int, Left], int] = {}
        self._states: dict[object, PoolState] = {}
        totals = tuple(unit.total for unit in self.board.units)
        self.empty = self.interned(State(0, 0, totals, {}))

    def interned(self, state: State, before: PoolState | None = None) -> PoolState:
        """Return the one object for a state; `before` is a state that differs in little."""
        key = (state.used, state.charged, tuple(sorted(state.room.items())))
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= MOST_STATES:
                self._states.clear()
            found = self._states[key] = PoolState(self, state, self._free(state, before))
        return found

    def _free(self, state: State, before: PoolState | None) -> int:
        if not self.members:
            return self.everything & ~state.used
        if before is None:
            mask = self.everything & ~self.drawing
            units: Iterable[int] = range(len(self.members))
        else:
            mask = before.free | self.everything & ~self.drawing
            theirs = before.state.left
            units = [unit for unit, left in enumerate(state.left) if left is not theirs[unit]]
        for unit in units:
            members = self.members[unit]
            mask = mask & ~members | self.fitting(unit, state.left[unit])
        # A shared device has paid for its counters when it was first used.
        return (mask | self.drawing & state.charged) & ~state.used

    def fitting(self, unit: int, left: Left) -> int:
        """Return the devices of a unit that fit into what it has left."""
        key = (unit, left)
        found = self._fitting.get(key)
        if found is None:
            found = 0
            for number in bits(self.members[unit]):
                draw = self.board.draws[number]
                if draw is not None and left.without(draw) is not None:
                    found |= 1 << number
            self._fitting[key] = found
        return found

    def released(self, before: PoolState, given_back: Taking, last: int) -> PoolState:
        """Return the state once devices are given back; `last` are those that nobody has now."""
        state = before.state
        used, charged = state.used & ~last, state.charged & ~last
        room = dict(state.room)
        touched = set()
        for number, amounts in given_back:
            draw = self.board.draws[number]
            if draw is not None and last >> number & 1:
                touched.add(draw.unit)
            if amounts is None:
                continue
            if last >> number & 1:
                room.pop(number, None)
            elif number in room:
                room[number] = tuple(
                    have + amount for have, amount in zip(room[number], amounts, strict=True)
                )
        left = list(state.left)
        for unit in touched:
            left[unit] = self._rest(unit, charged)
        return self.interned(State(used, charged, tuple(left), room), before)

    def _rest(self, unit: int, charged: int) -> Left:
        """Return what a unit has left when these devices are in use."""
        left = self.board.units[unit].total
        for number in bits(self.members[unit] & charged):
            draw = self.board.draws[number]
            if draw is not None:
                left = overdrawn(left, draw)
        return left

    def standing(self, used: Iterable[int], shared: Mapping[int, tuple[Number, ...]]) -> PoolState:
        """Return the state in which whole devices and amounts of shared devices are in use."""
        mask = 0
        for number in used:
            mask |= 1 << number
        charged = mask
        room = {}
        for number, amounts in shared.items():
            charged |= 1 << number
            capacity = self.board.offers[number].device.capacity
            room[number] = tuple(
                item.value - amount for item, amount in zip(capacity.values(), amounts, strict=True)
            )
        left = tuple(self._rest(unit, charged) for unit in range(len(self.members)))
        return self.interned(State(mask, charged, left, room))


class Shapes:
    """Finds the shape of a pool: the projection of its devices on the paths that are read."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.live: set[Path] = set()
        self._shapes: dict[object, PoolShape] = {}
        self._projections: dict[tuple[Device, ...], tuple[object, ...]] = {}
        self._ids: dict[object, int] = {}

    def widen(self, paths: Iterable[Path]) -> bool:
        """Read these paths from now on; True where that may split shapes."""
        news = {path for path in paths if path not in self.live and path not in ALWAYS}
        if not news:
            return False
        self.live |= news
        self._projections.clear()
        self._shapes.clear()
        return True

    def shape(self, pool: Pool, slices: Sequence[Slice]) -> PoolShape:
        """Return the shape of a whole pool, made of these slices in order."""
        key = (
            pool.driver,
            tuple(self._projection(each) for each in slices),
            tuple(tuple(sets.items()) for sets in pool.counter_sets.values()),
        )
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = PoolShape(pool, self.features)
        return found

    def _projection(self, each: Slice) -> object:
        known = self._projections.get(each.devices)
        if known is None:
            known = tuple(self._number(self._seen(device)) for device in each.devices)
            # Long tuples of numbers become one number: equal pools are compared often.
            known = (self._number(known),)
            self._projections[each.devices] = known
        return known, each.per_device_reach, each.skip_node_operations

    def _number(self, value: object) -> int:
        return self._ids.setdefault(value, len(self._ids))

    def _seen(self, device: Device) -> object:
        """Return all of a device that an allocation can depend on, its name apart."""
        attributes = tuple(
            (name, value)
            for name, value in device.attributes.items()
            # Values without a known type make every selector fail: they are always seen.
            if not value.type or self._reads("attributes", name)
        )
        capacity = tuple(
            (name, item.value, item.text, item.policy)
            for name, item in device.capacity.items()
            if device.shareable or self._reads("capacity", name)
        )
        plain = not (device.consumes or device.taints or device.binding_conditions)
        return (
            attributes,
            capacity,
            device.shareable,
            device.binds_to_node,
            _reach(device) if device.reach is not NO_REACH else None,
            () if plain else _rest(device),
        )

    def _reads(self, kind: str, name: str) -> bool:
        if not self.live:
            return False
        domain, _, id_ = name.rpartition("/")
        live = self.live
        return (
            (kind, domain, id_) in live or (kind, domain) in live or (kind,) in live or () in live
        )


ALWAYS: Final[frozenset[Path]] = frozenset({("driver",), ("allowMultipleAllocations",)})
NO_REACH: Final = Slice.__dataclass_fields__["reach"].default


def _reach(device: Device) -> object:
    reach: Any = device.reach
    return reach.node, repr(reach.selector), reach.everywhere


def _rest(device: Device) -> object:
    return (
        tuple(
            (drawn.counter_set, tuple(drawn.counters.items()), drawn.groups)
            for drawn in device.consumes
        ),
        device.taints,
        device.binding_conditions,
        device.binding_failure_conditions,
    )
