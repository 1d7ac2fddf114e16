"""What counter groups and shared devices can serve together, by dynamic programming.

The last and dearest question of `feasibility`: True and False are exact; None where there are too
many kinds of demand, and the search has to decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.backtracking import Effort
from dralab.allocation.search.counter_groups import (
    CounterGroupKey,
    GroupMember,
    Vector,
    folded,
    served,
)
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.matching import Shortfall, matched
from dralab.allocation.search.node_devices import (
    Consumption,
    DeviceState,
    NodeDevices,
    Remaining,
    bits,
)
from dralab.values.records import dataclass

# Beyond these sizes the dynamic programme gives up, and the search looks for itself.
MOST_VECTORS: Final = 300
MOST_KINDS: Final = 12
MOST_FAILURES: Final = 8
MOST_STATES: Final = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class OpenRequest:
    """What is left of one request: `need` more devices of `mask`."""

    alternative: Alternative
    need: int
    mask: int


class GroupFeasibility:
    """Answers for one search problem; its results about counter groups are kept."""

    def __init__(self, node_devices: NodeDevices, eligibility: Eligibility, effort: Effort) -> None:
        self.node_devices = node_devices
        self.eligibility = eligibility
        self.effort = effort
        self._failures = 0
        self._hard = 1 << 30
        # What is known of counter groups outlives the search: it depends on their contents alone.
        self._served: dict[object, tuple[Vector, ...] | None] = eligibility.served

    def shares(self, number: int, demands: Sequence[OpenRequest], state: DeviceState) -> int:
        """Return how many demands a shared device could serve, by the smallest amounts asked."""
        room = self.node_devices.room(state, number)
        asked = [
            self.eligibility.amounts(demand.alternative, number) or ()
            for demand in demands
            if demand.mask >> number & 1
        ]
        most = len(asked)
        for position, have in enumerate(room):
            remaining, count = have, 0
            for amount in sorted(amounts[position] for amounts in asked):
                remaining -= amount
                if remaining < 0:
                    break
                count += 1
            most = min(most, count)
        return most

    def served(self, demands: Sequence[OpenRequest], state: DeviceState) -> bool | None:
        """Decide by what counter groups can serve; matching is exact where none is involved."""
        normal = [demand for demand in demands if not demand.alternative.admin]
        union = 0
        for demand in normal:
            union |= demand.mask
        unpaid = self.node_devices.consuming & ~state.charged
        involved = union & (unpaid | self.node_devices.shareable)
        if not involved:
            return True
        merged = _merged(normal, self.node_devices.shareable)
        caps = tuple(demand.need for demand in merged)
        if prod(cap + 1 for cap in caps) > MOST_VECTORS:
            rough = self._roughly(merged, involved, unpaid, state)
            if rough is False or len(caps) > MOST_KINDS:
                return rough
        if self._failures >= MOST_FAILURES and len(caps) >= self._hard:
            return None
        tables = []
        for members, remaining in self._clusters(involved, unpaid, state):
            table = self._table(
                CounterGroupKey(
                    tuple(self._member(number, merged, unpaid, state) for number in members),
                    remaining,
                    caps,
                )
            )
            if table is None:
                self._give_up(len(caps))
                return None
            tables.append(table)
        vectors = folded(tables, caps, self.effort.spend, MOST_VECTORS)
        if vectors is None:
            self._give_up(len(caps))
            return None
        plain = [demand.mask & ~involved for demand in merged]
        return any(self._rest(caps, vector, plain) for vector in vectors)

    def _give_up(self, kinds: int) -> None:
        """Remember that so many kinds of demand were too many, and stop trying."""
        self._failures += 1
        self._hard = min(self._hard, kinds)

    def _table(self, key: CounterGroupKey) -> tuple[Vector, ...] | None:
        if key not in self._served:
            self._served[key] = served(key, self.effort.spend, MOST_STATES)
        return self._served[key]

    def _roughly(
        self, demands: Sequence[OpenRequest], involved: int, unpaid: int, state: DeviceState
    ) -> bool | None:
        """Match demands to counter groups, each with as many places as it can serve at most.

        For many different kinds of demand at once, where the vectors would be too many: still a
        proof when it fails, and no answer when it does not.
        """
        masks = [demand.mask & ~involved for demand in demands]
        place = len(self.node_devices.offers)
        for members, remaining in self._clusters(involved, unpaid, state):
            inside = sum(1 << number for number in members)
            most = sum(demand.need for demand in demands if demand.mask & inside)
            if not self.node_devices.shareable & inside:
                one = tuple(
                    self._member(number, demands, unpaid, state)._replace(serves=(0,))
                    for number in members
                )
                table = self._table(CounterGroupKey(one, remaining, (min(most, len(members)),)))
                most = table[0][0] if table else min(most, len(members))
            places = ((1 << most) - 1) << place
            place += most
            for kind, demand in enumerate(demands):
                if demand.mask & inside:
                    masks[kind] |= places
        needs = [demand.need for demand in demands]
        found = matched(needs, masks, {}, self.effort.spend)
        return False if isinstance(found, Shortfall) else None

    def _rest(self, caps: Vector, vector: Vector, plain: list[int]) -> bool:
        needs = [cap - done for cap, done in zip(caps, vector, strict=True)]
        if any(need > mask.bit_count() for need, mask in zip(needs, plain, strict=True)):
            return False
        return not isinstance(matched(needs, plain, {}, self.effort.spend), Shortfall)

    def _clusters(
        self, involved: int, unpaid: int, state: DeviceState
    ) -> Iterator[tuple[list[int], Remaining | None]]:
        """Yield devices that depend on each other, with what they have left together."""
        for counter_group, members in enumerate(self.node_devices.members):
            mask = involved & members & unpaid
            if mask:
                yield bits(mask), state.remaining[counter_group]
        for number in bits(involved & ~unpaid):
            yield [number], None

    def _member(
        self, number: int, demands: Sequence[OpenRequest], unpaid: int, state: DeviceState
    ) -> GroupMember:
        serves = tuple(kind for kind, demand in enumerate(demands) if demand.mask >> number & 1)
        consumption = self.node_devices.consumptions[number] if unpaid >> number & 1 else None
        # The unit is told apart by what it has left, not by its number.
        consumption = (
            None if consumption is None else Consumption(0, consumption.amounts, consumption.groups)
        )
        if not self.node_devices.shareable >> number & 1:
            return GroupMember(consumption, serves)
        room = self.node_devices.room(state, number)
        amounts = tuple(
            self.eligibility.amounts(demands[kind].alternative, number) or () for kind in serves
        )
        return GroupMember(consumption, serves, amounts, room)


def _merged(demands: Sequence[OpenRequest], shareable: int) -> list[OpenRequest]:
    """Add up demands for the same whole devices; one device may serve two that share it."""
    merged: dict[object, OpenRequest] = {}
    for demand in demands:
        key: object = demand.mask if not demand.mask & shareable else demand
        known = merged.get(key)
        merged[key] = demand if known is None else replace(known, need=known.need + demand.need)
    return list(merged.values())
