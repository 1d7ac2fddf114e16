"""`dralab top`: the devices of a cluster by driver and node, their state, and who holds them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

import click

from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.problem import Device, DeviceId
from dralab.allocation.snapshot import Snapshot
from dralab.cli import objects
from dralab.cli._inventory import InventorySource, inventory_options
from dralab.cli._output import echo_json, echo_table, output_option
from dralab.objects.claims import allocation_of, consumers_of, results_of
from dralab.objects.nodes import is_unschedulable

STATES: Final = ("free", "used", "blocked", "tainted", "cordoned", "unusable")
EACH: Final = ("DRIVER", "NODE", "POOL", "DEVICE", "STATE", "HOLDERS")
SEVERAL: Final = "(several)"
MOST_HOLDERS: Final = 3


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


@click.command(
    epilog="""Examples:

\b
  dralab top --kubeconfig ~/.kube/config
  dralab top -f cluster.snapshot --node rack-1 --devices
  kubectl dra top
"""
)
@inventory_options
@click.option("--node", metavar="NODE", default="", help="Only devices of this node.")
@click.option("--driver", metavar="DRIVER", default="", help="Only devices of this driver.")
@click.option("--devices", is_flag=True, help="One line for each device.")
@output_option("table", "json")
def top(source: InventorySource, node: str, driver: str, devices: bool, output: str) -> None:
    """List devices by driver and node, how many are free, and who holds the others.

    A device is free, used, blocked (a partition whose counters others use), tainted, cordoned (its
    node is) or unusable (its pool is incomplete or contradicts itself). With -o json, every device
    with its holders: pods, or the claim where no pod has reserved it.
    """
    cluster = objects.snapshot(source)
    objects.check_node(cluster, node)
    found = [
        row
        for row in device_rows(cluster)
        if row.node in {node or row.node, SEVERAL} and row.driver == (driver or row.driver)
    ]
    if driver and not found:
        known = ", ".join(sorted({row.driver for row in device_rows(cluster)})) or "none"
        raise click.UsageError(f"no device of driver {driver!r}; known drivers: {known}")
    if output == "json":
        echo_json([asdict(row) for row in found])
    elif devices:
        echo_table([EACH, *map(_one, found)], gap=3)
    else:
        heading = ("DRIVER", "NODE", "DEVICES", *(name.upper() for name in STATES), "HOLDERS")
        echo_table([heading, *_by_node(found)], gap=3)


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


def _one(row: DeviceRow) -> tuple[str, ...]:
    return (row.driver, row.node, row.pool, row.device, row.state, _few(row.holders))


def _by_node(rows: Iterable[DeviceRow]) -> Iterator[tuple[str, ...]]:
    states: dict[tuple[str, str], Counter[str]] = {}
    holders: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        key = row.driver, row.node
        states.setdefault(key, Counter())[row.state] += 1
        holders.setdefault(key, {}).update(dict.fromkeys(row.holders))
    for key, counts in states.items():
        numbers = (str(counts[state]) for state in STATES)
        yield (*key, str(counts.total()), *numbers, _few(holders[key]))


def _few(holders: Iterable[str]) -> str:
    """Return some holders and how many more there are."""
    names = list(holders)
    more = len(names) - MOST_HOLDERS
    shown = ", ".join(names[:MOST_HOLDERS]) or "-"
    return f"{shown} and {more} more" if more > 0 else shown
