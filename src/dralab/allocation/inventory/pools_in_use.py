"""What pools offer and what of it is in use: the mutable half of a fleet.

Pools have numbers (`Pools`), and so have the devices of a pool; sets of either are bits of an int.
Of nodes this knows only the sets that a change concerns, and returns them to the fleet.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from dralab.allocation.inventory.holdings import PoolUse
from dralab.allocation.inventory.placements import PlannedAllocation, Taking
from dralab.allocation.inventory.plan_results import Plan
from dralab.allocation.inventory.pool_records import PoolRecord, Pools
from dralab.allocation.inventory.pool_states import PoolShapes, PoolState
from dralab.allocation.pools import PoolId
from dralab.allocation.problem import (
    AllocationFeatures,
    DeviceId,
    InUse,
    Node,
    ShareId,
    Slice,
)
from dralab.allocation.search.node_devices import bits
from dralab.objects.claims import Holding, holds
from dralab.values.quantity import Number, parse_any


class PoolsInUse:
    """Pools, and per pool what is left (`states`) and which devices are taken.

    `held` and `whole` are bit sets of a pool's devices: taken at all, taken by one claim alone.
    `sharers` counts the claims of a device (pool, device) that several share.
    """

    def __init__(self, features: AllocationFeatures) -> None:
        self.shapes = PoolShapes(features)
        self.pools = Pools(features, self.shapes)
        self.states: list[PoolState] = []
        self.held: list[int] = []
        self.whole: list[int] = []
        self.sharers: dict[tuple[int, int], int] = {}

    def load(
        self, slices: Iterable[Any], nodes: Sequence[Node], number_of: Mapping[str, int]
    ) -> None:
        """Take over all slices at once, with nothing in use."""
        self.pools.add_slices(slices, nodes, number_of)
        self.states = [record.shape.empty for record in self.pools.records]
        self.held = [0] * len(self.states)
        self.whole = [0] * len(self.states)

    def replace_pool(
        self,
        key: PoolId,
        slices: Iterable[Slice],
        use: PoolUse,
        nodes: Sequence[Node],
        number_of: Mapping[str, int],
    ) -> int:
        """Let a pool be made of these slices; return the nodes that saw it or see it now."""
        old = self.pools.pool_number(*key)
        before = 0
        if old is not None:
            before = self.pools.records[old].nodes
            for inside in bits(self.held[old]):
                self.sharers.pop((old, inside), None)
        index = self.pools.put_pool(key, slices, nodes, number_of)
        record = self.pools.records[index]
        if old is None:
            self.states.append(record.shape.empty)
            self.held.append(0)
            self.whole.append(0)
        self._set_use(index, record, use)
        return before | record.nodes

    def _set_use(self, index: int, record: PoolRecord, use: PoolUse) -> None:
        shares = Counter(share.device for share in use.shares)
        held = whole = 0
        taking: Taking = []
        for device in {**use.exclusive, **shares}:
            if not record.has(device.device):
                continue
            inside = record.number_of(device.device)
            held |= 1 << inside
            if device in use.exclusive:
                whole |= 1 << inside
                taking.append((inside, None))
            else:
                self.sharers[index, inside] = shares[device]
                content = record.shape.node_devices.offers[inside].device
                taking.append((inside, content.amounts_of(use.consumed.get(device, {}))))
        self.held[index], self.whole[index] = held, whole
        self.states[index] = record.shape.holding(record.shape.empty, tuple(taking), held, whole)

    def reshape(self) -> None:
        """Split shapes that selectors now tell apart; states keep their meaning."""
        self.states = self.pools.reshape(self.states)

    def take(self, seen: Sequence[int], plan: Plan) -> None:
        """Take the devices of a plan that was made for the pools `seen`, in their order."""
        for pool, state, taken in plan.after:
            index = seen[pool]
            self.states[index] = state
            self.held[index] |= taken
            self.whole[index] |= taken
        for pool, inside in plan.shared:
            key = (seen[pool], inside)
            self.whole[key[0]] &= ~(1 << inside)
            self.sharers[key] = self.sharers.get(key, 0) + 1

    def are_free(self, devices: Mapping[int, Taking]) -> bool:
        """Return whether nobody holds any of these devices in a way that excludes another."""
        return not any(
            (self.held if amounts is None else self.whole)[index] >> inside & 1
            for index, taken in devices.items()
            for inside, amounts in taken
        )

    def mark(self, devices: Mapping[int, Taking]) -> int:
        """Mark devices of pools as in use; return the nodes that see the pools."""
        nodes = 0
        for index, taken in devices.items():
            record = self.pools.records[index]
            for inside, amounts in taken:
                self.held[index] |= 1 << inside
                if amounts is None:
                    self.whole[index] |= 1 << inside
                else:
                    key = (index, inside)
                    self.sharers[key] = self.sharers.get(key, 0) + 1
            self.states[index] = record.shape.holding(
                self.states[index], tuple(taken), self.held[index], self.whole[index]
            )
            nodes |= record.nodes
        return nodes

    def release(self, devices: Mapping[int, Taking]) -> int:
        """Give back devices of pools; return the nodes that see the pools."""
        nodes = 0
        for index, taken in devices.items():
            record = self.pools.records[index]
            last = 0
            for inside, amounts in taken:
                if amounts is not None:
                    key = (index, inside)
                    rest = self.sharers.get(key, 0) - 1
                    if rest > 0:
                        self.sharers[key] = rest
                        continue
                    self.sharers.pop(key, None)
                last |= 1 << inside
            self.held[index] &= ~last
            self.whole[index] &= ~last
            self.states[index] = record.shape.released(
                self.states[index], tuple(taken), self.held[index], self.whole[index]
            )
            nodes |= record.nodes
        return nodes

    def devices_of(self, held: Iterable[Holding]) -> dict[int, Taking]:
        """Return per pool the devices that are held, with amounts where they are shared."""
        found: dict[int, Taking] = {}
        for item in held:
            index = self.pools.pool_number(item.driver, item.pool)
            if index is None:
                continue
            record = self.pools.records[index]
            if not record.has(item.device):
                continue
            inside = record.number_of(item.device)
            amounts: tuple[Number, ...] | None = None
            if item.share:
                device = record.shape.node_devices.offers[inside].device
                amounts = tuple(
                    parse_any(item.consumed.get(device.written(name), 0))
                    for name in device.capacity
                )
            found.setdefault(index, []).append((inside, amounts))
        return found

    def devices_planned(self, allocation: PlannedAllocation) -> dict[int, Taking]:
        """Return the same of an allocation that was planned here.

        Plans are carried out again and again: their devices are looked up by name once.
        """
        records, number = self.pools.records, self.pools.pool_number
        taking, found = allocation.taking, dict[int, Taking]()
        position_of: dict[int, int] = {}
        for position in range(len(allocation.pools)) if taking is None else taking:
            record = allocation.pools[position]
            index = number(record.driver, record.name)
            if index is None or records[index] is not record:
                # It has been published anew since.
                return self.devices_of(holds(allocation.written))
            position_of[index] = position
            if taking is not None:
                found[index] = taking[position]
        if taking is None:
            found = self.devices_of(holds(allocation.written))
            allocation.note_taking({position_of[index]: taken for index, taken in found.items()})
        return found

    def in_use(self, seen: Iterable[int]) -> InUse:
        """Return what is in use of these pools."""
        exclusive: set[DeviceId] = set()
        shares: set[ShareId] = set()
        consumed: dict[DeviceId, dict[str, Number]] = {}
        for index in seen:
            record = self.pools.records[index]
            state = self.states[index].state
            for inside in bits(self.held[index]):
                device = DeviceId(record.driver, record.name, record.names[inside])
                if self.whole[index] >> inside & 1:
                    exclusive.add(device)
                    continue
                shares.add(ShareId(device, ""))
                content = record.shape.node_devices.offers[inside].device
                room = state.room.get(inside)
                if room is not None:
                    consumed[device] = {
                        content.written(name): item.value - rest
                        for (name, item), rest in zip(content.capacity.items(), room, strict=True)
                    }
        return InUse(exclusive=frozenset(exclusive), shares=frozenset(shares), consumed=consumed)

    def copied(self) -> "PoolsInUse":
        """Return the same, to be changed on its own; shapes are shared."""
        other = copy(self)
        other.pools = self.pools.copied()
        other.states = self.states.copy()
        other.held = self.held.copy()
        other.whole = self.whole.copy()
        other.sharers = self.sharers.copy()
        return other
