"""`dralab explain`: explain why a claim or pod gets no devices, or why it gets these."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from dralab.allocation.backlog import Pending
from dralab.allocation.explanation.codes import CODES, code_text
from dralab.allocation.explanation.names import similar
from dralab.allocation.explanation.text import Spots, short_subject
from dralab.allocation.explanation.why import why
from dralab.allocation.explanation.why_chosen import why_these
from dralab.allocation.problem import Node
from dralab.allocation.snapshot import Snapshot
from dralab.cli import objects
from dralab.cli._inventory import InventorySource, inventory_options
from dralab.cli._older import explain_older, older_generation
from dralab.cli._output import echo_json, output_option
from dralab.cli._own_generation import generation_option
from dralab.cli.allocate import placed_on
from dralab.cli.generations import API_NAMES
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.metadata import spec_of, uid_of
from dralab.values.json_types import JsonDict


@click.command(
    epilog="""Examples:

\b
  dralab explain -f cluster.yaml -f pods.yaml
  dralab explain -f cluster.yaml -f pods.yaml train
  dralab explain -f cluster.yaml -f claim.yaml ml/train -o json
  dralab explain --kubeconfig ~/.kube/config ml/train
  dralab explain --code DRA014
"""
)
@inventory_options
@generation_option
@click.option(
    "--api",
    type=click.Choice(API_NAMES),
    help="The API generation of the input; default: detected.",
)
@click.option("--node", metavar="NODE", default="", help="Only look at this node.")
@click.option("-n", "--namespace", default="", help="Only pods and claims of this namespace.")
@click.option("--all", "every_node", is_flag=True, help="Add what every group of nodes lacks.")
@click.option("--code", metavar="CODE", default="", help="Say what a code such as DRA014 means.")
@output_option("text", "json")
@click.argument("name", required=False, metavar="[CLAIM|POD]")
def explain(
    source: InventorySource,
    *,
    api: str | None,
    node: str,
    namespace: str,
    every_node: bool,
    code: str,
    output: str,
    name: str | None,
) -> None:
    """Explain why a pod or claim gets no devices, or why it gets these devices.

    Reads every generation of the device API; of older ones and of --generation, NAME is a pod.
    What comes earlier in the input is allocated first, as by `dralab allocate`. A cluster is only
    read, never changed; files given beside it count as applied to it. If there are no devices for
    it: the cause with its place in the input, what there is instead, and what would help, each
    help confirmed by the allocator. Exit code 0: it fits; 1: it does not fit; 2: bad input.
    """
    if code:
        _of_code(code, output)
        return
    if namespace and name and "/" not in name:
        name = f"{namespace}/{name}"
    if older := older_generation(source, api):
        sys.exit(explain_older(source, older, node=node, output=output, name=name))
    cluster, spots = objects.with_spots(source)
    objects.check_node(cluster, node)
    pending = cluster.pending()
    already = _allocated(cluster, name) if name else None
    if already is not None:
        _print([already], output)
        return
    asked = objects.named(pending, name) if name else pending
    if namespace:
        asked = [each for each in asked if each.namespace == namespace]
    if not asked:
        click.echo("nothing in the input asks for devices", err=True)
    told: list[dict[str, Any]] = []
    fits = True
    for each in pending:
        if not asked:
            break
        now = cluster.refreshed(each)
        if each in asked:
            asked = [other for other in asked if other is not each]
            found = _explained(cluster, now, node, spots, every_node)
            fits = fits and found["fits"]
            told.append(found)
        else:
            placed_on(cluster, now)
    _print(told, output)
    sys.exit(0 if fits else 1)


def _print(told: Sequence[dict[str, Any]], output: str) -> None:
    if output == "json":
        shown = [{key: each[key] for key in each if key != "text"} for each in told]
        echo_json(shown)
    else:
        click.echo("\n\n".join(each["text"] for each in told))


def _allocated(cluster: Snapshot, name: str) -> dict[str, Any] | None:
    """Return the devices of a pod that runs, or of an allocated claim; None for all others."""
    namespace, slash, short = name.rpartition("/")
    for pod, user in cluster.users():
        runs = spec_of(pod).get("nodeName") and uid_of(pod) and not user.claims
        if runs and user.name == short and (not slash or user.namespace == namespace):
            held = [line for claim in user.allocated for line in _devices_of(claim)]
            text = "\n".join([f"{user.title} runs on {spec_of(pod)['nodeName']}:", *held])
            return {"object": user.title, "fits": True, "why": held, "text": text}
    for (where, known), claim in cluster.claims.items():
        if allocation_of(claim) and known == short and (not slash or where == namespace):
            why = _devices_of(claim)
            text = "\n".join([f"claim {where}/{known} has its devices already:", *why])
            return {"object": f"claim {where}/{known}", "fits": True, "why": why, "text": text}
    return None


def _devices_of(claim: JsonDict) -> list[str]:
    return [
        f"  request {item['request']}: {item['driver']}/{item['pool']}/{item['device']}"
        for item in results_of(allocation_of(claim))
    ]


def _explained(
    cluster: Snapshot, pending: Pending, node: str, spots: Spots, every_node: bool
) -> dict[str, Any]:
    found = why(cluster, pending, node=node, spots=spots)
    if found is not None:
        return found.structured() | {
            "reason": found.brief(),
            "text": found.page(every_node=every_node),
        }
    problem, nodes = cluster.problem(pending), cluster.candidates(pending, node)
    placed = placed_on(cluster, pending, node)
    if placed is None:
        raise click.ClickException(f"{pending.title}: the search for devices gave no result")
    text = why_these(problem, _named(nodes, placed.node), placed.allocations, cluster.catalog)
    lines = text.split("\n")
    start = {"object": pending.title, "fits": True, "node": placed.node, "why": lines}
    return start | {"text": f"{short_subject(pending.title)} fits on {placed.node}:\n{text}"}


def _named(nodes: Sequence[Node], name: str) -> Node:
    return next(each for each in nodes if each.name == name)


def _of_code(code: str, output: str) -> None:
    """Print what a code means; UsageError with the nearest one."""
    name = code.upper()
    if name not in CODES:
        near = similar(name, CODES)
        raise click.UsageError(
            f"no code {code!r}; did you mean {near}?"
            if near
            else f"no code {code!r}; there are {', '.join(CODES)}"
        )
    found = CODES[name]
    if output == "json":
        echo_json(asdict(found))
    else:
        click.echo(code_text(found))
