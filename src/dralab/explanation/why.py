"""`why`: everything that keeps one pod or claim of a snapshot waiting, as facts and as text.

This is what commands call. It joins the cause in the devices (`diagnose`) with what the nodes
themselves say (cordon, taints, labels, room), and knows the names that people use: pods for the
claims that hold devices, templates for claims made from them.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.problem import Problem
from dralab.explanation.after_devices import of_gang, of_room
from dralab.explanation.causes import (
    Cause,
    Diagnosis,
    Help,
    MarkedField,
    NodesUnfit,
    NothingThere,
    Owner,
    Refused,
)
from dralab.explanation.diagnose import diagnose
from dralab.explanation.endings import UNKNOWN, HolderEnd, end_of
from dralab.explanation.helps import MOST_HELPS, ordered
from dralab.explanation.names import counted, joined, listed, shortened, similar
from dralab.explanation.proposals import with_text
from dralab.explanation.questions import MOST_QUESTIONS, FleetQuestions
from dralab.explanation.structured import structured
from dralab.explanation.text import EVENT_BYTES, Names, ObjectFields, Spots, brief, page
from dralab.explanation.trial import Trial
from dralab.explanation.unfit import (
    OF_NODES,
    Unfit,
    against_all,
    nearest,
    node_helps,
    nodes_unfit,
)
from dralab.explanation.waiting import claim_name, eviction_of, moves_for, preemption_for
from dralab.objects.claims import consumers_of, pod_claims
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import is_deleting, spec_of, status_of, uid_of
from dralab.objects.quota import CLASS_SUFFIX
from dralab.scheduling.backlog import Pending, key
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    CLAIM_ELSEWHERE,
    CLAIM_NOT_FOUND,
    CLASS_NOT_FOUND,
    GATED,
    NO_DEVICES,
    NOMINATED,
    NOT_OFFERED,
    OTHER_NODE,
    QUOTA_EXCEEDED,
    TEMPLATE_NOT_FOUND,
    UNSELECTED,
    VOLUME_CLAIM_NOT_FOUND,
    Reason,
)
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonDict

KINDS: Final = {
    CLAIM_NOT_FOUND: "ResourceClaim",
    TEMPLATE_NOT_FOUND: "ResourceClaimTemplate",
    VOLUME_CLAIM_NOT_FOUND: "PersistentVolumeClaim",
}
"""The kinds of objects that are missing, by the rule that says so."""
PASSING: Final = frozenset(
    {"DRA008", "DRA030", "DRA032", "DRA033", "DRA038", "DRA039", "DRA040", "DRA041", "DRA044"}
)
"""Causes that end without a change of the pod: the nodes it is meant for can serve it."""
MOST_UNFIT: Final = 2000
MOST_NEAR: Final = 4
"""Nodes on which several changes at once are tried."""
OF_DEVICES: Final = frozenset({"value", "count", "constraint", "tolerate", "drop", "wait", "guard"})
"""Helps for want of devices that may go together with changes of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why something waits: `diagnosis` holds the facts, the methods tell them.

    `names` are those that people use: pods for claims, files and lines for fields.
    """

    diagnosis: Diagnosis
    names: Names = field(default_factory=Names)

    @property
    def code(self) -> str:
        """The stable code of the cause, such as DRA014."""
        return self.diagnosis.code

    def page(self, *, every_node: bool = False) -> str:
        """Return one screen for a person; `every_node` adds what every group of nodes lacks."""
        return page(self.diagnosis, self.names, every_node=every_node)

    def brief(self, limit: int = EVENT_BYTES) -> str:
        """Return the cause, the numbers and the best help in at most `limit` bytes."""
        return brief(self.diagnosis, limit, self.names)

    def structured(self) -> dict[str, Any]:
        """Return the facts as JSON values, with stable codes."""
        return structured(self.diagnosis, self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod that waits, and what may be asked about it.

    With `model` changes are tried on it: what helps is told only then of nodes. `ends` says when
    the users of claims end; `questions` and `budget` limit what is asked of the allocator, and what
    was `known` of nodes from earlier pods is not asked again.
    """

    asked: PodQuestion
    refusal: Refusal
    title: str
    problem: Problem
    model: ClusterModel | None = None
    ends: Mapping[str, HolderEnd] = field(default_factory=dict)
    questions: int = MOST_QUESTIONS
    budget: int = DEFAULT_BUDGET
    known: dict[tuple[str, ...], FleetQuestions] | None = None


def why(
    cluster: Snapshot, pending: Pending, *, node: str = "", spots: Spots | None = None
) -> Why | None:
    """Return why a pod or claim gets no node and devices; None where it can be placed now.

    Nothing is allocated. `pending` is one of `cluster.pending()`, brought up to date with
    `cluster.refreshed`; with `node` only that node counts. Without `spots` places are told as
    object and field; commands that read files pass one that knows lines.

        for each in cluster.pending():
            found = why(cluster, cluster.refreshed(each))
            print(found.page() if found else f"{each.title} fits")
    """
    decided = cluster.decide(pending, node)
    if isinstance(decided, PodPlacement):
        return None
    asked = cluster.question(pending, node)
    diagnosis = diagnosis_of(
        WaitingPod(
            asked=asked,
            refusal=decided,
            title=pending.title,
            problem=cluster.problem(pending),
            model=cluster.model,
            ends=ends_of(cluster),
        )
    )
    templates = templates_of(cluster)
    names = Names(
        spots=spots or ObjectFields(templates),
        holders=holders_of(cluster),
        templates=templates,
        extended=extended_of(cluster),
        commands=spots is None or isinstance(spots, ObjectFields),
    )
    return Why(diagnosis=diagnosis, names=names)


def diagnosis_of(waiting: WaitingPod) -> Diagnosis:
    """Return why a pod waits: what keeps it from being tried, what no node can give, what is short.

    Pages, events and questions about changes all tell this cause.
    """
    trial = None if waiting.model is None else Trial(waiting.model, waiting.asked)
    found = replace(_diagnosis(waiting, trial), subject=waiting.title)
    return found if trial is None else _helped(trial, found)


def _helped(trial: Trial, found: Diagnosis) -> Diagnosis:
    """Return a diagnosis with the helps that the scheduler confirms in the whole state."""
    model, asked = trial.model, trial.asked
    helps = [each for one in found.helps if (each := trial.confirmed(one)) is not None]
    more = islice(moves_for(model, asked, helps) if not asked.only else (), 1)
    helps += [*more, *preemption_for(model, asked, helps)]
    if asked.pod.obj.get("kind") == "Pod" and model.held_back(asked.pod) is None:
        helps += filter(None, [eviction_of(model, asked.pod)])
    return replace(found, helps=ordered(helps))


def _diagnosis(waiting: WaitingPod, trial: Trial | None) -> Diagnosis:
    asked, model, refusal = waiting.asked, waiting.model, waiting.refusal
    blocked = refusal.blocked
    if model is not None and not asked.only and model.held_back(asked.pod) is None:
        gang = of_gang(model, asked.pod, blocked)
        if gang is not None:
            return gang
    if blocked is not None and blocked.rule is not CLASS_NOT_FOUND:
        return _refused(waiting, blocked)
    if first := _not_offered(asked) or _nominated(asked):
        return first
    unfit, every = asked.unfit(), asked.unfit(every=True)
    if elsewhere := _claim_elsewhere(asked, unfit, every):
        return elsewhere
    nodes = _Nodes(waiting, unfit, every, trial)
    if (fatal := refusal.fatal or blocked) is not None:
        return nodes.diagnosed(refused=refusal.fatal is not None) or _refused(waiting, fatal)
    if refusal.shortages and not nodes.able_here:
        return of_room(model, refusal)
    found = nodes.diagnosis() or _refused(waiting, None)
    if trial is None or any(trial.is_enough(each) for each in found.helps):
        return found
    together = trial.combined(nodes.choices(trial, found.helps))
    if together is None:
        return found
    others = (each for each in found.helps if each not in together.parts)
    return replace(found, helps=(together, *others))


class _Nodes:
    """The nodes of a cluster, by what keeps a pod from them.

    A pod is meant for nodes that it selects and whose taints it tolerates; those that lack
    something for it are told of before nodes that it is not meant for.
    """

    def __init__(
        self, waiting: WaitingPod, unfit: Unfit, every: Unfit, trial: Trial | None
    ) -> None:
        self.waiting = waiting
        self.trial = trial
        self.asked = waiting.asked
        self.catalog = self.asked.state.devices.catalog
        self.unfit = unfit
        self.every = every
        self.problem = _without_own(waiting.problem, self.asked)
        # What a pod has already is not to be had on other nodes.
        near = {n: why for n, why in unfit.items() if Reason(CLAIM_ELSEWHERE) not in every[n]}
        self.short = {n: why for n, why in near.items() if why[0].rule.plugin not in OF_NODES}
        self.closed = {name: why for name, why in near.items() if name not in self.short}
        self.candidates = [each.name for each in self.asked.candidates()]

    @cached_property
    def able_here(self) -> list[str]:
        """The nodes that have the devices and lack something else, the nearest first."""
        return nearest(self.asked, self._able(self.short), self.every)

    @cached_property
    def able_elsewhere(self) -> list[str]:
        """The nodes that have the devices and that the pod is not meant for, the nearest first."""
        return nearest(self.asked, self._able(self.closed), self.every)

    def _able(self, unfit: Unfit) -> list[str]:
        outside = [self.asked.node(name) for name in list(unfit)[:MOST_UNFIT]]
        if not outside:
            return []
        asking = FleetQuestions(
            self.problem,
            outside,
            catalog=self.catalog,
            budget=self.waiting.budget,
            questions=self.waiting.questions,
        )
        return [name for place in asking.servers() for name in place.names]

    def diagnosis(self) -> Diagnosis | None:
        """Return the cause among the nodes, with the changes that are enough."""
        reasons = Counter(each for several in self.unfit.values() for each in several)
        others = tuple(reasons.most_common())
        beside = list(self._helps(self.closed, self.able_elsewhere))
        if self.able_here:
            return self._ruled_out(self.short, self.able_here, beside)
        if self.candidates or self.short:
            found = self.diagnosed()
            if found is None:
                return self._ruled_out(self.unfit, (), beside) if self.unfit else None
            if isinstance(found.cause, Refused):
                return found
            if found.code in PASSING or not self.able_elsewhere:
                return replace(found, unfit=others, helps=ordered([*found.helps, *beside[:1]]))
        if self.able_elsewhere:
            return self._ruled_out(self.closed, self.able_elsewhere, beside)
        inside = self.diagnosed()
        if inside is not None and isinstance(inside.cause, Refused):
            return inside
        if inside is not None and not isinstance(inside.cause, NothingThere):
            return replace(inside, unfit=others)
        return self._ruled_out(self.unfit, (), [])

    def diagnosed(self, *, refused: bool = False) -> Diagnosis | None:
        """Return what is wrong with the devices of the nodes that count for the pod."""
        names = self.candidates or list(self.short) or list(self.closed)
        names = names[: max(MOST_UNFIT, len(self.candidates))]
        nodes, known = [self.asked.node(name) for name in names], self.waiting.known
        earlier = None
        if known is not None:
            earlier = known.setdefault(
                tuple(names),
                FleetQuestions(
                    self.problem, nodes, catalog=self.catalog, budget=self.waiting.budget
                ),
            )
        found = diagnose(
            self.problem,
            nodes,
            catalog=self.catalog,
            ends=self.waiting.ends,
            refused=refused,
            earlier=earlier,
            budget=self.waiting.budget,
            questions=self.waiting.questions,
            most=MOST_HELPS * (3 if self.trial else 1),
        )
        if found is None or self.candidates or self.trial is not None:
            return found
        # No node would do with other devices alone: that was confirmed for the devices only.
        helps = (replace(each, now=False) if each.now else each for each in found.helps)
        return replace(found, helps=tuple(helps))

    def _ruled_out(
        self, unfit: Unfit, able: Sequence[str], beside: Sequence[Help]
    ) -> Diagnosis | None:
        if not unfit:
            return None
        cause = nodes_unfit(self.asked, unfit, able, self.every)
        rest = {name: why for name, why in self.unfit.items() if name not in unfit}
        reasons = Counter(each for several in rest.values() for each in several)
        if self.candidates:
            reasons[Reason(NO_DEVICES)] += len(self.candidates)
        cause = replace(
            cause,
            total=cause.total + len(rest) + len(self.candidates),
            reasons=(*cause.reasons, *reasons.most_common()),
        )
        own = list(self._helps(unfit, able)) if unfit is not self.closed else []
        return Diagnosis(
            subject="",
            cause=cause,
            helps=(*own, *beside),
            nodes=len(self.unfit) + len(self.candidates),
        )

    def _helps(self, unfit: Unfit, able: Sequence[str]) -> Iterator[Help]:
        if self.trial is not None:
            yield from node_helps(self.trial, unfit, able)

    def choices(self, trial: Trial, helps: Sequence[Help]) -> Iterator[list[list[Help]]]:
        """Yield what may be done at once so that a node takes the pod, the fewest changes first.

        For each of the nearest nodes: a list of helps for each thing that it lacks.
        """
        able = [*self.able_here, *self.able_elsewhere]
        others = nearest(self.asked, self.unfit.keys() - set(able), self.every)
        devices = [each for each in helps if each.kind in OF_DEVICES]
        found = []
        for name in (*able[:MOST_NEAR], *others[:MOST_NEAR]):
            lists = against_all(trial, name, self.every[name])
            lists += [] if name in able else [devices]
            if len(lists) > 1 and all(lists):
                found.append(lists)
        yield from sorted(found, key=len)


def _not_offered(asked: PodQuestion) -> Diagnosis | None:
    """Return that a pod asks for an extended resource that no node and no class has."""
    table, rows = asked.table, list(asked.table.row_of.values())
    for resource, amount in sorted(asked.pod.requests.items()):
        if not amount or "/" not in resource or resource in asked.demand.extended:
            continue
        if not rows or table.allocatable(resource)[rows].any():
            continue
        offered = {n for n in table.columns if "/" in n and table.allocatable(n)[rows].any()}
        near = similar(resource, sorted(offered | asked.state.demands.provided.keys()))
        field = _resource_field(asked.pod.obj, {resource})
        mark = MarkedField(owner=("pod", str(asked.pod.key)), field=field, text=str(amount))
        cause = Refused(code="DRA073", text=str(Reason(NOT_OFFERED, (resource,))), mark=mark)
        helps = (Help(kind="spelling", now=False, to=f"'{near}'"),) if near else ()
        return Diagnosis(subject="", cause=cause, helps=helps, nodes=table.count)
    return None


def _nominated(asked: PodQuestion) -> Diagnosis | None:
    """Return that others are being preempted for a pod; None where nobody leaves for it."""
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
    who = tuple(f"pod {each}" for each in leaving)
    helps = (Help(kind="wait", now=True, who=who, number=len(who), note="all"),)
    cause = Refused(code=reason.code, text=str(reason))
    return Diagnosis(subject="", cause=cause, helps=helps, nodes=asked.table.count)


def _claim_elsewhere(asked: PodQuestion, unfit: Unfit, every: Unfit) -> Diagnosis | None:
    """Return that claims of a pod have devices where the pod does not select any node."""
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
    return Diagnosis(subject="", cause=cause, nodes=total)


def _without_own(problem: Problem, asked: PodQuestion) -> Problem:
    """Return a problem in which a pod does not wait for itself: what it alone holds, it keeps."""
    users = asked.state.devices.claims_held_by(asked.pod, [item.claim for item in asked.allocated])
    own = {
        name
        for item in asked.allocated
        if users.get(uid_of(item.claim), set()) <= _uids(asked.pod, item.claim)
        for name in (str(item.key), shortened(str(item.key)))
    }
    if not own:
        return problem
    holders = {
        device: others
        for device, names in problem.in_use.holders.items()
        if (others := tuple(name for name in names if name not in own))
    }
    return replace(problem, in_use=replace(problem.in_use, holders=holders))


def _uids(pod: PodInfo, claim: JsonDict) -> set[str]:
    """Return the uids by which a claim may know a pod: files may leave the pod's own out."""
    named = (each for each in consumers_of(claim) if each.get("name") == pod.key.name)
    return {pod.uid, *(str(each.get("uid")) for each in named)}


def _refused(waiting: WaitingPod, reason: Reason | None) -> Diagnosis:
    """Return that something cannot be tried on any node, and what would be right."""
    pod = waiting.asked.pod
    if reason is None:
        cause: Cause = Refused(code=waiting.refusal.code or "DRA060", text=waiting.refusal.message)
        return Diagnosis(subject="", cause=cause)
    if reason.rule is QUOTA_EXCEEDED:
        name, resource, asked, used, limit = reason.fields
        what = resource.removesuffix(CLASS_SUFFIX)
        text = f"quota {name} allows {limit} of {what}, {used} in use and {asked} more asked for"
        mark = _entry_mark(pod, [entry.template for entry in pod_claims(pod.obj)])
        return Diagnosis(subject="", cause=Refused(code="DRA061", text=text, mark=mark))
    model = waiting.model
    if reason.rule is GATED:
        text = f"{counted(len(reason.fields), 'scheduling gate')} to be removed first: "
        cause = Refused(code=reason.code, text=text + listed(reason.fields))
        return Diagnosis(subject="", cause=cause)
    if reason.rule not in KINDS:
        volumes = reason.rule.plugin == "VolumeBinding" and model is not None
        mark = _unbound_mark(model, pod) if volumes and model is not None else None
        return Diagnosis(subject="", cause=Refused(code=reason.code, text=str(reason), mark=mark))
    kind, name = KINDS[reason.rule], reason.subject
    every = [] if model is None else [key(item) for item in model.objects.of(kind)]
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
    return Diagnosis(subject="", cause=cause, helps=helps)


def _unbound_mark(model: ClusterModel, pod: PodInfo) -> MarkedField | None:
    """Return where a pod names its first volume claim that has no volume."""
    unbound = [
        item["metadata"]["name"]
        for item in model.objects.of("PersistentVolumeClaim")
        if key(item)[0] == pod.key.namespace and not spec_of(item).get("volumeName")
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
    for number, volume in enumerate(spec_of(pod.obj).get("volumes") or ()):
        claim: str = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if claim in names:
            field = f"spec.volumes[{number}].persistentVolumeClaim.claimName"
            return MarkedField(owner=owner, field=field, text=claim)
    return None


def holders_of(cluster: Snapshot) -> dict[str, str]:
    """Return, by claim as explanations name it, the pod that uses it, as people call it."""
    found: dict[str, str] = {}
    for claim in cluster.claims.values():
        for consumer in status_of(claim).get("reservedFor") or ():
            if consumer.get("resource") == "pods":
                found.setdefault(
                    claim_name(claim), shortened(f"{key(claim)[0]}/{consumer['name']}")
                )
    for _, user in cluster.users():
        for claim in (*user.claims, *user.allocated):
            found.setdefault(claim_name(claim), shortened(f"{user.namespace}/{user.name}"))
    return found


def ends_of(cluster: Snapshot) -> dict[str, HolderEnd]:
    """Return, by claim as explanations name it, when the pod that uses it ends, where known."""
    found: dict[str, HolderEnd] = {}
    for pod, user in cluster.users():
        end = end_of(pod)
        if end != UNKNOWN:
            found |= dict.fromkeys((claim_name(claim) for claim in user.allocated), end)
    return found


def templates_of(cluster: Snapshot) -> dict[str, str]:
    """Return, by claim as explanations name it, the template that it is made from."""
    found: dict[str, str] = {}
    for pod, user in cluster.users():
        entries = spec_of(pod).get("resourceClaims") or ()
        if not any(entry.get("resourceClaimTemplateName") for entry in entries):
            continue
        made = {claim["metadata"]["name"]: claim for claim in (*user.claims, *user.allocated)}
        for entry in pod_claims(pod):
            # The claim of a PodGroup is named after the group.
            ends = [each for each in made if each.endswith(f"-{entry.entry}")]
            name = entry.made or (ends[0] if ends else "")
            if entry.template and name in made:
                found[claim_name(made[name])] = f"{user.namespace}/{entry.template}"
    return found


def extended_of(cluster: Snapshot) -> dict[str, tuple[str, str]]:
    """Return, by claim for extended resources, the pod and the field that ask for them."""
    found: dict[str, tuple[str, str]] = {}
    for pod, user in cluster.users():
        for claim in (*user.claims, *user.allocated):
            if SYNTHETIC in (claim["metadata"].get("annotations") or {}):
                field = _resource_field(pod, cluster.provided)
                found[claim_name(claim)] = f"{user.namespace}/{user.name}", field
    return found


def _resource_field(pod: JsonDict, provided: Container[str]) -> str:
    """Return where a pod first asks for a resource that devices provide."""
    for number, container in enumerate(spec_of(pod).get("containers") or ()):
        for part in ("requests", "limits"):
            for resource in (container.get("resources") or {}).get(part) or ():
                if resource in provided:
                    return f"spec.containers[{number}].resources.{part}[{resource}]"
    return "spec.containers"
