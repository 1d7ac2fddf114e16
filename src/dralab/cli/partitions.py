"""`dralab partitions`: list the sets of partitions of a device."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from dralab.allocation import partitions as core
from dralab.allocation.problem import Slice
from dralab.cli import generations
from dralab.cli._inventory import InventorySource, inventory_options
from dralab.cli._older import chosen_generation
from dralab.cli._options import opt, options
from dralab.cli._output import echo_json, formats
from dralab.cli._own_generation import generation_option, named
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput

BIG = 1_000_000


@click.command(
    epilog="Example: dralab generate a100 --nodes 1 | dralab partitions -f - --gpu 0 | wc -l"
)
@inventory_options
@generation_option
@options
def partitions(
    *,
    source: InventorySource,
    api: str | None = opt(
        "The API generation of the input; default: detected.", generations.READABLE
    ),
    node: str | None = opt("Only on this node."),
    gpu: int | None = opt("Only the card with this number on its node.", least=0),
    count: bool = opt("Print only the number of sets."),
    limit: int = opt("Maximum number of lines.", least=1, default=BIG),
    output: str = formats("table", "json"),
) -> None:
    """Print every set of partitions of each partitionable card, one per line.

    Reads pools of every generation, from files, a cluster, or both. Exit code 1 if no card is
    partitionable.
    """
    if not source:
        raise click.UsageError("nothing to read: give files with -f, or --kubeconfig")
    chosen = _cards(source, chosen_generation(source, api), node, gpu)
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
    source: InventorySource, api: str, node: str | None, gpu: int | None
) -> list[tuple[str, core.Card]]:
    """Return (node, card) pairs; cards are numbered per node in the order of the input."""
    by_node: dict[str, list[Slice]] = {}
    for each in _slices(source, api):
        by_node.setdefault(each.node_scope.node, []).append(each)
    numbers: dict[str, int] = {}
    found = []
    for place, slices in by_node.items():
        for card in core.cards(slices):
            number = numbers.get(place, 0)
            numbers[place] = number + 1
            if node in {None, place} and gpu in {None, number}:
                found.append((place, card))
    return found


def _slices(source: InventorySource, api: str) -> Sequence[Slice]:
    """Return the slices of all pools."""
    if api == "evolution" and not source.connection:
        return _evolution(source.files)
    return source.cluster_of(named(api)).fleet().slices


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
