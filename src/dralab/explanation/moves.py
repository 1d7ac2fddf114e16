"""A pod that could go elsewhere, so that another fits where it was: one move, confirmed."""

from collections import Counter
from dataclasses import replace
from typing import Final

from dralab.allocation.allocator import numbered_shares, place
from dralab.allocation.outcome import Allocated
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.explanation.causes import Help
from dralab.explanation.conditions import holding, released
from dralab.explanation.names import listed
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.claims import holds
from dralab.objects.metadata import spec_of
from dralab.objects.pods import is_finished
from dralab.scheduling.backlog import Pending
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict, JsonObject

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
        if is_finished(pod):
            continue  # its devices are given back without it
        target = _target(cluster, pending, problem, user, node)
        if target:
            return Help(kind="move", now=True, who=(mine[0],), to=target, note=node)
    return None


def preemption_for(cluster: Snapshot, pending: Pending, helps: tuple[Help, ...]) -> Help | None:
    """Return pods of a lower priority whose end is enough; None where there are none.

    kube-scheduler does not preempt pods for devices, so that a person has to delete them.
    """
    mine = _priority(cluster, pending.pod) if pending.pod else 0
    if spec_of(pending.pod).get("preemptionPolicy") == "Never":
        return None
    for each in helps:
        if each.kind != "wait" or not each.now:
            continue
        users = [
            (name, pod, user)
            for pod, user in cluster.users()
            for name in {claim_name(claim) for claim in user.allocated} & set(each.who)
        ]
        lower = [
            (found, name, user)
            for name, pod, user in users
            if (found := _priority(cluster, pod)) < mine
        ]
        needed = lower if each.note == "any" else lower * (len(lower) == len(users))
        if not needed:
            continue
        chosen = [min(needed, key=lambda item: item[0])] if each.note == "any" else needed
        pods = " ".join(user.name for _, _, user in chosen)
        if len({user.namespace for _, _, user in chosen}) > 1:
            continue
        namespace = chosen[0][2].namespace
        where = f" -n {namespace}" if namespace != "default" else ""
        return Help(
            kind="preempt",
            now=True,
            who=tuple(name for _, name, _ in chosen),
            to=f"{max(found for found, _, _ in chosen)} < {mine}",
            command=f"kubectl delete pod {pods}{where}",
        )
    return None


def eviction_of(model: ClusterModel, pod: PodInfo) -> Help | None:
    """Return which pods the scheduler preempts for another; None where it preempts none.

    Pods that would have to give up devices are left to `preemption_for`.
    """
    budgets = model.objects.of("PodDisruptionBudget")
    found = eviction_for(model.state, pod, budgets)
    if found is None or found.claims:
        return None
    names = [str(each.key) for each in found.victims]
    broken = [
        f"{item['metadata']['name']} allows {disruptions_allowed(item)}"
        for item in budgets
        if found.violations and any(covers(item, each.obj) for each in found.victims)
    ]
    return Help(
        kind="preempt",
        now=True,
        who=tuple(f"pod {name}" for name in names),
        to=f"{max(each.priority for each in found.victims)} < {pod.priority}",
        note=f"on {found.node}" + (f", although budget {listed(broken)}" if broken else ""),
    )


def _priority(cluster: Snapshot, pod: JsonObject) -> int:
    """Return the priority of a pod, that of its class where the pod does not carry it yet."""
    spec = spec_of(pod)
    if spec.get("priority") is not None:
        return int(spec["priority"])
    classes = cluster.by_kind.get("PriorityClass", ())
    name = spec.get("priorityClassName")
    return next(
        (
            int(item.get("value") or 0)
            for item in classes
            if (item["metadata"]["name"] == name if name else item.get("globalDefault"))
        ),
        0,
    )


def _target(
    cluster: Snapshot,
    pending: Pending,
    problem: Problem,
    user: Pending,
    node: str,
) -> str:
    """Return where the holder could go; empty if nowhere."""
    devices = {
        DeviceId(item.driver, item.pool, item.device)
        for claim in user.allocated
        for item in holds(claim["status"]["allocation"])
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
