"""What is told of one pod or claim: the devices it has, those it would get, or why it waits.

Commands and the page show these answers. The reasons themselves come from `why` and `why_chosen`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from dralab.allocation.policy.policies import Policy
from dralab.allocation.problem import Node
from dralab.explanation.text import Spots, short_subject
from dralab.explanation.why import why
from dralab.explanation.why_chosen import why_these
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import metadata_of, spec_of, uid_of
from dralab.objects.taints import OF_AUTOSCALER, taints_of
from dralab.objects.volumes import claims_of as volume_claims_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Placed, Snapshot
from dralab.values.json_types import JsonDict

AUTOSCALER: Final = "cluster-autoscaler.kubernetes.io/"


class NoResult(Exception):  # noqa: N818 - it says what happened
    """The search ended at its limits, with neither an allocation nor a reason."""


def already_allocated(cluster: Snapshot, name: str) -> dict[str, Any] | None:
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


def answers(
    cluster: Snapshot,
    pending: Iterable[Pending],
    asked: Sequence[Pending],
    *,
    node: str = "",
    spots: Spots | None = None,
    every_node: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield what is told of those asked about, as JSON values with the page as `text`.

    `pending` are all that wait, in their order: what comes before one asked about gets its devices
    first, and keeps them in `cluster`. With `node` only that node counts. NoResult.
    """
    left = list(asked)
    for each in pending:
        if not left:
            return
        now = cluster.refreshed(each)
        if any(each is other for other in left):
            left = [other for other in left if other is not each]
            yield _explained(cluster, now, node, spots, every_node=every_node)
        else:
            placed_on(cluster, now)


def _explained(
    cluster: Snapshot, pending: Pending, node: str, spots: Spots | None, *, every_node: bool
) -> dict[str, Any]:
    found = why(cluster, pending, node=node, spots=spots)
    more, told = _beside(cluster, pending)
    if found is not None:
        return (
            found.structured()
            | more
            | {
                "reason": found.brief(),
                "text": found.page(every_node=every_node) + told,
            }
        )
    problem, nodes = cluster.problem(pending), cluster.candidates(pending, node)
    placed = placed_on(cluster, pending, node)
    if placed is None:
        raise NoResult(f"{pending.title}: the search for devices gave no result")
    text = why_these(problem, _named(nodes, placed.node), placed.allocations, cluster.catalog)
    lines = text.split("\n") if text else []
    start = {"object": pending.title, "fits": True, "node": placed.node, "why": lines}
    headline = f"{short_subject(pending.title)} fits on {placed.node}"
    return start | more | {"text": (f"{headline}:\n{text}" if text else headline) + told}


def _beside(cluster: Snapshot, pending: Pending) -> tuple[dict[str, Any], str]:
    """Return what its scheduler said of a pod, and what is not judged: as data and as lines."""
    pod, found, lines = pending.pod, dict[str, Any](), list[str]()
    told = condition_of(pod, "PodScheduled") or {}
    if told.get("status") == "False" and told.get("message"):
        kept = ("reason", "message", "lastTransitionTime")
        found["scheduler"] = {name: told[name] for name in kept if told.get(name)}
        lines.append(f"  it was told  {told['message']}")
    unjudged = {}
    if pod and not cluster.by_kind.get("PersistentVolumeClaim") and volume_claims_of(pod):
        unjudged["volumes"] = "its volumes: the input has no PersistentVolumeClaim"
    if pod and any(_is_scaled(each) for each in cluster.by_kind.get("Node", ())):
        unjudged["autoscaler"] = "whether cluster-autoscaler adds or removes nodes"
    if unjudged:
        found["notJudged"] = list(unjudged)
        lines += [f"  not judged  {text}" for text in unjudged.values()]
    return found, "".join(f"\n{line}" for line in lines)


def _is_scaled(node: JsonDict) -> bool:
    """Return whether cluster-autoscaler looks after a node, as far as the node shows it."""
    annotations = metadata_of(node).get("annotations") or ()
    keys = [*annotations, *(each["key"] for each in taints_of(node))]
    return any(key.startswith((AUTOSCALER, *OF_AUTOSCALER)) for key in keys)


def _named(nodes: Sequence[Node], name: str) -> Node:
    return next(each for each in nodes if each.name == name)


def placed_on(
    cluster: Snapshot, pending: Pending, node: str = "", policy: Policy | None = None
) -> Placed | None:
    """Place one pod or claim and take its devices; None if it cannot be placed."""
    if pending.missing is not None:
        return None
    found = cluster.place(pending, policy, node)
    if found is not None:
        cluster.accept(found)
    return found
