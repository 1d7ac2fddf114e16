"""`why`: everything that keeps one pod or claim of a snapshot waiting, as facts and as text.

This is what commands call. It joins the cause in the devices (`diagnose`) with what the nodes
themselves say (cordon, taints, labels, room), and knows the names that people use: pods for the
claims that hold devices, templates for claims made from them.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from dralab.allocation.problem import Problem
from dralab.explanation.after_devices import of_gang, of_room
from dralab.explanation.causes import (
    Cause,
    Diagnosis,
    Help,
    MarkedField,
    NodesUnfit,
    NothingThere,
    Refused,
)
from dralab.explanation.diagnose import diagnose
from dralab.explanation.endings import UNKNOWN, HolderEnd, end_of
from dralab.explanation.helps import ordered
from dralab.explanation.moves import claim_name, move_for, preemption_for
from dralab.explanation.names import listed, shortened, similar
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.structured import structured
from dralab.explanation.text import EVENT_BYTES, Names, ObjectFields, Spots, brief, page
from dralab.explanation.unfit import (
    OF_NODES,
    Unfit,
    nearest,
    node_helps,
    nodes_unfit,
    takes_another,
)
from dralab.objects.claims import consumers_of, pod_claims
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.quota import CLASS_SUFFIX
from dralab.scheduling.backlog import Pending, key
from dralab.scheduling.reasons import (
    CLAIM_ELSEWHERE,
    CLAIM_NOT_FOUND,
    CLASS_NOT_FOUND,
    NO_DEVICES,
    OTHER_NODE,
    QUOTA_EXCEEDED,
    TEMPLATE_NOT_FOUND,
    UNSELECTED,
    VOLUME_CLAIM_NOT_FOUND,
    Reason,
)
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import PodPlacement
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
    diagnosis = _diagnosis(cluster, pending, node)
    if diagnosis is None:
        return None
    # A new node has not the devices that the pod holds already, and the pod must select it.
    kept = tuple(
        each
        for each in diagnosis.helps
        if each.kind != "add"
        or not (pending.allocated or (each.note and not takes_another(cluster, pending, each.note)))
    )
    diagnosis = replace(diagnosis, helps=kept)
    more = [] if node else [move_for(cluster, pending, diagnosis.helps)]
    more.append(preemption_for(cluster, pending, diagnosis.helps))
    if found := [each for each in more if each is not None]:
        diagnosis = replace(diagnosis, helps=ordered([*diagnosis.helps, *found]))
    templates = templates_of(cluster)
    names = Names(
        spots=spots or ObjectFields(templates),
        holders=holders_of(cluster),
        templates=templates,
        extended=extended_of(cluster),
        commands=spots is None or isinstance(spots, ObjectFields),
    )
    return Why(diagnosis=diagnosis, names=names)


def _diagnosis(cluster: Snapshot, pending: Pending, node: str) -> Diagnosis | None:
    """Return what keeps it from being tried, what no node can give, or what is short now."""
    if pending.missing is not None:
        return _refused(cluster, pending, pending.missing)
    decided = cluster.decide(pending, node)
    if isinstance(decided, PodPlacement):
        return None
    if (gang := of_gang(cluster, pending)) is not None and not node:
        return gang
    if decided.blocked is not None and decided.blocked.rule is not CLASS_NOT_FOUND:
        return _refused(cluster, pending, decided.blocked)
    unfit = cluster.unfit_nodes(pending, node)
    every = cluster.unfit_nodes(pending, node, every=True)
    if elsewhere := _claim_elsewhere(cluster, pending, unfit, every):
        return elsewhere
    asking = _Nodes(cluster, pending, unfit, every)
    if (fatal := decided.fatal) is not None or decided.blocked is not None:
        found = asking.diagnosed(refused=fatal is not None)
        return found or _refused(cluster, pending, decided.blocked or fatal)
    if decided.shortages and not asking.able_here:
        return of_room(cluster, pending, decided)
    return asking.diagnosis()


class _Nodes:
    """The nodes of a cluster, by what keeps a pod from them.

    A pod is meant for nodes that it selects and whose taints it tolerates; those that lack
    something for it are told of before nodes that it is not meant for.
    """

    def __init__(self, cluster: Snapshot, pending: Pending, unfit: Unfit, every: Unfit) -> None:
        self.cluster = cluster
        self.pending = pending
        self.unfit = unfit
        self.every = every
        self.problem = _without_own(cluster.problem(pending), pending)
        # What a pod has already is not to be had on other nodes.
        near = {n: why for n, why in unfit.items() if Reason(CLAIM_ELSEWHERE) not in every[n]}
        self.short = {n: why for n, why in near.items() if why[0].rule.plugin not in OF_NODES}
        self.closed = {name: why for name, why in near.items() if name not in self.short}
        self.candidates = [each.name for each in cluster.candidates(pending)]
        self.candidates = [name for name in self.candidates if name not in unfit]

    @cached_property
    def able_here(self) -> list[str]:
        """The nodes that have the devices and lack something else, the nearest first."""
        return nearest(self.cluster, self.pending, self._able(self.short), self.every)

    @cached_property
    def able_elsewhere(self) -> list[str]:
        """The nodes that have the devices and that the pod is not meant for, the nearest first."""
        return nearest(self.cluster, self.pending, self._able(self.closed), self.every)

    def _able(self, unfit: Unfit) -> list[str]:
        outside = [self.cluster.node(name) for name in list(unfit)[:MOST_UNFIT]]
        if not outside:
            return []
        asking = FleetQuestions(self.problem, outside, catalog=self.cluster.catalog)
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
        found = diagnose(
            self.problem,
            [self.cluster.node(name) for name in names[: max(MOST_UNFIT, len(self.candidates))]],
            subject=self.pending.title,
            catalog=self.cluster.catalog,
            ends=ends_of(self.cluster),
            refused=refused,
        )
        if found is None or self.candidates:
            return found
        # No node would do with other devices alone: that was confirmed for the devices only.
        helps = (replace(each, now=False) if each.now else each for each in found.helps)
        return replace(found, helps=tuple(helps))

    def _ruled_out(
        self, unfit: Unfit, able: Sequence[str], beside: Sequence[Help]
    ) -> Diagnosis | None:
        cause = nodes_unfit(self.cluster, self.pending, unfit, able)
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
            subject=self.pending.title,
            cause=cause,
            helps=(*own, *beside),
            nodes=len(self.unfit) + len(self.candidates),
        )

    def _helps(self, unfit: Unfit, able: Sequence[str]) -> Iterator[Help]:
        return node_helps(self.cluster, self.pending, unfit, able)


def _claim_elsewhere(
    cluster: Snapshot, pending: Pending, unfit: Unfit, every: Unfit
) -> Diagnosis | None:
    """Return that claims of a pod have devices where the pod does not select any node."""
    away = Reason(CLAIM_ELSEWHERE)
    reached = [name for name in cluster.nodes if away not in every.get(name, ())]
    if not pending.allocated or len(reached) == len(cluster.nodes):
        return None
    if any(
        unfit[n][0].rule not in {UNSELECTED, OTHER_NODE} if n in unfit else True for n in reached
    ):
        return None
    reasons = Counter(each for several in unfit.values() for each in several[:1])
    reasons[away] = len(cluster.nodes) - len(reached)
    order = sorted(reasons.items(), key=lambda item: (item[0] != away, -item[1], str(item[0])))
    names = listed([shortened(claim_name(claim)) for claim in pending.allocated])
    where = f"on {listed(reached, 2)}, which the pod does not select" if reached else "on no node"
    cause = NodesUnfit(
        code=away.code,
        total=len(cluster.nodes),
        reasons=tuple(order),
        able=(),
        detail=f"claim {names} has its devices {where}",
    )
    return Diagnosis(subject=pending.title, cause=cause, nodes=len(cluster.nodes))


def _without_own(problem: Problem, pending: Pending) -> Problem:
    """Return a problem in which a pod does not wait for itself: what it alone holds, it keeps."""
    own = {
        claim_name(claim)
        for claim in pending.allocated
        if all(consumer.get("name") == pending.name for consumer in consumers_of(claim))
    }
    if not own:
        return problem
    holders = {
        device: others
        for device, names in problem.in_use.holders.items()
        if (others := tuple(name for name in names if name not in own))
    }
    return replace(problem, in_use=replace(problem.in_use, holders=holders))


def _refused(cluster: Snapshot, pending: Pending, reason: Reason | None) -> Diagnosis:
    """Return that something cannot be tried on any node, and what would be right."""
    if reason is None:
        cause: Cause = NothingThere(code="DRA059", detail="no node may run it")
        return Diagnosis(subject=pending.title, cause=cause)
    if reason.rule is QUOTA_EXCEEDED:
        name, resource, asked, used, limit = reason.fields
        what = resource.removesuffix(CLASS_SUFFIX)
        text = f"quota {name} allows {limit} of {what}, {used} in use and {asked} more asked for"
        mark = _entry_mark(pending, [entry.template for entry in pod_claims(pending.pod)])
        return Diagnosis(subject=pending.title, cause=Refused(code="DRA061", text=text, mark=mark))
    if reason.rule not in KINDS:
        mark = _unbound_mark(cluster, pending) if reason.rule.plugin == "VolumeBinding" else None
        cause = Refused(code=reason.code, text=str(reason), mark=mark)
        return Diagnosis(subject=pending.title, cause=cause)
    kind, name = KINDS[reason.rule], reason.subject
    every = [key(item) for item in cluster.by_kind.get(kind, ())]
    known = tuple(each for space, each in every if space == pending.namespace)
    elsewhere = tuple(sorted({space for space, each in every if each == name}))
    mark = _entry_mark(pending, [name])
    helps: tuple[Help, ...] = ()
    near = "" if elsewhere else similar(name, known)
    if near:
        helps = (Help(kind="spelling", now=False, to=f"'{near}'", mark=mark),)
    cause = Refused(
        code="DRA001", text=str(reason), missing=kind, name=name, known=known,
        elsewhere=elsewhere, mark=mark,
    )  # fmt: skip
    return Diagnosis(subject=pending.title, cause=cause, helps=helps)


def _unbound_mark(cluster: Snapshot, pending: Pending) -> MarkedField | None:
    """Return where a pod names its first volume claim that has no volume."""
    unbound = [
        item["metadata"]["name"]
        for item in cluster.by_kind.get("PersistentVolumeClaim", ())
        if key(item)[0] == pending.namespace and not spec_of(item).get("volumeName")
    ]
    return _entry_mark(pending, unbound)


def _entry_mark(pending: Pending, names: Sequence[str]) -> MarkedField | None:
    """Return where a pod names the first of some claims or templates, of devices or volumes."""
    for number, entry in enumerate(pod_claims(pending.pod)):
        for end, name in (("Name", entry.claim), ("TemplateName", entry.template)):
            if name and name in names:
                field = f"spec.resourceClaims[{number}].resourceClaim{end}"
                owner = f"{pending.namespace}/{pending.name}"
                return MarkedField(owner=("pod", owner), field=field, text=name)
    for number, volume in enumerate(spec_of(pending.pod).get("volumes") or ()):
        claim: str = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if claim in names:
            field = f"spec.volumes[{number}].persistentVolumeClaim.claimName"
            owner = f"{pending.namespace}/{pending.name}"
            return MarkedField(owner=("pod", owner), field=field, text=claim)
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
