"""Why a pod that finds devices still does not start: its gang, or what devices take of a node."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dralab.allocation.problem import DeviceId
from dralab.explanation.causes import Diagnosis, GangTooLarge, Help, NodesUnfit
from dralab.explanation.conditions import holding
from dralab.explanation.diagnose import diagnose
from dralab.explanation.names import counted, joined, shortened
from dralab.objects.claims import holds
from dralab.objects.metadata import NamespacedName
from dralab.objects.requests import amount_of
from dralab.scheduling import gangs
from dralab.scheduling.backlog import Pending
from dralab.scheduling.model import same_group
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import INSUFFICIENT, Reason
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonObject

MOST_TRIED: Final = 24
MOST_NAMED: Final = 3


def of_room(cluster: Snapshot, pending: Pending, refusal: Refusal) -> Diagnosis:
    """Return what is missing on the node that lacks least once a pod has its devices there."""
    _, name, shortage = min(
        (
            (not each.lacks, sum(lack.own + lack.devices - lack.free for lack in each.lacks)),
            name,
            each,
        )
        for name, each in refusal.shortages.items()
    )
    needs = [
        f"with them the pod needs {amount_of(lack.resource, lack.own + lack.devices)} "
        f"{lack.resource} ({amount_of(lack.resource, lack.devices)} of it for its devices), and "
        f"{amount_of(lack.resource, max(lack.free, 0))} is free"
        for lack in shortage.lacks
    ]
    clause = joined(needs) or ", ".join(map(str, shortage.reasons))
    reasons = [Reason(INSUFFICIENT, (lack.resource,)) for lack in shortage.lacks]
    nodes = len(refusal.shortages)
    helps = []
    if blockers := _blockers(cluster, pending, name):
        who = tuple(f"pod {each}" for each in blockers)
        helps.append(Help(kind="wait", now=True, who=who, number=len(who), note="any"))
    cause = NodesUnfit(
        code="DRA064",
        total=nodes,
        reasons=tuple((each, nodes) for each in reasons or shortage.reasons),
        able=(name,),
        detail=f"{name} has the devices, but {clause}",
    )
    return Diagnosis(subject=pending.title, cause=cause, helps=tuple(helps), nodes=nodes)


def _blockers(cluster: Snapshot, pending: Pending, node: str) -> tuple[str, ...]:
    """Return pods of a node of which each one's end makes room for a pod with its devices."""
    model, found = cluster.model, []
    for each in model.on(node)[:MOST_TRIED]:
        with model.tentatively():
            model.take_away(each.pod.uid)
            if isinstance(cluster.decide(pending), PodPlacement):
                found.append(str(each.pod.key))
    return tuple(found[:MOST_NAMED])


def of_gang(cluster: Snapshot, pending: Pending) -> Diagnosis | None:
    """Return why a gang does not start; None where the pod belongs to none."""
    model, pod = cluster.model, cluster.info(pending)
    if not pod.group:
        return None
    group = model.objects.group(NamespacedName(pod.key.namespace, pod.group))
    if group is None:
        missing = GangTooLarge(
            code="DRA063", group=pod.group, least=0, members=0, fitting=0, why="it does not exist"
        )
        return Diagnosis(subject=pending.title, cause=missing)
    least = gangs.least_members(group)
    if least is None:
        return None
    members = [
        each for each in model.waiting if same_group(pod, each) and each.uid not in model.running
    ]
    there = gangs.placed_members(model.state, pod)
    cause = GangTooLarge(
        code="DRA063", group=pod.group, least=least, members=len(members) + there, fitting=0
    )
    if cause.members < least:
        text = f"create {counted(least - cause.members, 'more pod')} of the gang"
        helps = (Help(kind="add", now=False, to=text),)
        return Diagnosis(subject=pending.title, cause=cause, helps=helps)
    return _first_failing(cluster, pending, members, replace(cause, fitting=there))


def _first_failing(
    cluster: Snapshot, pending: Pending, members: Sequence[PodInfo], cause: GangTooLarge
) -> Diagnosis:
    """Return why the first member fails that finds no place beside those before it."""
    model = cluster.model
    helps: list[Help] = []
    found = None
    with model.tentatively():
        allocations: list[JsonObject] = []
        for each in members:
            decided = model.try_pod(each)
            if isinstance(decided, Refusal):
                cause = replace(cause, failing=shortened(str(each.key)), why=decided.message)
                found = _of_member(cluster, each, allocations)
                break
            model.place(decided)
            allocations += [plan.allocation for plan in decided.plans]
            cause = replace(cause, fitting=cause.fitting + 1)
    if cause.fitting:
        text = f"lower minCount of PodGroup {cause.group} to {cause.fitting}"
        helps.append(Help(kind="node", now=True, to=text))
    if found is None:
        return Diagnosis(subject=pending.title, cause=cause, helps=tuple(helps))
    cause = replace(cause, cause=found.cause)
    waits = [each for each in found.helps if each.kind in {"spelling", "wait", "add"}]
    every = [*waits[:2], *helps]
    return replace(found, subject=pending.title, cause=cause, helps=tuple(every))


def _of_member(
    cluster: Snapshot, pod: PodInfo, allocations: Sequence[JsonObject]
) -> Diagnosis | None:
    """Return why one member of a gang gets no devices beside those that have theirs."""
    users = (user for _, user in cluster.users())
    member = next((user for user in users if (user.namespace, user.name) == tuple(pod.key)), None)
    if member is None:
        return None
    taken = {
        DeviceId(item.driver, item.pool, item.device)
        for allocation in allocations
        for item in holds(allocation)
        if not item.share
    }
    problem = cluster.problem(member)
    problem = replace(problem, in_use=holding(problem.in_use, taken))
    nodes = cluster.candidates(member)
    return diagnose(problem, nodes, subject=member.title, catalog=cluster.catalog)
