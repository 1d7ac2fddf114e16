"""The devices of a cluster, each with its state and who holds it.

For pages and tables that show a cluster; nothing is decided here. Why a device cannot serve a claim
is left to `explanation`.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final

from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.problem import Device, DeviceId
from dralab.objects.claims import allocation_of, claims_by_entry, consumers_of, holds, results_of
from dralab.objects.metadata import full_key, status_of
from dralab.objects.nodes import is_lost, is_unschedulable
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number
from dralab.values.records import dataclass

STATES: Final = ("free", "used", "blocked", "tainted", "cordoned", "unusable")
SEVERAL: Final = "(several)"
WHOLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device: where it is, its state (one of STATES) and who holds it.

    `node` is `(several)` for devices that more than one node can use. `fill` is how much of it is
    held, in percent: less than 100 for devices that are shared by capacity. `tainted` devices may
    be used all the same; `unhealthy` ones are so by the kubelet.
    """

    driver: str
    node: str
    pool: str
    device: str
    state: str
    holders: tuple[str, ...]
    fill: int = 0
    tainted: bool = False
    unhealthy: bool = False


def device_rows(cluster: Snapshot) -> Iterator[DeviceRow]:
    """Yield the devices of a cluster, by driver, node and pool; those of a pool in its order."""
    fleet, in_use = cluster.fleet, cluster.in_use
    unhealthy = frozenset(unhealthy_devices(cluster))
    holders = _holders(cluster)
    numbers = sorted(
        range(len(fleet.pools.records)),
        key=lambda number: _place(fleet.pools.records[number]),
    )
    for number in numbers:
        record = fleet.pools.records[number]
        occupancy = fleet.use.occupancies[number]
        state, held = occupancy.state, occupancy.held
        home = cluster.nodes.get(record.home)
        away = "" if home is None else _of_node(home)
        devices = [device for each in record.current for device in each.devices]
        for inside, device in enumerate(devices):
            identity = DeviceId(record.driver, record.name, device.name)
            free, used = bool(state.free >> inside & 1), bool(held >> inside & 1)
            yield DeviceRow(
                driver=record.driver,
                node=record.home or SEVERAL,
                pool=record.name,
                device=device.name,
                state=_state(record, device, free=free, held=used, away=away),
                holders=tuple(holders.get(identity, ())),
                fill=_fill(device, in_use.consumed.get(identity), is_held=used),
                tainted=_is_tainted(device),
                unhealthy=identity in unhealthy,
            )


def unhealthy_devices(cluster: Snapshot) -> Iterator[DeviceId]:
    """Yield the devices that the kubelet reports as unhealthy in the status of pods (KEP-4680).

    The kubelet names a device by its first CDI id, which its driver chooses: where a claim has
    several devices, the one is taken whose name the id ends with.
    """
    for pod in cluster.by_kind.get("Pod", ()):
        names = claims_by_entry(pod)
        namespace, _ = full_key(pod)
        for container in status_of(pod).get("containerStatuses") or ():
            for item in container.get("allocatedResourcesStatus") or ():
                ids = [
                    str(each.get("resourceID"))
                    for each in item.get("resources") or ()
                    if each.get("health") == "Unhealthy"
                ]
                if not ids:
                    continue
                entry, _, request = str(item.get("name")).removeprefix("claim:").partition("/")
                claim = cluster.claims.get((namespace, names.get(entry, "")), {})
                devices = [
                    DeviceId(result["driver"], result["pool"], result["device"])
                    for result in results_of(allocation_of(claim))
                    if not request or result["request"].partition("/")[0] == request
                ]
                yield from (found for name in ids for found in _of_id(name, devices))


def _of_id(name: str, devices: Sequence[DeviceId]) -> list[DeviceId]:
    if len(devices) == 1:
        return list(devices)
    ending = [each for each in devices if name == str(each) or _ends_with(name, each.device)]
    return sorted(ending, key=lambda each: len(each.device))[-1:]


def _ends_with(name: str, device: str) -> bool:
    head = name.removesuffix(device)
    return head != name and not head[-1:].isalnum()


def _place(record: PoolRecord) -> tuple[str, str, str]:
    return record.driver, record.home or SEVERAL, record.name


def _state(record: PoolRecord, device: Device, *, free: bool, held: bool, away: str) -> str:
    if held:
        return "used"
    if record.irregular or away == "unusable":
        return "unusable"
    if _is_tainted(device):
        return "tainted"
    if away:
        return away
    return "free" if free else "blocked"


def _of_node(node: JsonObject) -> str:
    """Return the state of all unused devices of a node; empty if it accepts pods."""
    if is_lost(node):
        return "unusable"
    return "cordoned" if is_unschedulable(node) else ""


def _is_tainted(device: Device) -> bool:
    return any(taint.effect in {"NoSchedule", "NoExecute"} for taint in device.taints)


def _fill(device: Device, consumed: Mapping[str, Number] | None, *, is_held: bool) -> int:
    """Return how much of a device is used, in percent: the largest share of any capacity."""
    if not is_held:
        return 0
    if not device.shareable or consumed is None:
        return WHOLE
    totals = [item.value for item in device.capacity.values()]
    parts = [
        float(amount / total)
        for amount, total in zip(device.amounts_of(consumed), totals, strict=True)
        if total
    ]
    return min(WHOLE, ceil(WHOLE * max(parts, default=1.0)))


def _holders(cluster: Snapshot) -> dict[DeviceId, list[str]]:
    """Return the holders of each device; admin access holds nothing."""
    found: dict[DeviceId, list[str]] = {}
    for (namespace, name), claim in cluster.claims.items():
        users = [
            f"{item['resource'].removesuffix('s')} {namespace}/{item['name']}"
            for item in consumers_of(claim)
        ]
        for held in holds(allocation_of(claim)):
            device = DeviceId(held.driver, held.pool, held.device)
            found.setdefault(device, []).extend(users or [f"claim {namespace}/{name}"])
    return found
