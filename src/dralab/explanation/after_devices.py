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
from dralab.objects.metadata import NamespacedName
from dralab.objects.requests import amount_of
from dralab.scheduling import gangs
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import INSUFFICIENT, Reason
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


def of_gang(model: ClusterModel, pod: PodInfo) -> Diagnosis | None:
    """Return why a gang does not start; None where the pod belongs to none."""
    if not pod.group:
        return None
    group = model.objects.group(NamespacedName(pod.key.namespace, pod.group))
    if group is None:
        missing = GangTooLarge(
            code="DRA063", group=pod.group, least=0, members=0, fitting=0, why="it does not exist"
        )
        return Diagnosis(subject="", cause=missing)
    least = gangs.least_members(group)
    if least is None:
        return None
    members = model.members(pod)
    there = gangs.placed_members(model.state, pod)
    cause = GangTooLarge(
        code="DRA063", group=pod.group, least=least, members=len(members) + there, fitting=0
    )
    if cause.members < least:
        text = f"create {counted(least - cause.members, 'more pod')} of the gang"
        helps = (Help(kind="add", now=False, to=text),)
        return Diagnosis(subject="", cause=cause, helps=helps)
    return _first_failing(model, members, replace(cause, fitting=there))


def _first_failing(
    model: ClusterModel, members: Sequence[PodInfo], cause: GangTooLarge
) -> Diagnosis:
    """Return why the first member fails that finds no place beside those before it."""
    helps: list[Help] = []
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
    if cause.fitting:
        text = f"lower minCount of PodGroup {cause.group} to {cause.fitting}"
        owner = MarkedField(
            owner=("group", f"{members[0].key.namespace}/{cause.group}"), field=MIN_COUNT
        )
        edit = {"op": "replace", "path": pointer(MIN_COUNT), "value": cause.fitting}
        helps.append(Help(kind="node", now=True, to=text, mark=owner, edits=(edit,)))
    if found is None:
        return Diagnosis(subject="", cause=cause, helps=tuple(helps))
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
