"""How much of a fleet is left: of single devices, and of cards that are cut into partitions.

A card counts as one, however many partitions it publishes. Of it is left the share of its
partitions that could still be given, one by one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from dralab.allocation.partitions import Counter, cards, needs_of
from dralab.allocation.problem import Device, DeviceId, InUse, Slice
from dralab.values.quantity import Number

PoolName = tuple[str, str]
Held = frozenset[DeviceId]
NONE: Held = frozenset()


class Unit:
    """A device, or all devices that compete for the same counters; `totals` are theirs."""

    def __init__(
        self, pool: PoolName, devices: Sequence[Device], totals: Mapping[Counter, Number]
    ) -> None:
        self.devices = {DeviceId(*pool, device.name): device for device in devices}
        self.totals = totals
        # A card has many devices, but few of its states come up.
        self._open: dict[Held, Held] = {}

    @cached_property
    def names(self) -> Held:
        """Its devices."""
        return frozenset(self.devices)

    def open(self, held: Held) -> Held:
        """Return those of its devices that are available while others of them are held."""
        if held not in self._open:
            left = dict(self.totals)
            for name in held:
                for counter, amount in needs_of(self.devices[name]).items():
                    left[counter] = left.get(counter, 0) - amount
            self._open[held] = frozenset(
                name
                for name, device in self.devices.items()
                if name not in held
                and all(left.get(c, 0) >= amount for c, amount in needs_of(device).items())
            )
        return self._open[held]

    def left(self, held: Held, in_use: InUse) -> Fraction:
        """Return how much of it is left; of a device that is shared, of its scarcest amount."""
        if len(self.devices) > 1:
            return Fraction(len(self.open(held)), len(self.devices))
        [(name, device)] = self.devices.items()
        consumed = in_use.consumed.get(name)
        if consumed is None or name in in_use.exclusive:
            return Fraction(not held)
        amounts = zip(device.capacity.values(), device.amounts_of(consumed), strict=True)
        return min(
            (1 - Fraction(taken) / Fraction(has.value) for has, taken in amounts if has.value),
            default=Fraction(),
        )


class Room:
    """The units of some slices."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        pools: dict[PoolName, list[Slice]] = {}
        for each in slices:
            pools.setdefault((each.driver, each.pool), []).append(each)
        self.units = [unit for pool, parts in pools.items() for unit in _units(pool, parts)]
        self._unit_of = {name: unit for unit in self.units for name in unit.names}

    def open(self, held: Held) -> set[DeviceId]:
        """Return the devices that are available while others are held."""
        return {name for unit in self.units for name in unit.open(unit.names & held)}

    def left(self, in_use: InUse) -> Fraction:
        """Return how many units are left, as a fraction."""
        held = in_use.devices()
        return sum((unit.left(unit.names & held, in_use) for unit in self.units), Fraction())

    def taken(self, devices: Collection[DeviceId], in_use: InUse) -> Fraction:
        """Return how much of what is left is used up if some devices are allocated."""
        held = in_use.devices()
        given: dict[Unit, Held] = {}
        for each in devices:
            if unit := self._unit_of.get(each):
                given[unit] = given.get(unit, NONE) | {each}
        return sum(
            (
                unit.left(before, in_use) - unit.left(before | mine, in_use)
                for unit, mine in given.items()
                for before in (unit.names & held,)
            ),
            Fraction(),
        )

    def share_of(self, devices: Collection[DeviceId]) -> Fraction:
        """Return how many units some devices are, as a fraction."""
        return sum(
            (Fraction(1, len(u.devices)) for each in devices if (u := self._unit_of.get(each))),
            Fraction(),
        )


def _units(pool: PoolName, parts: Sequence[Slice]) -> Iterable[Unit]:
    found = cards(parts)
    for card in found:
        yield Unit(pool, card.devices, card.left)
    cut = {device.name for card in found for device in card.devices}
    for part in parts:
        for device in part.devices:
            if device.name not in cut:
                yield Unit(pool, (device,), {})
