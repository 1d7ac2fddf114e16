"""Why a pod that finds devices still does not start: its gang, or what devices take of a node."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dralab.allocation.problem import DeviceId, InUse
from dralab.explanation.causes import Diagnosis, GangTooLarge, Help, MarkedField, NodesUnfit
from dralab.explanation.conditions import holding
from dralab.explanation.diagnose import diagnose
from dralab.explanation.names import counted, joined, shortened
from dralab.explanation.patches import pointer
from dralab.objects.claims import holds
from dralab.objects.pod_groups import POD_GROUP
from dralab.objects.requests import amount_of
from dralab.scheduling.group_placement import by_group, tree_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import INSUFFICIENT, NO_DOMAIN, Reason
from dralab.scheduling.state import Refusal
from dralab.values.json_types import JsonObject

MOST_TRIED: Final = 24
MIN_COUNT: Final = "spec.schedulingPolicy.gang.minCount"


def of_room(model: ClusterModel | None, refusal: Refusal) -> Diagnosis:
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
    if model is not None and (on := model.on(name)[:MOST_TRIED]):
        who = tuple(f"pod {each.pod.key}" for each in on)
        helps.append(Help(kind="wait", now=True, who=who, number=len(who), note="any"))
    cause = NodesUnfit(
        code="DRA064",
        total=nodes,
        reasons=tuple((each, nodes) for each in reasons or shortage.reasons),
        able=(name,),
        detail=f"{name} has the devices, but {clause}",
    )
    return Diagnosis(subject="", cause=cause, helps=tuple(helps), nodes=nodes)


def of_gang(model: ClusterModel, pod: PodInfo, blocked: Reason | None) -> Diagnosis | None:
    """Return why a gang does not start; None where the pod belongs to none, or to a composite."""
    if not pod.group:
        return None
    members = model.members(pod)
    tree = tree_of(model.state, pod, by_group(members))
    if isinstance(tree, Reason):
        missing = GangTooLarge(
            code=tree.code, group=pod.group, least=0, members=0, fitting=0, why=str(tree)
        )
        return Diagnosis(subject="", cause=missing)
    if not tree.gang or tree.kind != POD_GROUP:
        return None
    there = len(tree.rows)
    cause = GangTooLarge(
        code="DRA063", group=pod.group, least=tree.least, members=len(members) + there, fitting=0
    )
    if not tree.is_ready:
        text = f"create {counted(tree.least - cause.members, 'more pod')} of the gang"
        helps = (Help(kind="add", now=False, to=text),)
        return Diagnosis(subject="", cause=cause, helps=helps)
    if blocked is not None and blocked.rule is not NO_DOMAIN:
        return None
    if blocked is not None:
        _, _, key, domain, fitting = blocked.fields
        cause = replace(cause, code=blocked.code, topology=key, domain=domain, fitting=int(fitting))
        return Diagnosis(subject="", cause=cause, helps=_lower(cause, pod))
    return _first_failing(model, members, replace(cause, fitting=there))


def _lower(cause: GangTooLarge, member: PodInfo) -> tuple[Help, ...]:
    if not cause.fitting:
        return ()
    text = f"lower minCount of PodGroup {cause.group} to {cause.fitting}"
    owner = MarkedField(owner=("group", f"{member.key.namespace}/{cause.group}"), field=MIN_COUNT)
    edit = {"op": "replace", "path": pointer(MIN_COUNT), "value": cause.fitting}
    return (Help(kind="node", now=True, to=text, mark=owner, edits=(edit,)),)


def _first_failing(
    model: ClusterModel, members: Sequence[PodInfo], cause: GangTooLarge
) -> Diagnosis:
    """Return why the first member fails that finds no place beside those before it."""
    found = None
    before = model.devices.everywhere(())[1].in_use
    with model.tentatively():
        allocations: list[JsonObject] = []
        for each in members:
            decided = model.try_pod(each)
            if isinstance(decided, Refusal):
                cause = replace(cause, failing=shortened(str(each.key)), why=decided.message)
                found = _of_member(PodQuestion(model.state, each), before, allocations)
                break
            model.place(decided)
            allocations += [plan.allocation for plan in decided.plans]
            cause = replace(cause, fitting=cause.fitting + 1)
    helps = _lower(cause, members[0])
    if found is None:
        return Diagnosis(subject="", cause=cause, helps=helps)
    cause = replace(cause, cause=found.cause)
    waits = [each for each in found.helps if each.kind in {"spelling", "wait", "add"}]
    every = [*waits[:2], *helps]
    return replace(found, cause=cause, helps=tuple(every))


def _of_member(
    asked: PodQuestion, in_use: InUse, allocations: Sequence[JsonObject]
) -> Diagnosis | None:
    """Return why one member of a gang gets no devices beside those that have theirs."""
    if not asked.wants_devices:
        return None
    taken = {
        DeviceId(item.driver, item.pool, item.device)
        for allocation in allocations
        for item in holds(allocation)
        if not item.share
    }
    problem = replace(asked.problem(), in_use=holding(in_use, taken))
    return diagnose(problem, asked.candidates(), catalog=asked.state.devices.catalog)
