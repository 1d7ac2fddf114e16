"""What pools offer and what of it is in use: the mutable half of a fleet.

Pools have numbers (`Pools`), and so have the devices of a pool; sets of either are bits of an int.
Of nodes this knows only the sets that a change concerns, and returns them to the fleet.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from dralab.allocation.inventory.holdings import Held, PoolUse
from dralab.allocation.inventory.occupancy import (
    Occupancy,
    Taking,
    nothing_in_use,
    occupancy_of,
    taking_of,
)
from dralab.allocation.inventory.placements import PlannedAllocation
from dralab.allocation.inventory.pool_records import PoolRecord, Pools
from dralab.allocation.inventory.pool_states import Amounts, PoolShapes
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
from dralab.objects.claims import holds
from dralab.values.quantity import Number, parse_any


class PoolsInUse:
    """Pools, and what is in use of each."""

    def __init__(self, features: AllocationFeatures) -> None:
        self.shapes = PoolShapes(features)
        self.pools = Pools(features, self.shapes)
        self.occupancies: list[Occupancy] = []

    def load(
        self, slices: Iterable[Any], nodes: Sequence[Node], number_of: Mapping[str, int]
    ) -> None:
        """Take over all slices at once, with nothing in use."""
        self.pools.add_slices(slices, nodes, number_of)
        self.occupancies = [nothing_in_use(record.shape) for record in self.pools.records]

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
        before = 0 if old is None else self.pools.records[old].nodes
        index = self.pools.put_pool(key, slices, nodes, number_of)
        record = self.pools.records[index]
        self.occupancies[index:] = [_used(record, use), *self.occupancies[index + 1 :]]
        return before | record.nodes

    def reshape(self) -> None:
        """Split shapes that selectors now tell apart; what is in use keeps its meaning."""
        self.pools.reshape()
        self.occupancies = [
            each if each.state.shape is record.shape else each.of_shape(record.shape)
            for each, record in zip(self.occupancies, self.pools.records, strict=True)
        ]

    def taken_by(self, held: Held) -> list[tuple[int, Taking]]:
        """Return what is held of each pool, by its number."""
        if isinstance(held, PlannedAllocation):
            records, (_, numbers, pools) = self.pools.records, held.pools
            found = []
            for position, taking in held.takings:
                if records[numbers[position]] is not pools[position]:
                    break  # it has been published anew since
                found.append((numbers[position], taking))
            else:
                return found
            held = holds(held.written)
        by_pool: dict[int, list[tuple[int, Amounts]]] = {}
        for item in held:
            index = self.pools.pool_number(item.driver, item.pool)
            if index is None:
                continue
            record = self.pools.records[index]
            if not record.has(item.device):
                continue
            inside = record.number_of(item.device)
            amounts: Amounts = None
            if item.share:
                device = record.shape.node_devices.offers[inside].device
                amounts = tuple(
                    parse_any(item.consumed.get(device.written(name), 0))
                    for name in device.capacity
                )
            by_pool.setdefault(index, []).append((inside, amounts))
        return [(index, taking_of(tuple(taken))) for index, taken in by_pool.items()]

    def in_use(self, seen: Iterable[int]) -> InUse:
        """Return what is in use of these pools."""
        exclusive: set[DeviceId] = set()
        shares: set[ShareId] = set()
        consumed: dict[DeviceId, dict[str, Number]] = {}
        for index in seen:
            record = self.pools.records[index]
            used = self.occupancies[index]
            for inside in bits(used.held):
                device = DeviceId(record.driver, record.name, record.names[inside])
                if used.whole >> inside & 1:
                    exclusive.add(device)
                    continue
                shares.add(ShareId(device, ""))
                content = record.shape.node_devices.offers[inside].device
                room = used.state.state.room.get(inside)
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
        other.occupancies = self.occupancies.copy()
        return other


def _used(record: PoolRecord, use: PoolUse) -> Occupancy:
    """Return what claims hold of a pool."""
    shares = Counter(share.device for share in use.shares)
    sharers: dict[int, int] = {}
    taken: list[tuple[int, Amounts]] = []
    for device in {**use.exclusive, **shares}:
        if not record.has(device.device):
            continue
        inside, amounts = record.number_of(device.device), None
        if device not in use.exclusive:
            sharers[inside] = shares[device]
            content = record.shape.node_devices.offers[inside].device
            amounts = content.amounts_of(use.consumed.get(device, {}))
        taken.append((inside, amounts))
    return occupancy_of(record.shape, taking_of(tuple(taken)), sharers)
