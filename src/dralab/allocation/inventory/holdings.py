"""Who holds which devices: the allocations of claims, whether their pools are published or not.

A watcher of a cluster sees allocations in any order: before the slices that publish their devices,
and after these are deleted. A fleet knows only published devices; holdings record all held devices
and their claims.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from dralab.allocation import v1
from dralab.allocation.inventory.placements import PlannedAllocation
from dralab.allocation.pools import PoolId
from dralab.allocation.problem import DeviceId, InUse, ShareId
from dralab.objects.claims import Holding, holds
from dralab.objects.metadata import NamespacedName
from dralab.values.quantity import Number
from dralab.values.records import dataclass

# What a claim holds: what was planned, or parts of devices by name.
Held = PlannedAllocation | Iterable[Holding]


def device_of(held: Holding) -> DeviceId:
    """Return the device of which a claim holds all or a part."""
    return DeviceId(held.driver, held.pool, held.device)


@dataclass(slots=True)
class PoolUse:
    """What claims hold of one pool: whole devices and shares by holder, and what shares consume."""

    exclusive: dict[DeviceId, str] = field(default_factory=dict)
    shares: dict[ShareId, str] = field(default_factory=dict)
    consumed: dict[DeviceId, dict[str, Number]] = field(default_factory=dict)


class HeldByClaim:
    """What one claim holds: an allocation that was planned, or parts of devices.

    `claim` is its key, or what stands for it.
    """

    __slots__ = ("_claim", "_parts", "devices", "holds_any")

    def __init__(
        self, claim: NamespacedName | str, devices: PlannedAllocation | Sequence[Holding]
    ) -> None:
        self._claim = claim
        self.devices = devices
        self.holds_any = bool(
            devices.takings if isinstance(devices, PlannedAllocation) else devices
        )
        self._parts: Sequence[Holding] | None = None

    @property
    def holder(self) -> str:
        """The claim's name in explanations."""
        return str(self._claim)

    @property
    def parts(self) -> Sequence[Holding]:
        """The devices, and parts of them, by name."""
        if not isinstance(self.devices, PlannedAllocation):
            return self.devices
        if self._parts is None:
            self._parts = holds(self.devices.written)
        return self._parts


NOTHING_HELD: Final = HeldByClaim("", ())


class Holdings:
    """The devices that claims hold, by the claims' uids and by pool."""

    def __init__(self) -> None:
        self._held: dict[str, HeldByClaim] = {}
        # Claims that are not in `_use` yet: nobody else holds what they do.
        self._uncounted: dict[str, HeldByClaim] = {}
        self._use: dict[PoolId, PoolUse] = {}
        # Devices that several claims hold, at least one of them whole: clients that did not know
        # of each other gave them away.
        self._contested: dict[DeviceId, set[str]] = {}

    def has(self, uid: str) -> bool:
        """Return whether a claim holds devices, or is known to hold none."""
        return uid in self._held

    def parts_of(self, uid: str) -> Sequence[Holding]:
        """Return what a claim holds."""
        held = self._held.get(uid)
        return held.parts if held is not None else ()

    def pool_use(self, pool: PoolId) -> PoolUse:
        """Return what is held of a pool."""
        self._count()
        return self._use.get(pool) or PoolUse()

    def add_claim(self, uid: str, held: HeldByClaim, *, alone: bool = False) -> None:
        """Note what a claim holds, `alone` where nobody holds any of it.

        Most claims are gone again before anybody asks what they hold.
        """
        self._held[uid] = held
        if alone:
            self._uncounted[uid] = held
        else:
            self._count()
            self._count_claim(held)

    def _count(self) -> None:
        while self._uncounted:
            self._count_claim(self._uncounted.pop(next(iter(self._uncounted))))

    def _count_claim(self, held: HeldByClaim) -> None:
        holder = held.holder
        for item in held.parts:
            device = device_of(item)
            use = self._use.setdefault((device.driver, device.pool), PoolUse())
            if device in use.exclusive or (device in use.consumed and not item.share):
                self._contested[device] = set(self.claims_with({device}))
            if item.share:
                use.shares[ShareId(device, item.share)] = holder
                total = use.consumed.setdefault(device, {})
                v1.add_amounts(total, item.consumed)
            else:
                use.exclusive[device] = holder

    def remove_claim(self, uid: str) -> HeldByClaim:
        """Forget what a claim holds, and return it."""
        held = self._held.pop(uid, None)
        if held is None:
            return NOTHING_HELD
        if self._uncounted.pop(uid, None) is not None:
            return held
        for item in held.parts:
            device = device_of(item)
            use = self._use[device.driver, device.pool]
            if item.share:
                use.shares.pop(ShareId(device, item.share), None)
                total, less = use.consumed[device], dict[str, Number]()
                v1.add_amounts(less, item.consumed)
                for name, amount in less.items():
                    total[name] -= amount
                if not any(other.device == device for other in use.shares):
                    del use.consumed[device]
            else:
                use.exclusive.pop(device, None)
            if device in self._contested:
                self._settle(device, use)
        return held

    def _settle(self, device: DeviceId, use: PoolUse) -> None:
        """Leave a contested device to those that still hold it."""
        holders = self._contested[device] = set(self.claims_with({device}))
        for uid in sorted(holders):
            held = self._held[uid]
            if any(device_of(item) == device and not item.share for item in held.parts):
                use.exclusive[device] = held.holder
        if len(holders) < 2:
            del self._contested[device]

    def is_contested(self, device: DeviceId) -> bool:
        """Return whether several claims hold a device, at least one of them whole."""
        return device in self._contested

    def any_contested(self, uid: str) -> bool:
        """Return whether a claim holds such a device."""
        return bool(self._contested) and any(
            device_of(item) in self._contested for item in self.parts_of(uid)
        )

    def claims_with(self, devices: Collection[DeviceId]) -> list[str]:
        """Return the uids of the claims that hold some of these devices; looks at all claims."""
        return [
            uid
            for uid, held in self._held.items()
            if any(device_of(item) in devices for item in held.parts)
        ]

    def replace_claim(self, uid: str, new: str, holder: str) -> None:
        """Let what one claim holds be held by another that takes its place."""
        self.add_claim(new, HeldByClaim(holder, self.remove_claim(uid).devices))

    def in_use(self, pools: Iterable[PoolId] | None = None) -> InUse:
        """Return what is in use in some pools, by whom; None for all of them, in order."""
        self._count()
        exclusive: dict[DeviceId, str] = {}
        shares: dict[ShareId, str] = {}
        consumed: dict[DeviceId, Mapping[str, Number]] = {}
        for pool in sorted(self._use) if pools is None else pools:
            use = self._use.get(pool)
            if use is not None:
                exclusive |= use.exclusive
                if use.shares:
                    shares |= use.shares
                    consumed |= use.consumed
        holders: dict[DeviceId, tuple[str, ...]] = {
            device: (holder,) for device, holder in exclusive.items()
        }
        for share, holder in shares.items():
            holders[share.device] = (*holders.get(share.device, ()), holder)
        return InUse(
            exclusive=frozenset(exclusive),
            shares=frozenset(shares),
            consumed=consumed,
            holders=holders,
        )
