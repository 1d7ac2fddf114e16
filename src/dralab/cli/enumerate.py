"""`dralab enumerate`: every set of devices that a pod could get, or of partitions of a card."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from dralab.allocation import partitions as core
from dralab.allocation.problem import Slice
from dralab.cli import generations
from dralab.cli._inventory import InventorySource
from dralab.cli._older import chosen_generation
from dralab.cli._options import arg, opt, options
from dralab.cli._output import echo_json, formats
from dralab.cli._own_generation import api_option, named
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.files.sources import STDIN
from dralab.objects.metadata import full_key

MAX_STEPS: Final = 50_000_000
NODE: Final = opt("Only on this node.", metavar="NODE")
COUNT: Final = opt("Print only the number of sets.")
LIMIT: Final = opt("Print at most this many sets.", least=1, default=1_000_000)


@click.group()
def group() -> None:
    """List or count the sets of devices that could be allocated.

    Example: `dralab enumerate allocations pod.yaml -f pools.yaml -f classes.yaml --count`
    """


@group.command()
@options
def allocations(
    *,
    source: InventorySource,
    wanted: str = arg(metavar="POD"),
    api: str | None = api_option(generations.READABLE),
    node: str | None = NODE,
    count: bool = COUNT,
    limit: int = LIMIT,
    max_steps: int = opt(
        "Stop after this many search steps.", least=1, default=MAX_STEPS, show_default=False
    ),
    output: str = formats("table", "json"),
) -> None:
    """List every set of devices that POD could get, in the order of the search, or count them.

    POD is a file with the pod and its claims, or with --kubeconfig also the name of a pod, with its
    namespace if that is not default: ml/train. --limit 1 prints the set that the scheduler would
    choose on the first node. Exit code 1 if there is none.

    Example: `dralab enumerate allocations pod.yaml -f pools.yaml -f classes.yaml --count`
    """
    from dralab.allocation.search.backtracking import BudgetError

    in_file = not source.connection or wanted == STDIN or Path(wanted).exists()
    if in_file:
        source = replace(source, files=(*source.files, wanted))
    api = chosen_generation(source, api)
    cluster = source.cluster_of(named(api))
    pod = _pod_of(cluster, wanted, api) if in_file else _pod_named(cluster, wanted)
    try:
        sets = list(_sets(cluster, pod, node, max_steps))
    except BudgetError:
        raise UnusableInput(f"more than {max_steps} search steps: raise --max-steps") from None
    except ValueError as error:
        echo(f"no devices: {error}", err=True)
        sys.exit(1)
    if not sets:
        echo(_none_on(cluster, pod, node), err=True)
    if count:
        counts = Counter(place for place, _ in sets)
        if output == "json":
            echo_json({"count": len(sets), "nodes": counts})
        else:
            for place, number in counts.items():
                echo(f"{place}: {number}", err=True)
            echo(len(sets))
    else:
        found = ({"node": place, "devices": devices} for place, devices in sets)
        _print(found, limit, output, "{node}: {devices}")
    sys.exit(0 if sets else 1)


@group.command()
@options
def partitions(
    *,
    source: InventorySource,
    api: str | None = api_option(generations.READABLE),
    node: str | None = NODE,
    gpu: int | None = opt("Only the card with this number on its node.", least=0),
    count: bool = COUNT,
    limit: int = LIMIT,
    output: str = formats("table", "json"),
) -> None:
    """List every set of partitions of each partitionable card, one per line, or count them.

    Reads pools of every generation, from files, a cluster, or both. Exit code 1 if no card is
    partitionable.

    Example: `dralab generate a100 --nodes 1 | dralab enumerate partitions -f - --gpu 0 | wc -l`
    """
    if not source:
        raise click.UsageError("nothing to read: give files with -f, or --kubeconfig")
    chosen = _cards(source, chosen_generation(source, api), node, gpu)
    if not chosen:
        echo("the input has no partitionable device", err=True)
        sys.exit(1)
    if count:
        cards: list[dict[str, Any]] = [
            {"node": place, "card": card.name, "count": sum(1 for _ in core.partition_sets(card))}
            for place, card in chosen
        ]
        for each in cards:
            echo("{node}: {card}: {count} sets".format(**each), err=True)
        if output == "json":
            echo_json({"count": sum(each["count"] for each in cards), "cards": cards})
        else:
            echo("\n".join(str(each["count"]) for each in cards))
        return
    found = (
        {"node": place, "card": card.name, "devices": [device.name for device in devices]}
        for place, card in chosen
        for devices in core.partition_sets(card)
    )
    _print(found, limit, output, "[{devices}]")


def _print(sets: Iterable[dict[str, Any]], limit: int, output: str, line: str) -> None:
    """Print sets of devices as they are found, at most so many."""
    shown = []
    for number, each in enumerate(sets):
        if number == limit:
            echo("there are more sets: raise --limit, or --count them", err=True)
            break
        if output == "json":
            shown.append(each)
        else:
            echo(line.format(**each | {"devices": " ".join(each["devices"])}))
    if output == "json":
        echo_json(shown)


def _pod_named(cluster: Any, name: str) -> Any:
    """Return a pod of a cluster. UsageError."""
    namespace, _, short = name.rpartition("/")
    key = (namespace or "default", short)
    by_key = {full_key(pod): pod for pod in cluster.pods()}
    if key not in by_key:
        known = ", ".join(sorted("/".join(each) for each in by_key)) or "none"
        raise click.UsageError(f"no file and no pod {'/'.join(key)}; known pods: {known}")
    return by_key[key]


def _pod_of(cluster: Any, file: str, api: str) -> Any:
    """Return the first pod of a file."""
    keys = [full_key(item) for _, item, _ in generations.raw([file]) if item.get("kind") == "Pod"]
    by_key = {full_key(pod): pod for pod in cluster.pods()}
    found = [by_key[key] for key in keys if key in by_key]
    if not found:
        raise click.UsageError(f"{file}: no pod of {api}")
    if len(found) > 1:
        namespace, name = full_key(found[0])
        echo(f"{file} holds {len(found)} pods: using {namespace}/{name}", err=True)
    return found[0]


def _none_on(cluster: Any, pod: Any, node: str | None) -> str:
    known = [place.name for place, _ in cluster.problems(pod)]
    if node is not None and node not in known:
        return f"no devices: {node} cannot run the pod; nodes that can: {', '.join(known)}"
    return "no devices: run `dralab explain` to see why"


def _sets(cluster: Any, pod: Any, node: str | None, budget: int) -> Iterator[tuple[str, list[str]]]:
    """Yield (node, devices) once for every different set, in the order of the search."""
    from dralab.allocation.check.enumeration import assignments

    for place, problem in cluster.problems(pod):
        if node is not None and place.name != node:
            continue
        seen = set()
        for assignment in assignments(problem, place, budget=budget):
            devices = [device for _, several in assignment for device in several]
            key = frozenset(devices)
            if key not in seen:
                seen.add(key)
                yield place.name, [device.shown for device in devices]


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
