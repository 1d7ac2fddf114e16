"""A pod that could go elsewhere, so that another fits where it was: one move, confirmed."""

from collections import Counter
from dataclasses import replace
from typing import Final

from dralab.allocation.allocator import numbered_shares, place
from dralab.allocation.backlog import Pending
from dralab.allocation.explanation.causes import Help
from dralab.allocation.explanation.conditions import holding, released
from dralab.allocation.outcome import Allocated
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.allocation.snapshot import Snapshot
from dralab.objects.claims import results_of
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonDict

MOST_TRIED: Final = 3


def move_for(cluster: Snapshot, pending: Pending, helps: tuple[Help, ...]) -> Help | None:
    """Return one pod to move so that what is pending fits; None where no single move is enough.

    Of the pods whose end is enough, the first is taken that has a place on another node once the
    waiting pod has its own: the allocator confirms both.
    """
    waits = [each for each in helps if each.kind == "wait" and each.note == "any"]
    names = [name for each in waits for name in each.who][:MOST_TRIED]
    if not names:
        return None
    users = list(cluster.users())
    uses = Counter(claim_name(claim) for _, user in users for claim in user.allocated)
    problem = cluster.problem(pending)
    for pod, user in users:
        mine = [claim_name(claim) for claim in user.allocated]
        node = spec_of(pod).get("nodeName", "")
        # A claim of several pods moves with all of them, or not at all.
        if not node or not set(mine) & set(names) or any(uses[name] > 1 for name in mine):
            continue
        target = _target(cluster, pending, problem, user, node)
        if target:
            return Help(kind="move", now=True, who=(mine[0],), to=target, note=node)
    return None


def _target(
    cluster: Snapshot,
    pending: Pending,
    problem: Problem,
    user: Pending,
    node: str,
) -> str:
    """Return where the holder could go; empty if nowhere."""
    devices = {
        DeviceId(item["driver"], item["pool"], item["device"])
        for claim in user.allocated
        for item in results_of(claim["status"]["allocation"])
    }
    here = [each for each in cluster.candidates(pending) if each.name == node]
    freed = released(problem.in_use, devices)
    _, found = place(replace(problem, in_use=freed), here, catalog=cluster.catalog)
    if not isinstance(found, Allocated):
        return ""
    taken = {each.device for claim in found.claims for each in claim.chosen if not each.admin}
    shared = any(each.share for claim in found.claims for each in claim.chosen)
    if shared:
        return ""
    waiting = [claim | {"status": {}} for claim in user.allocated]
    moved = replace(
        problem,
        claims=tuple(cluster.reader.claim(claim) for claim in waiting),
        in_use=holding(freed, taken),
    )
    elsewhere = [each for each in _nodes_for(cluster, user) if each.name != node]
    target, outcome = place(moved, elsewhere, catalog=cluster.catalog, share_ids=numbered_shares())
    return target.name if target is not None and isinstance(outcome, Allocated) else ""


def _nodes_for(cluster: Snapshot, user: Pending) -> list[Node]:
    """Return the nodes that could run a pod that runs now, as if it had not been placed."""
    spec = {name: item for name, item in spec_of(user.pod).items() if name != "nodeName"}
    free = replace(user, pod={**user.pod, "spec": spec}, allocated=())
    return cluster.candidates(free)


def claim_name(claim: JsonDict) -> str:
    """Return the name of a claim as problems have it: with its namespace where one is written."""
    metadata = claim["metadata"]
    name: str = metadata["name"]
    return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name
