"""`dralab what-if`: the effects on pods if nodes are added, removed, cordoned or tainted."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from dralab.capacity.changes import (
    AddNodes,
    Cordon,
    RemoveNode,
    SupposedChange,
    Taint,
    UnknownName,
    UpgradeDriver,
    Without,
    patched,
)
from dralab.capacity.fragmentation import stranded_share
from dralab.capacity.structured import structured_what_if
from dralab.capacity.what_if import Fate, PodComparison, WhatIf
from dralab.capacity.what_if import what_if as answer
from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._options import opt, options
from dralab.cli._output import echo_json, echo_table, formats, refuse
from dralab.cli._taints import node_taint
from dralab.cli._terminal import echo
from dralab.cli.errors import refusing
from dralab.fleet.shapes import MOST_NODES
from dralab.objects.metadata import NamespacedName
from dralab.scheduling.model import ClusterModel

SHOWN: Final = 10
KINDS: Final = ("pod", "deployment", "replicaset", "statefulset", "daemonset", "job", "cronjob")


@click.command(
    "what-if",
    epilog="""Examples:

\b
  dralab what-if -f cluster.yaml --add h100=2
  dralab what-if -f cluster.yaml --add node-3=4 --remove node-7
  dralab what-if -f cluster.yaml --taint node-3:maintenance=now:NoExecute
  dralab what-if -f cluster.yaml --end job/ml/sweep --patch fewer-replicas.yaml
  dralab what-if --kubeconfig config --driver-upgrade gpu.nvidia.com --at-once 2
""",
)
@options
def what_if(
    *,
    source: InventorySource,
    add: tuple[str, ...] = opt(
        "Add nodes of a shape (see `dralab generate -h`), or copies of a node of the input.",
        metavar="SHAPE|NODE=COUNT",
    ),
    remove: tuple[str, ...] = opt("Remove a node.", metavar="NODE"),
    cordon: tuple[str, ...] = opt("Cordon a node.", metavar="NODE"),
    taint: tuple[str, ...] = opt("Taint a node.", metavar="NODE:KEY=VALUE:EFFECT"),
    patch: tuple[str, ...] = opt(
        "Merge objects into those of the same kind and name, as kubectl patch --type merge; "
        "others are added.",
        metavar="FILE",
    ),
    end: tuple[str, ...] = opt(
        f"End a pod or the pods of a workload; KIND is one of {', '.join(KINDS)}.",
        metavar="KIND/[NAMESPACE/]NAME",
    ),
    driver_upgrade: tuple[str, ...] = opt(
        "Upgrade a driver node by node; pods with its devices leave the node meanwhile.",
        metavar="DRIVER",
    ),
    at_once: int = opt("Nodes on which a driver is upgraded at the same time.", least=1, default=1),
    everything: bool = opt(f"List all pods, not {SHOWN} of a kind.", flags="--all"),
    output: str = formats("table", "json"),
) -> None:
    """Show which pods would run, move and wait after a change.

    Nothing is changed. Pods are placed as the scheduler would place them, by priority and age,
    before and after the change, so that only differences are shown. Pods of nodes that go, and
    pods that a NoExecute taint evicts, are scheduled again with those that wait; pods of
    DaemonSets end with their node. FREE counts the devices that a kind of pods could use, STRANDED
    those of them on nodes where it does not fit. Exit code 0: afterwards every pod has a node;
    1: some pods wait; 2: bad input.
    """
    changes: list[SupposedChange] = [
        *(AddNodes(*nodes_to_add(text)) for text in add),
        *(RemoveNode(name) for name in remove),
        *(Cordon(name) for name in cordon),
        *(Taint(*_tainted(text)) for text in taint),
        *(_ending(text) for text in end),
        *(UpgradeDriver(name, at_once) for name in driver_upgrade),
    ]
    if not (changes or patch):
        raise click.UsageError("nothing would change: give --add, --remove, --patch or another")
    found = objects.inventory(source)
    model = ClusterModel(found)
    other = None
    if patch:
        read = objects.manifests(patch)
        refuse(read.problems)
        other = ClusterModel(patched(found, [item.object for item in read.objects]))
    with refusing(UnknownName, kind=click.UsageError):
        result = answer(model, changes, other)
    if output == "json":
        echo_json(structured_what_if(result))
    else:
        _print(result, SHOWN if not everything else sys.maxsize)
    waits = result.with_fate("still waits", "no longer starts", "is displaced")
    sys.exit(1 if waits else 0)


def nodes_to_add(text: str) -> tuple[str, int]:
    """Return what --add names, and how many. BadParameter."""
    name, equals, number = text.partition("=")
    if not name or (equals and not (number.isdecimal() and 0 < int(number) <= MOST_NODES)):
        raise click.BadParameter(
            f"{text!r}: expected SHAPE=COUNT or NODE=COUNT, such as h100=2; at most {MOST_NODES}",
            param_hint="--add",
        )
    return name, int(number or 1)


def _tainted(text: str) -> tuple[str, dict[str, str]]:
    name, _, taint = text.partition(":")
    if not (name and taint):
        raise click.BadParameter(
            f"{text!r}: expected NODE:KEY=VALUE:EFFECT, such as node-3:maintenance=now:NoExecute",
            param_hint="--taint",
        )
    return name, node_taint(taint)


def _ending(text: str) -> Without:
    kind, _, name = text.partition("/")
    namespace, slash, short = name.rpartition("/")
    if kind not in KINDS or not short:
        raise click.BadParameter(
            f"{text!r}: expected KIND/NAME or KIND/NAMESPACE/NAME with KIND one of "
            f"{', '.join(KINDS)}",
            param_hint="--end",
        )
    return Without(kind, NamespacedName(namespace if slash else "default", short))


# --- output ----------------------------------------------------------------------------------


def _print(result: WhatIf, most: int) -> None:
    echo(_headline(result))
    titles: Mapping[Fate, str] = {
        "starts": "starts",
        "moves": "moves",
        "restarts": "restarts on its node",
        "is displaced": "is displaced and waits",
        "no longer starts": "would start without the change and now waits",
        "still waits": "still waits",
    }
    for fate, title in titles.items():
        pods = result.with_fate(fate)
        if pods:
            echo(f"\n{title}:")
            _pods(pods, most)
    _fragmentation(result)


def _headline(result: WhatIf) -> str:
    before, after = result.nodes
    starts = len(result.with_fate("starts"))
    anyway = len(result.with_fate("starts anyway"))
    waits = len(result.with_fate("still waits", "no longer starts"))
    moves, lost = len(result.with_fate("moves", "restarts")), len(result.with_fate("is displaced"))
    interrupted = sum(each.interrupted for each in result.with_fate("moves", "restarts"))
    rows = [
        f"nodes    {before} before, {after} after{_named('new', result.added)}"
        f"{_named('removed', result.removed)}",
        f"waiting  {starts + anyway + waits}: {starts} start because of the change, "
        f"{anyway} start anyway, {waits} wait",
        f"running  {result.unaffected + moves + lost}: {result.unaffected} stay, "
        f"{moves} move or restart, {lost} lose their place",
    ]
    if interrupted:
        rows[-1] += f"; {interrupted} of those that move or restart wait meanwhile"
    return "\n".join(rows)


def _named(what: str, nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return f"; {what}: {', '.join(nodes[:SHOWN])}{more}" if nodes else ""


def _pods(pods: Sequence[PodComparison], most: int) -> None:
    reasons: dict[str, list[PodComparison]] = {}
    for each in pods:
        reasons.setdefault(each.why, []).append(each)
    shown = 0
    for why, members in reasons.items():
        for each in members[: max(0, most - shown)]:
            where = " -> ".join(filter(None, (each.before, each.after)))
            echo(f"  {each.pod}  {where}".rstrip())
        if len(members) > max(0, most - shown):
            echo(f"  and {len(members) - max(0, most - shown)} more (--all lists them)")
        shown += len(members)
        if why:
            echo(f"    {why}")


def _fragmentation(result: WhatIf) -> None:
    if not result.before:
        return
    echo("\nfree devices, and those stranded on nodes where such a pod does not fit:")
    rows = [("PODS", "ASK FOR", "LIKE", "FREE", "STRANDED", "NODES WHERE IT FITS")]
    for before, after in zip(result.before, result.after, strict=True):
        rows.append(
            (
                str(before.kind.pods),
                before.kind.asks,
                str(before.kind.pod.key),
                f"{before.free} -> {after.free}",
                f"{before.stranded} -> {after.stranded}",
                f"{len(before.nodes)} -> {len(after.nodes)}",
            )
        )
    echo_table(rows)
    shares = [stranded_share(found) for found in (result.before, result.after)]
    if any(share is not None for share in shares):
        told = ["none free" if share is None else f"{100 * share:.0f} %" for share in shares]
        echo(f"fragmentation: {told[0]} before, {told[1]} after")
