"""How much of a fleet can still be given: of single devices, and of cards that are cut into parts.

A card counts as one, however many partitions it publishes. Of it is left the share of its
partitions that could still be given, one by one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dralab.allocation.partitions import Counter, cards, needs_of
from dralab.allocation.problem import Device, DeviceId, InUse, Slice
from dralab.values.quantity import Number

PoolName = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A device, or all devices that compete for the same counters; `totals` are theirs."""

    pool: PoolName
    devices: tuple[Device, ...]
    totals: Mapping[Counter, Number]

    def id_of(self, device: Device) -> DeviceId:
        """Return the identity of one of its devices."""
        return DeviceId(*self.pool, device.name)


class Room:
    """The units of some slices."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        pools: dict[PoolName, list[Slice]] = {}
        for each in slices:
            pools.setdefault((each.driver, each.pool), []).append(each)
        self.units = [unit for pool, parts in pools.items() for unit in _units(pool, parts)]
        self._unit_of = {unit.id_of(each): unit for unit in self.units for each in unit.devices}

    def open(
        self, held: Collection[DeviceId], units: Iterable[Unit] | None = None
    ) -> set[DeviceId]:
        """Return the devices that can be given while others are held."""
        found = set()
        for unit in self.units if units is None else units:
            left = dict(unit.totals)
            for device in unit.devices:
                if unit.id_of(device) in held:
                    for counter, amount in needs_of(device).items():
                        left[counter] = left.get(counter, 0) - amount
            found |= {
                unit.id_of(device)
                for device in unit.devices
                if unit.id_of(device) not in held
                and all(left.get(c, 0) >= amount for c, amount in needs_of(device).items())
            }
        return found

    def left(self, in_use: InUse) -> Fraction:
        """Return how many units are left, in parts of one."""
        held = in_use.devices()
        return sum((self._left(unit, held, in_use) for unit in self.units), Fraction())

    def taken(self, devices: Collection[DeviceId], in_use: InUse) -> Fraction:
        """Return how much of what is left goes if some devices are given."""
        units = list({id(u): u for each in devices if (u := self._unit_of.get(each))}.values())
        held = in_use.devices()
        after = held | frozenset(devices)
        before = sum((self._left(unit, held, in_use) for unit in units), Fraction())
        return before - sum((self._left(unit, after, in_use) for unit in units), Fraction())

    def share_of(self, devices: Collection[DeviceId]) -> Fraction:
        """Return how many units some devices are, in parts of one."""
        return sum(
            (Fraction(1, len(u.devices)) for each in devices if (u := self._unit_of.get(each))),
            Fraction(),
        )

    def _left(self, unit: Unit, held: Collection[DeviceId], in_use: InUse) -> Fraction:
        [first, *others] = unit.devices
        if others:
            return Fraction(len(self.open(held, [unit])), len(unit.devices))
        return _left_of(first, unit.id_of(first), held, in_use)


def _left_of(device: Device, name: DeviceId, held: Collection[DeviceId], in_use: InUse) -> Fraction:
    """Return how much of a single device is left; of one that is shared, of its scarcest amount."""
    consumed = in_use.consumed.get(name)
    if consumed is None or name in in_use.exclusive:
        return Fraction(name not in held)
    amounts = zip(device.capacity.values(), device.amounts_of(consumed), strict=True)
    return min(
        (1 - Fraction(taken) / Fraction(has.value) for has, taken in amounts if has.value),
        default=Fraction(),
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
