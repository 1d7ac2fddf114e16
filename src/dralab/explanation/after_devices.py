"""Why a pod that finds devices still does not start: its gang, or what devices take of a node."""

from collections.abc import Sequence
from dataclasses import replace

from dralab.allocation.backlog import Pending, key
from dralab.allocation.problem import DeviceId, Node
from dralab.explanation.causes import Diagnosis, GangTooLarge, Help, NodesUnfit
from dralab.explanation.conditions import holding
from dralab.explanation.diagnose import diagnose
from dralab.explanation.names import counted, joined, shortened
from dralab.objects.claims import results_of
from dralab.scheduling.pod_rules import GangRefusal, RoomRefusal
from dralab.scheduling.snapshot import Snapshot


def after_devices(cluster: Snapshot, pending: Pending, nodes: Sequence[Node]) -> Diagnosis | None:
    """Return why a pod that could have devices on `nodes` does not start; None if it does."""
    match refused_late(cluster, pending):
        case None:
            return None
        case RoomRefusal() as refused:
            return _of_room(pending, refused, len(nodes))
        case GangRefusal() as refused:
            return _of_gang(cluster, pending, refused)


def refused_late(cluster: Snapshot, pending: Pending) -> GangRefusal | RoomRefusal | None:
    """Return what keeps a pod from starting although its devices are free; None: nothing does."""
    if cluster.rules is None or pending.kind != "pod":
        return None
    return cluster.rules.after_devices(pending.pod, cluster.claims.values())


def _of_room(pending: Pending, refused: RoomRefusal, nodes: int) -> Diagnosis:
    needs = [
        f"with them the pod needs {needed} {resource} ({taken} of it for its devices), and {free} "
        f"is free"
        for resource, needed, taken, free in refused.lacks
    ]
    clause = joined(needs) or refused.why
    reasons = [f"Insufficient {resource}" for resource, *_ in refused.lacks] or [refused.why]
    helps = []
    if refused.blockers:
        who = tuple(f"pod {each}" for each in refused.blockers)
        helps.append(Help(kind="wait", now=True, who=who, number=len(who), note="any"))
    cause = NodesUnfit(
        code="DRA064",
        total=nodes,
        reasons=tuple((each, nodes) for each in reasons),
        able=(refused.node,),
        detail=f"{refused.node} has the devices, but {clause}",
    )
    return Diagnosis(subject=pending.title, cause=cause, helps=tuple(helps), nodes=nodes)


def _of_gang(cluster: Snapshot, pending: Pending, refused: GangRefusal) -> Diagnosis:
    cause = GangTooLarge(
        code="DRA063",
        group=refused.group,
        least=refused.least,
        members=refused.members,
        fitting=refused.fitting,
        why=refused.why,
    )
    helps: list[Help] = []
    if refused.members < refused.least:
        text = f"create {counted(refused.least - refused.members, 'more pod')} of the gang"
        helps.append(Help(kind="add", now=False, to=text))
    if refused.fitting:
        text = f"lower minCount of PodGroup {refused.group} to {refused.fitting}"
        helps.append(Help(kind="node", now=True, to=text))
    found = None
    if refused.failing is not None:
        failing = key(refused.failing)
        cause = replace(cause, failing=shortened("/".join(failing)))
        users = (user for _, user in cluster.users())
        member = next((user for user in users if (user.namespace, user.name) == failing), None)
        if member is not None:
            found = _of_member(cluster, member, refused)
    if found is None:
        return Diagnosis(subject=pending.title, cause=cause, helps=tuple(helps))
    cause = replace(cause, cause=found.cause)
    waits = [each for each in found.helps if each.kind in {"spelling", "wait", "add"}]
    every = [*waits[:2], *helps]
    return replace(found, subject=pending.title, cause=cause, helps=tuple(every))


def _of_member(cluster: Snapshot, member: Pending, refused: GangRefusal) -> Diagnosis | None:
    """Return why one member of a gang gets no devices beside those that have theirs."""
    taken = {
        DeviceId(item["driver"], item["pool"], item["device"])
        for allocation in refused.allocations
        for item in results_of(allocation)
        if not item.get("adminAccess") and not item.get("shareID")
    }
    problem = cluster.problem(member)
    problem = replace(problem, in_use=holding(problem.in_use, taken))
    nodes = cluster.candidates(member)
    return diagnose(problem, nodes, subject=member.title, catalog=cluster.catalog)
