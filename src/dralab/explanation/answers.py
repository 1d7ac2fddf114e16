"""What is told of one pod or claim: the devices it has, those it would get, or why it waits.

Commands and the page show these answers. The reasons themselves come from `why` and `why_chosen`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dralab.allocation.policy.policies import Policy
from dralab.allocation.problem import Node
from dralab.explanation.text import Spots, short_subject
from dralab.explanation.why import why
from dralab.explanation.why_chosen import why_these
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.metadata import spec_of, uid_of
from dralab.objects.volumes import claims_of as volume_claims_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Placed, Snapshot
from dralab.values.json_types import JsonDict


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
    more, told = _not_judged(cluster, pending)
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


def _not_judged(cluster: Snapshot, pending: Pending) -> tuple[dict[str, Any], str]:
    """Return what the answer leaves out, as data and as a line; nothing where it judges all."""
    pod = pending.pod
    if not pod or cluster.by_kind.get("PersistentVolumeClaim") or not volume_claims_of(pod):
        return {}, ""
    text = "\n  not judged  its volumes: the input has no PersistentVolumeClaim"
    return {"notJudged": ["volumes"]}, text


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
