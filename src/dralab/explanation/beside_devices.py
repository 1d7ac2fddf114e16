"""Why a pod waits for something other than free devices: before or after nodes are tried.

What keeps it from being tried at all, what nobody offers, whom it preempts, where its claims are;
and its gang, or what its devices take of a node.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dralab.allocation.problem import DeviceId, InUse
from dralab.explanation.causes import (
    Diagnosis,
    GangTooLarge,
    Help,
    MarkedField,
    NodesUnfit,
    Owner,
    Refused,
    WaitingCause,
)
from dralab.explanation.conditions import holding
from dralab.explanation.diagnose import diagnose
from dralab.explanation.edits import pointer
from dralab.explanation.helps import with_text
from dralab.explanation.names import (
    counted,
    joined,
    listed,
    resource_fields,
    shortened,
    similar,
    volume_field,
)
from dralab.explanation.unfit import Unfit
from dralab.objects.claims import holds, pod_claims
from dralab.objects.metadata import full_key, is_deleting, spec_of, status_of
from dralab.objects.pod_groups import POD_GROUP
from dralab.objects.quota import CLASS_SUFFIX
from dralab.objects.requests import amount_of
from dralab.scheduling.group_trees import by_group, tree_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    CLAIM_ELSEWHERE,
    CLAIM_NOT_FOUND,
    GATED,
    INSUFFICIENT,
    NO_DOMAIN,
    NOMINATED,
    NOT_OFFERED,
    OTHER_NODE,
    QUOTA_EXCEEDED,
    TEMPLATE_NOT_FOUND,
    UNSELECTED,
    VOLUME_CLAIM_NOT_FOUND,
    Reason,
)
from dralab.scheduling.state import Refusal
from dralab.values.json_types import JsonObject

KINDS: Final = {
    CLAIM_NOT_FOUND: "ResourceClaim",
    TEMPLATE_NOT_FOUND: "ResourceClaimTemplate",
    VOLUME_CLAIM_NOT_FOUND: "PersistentVolumeClaim",
}
"""The kinds of objects that are missing, by the rule that says so."""


MOST_TRIED: Final = 24
MIN_COUNT: Final = "spec.schedulingPolicy.gang.minCount"


def of_room(model: ClusterModel | None, refusal: Refusal) -> Diagnosis:
    """Return what the best node lacks once a pod has its devices there."""
    name, lacks = refusal.least_short
    shortage = refusal.shortages[name]
    needs = [
        f"with them the pod needs {amount_of(lack.resource, lack.own + lack.devices)} "
        f"{lack.resource} ({amount_of(lack.resource, lack.devices)} of it for its devices), and "
        f"{amount_of(lack.resource, max(lack.free, 0))} is free"
        for lack in lacks
    ]
    clause = joined(needs) or ", ".join(map(str, shortage.reasons))
    reasons = [Reason(INSUFFICIENT, (lack.resource,)) for lack in lacks]
    nodes = len(refusal.shortages)
    on = [] if model is None else [f"pod {each.pod.key}" for each in model.on(name)[:MOST_TRIED]]
    cause = NodesUnfit(
        code="DRA064",
        total=nodes,
        reasons=tuple((each, nodes) for each in reasons or shortage.reasons),
        able=(name,),
        detail=f"{name} has the devices, but {clause}",
    )
    return Diagnosis(cause=cause, helps=(Help.waiting(on),) if on else (), nodes=nodes)


def of_gang(model: ClusterModel, pod: PodInfo, blocked: Reason | None) -> Diagnosis | None:
    """Explain a gang that does not start; None if the pod has no gang, or a composite one."""
    if not pod.group:
        return None
    members = model.members(pod)
    tree = tree_of(model.state, pod, by_group(members))
    if isinstance(tree, Reason):
        missing = GangTooLarge(
            code=tree.code, group=pod.group, least=0, members=0, fitting=0, why=str(tree)
        )
        return Diagnosis(cause=missing)
    if not tree.gang or tree.kind != POD_GROUP:
        return None
    there = len(tree.rows)
    cause = GangTooLarge(
        code="DRA063", group=pod.group, least=tree.least, members=len(members) + there, fitting=0
    )
    if not tree.is_ready:
        text = f"create {counted(tree.least - cause.members, 'more pod')} of the gang"
        helps = (Help(kind="add", now=False, to=text),)
        return Diagnosis(cause=cause, helps=helps)
    if blocked is not None and blocked.rule is not NO_DOMAIN:
        return None
    if blocked is not None:
        _, _, key, domain, fitting = blocked.fields
        cause = replace(cause, code=blocked.code, topology=key, domain=domain, fitting=int(fitting))
        return Diagnosis(cause=cause, helps=_lower(cause, pod))
    return _first_failing(model, members, replace(cause, fitting=there))


def _lower(cause: GangTooLarge, member: PodInfo) -> tuple[Help, ...]:
    if not cause.fitting:
        return ()
    text = f"lower minCount of PodGroup {cause.group} to {cause.fitting}"
    owner = MarkedField(owner=("group", f"{member.key.namespace}/{cause.group}"), field=MIN_COUNT)
    edit = {"op": "replace", "path": pointer(MIN_COUNT), "value": cause.fitting}
    return (Help(kind="node", to=text, mark=owner, edits=(edit,)),)


def _first_failing(
    model: ClusterModel, members: Sequence[PodInfo], cause: GangTooLarge
) -> Diagnosis:
    """Return the explanation of the first member that does not fit beside those before it."""
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
        return Diagnosis(cause=cause, helps=helps)
    cause = replace(cause, cause=found.cause)
    waits = [each for each in found.helps if each.kind in {"spelling", "wait", "add"}]
    every = [*waits[:2], *helps]
    return replace(found, cause=cause, helps=tuple(every))


def _of_member(
    asked: PodQuestion, in_use: InUse, allocations: Sequence[JsonObject]
) -> Diagnosis | None:
    """Explain a member of a gang that gets no devices beside the placed members."""
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


def of_missing_resource(asked: PodQuestion) -> Diagnosis | None:
    """Return that a pod asks for an extended resource that no node and no class has."""
    table, rows = asked.table, list(asked.table.row_of.values())
    for resource, amount in sorted(asked.pod.requests.items()):
        if not amount or "/" not in resource or resource in asked.demand.extended:
            continue
        if not rows or table.allocatable(resource)[rows].any():
            continue
        offered = {n for n in table.columns if "/" in n and table.allocatable(n)[rows].any()}
        near = similar(resource, sorted(offered | asked.state.demands.provided.keys()))
        field = resource_fields(asked.pod.obj, {resource})[0]
        mark = MarkedField(owner=("pod", str(asked.pod.key)), field=field, text=str(amount))
        cause = Refused(code="DRA073", text=str(Reason(NOT_OFFERED, (resource,))), mark=mark)
        helps = (Help(kind="spelling", now=False, to=f"'{near}'"),) if near else ()
        return Diagnosis(cause=cause, helps=helps, nodes=table.count)
    return None


def of_preemption(asked: PodQuestion) -> Diagnosis | None:
    """Return that others are being preempted for a pod; None if not."""
    name = str(status_of(asked.pod.obj).get("nominatedNodeName") or "")
    there = asked.table.pods[asked.table.row_of[name]] if name in asked.table.row_of else {}
    leaving = [
        str(each.key)
        for each in there.values()
        if each.priority < asked.pod.priority and is_deleting(each.obj)
    ]
    if not leaving:
        return None
    reason = Reason(NOMINATED, (name, joined([shortened(each) for each in leaving])))
    helps = (Help.waiting((f"pod {each}" for each in leaving), "all"),)
    cause = Refused(code=reason.code, text=str(reason))
    return Diagnosis(cause=cause, helps=helps, nodes=asked.table.count)


def of_claims_elsewhere(asked: PodQuestion, unfit: Unfit, every: Unfit) -> Diagnosis | None:
    """Return that a pod's claims have devices on nodes that the pod does not select."""
    away, total = Reason(CLAIM_ELSEWHERE), asked.table.count
    reached = [name for name in asked.table.row_of if away not in every.get(name, ())]
    if not asked.allocated or len(reached) == total:
        return None
    if any(
        unfit[n][0].rule not in {UNSELECTED, OTHER_NODE} if n in unfit else True for n in reached
    ):
        return None
    reasons = Counter(each for several in unfit.values() for each in several[:1])
    reasons[away] = total - len(reached)
    order = sorted(reasons.items(), key=lambda item: (item[0] != away, -item[1], str(item[0])))
    names = listed([shortened(str(item.key)) for item in asked.allocated])
    where = f"on {listed(reached, 2)}, which the pod does not select" if reached else "on no node"
    cause = NodesUnfit(
        code=away.code,
        total=total,
        reasons=tuple(order),
        able=(),
        detail=f"claim {names} has its devices {where}",
    )
    return Diagnosis(cause=cause, nodes=total)


def of_refusal(
    asked: PodQuestion, model: ClusterModel | None, refusal: Refusal, reason: Reason | None
) -> Diagnosis:
    """Return that a pod cannot be tried on any node, and how to fix it."""
    pod = asked.pod
    if reason is None:
        cause: WaitingCause = Refused(code=refusal.code or "DRA060", text=refusal.message)
        return Diagnosis(cause=cause)
    if reason.rule is QUOTA_EXCEEDED:
        name, resource, more, used, limit = reason.fields
        what = resource.removesuffix(CLASS_SUFFIX)
        text = f"quota {name} allows {limit} of {what}, {used} in use and {more} more asked for"
        mark = _entry_mark(pod, [entry.template for entry in pod_claims(pod.obj)])
        return Diagnosis(cause=Refused(code="DRA061", text=text, mark=mark))
    if reason.rule is GATED:
        text = f"{counted(len(reason.fields), 'scheduling gate')} to be removed first: "
        cause = Refused(code=reason.code, text=text + listed(reason.fields))
        return Diagnosis(cause=cause)
    if reason.rule not in KINDS:
        volumes = reason.rule.plugin == "VolumeBinding" and model is not None
        mark = _unbound_mark(model, pod) if volumes and model is not None else None
        return Diagnosis(cause=Refused(code=reason.code, text=str(reason), mark=mark))
    kind, name = KINDS[reason.rule], reason.subject
    every = [] if model is None else [full_key(item) for item in model.objects.of(kind)]
    known = tuple(each for space, each in every if space == pod.key.namespace)
    elsewhere = tuple(sorted({space for space, each in every if each == name}))
    mark = _entry_mark(pod, [name])
    helps: tuple[Help, ...] = ()
    near = "" if elsewhere else similar(name, known)
    if near:
        corrected = with_text(mark, near)
        helps = (Help(kind="spelling", now=False, to=f"'{near}'", mark=corrected),)
    cause = Refused(
        code="DRA001", text=str(reason), missing=kind, name=name, known=known,
        elsewhere=elsewhere, mark=mark,
    )  # fmt: skip
    return Diagnosis(cause=cause, helps=helps)


def _unbound_mark(model: ClusterModel, pod: PodInfo) -> MarkedField | None:
    """Return where a pod names its first volume claim that has no volume."""
    unbound = [
        item["metadata"]["name"]
        for item in model.objects.of("PersistentVolumeClaim")
        if full_key(item)[0] == pod.key.namespace and not spec_of(item).get("volumeName")
    ]
    return _entry_mark(pod, unbound)


def _entry_mark(pod: PodInfo, names: Sequence[str]) -> MarkedField | None:
    """Return where a pod names the first of some claims or templates, of devices or volumes."""
    owner: Owner = ("pod", str(pod.key))
    for number, entry in enumerate(pod_claims(pod.obj)):
        for end, name in (("Name", entry.claim), ("TemplateName", entry.template)):
            if name and name in names:
                field = f"spec.resourceClaims[{number}].resourceClaim{end}"
                return MarkedField(owner=owner, field=field, text=name)
    field, name = volume_field(pod.obj, names)
    return MarkedField(owner=owner, field=field, text=name) if field else None
