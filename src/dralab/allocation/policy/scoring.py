"""The input of policies: a node before and after a choice, and its remaining usable worth."""

from collections.abc import Sequence
from functools import cached_property
from operator import le

from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.eligibility import Eligibility, SearchError
from dralab.allocation.search.node_devices import (
    Consumption,
    DeviceState,
    NodeDevices,
    Remaining,
    bits,
)
from dralab.values.quantity import Number
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class LikelyRequest:
    """A kind of device that is likely to be asked for, and what one is worth."""

    alternative: Alternative
    worth: float


class ServableDemand:
    """How much of the demand a node can still serve, group by group.

    The worth of a counter group is the most that could still be had from it, in the best order: for
    a GPU with its partitions, memory slices still usable. Equal counter groups in equal states are
    counted once.
    """

    def __init__(
        self, node_devices: NodeDevices, eligibility: Eligibility, wanted: Sequence[LikelyRequest]
    ) -> None:
        self.node_devices = node_devices
        self.eligibility = eligibility
        self.wanted = wanted
        self.masks = [self._mask(eligibility, each.alternative) for each in wanted]
        self._known: dict[object, float] = {}
        best: dict[int, float] = {}
        for each, mask in zip(wanted, self.masks, strict=True):
            for number in bits(mask & ~node_devices.consuming):
                best[number] = max(best.get(number, 0.0), each.worth)
        self._plain = best
        # Equal counter groups share one small number: long keys would be hashed very often.
        numbers: dict[object, int] = {}
        self._likeness = [
            numbers.setdefault(self._like(counter_group), len(numbers))
            for counter_group in range(len(node_devices.counter_groups))
        ]
        self._lows = [max((mask & -mask).bit_length() - 1, 0) for mask in node_devices.members]
        self._full = [
            self.worth_of_group(counter_group, node_devices.members[counter_group], each.total)
            for counter_group, each in enumerate(node_devices.counter_groups)
        ]

    def _mask(self, eligibility: Eligibility, alternative: Alternative) -> int:
        mask = 0
        for number in range(len(self.node_devices.offers)):
            try:
                if eligibility.accepts(alternative, number):
                    mask |= 1 << number
            except SearchError:
                continue
        return mask

    def _like(self, counter_group: int) -> object:
        members = self.node_devices.members[counter_group]
        low = (members & -members).bit_length() - 1
        found: list[object] = [members >> max(low, 0)]
        for number in bits(members):
            consumption = self.node_devices.consumptions[number]
            serves = tuple(mask >> number & 1 for mask in self.masks)
            found.append((consumption and (consumption.amounts, consumption.groups), serves))
        return tuple(found)

    def usable(self, free: int, state: DeviceState) -> float:
        """Return the worth of all counter groups together, given the `free` devices."""
        total = sum(
            worth if (room := state.room.get(number)) is None else self._shared(number, room)
            for number, worth in self._plain.items()
            if free >> number & 1
        )
        for counter_group, remaining in enumerate(state.remaining):
            total += self.worth_of_group(
                counter_group, free & self.node_devices.members[counter_group], remaining
            )
        return total

    def squares(self, free: int, state: DeviceState) -> float:
        """Return the sum of the squares of what counter groups have left, in units of worth.

        Taking from an emptier counter group loses less of it: a convex term that packs.
        """
        total = 0.0
        for number, worth in self._plain.items():
            if free >> number & 1:
                room = state.room.get(number)
                spare = worth * (1 if room is None else self.node_devices.part_left(number, room))
                total += spare * spare
        for counter_group, remaining in enumerate(state.remaining):
            if not free & self.node_devices.members[counter_group]:
                continue
            spare = self._full[counter_group] * _share(
                remaining, self.node_devices.counter_groups[counter_group].total
            )
            total += spare * spare
        return total

    def _shared(self, number: int, room: tuple[Number, ...]) -> float:
        """Return the worth of a device that is shared already, with what it has left."""
        key = number, room
        if key not in self._known:
            self._known[key] = max(
                (
                    each.worth
                    for each, mask in zip(self.wanted, self.masks, strict=True)
                    if mask >> number & 1
                    and (amounts := self.eligibility.amounts(each.alternative, number)) is not None
                    and all(map(le, amounts, room))
                ),
                default=0.0,
            )
        return self._known[key]

    def worth_of_group(self, counter_group: int, free: int, remaining: Remaining) -> float:
        """Return the most that one counter group can still provide."""
        if not free:
            return 0.0
        key = (self._likeness[counter_group], free >> self._lows[counter_group], remaining)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._best(counter_group, free, remaining)
        return found

    def _best(self, counter_group: int, free: int, remaining: Remaining) -> float:
        best = 0.0
        tried: set[tuple[float, Consumption]] = set()
        for each, mask in zip(self.wanted, self.masks, strict=True):
            for number in bits(free & mask):
                consumption = self.node_devices.consumptions[number]
                if consumption is None or (each.worth, consumption) in tried:
                    continue
                tried.add((each.worth, consumption))
                rest = remaining.without(consumption)
                if rest is None:
                    continue
                following = (
                    free & ~(1 << number) & self.node_devices.fitting_in(counter_group, rest)
                )
                best = max(best, each.worth + self.worth_of_group(counter_group, following, rest))
        return best


def _share(remaining: Remaining, total: Remaining) -> float:
    """Return which part of its counters a counter group has left, on average."""
    parts = [
        max(float(have), 0.0) / float(all_)
        for have, all_ in zip(remaining.counters, total.counters, strict=True)
        if all_
    ]
    return sum(parts) / len(parts) if parts else 0.0


class NodeOutlook:
    """A node in one state, as policies see it."""

    def __init__(
        self, node_devices: NodeDevices, state: DeviceState, worth: ServableDemand | None = None
    ) -> None:
        self.node_devices = node_devices
        self.state = state
        self.worth = worth

    @cached_property
    def mask(self) -> int:
        """The devices that are still available, as a bit set."""
        node_devices, state = self.node_devices, self.state
        everything = (1 << len(node_devices.offers)) - 1
        return everything & ~state.used & node_devices.fitting(state)

    @cached_property
    def free(self) -> float:
        """How many devices are still available; of a shared device, the part that is left."""
        used = sum(
            1 - self.node_devices.part_left(number, room)
            for number, room in self.state.room.items()
            if self.mask >> number & 1
        )
        return self.mask.bit_count() - used

    @property
    def devices(self) -> int:
        """How many devices the node sees."""
        return len(self.node_devices.offers)

    @cached_property
    def usable(self) -> float:
        """How much of the policy's demand is still available; 0 without a demand."""
        return 0.0 if self.worth is None else self.worth.usable(self.mask, self.state)

    @cached_property
    def squares(self) -> float:
        """The sum over units of the square of what they have left, in units of worth."""
        return 0.0 if self.worth is None else self.worth.squares(self.mask, self.state)
