"""`dralab top`: the devices of a cluster by driver and node, their state, and who holds them."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Final

import click

from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._options import opt, options
from dralab.cli._output import echo_json, formats, table_lines
from dralab.cli._terminal import echo, escaped
from dralab.cli.errors import UnusableInput
from dralab.scheduling.device_states import SEVERAL, STATES, DeviceRow, device_rows
from dralab.scheduling.snapshot import Snapshot

EACH: Final = ("DRIVER", "NODE", "POOL", "DEVICE", "STATE", "HOLDERS")
MOST_HOLDERS: Final = 3
# How many of the pods and claims that wait `--watch` shows, and how often it looks, in seconds.
MOST_WAITING: Final = 10
EVERY: Final = 2.0


@click.command(
    epilog="""Examples:

\b
  dralab top --kubeconfig ~/.kube/config
  dralab top --kubeconfig ~/.kube/config --watch
  dralab top -f cluster.snapshot --node rack-1 --devices
  kubectl dra top
"""
)
@options
def top(
    *,
    source: InventorySource,
    node: str = opt("Only devices of this node.", metavar="NODE"),
    driver: str = opt("Only devices of this driver.", metavar="DRIVER"),
    devices: bool = opt("One line for each device."),
    watch: bool = opt(
        "Refresh every two seconds and also show what waits, until Ctrl-C.", flags="--watch -w"
    ),
    output: str = formats("table", "json"),
) -> None:
    """List devices by driver and node, how many are free, and who holds the others.

    A device is free, used, blocked (a partition whose counters others use), tainted, cordoned (its
    node is) or unusable (its pool is incomplete or contradicts itself). With -o json, every device
    with its holders: pods, or the claim where no pod has reserved it.
    """
    if watch and output == "json":
        raise click.UsageError("--watch shows a table; leave out -o json")
    cluster = objects.snapshot(source)
    objects.check_node(cluster, node)
    if watch:
        _watch(lambda: _seen(objects.snapshot(source), node, driver, devices))
        return
    found = _rows(cluster, node, driver)
    if output == "json":
        echo_json([asdict(row) for row in found])
        return
    for line in _table(found, devices):
        echo(line)


def _rows(cluster: Snapshot, node: str, driver: str) -> list[DeviceRow]:
    found = [
        row
        for row in device_rows(cluster)
        if row.node in {node or row.node, SEVERAL} and row.driver == (driver or row.driver)
    ]
    if driver and not found:
        known = ", ".join(sorted({row.driver for row in device_rows(cluster)})) or "none"
        raise click.UsageError(f"no device of driver {driver!r}; known drivers: {known}")
    return found


def _table(found: Iterable[DeviceRow], devices: bool) -> Iterator[str]:
    if devices:
        return table_lines([EACH, *map(_one, found)], gap=3)
    heading = ("DRIVER", "NODE", "DEVICES", *(name.upper() for name in STATES), "HOLDERS")
    return table_lines([heading, *_by_node(found)], gap=3)


def _seen(cluster: Snapshot, node: str, driver: str, devices: bool) -> Iterator[str]:
    """Yield the output of `--watch`: what waits, oldest first, and below it the devices."""
    from dralab.web.waiting_list import waiting_list

    waiting = waiting_list(cluster)
    if waiting["total"]:
        rows = [("WAITS", "SINCE", "MESSAGE")]
        for each in waiting["items"][:MOST_WAITING]:
            name = f"{each['kind']} {each['namespace']}/{each['name']}"
            rows.append((name, each["since"] or "-", each["missing"] or each["message"] or "-"))
        yield from table_lines(rows, gap=3)
    else:
        yield "nothing waits for devices"
    if waiting["total"] > MOST_WAITING:
        yield f"and {waiting['total'] - MOST_WAITING} more"
    yield ""
    yield from _table(_rows(cluster, node, driver), devices)


def _watch(look: Callable[[], Iterator[str]]) -> None:
    """Show what `look` yields until Ctrl-C; keeps the last output if the cluster is unreadable."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, lines, problem = Console(), list(look()), ""
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        try:
            while True:
                shown = "\n".join(
                    [f"{problem}; what follows is old", "", *lines] if problem else lines
                )
                if console.is_terminal:
                    # Names and messages are others' texts: no markup, and no control characters.
                    live.update(
                        Text(escaped(shown), no_wrap=True, overflow="ellipsis"), refresh=True
                    )
                else:
                    echo(f"{shown}\n")
                pause(EVERY)
                try:
                    lines, problem = list(look()), ""
                except (UnusableInput, click.UsageError) as error:
                    problem = str(error)
        except KeyboardInterrupt:
            return


def pause(seconds: float) -> None:
    """Wait until the next look."""
    threading.Event().wait(seconds)


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
    """Return a few holders and the number of others."""
    names = list(holders)
    more = len(names) - MOST_HOLDERS
    shown = ", ".join(names[:MOST_HOLDERS]) or "-"
    return f"{shown} and {more} more" if more > 0 else shown
