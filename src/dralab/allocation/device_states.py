"""The devices of a cluster, each with its state and who holds it.

For pages and tables that show a cluster; nothing is decided here. Why a device cannot serve a claim
is left to `explanation`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.problem import Device, DeviceId
from dralab.allocation.snapshot import Snapshot
from dralab.objects.claims import allocation_of, consumers_of, results_of
from dralab.objects.nodes import is_unschedulable

STATES: Final = ("free", "used", "blocked", "tainted", "cordoned", "unusable")
SEVERAL: Final = "(several)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device: where it is, its state (one of STATES) and who holds it.

    `node` is `(several)` for devices that more than one node can use.
    """

    driver: str
    node: str
    pool: str
    device: str
    state: str
    holders: tuple[str, ...]


def device_rows(cluster: Snapshot) -> Iterator[DeviceRow]:
    """Yield the devices of a cluster, by driver, node and pool; those of a pool in its order."""
    fleet = cluster.fleet
    holders = _holders(cluster)
    numbers = sorted(
        range(len(fleet.pools.records)),
        key=lambda number: _place(fleet.pools.records[number]),
    )
    for number in numbers:
        record, state, held = fleet.pools.records[number], fleet.states[number], fleet.held[number]
        home = cluster.filters.nodes.get(record.home)
        cordoned = home is not None and is_unschedulable(home)
        devices = [device for each in record.current for device in each.devices]
        for inside, device in enumerate(devices):
            free, used = bool(state.free >> inside & 1), bool(held >> inside & 1)
            yield DeviceRow(
                driver=record.driver,
                node=record.home or SEVERAL,
                pool=record.name,
                device=device.name,
                state=_state(record, device, free=free, held=used, cordoned=cordoned),
                holders=tuple(holders.get(DeviceId(record.driver, record.name, device.name), ())),
            )


def _place(record: PoolRecord) -> tuple[str, str, str]:
    return record.driver, record.home or SEVERAL, record.name


def _state(record: PoolRecord, device: Device, *, free: bool, held: bool, cordoned: bool) -> str:
    if held:
        return "used"
    if record.irregular:
        return "unusable"
    if any(taint.effect in {"NoSchedule", "NoExecute"} for taint in device.taints):
        return "tainted"
    if cordoned:
        return "cordoned"
    return "free" if free else "blocked"


def _holders(cluster: Snapshot) -> dict[DeviceId, list[str]]:
    """Return who holds each device; administrators who look on hold nothing."""
    found: dict[DeviceId, list[str]] = {}
    for (namespace, name), claim in cluster.claims.items():
        users = [
            f"{item['resource'].removesuffix('s')} {namespace}/{item['name']}"
            for item in consumers_of(claim)
        ]
        for result in results_of(allocation_of(claim)):
            if not result.get("adminAccess"):
                device = DeviceId(result["driver"], result["pool"], result["device"])
                found.setdefault(device, []).extend(users or [f"claim {namespace}/{name}"])
    return found
