"""`dralab top`: the devices of a cluster by driver and node, their state, and who holds them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Final

import click

from dralab.allocation.device_states import SEVERAL, STATES, DeviceRow, device_rows
from dralab.cli import objects
from dralab.cli._inventory import InventorySource, inventory_options
from dralab.cli._output import echo_json, echo_table, output_option

EACH: Final = ("DRIVER", "NODE", "POOL", "DEVICE", "STATE", "HOLDERS")
MOST_HOLDERS: Final = 3


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
