"""`dralab explain`: explain why a claim or pod gets no devices, or why it gets these."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from dralab.allocation.backlog import Pending
from dralab.allocation.explanation.conditions import Condition
from dralab.allocation.explanation.explain import Explanation
from dralab.allocation.explanation.explain import explain as explanation_of
from dralab.allocation.explanation.phrases import needed, remedy
from dralab.allocation.explanation.sentences import event, page
from dralab.allocation.explanation.why_chosen import why_these
from dralab.allocation.problem import Node
from dralab.allocation.snapshot import Placed, Snapshot
from dralab.cli import objects
from dralab.cli._inventory import InventorySource, inventory_options
from dralab.cli._older import explain_older, older_generation, others
from dralab.cli._output import echo_json, output_option
from dralab.cli._own_generation import generation_option
from dralab.cli.allocate import place
from dralab.cli.generations import API_NAMES
from dralab.objects.claims import results_of
from dralab.objects.metadata import status_of


@click.command(
    epilog="""Examples:

\b
  dralab explain -f cluster.yaml -f pods.yaml
  dralab explain -f cluster.yaml -f pods.yaml train
  dralab explain -f cluster.yaml -f claim.yaml ml/train -o json
  dralab explain --kubeconfig ~/.kube/config ml/train
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
@output_option("text", "json")
@click.argument("name", required=False, metavar="[CLAIM|POD]")
def explain(
    source: InventorySource, api: str | None, node: str, output: str, name: str | None
) -> None:
    """Explain why a pod or claim gets no devices, or why it gets these devices.

    Reads every generation of the device API; of older ones and of --generation, NAME is a pod.
    What comes earlier in the input is allocated first, as by `dralab allocate`. A cluster is only
    read, never changed; files given beside it count as applied to it. If there are no devices for
    it: what each node lacks, a minimal set of conditions that rule out an allocation, and what
    would help. Exit code 0: it fits; 1: it does not fit; 2: bad input.
    """
    if older := older_generation(source, api):
        sys.exit(explain_older(source, older, node=node, output=output, name=name))
    cluster = objects.snapshot(source)
    objects.check_node(cluster, node)
    pending = cluster.pending()
    already = _allocated(cluster, name) if name else None
    if already is not None:
        _print([already], output)
        return
    asked = objects.named(pending, name) if name else pending
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
            found = _explained(cluster, now, node)
            fits = fits and found["fits"]
            told.append(found)
        else:
            place(cluster, now)
    _print(told, output)
    sys.exit(0 if fits else 1)


def _print(told: Sequence[dict[str, Any]], output: str) -> None:
    if output == "json":
        shown = [{key: each[key] for key in each if key != "text"} for each in told]
        echo_json(shown)
    else:
        click.echo("\n\n".join(f"{each['object']}\n{each['text']}" for each in told))


def _allocated(cluster: Snapshot, name: str) -> dict[str, Any] | None:
    """Return the devices of a claim that the input has as allocated; None for all others."""
    namespace, slash, short = name.rpartition("/")
    for (where, known), claim in cluster.claims.items():
        allocation = status_of(claim).get("allocation")
        if allocation and known == short and (not slash or where == namespace):
            why = [
                f"  request {item['request']}: {item['driver']}/{item['pool']}/{item['device']}"
                for item in results_of(allocation)
            ]
            text = "\n".join(["is already allocated in the input:", *why])
            return {"object": f"claim {where}/{known}", "fits": True, "why": why, "text": text}
    return None


def _explained(cluster: Snapshot, pending: Pending, node: str) -> dict[str, Any]:
    start: dict[str, Any] = {"object": pending.title, "fits": False}
    if pending.missing:
        return start | {"reason": pending.missing, "text": pending.missing}
    problem, nodes = cluster.problem(pending), cluster.candidates(pending, node)
    found = place(cluster, pending, node)
    if isinstance(found, Placed):
        text = why_these(problem, _named(nodes, found.node), found.allocations, cluster.catalog)
        return start | {"fits": True, "node": found.node, "why": text.split("\n"), "text": text}
    explanation = explanation_of(problem, nodes, catalog=cluster.catalog) if nodes else None
    if explanation is None:
        return start | {"reason": found.reason, "text": found.reason}
    text, unfit = page(explanation), cluster.unfit(pending, node)
    if unfit:
        text = f"{text}\n\n{others(unfit)}"
    return start | _structured(explanation) | {"reason": found.reason, "text": text}


def _named(nodes: Sequence[Node], name: str) -> Node:
    return next(each for each in nodes if each.name == name)


def _structured(explanation: Explanation) -> dict[str, Any]:
    return {
        "reason": event(explanation),
        "nodes": explanation.nodes,
        "conflict": [_condition(item) for item in explanation.conflict],
        "remedies": [
            {
                "text": remedy(found, explanation.fits, 200),
                "conditions": [_condition(item) for item in found],
            }
            for found in explanation.remedies
        ],
        "settled": explanation.settled,
    }


def _condition(item: Condition) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": item.kind, "text": needed(item)}
    for name in ("claim", "request"):
        if getattr(item, name):
            found[name] = getattr(item, name)
    if item.devices:
        found["devices"] = [str(device) for device in item.devices]
        found["holders"] = list(item.holders)
    return found
