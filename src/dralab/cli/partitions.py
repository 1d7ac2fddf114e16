"""`dralab partitions`: list the sets of partitions of a device."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from dralab.allocation import partitions as core
from dralab.allocation.problem import Derivation, DeviceSelector, Slice
from dralab.cli import generations
from dralab.cli._output import echo_json, output_option, refuse
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput

BIG = 1_000_000


@click.command(
    epilog="Example: dralab generate a100 --nodes 1 | dralab partitions -f - --gpu 0 | wc -l"
)
@generations.files_option
@click.option("--api", type=click.Choice(generations.API_NAMES))
@click.option("--node", help="Only on this node.")
@click.option("--gpu", type=click.IntRange(0), help="Only the card with this number on its node.")
@click.option("--count", is_flag=True, help="Print only the number of sets.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=BIG,
    show_default=True,
    help="Maximum number of lines.",
)
@output_option("table", "json")
def partitions(
    files: tuple[str, ...],
    api: str | None,
    node: str | None,
    gpu: int | None,
    count: bool,
    limit: int,
    output: str,
) -> None:
    """Print every set of partitions of each partitionable card, one per line.

    Reads pools of every generation. Exit code 1 if no card is partitionable.
    """
    if not files:
        raise click.UsageError("nothing to read: give files with -f")
    api = generations.chosen((item for _, item, _ in generations.raw(files)), api)
    chosen = _cards(files, api, node, gpu)
    if not chosen:
        echo("the input has no partitionable device", err=True)
        sys.exit(1)
    left = limit
    found: list[dict[str, Any]] = []
    for place, card in chosen:
        number = 0
        for devices in core.partition_sets(card):
            number += 1
            names = [device.name for device in devices]
            if count:
                continue
            if left == 0:
                raise UnusableInput(f"more than {limit} sets: raise --limit, or --count")
            left -= 1
            if output == "json":
                found.append({"node": place, "card": card.name, "devices": names})
            else:
                echo(f"[{' '.join(names)}]")
        echo(f"{place}: {card.name}: {number} sets", err=True)
        if count and output == "json":
            found.append({"node": place, "card": card.name, "count": number})
        elif count:
            echo(str(number))
    if output == "json":
        answer: Any = found
        if count:
            answer = {"count": sum(card["count"] for card in found), "cards": found}
        echo_json(answer)


def _cards(
    files: Sequence[str], api: str, node: str | None, gpu: int | None
) -> list[tuple[str, core.Card]]:
    """Return (node, card) pairs; cards are numbered per node in the order of the input."""
    numbers: dict[str, int] = {}
    found = []
    for place, slices in _pools(files, api).items():
        for card in core.cards(slices):
            number = numbers.get(place, 0)
            numbers[place] = number + 1
            if node in {None, place} and gpu in {None, number}:
                found.append((place, card))
    return found


def _pools(files: Sequence[str], api: str) -> dict[str, list[Slice]]:
    """Return the slices of all pools by node; "" holds those of no single node."""
    if api == "v1":
        slices = _today(files)
    elif api == "k8srm":
        from dralab.prototypes.k8srm import pool_reader, reading

        objects = generations.good(generations.read(files, api))
        pools = [reading.read_pool(item) for item in objects if item["kind"] == "DevicePool"]
        slices = list(pool_reader.slices(pools))
    else:
        slices = _evolution(files)
    by_node: dict[str, list[Slice]] = {}
    for each in slices:
        by_node.setdefault(each.node_scope.node, []).append(each)
    return by_node


def _today(files: Sequence[str]) -> list[Slice]:
    from dralab.allocation.v1 import V1Reader
    from dralab.api.manifests import load
    from dralab.api.resource.files import ResourceCheck, add_pool_problems
    from dralab.kernel.clock import WallClock, rfc3339

    read = load(files, [ResourceCheck(now=rfc3339(WallClock().now()))], stdin=generations.stdin)
    add_pool_problems(read)
    refuse(read.problems)
    reader = V1Reader(_NoExpressions())
    return [reader.slice(item.object) for item in read.of_kind("ResourceSlice")]


def _evolution(files: Sequence[str]) -> list[Slice]:
    """Return slices of pools without checking limits: their own generator exceeded them."""
    from dralab.prototypes.evolution.cluster import EvolutionCluster

    objects = []
    for origin, item, _ in generations.raw(files):
        parts = item if isinstance(item, list) else [item]
        pools = [p for p in parts if isinstance(p, dict) and p.get("kind") == "ResourcePool"]
        try:
            objects += [{**pool, "apiVersion": "resource.k8s.io/v1alpha2"} for pool in pools]
            EvolutionCluster(objects)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise click.UsageError(
                f"{origin}: not a ResourcePool of dra-evolution: {error!r}; see `dralab validate`"
            ) from None
    return list(EvolutionCluster(objects).slices)


class _NoExpressions:
    """Slices hold no expressions."""

    def selector(self, text: str) -> DeviceSelector:
        """Refuse: never asked."""
        raise LookupError(text)

    def derivation(self, text: str) -> Derivation:
        """Refuse: never asked."""
        raise LookupError(text)
