"""Pools of a fleet: what equal pools have in common, and the states that they go through.

Two pools have the same shape if no selector in use can distinguish their devices. A `PoolState`
records what is in use in a pool. Equal states of one shape are one object, so that a result for one
node applies to every node in the same state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from dralab.allocation.inventory.units import Units, UnitState
from dralab.allocation.pools import Pool, PoolView
from dralab.allocation.problem import (
    NO_NODE_SCOPE,
    AllocationFeatures,
    Device,
    DevicePath,
    Node,
    Slice,
)
from dralab.allocation.search.node_devices import (
    DeviceState,
    NodeDevices,
    Remaining,
    bits,
    overdrawn,
)
from dralab.values.quantity import Number

Amounts = tuple[Number, ...] | None
Taken = tuple[tuple[int, Amounts], ...]
NOWHERE: Final = Node("")
# States that one shape remembers; beyond it they are forgotten, which costs time alone.
MOST_STATES: Final = 200_000
# Attributes with at most so many values over a whole fleet are read from the start.
FEW: Final = 16


class PoolState:
    """What is left of a pool of one shape; equal states are one object.

    `free` are the unused devices whose counters still suffice. In `state` all
    others count as used, whole devices are not marked as charged, and a unit of which nothing is
    free has nothing left: so states that cannot be told apart by what comes are the same. What is
    really in use is kept by the fleet, pool by pool.
    """

    __slots__ = ("_state", "_units", "free", "moves", "shape")

    def __init__(
        self,
        shape: "PoolShape",
        free: int,
        state: DeviceState | None,
        units: tuple[UnitState, ...] | None = None,
    ) -> None:
        self.shape = shape
        self.free = free
        # The states that follow when free devices are taken, by what is taken (`occupancy`).
        self.moves: dict[Any, PoolState] | None = None
        self._state = state
        self._units = units

    @property
    def state(self) -> DeviceState:
        """What is in use, device by device."""
        if self._state is None:
            remaining = tuple([unit.remaining for unit in self.units])
            self._state = DeviceState(self.shape.everything & ~self.free, 0, remaining, {})
        return self._state

    @property
    def units(self) -> tuple[UnitState, ...]:
        """The states of its counter groups."""
        if self._units is None:
            self._units = self.shape.units.states(self.state.remaining, self.free)
        return self._units


class PoolShape:
    """What all pools of one shape have in common, taken from one of them."""

    def __init__(self, pool: Pool, features: AllocationFeatures) -> None:
        self.pool = pool
        self.node_devices = NodeDevices(PoolView(node=NOWHERE, pools=(pool,)), features)
        self.size = len(self.node_devices.offers)
        self.everything = (1 << self.size) - 1
        self.members = self.node_devices.members
        self.consuming = self.node_devices.consuming
        self._states: dict[object, PoolState] = {}
        # What can be in use of such pools (`occupancy`).
        self.occupancies: dict[object, Any] = {}
        self._units: Units | None = None
        totals = tuple(counter_group.total for counter_group in self.node_devices.counter_groups)
        self.spent = [
            Remaining((0,) * len(total.counters), (None,) * len(total.groups)) for total in totals
        ]
        # Whether the states of its counter groups, and the free devices beside them, are all that
        # there is to a state.
        self.by_units = bool(self.members and not self.node_devices.shareable and self.units.apart)
        self.empty = self.interned(DeviceState(0, 0, totals, {}))

    @property
    def units(self) -> Units:
        """The counter groups on their own."""
        if self._units is None:
            self._units = Units(self.node_devices)
        return self._units

    def interned(self, state: DeviceState, before: PoolState | None = None) -> PoolState:
        """Return the one object for a state; `before` is a similar state."""
        free = self._free(state, before)
        if self.by_units:
            return self._of_units(free, self._units_of(state, free, before))
        used = self.everything & ~free
        remaining = state.remaining
        for counter_group, mine in enumerate(remaining):
            if not free & self.members[counter_group] and mine is not self.spent[counter_group]:
                remaining = (
                    *remaining[:counter_group],
                    self.spent[counter_group],
                    *remaining[counter_group + 1 :],
                )
        charged = state.charged & self.node_devices.shareable
        key = (used, charged, remaining, tuple(sorted(state.room.items())))
        found = self._states.get(key)
        if found is None:
            found = PoolState(self, free, DeviceState(used, charged, remaining, state.room))
            self._remember(key, found)
        return found

    def _remember(self, key: object, state: PoolState) -> None:
        if len(self._states) >= MOST_STATES:
            for each in self._states.values():
                each.moves = None  # they hold on to those that follow them
            self._states.clear()
        self._states[key] = state

    def _of_units(self, free: int, units: tuple[UnitState, ...]) -> PoolState:
        key = (free & ~self.consuming, units)
        found = self._states.get(key)
        if found is None:
            found = PoolState(self, free, None, units)
            self._remember(key, found)
        return found

    def _units_of(
        self, state: DeviceState, free: int, before: PoolState | None
    ) -> tuple[UnitState, ...]:
        if before is None:
            return self.units.states(state.remaining, free)
        found, changed = list(before.units), free ^ before.free
        for group, mine in enumerate(state.remaining):
            members = self.members[group]
            if mine is not found[group].remaining or changed & members:
                low = self.units.lows[group]
                found[group] = self.units.kinds[group].state(mine, (free & members) >> low)
        return tuple(found)

    def _free(self, state: DeviceState, before: PoolState | None) -> int:
        if not self.members:
            return self.everything & ~state.used
        if before is None:
            mask = self.everything & ~self.consuming
            counter_groups: Iterable[int] = range(len(self.members))
        else:
            mask = before.free | self.everything & ~self.consuming
            theirs = before.state.remaining
            counter_groups = [
                counter_group
                for counter_group, remaining in enumerate(state.remaining)
                if remaining is not theirs[counter_group]
            ]
        for counter_group in counter_groups:
            members = self.members[counter_group]
            mask = mask & ~members | self.node_devices.fitting_in(
                counter_group, state.remaining[counter_group]
            )
        # A shared device has paid for its counters when it was first used.
        return (mask | self.consuming & state.charged) & ~state.used

    def released(self, before: PoolState, taken: Taken, held: int, whole: int) -> PoolState:
        """Return the state once devices are released.

        `held` are all that are in use after it, `whole` those of them that are not shared.
        """
        if self.by_units:
            return self._settled_units(before, taken, held, whole)
        room = dict(before.state.room)
        touched = 0
        for number, amounts in taken:
            touched |= 1 << number
            if not held >> number & 1:
                room.pop(number, None)
            elif amounts is not None and number in room:
                room[number] = tuple(
                    have + amount for have, amount in zip(room[number], amounts, strict=True)
                )
        return self._settled(before, room, touched, held, whole)

    def holding(self, before: PoolState, taken: Taken, held: int, whole: int) -> PoolState:
        """Return the state once devices are in use, whether they fit or not.

        `held` and `whole` as for `released`.
        """
        if self.by_units:
            return self._settled_units(before, taken, held, whole)
        room = dict(before.state.room)
        touched = 0
        for number, amounts in taken:
            touched |= 1 << number
            if amounts is not None:
                had = self.node_devices.room(before.state._replace(room=room), number)
                room[number] = tuple(have - want for have, want in zip(had, amounts, strict=True))
        return self._settled(before, room, touched, held, whole)

    def _settled(
        self,
        before: PoolState,
        room: Mapping[int, tuple[Number, ...]],
        touched: int,
        held: int,
        whole: int,
    ) -> PoolState:
        """Return the state after a change, with recounted counter groups."""
        remaining = list(before.state.remaining)
        for counter_group, members in enumerate(self.members):
            if members & touched:
                remaining[counter_group] = self._rest(counter_group, held)
                touched |= members
        used = before.state.used & ~touched | whole & touched
        state = DeviceState(used, held & self.node_devices.shareable, tuple(remaining), room)
        return self.interned(state, before)

    def _settled_units(self, before: PoolState, taken: Taken, held: int, whole: int) -> PoolState:
        """Return the same where the states of counter groups are all that there is."""
        units, free, all_units = list(before.units), before.free, self.units
        for number, _ in taken:
            group = all_units.group_of[number]
            if group < 0:
                free = free & ~(1 << number) | 1 << number & ~whole
                continue
            members, low = self.members[group], all_units.lows[group]
            total = self.node_devices.counter_groups[group].total
            unit = units[group] = all_units.kinds[group].in_use(
                (held & members) >> low, (members & ~whole) >> low, total
            )
            free = free & ~members | unit.free << low
        return self._of_units(free, tuple(units))

    def _rest(self, counter_group: int, held: int) -> Remaining:
        """Return what a counter group has left when these devices are in use."""
        remaining = self.node_devices.counter_groups[counter_group].total
        for number in bits(self.members[counter_group] & held):
            consumption = self.node_devices.consumptions[number]
            if consumption is not None:
                remaining = overdrawn(remaining, consumption)
        return remaining


class PoolShapes:
    """Finds the shape of a pool: the projection of its devices on the paths that are read."""

    def __init__(self, features: AllocationFeatures) -> None:
        self.features = features
        self.live: set[DevicePath] = set()
        self.version = 0
        # What `live` comes to: names of attributes, whether capacities are read, and whether
        # whole maps of attributes are.
        self._attributes: list[str] = []
        self._capacity = False
        self._whole = False
        self._shapes: dict[object, PoolShape] = {}
        self._projections: dict[tuple[Device, ...], tuple[object, ...]] = {}
        self._ids: dict[object, int] = {}
        # Pools that differ in few devices share all others.
        self._device_numbers: dict[Device, int] = {}

    def look_at(self, groups: Iterable[tuple[Device, ...]]) -> None:
        """Include from the start the attributes that selectors are likely to read.

        Splitting shapes by a model or a NUMA node costs little and saves splitting them later;
        splitting them by a serial number would leave every node its own shape.
        """
        values: dict[str, set[int] | None] = {}
        for device in set(chain.from_iterable(groups)):
            for name, value in device.attributes.items():
                known = values.get(name)
                if known is None:
                    if name not in values:
                        values[name] = {id(value)}
                    continue
                # Readers keep one object per value; where one does not, nothing is lost.
                known.add(id(value))
                if len(known) > FEW:
                    values[name] = None
        paths = []
        for name, few in values.items():
            if few is not None:
                domain, _, id_ = name.rpartition("/")
                paths.append(("attributes", domain, id_))
        self.widen(paths)

    def widen(self, paths: Iterable[DevicePath]) -> None:
        """Read these paths from now on; a new `version` says that this may split shapes."""
        news = {path for path in paths if path not in self.live and path not in ALWAYS}
        if news:
            self.live |= news
            self.version += 1
            exact = [path for path in sorted(self.live) if len(path) == 3]
            self._attributes = [f"{path[1]}/{path[2]}" for path in exact if path[0] != "capacity"]
            self._capacity = any(path[:1] == ("capacity",) or not path for path in self.live)
            self._whole = any(
                len(path) < 3 and path[:1] in {(), ("attributes",)} for path in self.live
            )
            self._projections.clear()
            self._device_numbers.clear()
            self._shapes.clear()

    def forget_shapes(self) -> None:
        """Forget the shapes of pools: equal pools that come later get a new shape."""
        self._projections.clear()
        self._device_numbers.clear()
        self._shapes.clear()
        self._ids.clear()

    def shape(
        self,
        driver: str,
        slices: Sequence[Slice],
        counter_sets: Mapping[str, Mapping[str, Number]],
        pool: Callable[[], Pool],
    ) -> PoolShape:
        """Return the shape of a whole pool, made of these slices in order.

        `pool` makes the example of a new shape.
        """
        key = (
            driver,
            tuple(self._projection(each) for each in slices),
            tuple(tuple(sets.items()) for sets in counter_sets.values()),
        )
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = PoolShape(pool(), self.features)
        return found

    def _projection(self, each: Slice) -> object:
        known = self._projections.get(each.devices)
        if known is None:
            known = tuple([self._device_number(device) for device in each.devices])
            # Long tuples of numbers become one number: equal pools are compared often.
            known = (self._number(known),)
            self._projections[each.devices] = known
        return known, each.per_device_scope, each.skip_node_operations

    def _device_number(self, device: Device) -> int:
        found = self._device_numbers.get(device)
        if found is None:
            found = self._device_numbers[device] = self._number(self._seen(device))
        return found

    def _number(self, value: object) -> int:
        return self._ids.setdefault(value, len(self._ids))

    def _seen(self, device: Device) -> object:
        """Return all of a device that an allocation can depend on, except its name."""
        attributes: object
        if self._whole:
            attributes = tuple(
                item for item in device.attributes.items() if self._reads("attributes", item[0])
            )
        else:
            attributes = tuple([device.attributes.get(name) for name in self._attributes])
        if not (
            device.shareable
            or device.consumes
            or device.taints
            or device.binding_conditions
            or device.binds_to_node
            or device.problem
            or self._capacity
            or device.node_scope is not NO_NODE_SCOPE
        ):
            return attributes
        capacity = tuple(
            (name, item.value, item.text, item.policy)
            for name, item in device.capacity.items()
            if device.shareable or self._reads("capacity", name)
        )
        return attributes, capacity, device.shareable, device.problem, _rest(device)

    def _reads(self, kind: str, name: str) -> bool:
        domain, _, id_ = name.rpartition("/")
        live = self.live
        return (
            (kind, domain, id_) in live or (kind, domain) in live or (kind,) in live or () in live
        )


ALWAYS: Final[frozenset[DevicePath]] = frozenset({("driver",), ("allowMultipleAllocations",)})


def _rest(device: Device) -> object:
    return (
        tuple(
            (drawn.counter_set, tuple(drawn.counters.items()), drawn.groups)
            for drawn in device.consumes
        ),
        device.taints,
        device.binding_conditions,
        device.binding_failure_conditions,
        device.binds_to_node,
        device.node_scope.node,
        repr(device.node_scope.selector),
        device.node_scope.everywhere,
    )
