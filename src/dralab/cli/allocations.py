"""`dralab allocations`: count or list the device sets that a pod could get."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from dralab.cli import generations
from dralab.cli._inventory import InventorySource, inventory_options
from dralab.cli._older import chosen_generation
from dralab.cli._options import DeclaredOption, opt, options
from dralab.cli._output import echo_json, formats
from dralab.cli._own_generation import generation_option, named
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.files.sources import STDIN
from dralab.objects.metadata import full_key

BUDGET = 50_000_000


def _add_modes(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
    for mode, text in (
        ("list", "Print every set (default)."),
        ("first", "Print the set that the scheduler would choose."),
        ("count", "Print the number of different sets."),
    ):
        usual: dict[str, Any] = {"default": mode} if mode == "list" else {}
        command = click.option(f"--{mode}", name, flag_value=mode, help=text, **usual)(command)
    return command


@click.command(
    epilog="Example: dralab allocations -f pools.yaml -f classes.yaml --pod pod.yaml --count"
)
@inventory_options
@generation_option
@options
def allocations(
    *,
    source: InventorySource,
    wanted: str = opt(
        "A file with the pod and its claims, or with --kubeconfig the name of a pod, with its "
        "namespace if that is not default: ml/train.",
        flags="--pod",
        metavar="FILE|NAME",
    ),
    api: str | None = opt(
        "The API generation of the input; default: detected.", generations.READABLE
    ),
    what: str = DeclaredOption(lambda name, _: partial(_add_modes, name)),  # type: ignore[assignment]  # its option
    node: str | None = opt("Only on this node."),
    budget: int = opt(
        "Stop after this many search steps.", least=1, default=BUDGET, show_default=False
    ),
    output: str = formats("table", "json"),
) -> None:
    """Count or list the valid device sets of a pod, on every node that could run it.

    Devices come from files, a cluster, or both. Exit code 1 if there is none.
    """
    from dralab.allocation.search.backtracking import BudgetError

    in_file = not source.connection or wanted == STDIN or Path(wanted).exists()
    if in_file:
        source = replace(source, files=(*source.files, wanted))
    api = chosen_generation(source, api)
    cluster = source.cluster_of(named(api))
    pod = _pod_of(cluster, wanted, api) if in_file else _pod_named(cluster, wanted)
    try:
        sets = list(_sets(cluster, pod, node, budget))
    except BudgetError:
        raise UnusableInput(f"more than {budget} search steps: raise --budget") from None
    except ValueError as error:
        echo(f"no devices: {error}", err=True)
        sys.exit(1)
    if not sets:
        echo(_none_on(cluster, pod, node), err=True)
    if what == "first":
        sets = sets[:1]
    _print(sets, what, output)
    sys.exit(0 if sets else 1)


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
    return "no devices: run `dralab schedule` to see why"


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


def _print(sets: Sequence[tuple[str, list[str]]], what: str, output: str) -> None:
    if output == "json":
        found: Any = [{"node": node, "devices": devices} for node, devices in sets]
        if what == "count":
            found = {"count": len(sets), "nodes": _counts(sets)}
        echo_json(found)
    elif what == "count":
        for node, count in _counts(sets).items():
            echo(f"{node}: {count}", err=True)
        echo(str(len(sets)))
    else:
        for node, devices in sets:
            echo(f"{node}: {' '.join(devices)}")


def _counts(sets: Sequence[tuple[str, list[str]]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node, _ in sets:
        counts[node] = counts.get(node, 0) + 1
    return counts
