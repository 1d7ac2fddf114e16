"""`why`: everything that keeps one pod or claim of a snapshot waiting, as facts and as text.

This is what commands call. It joins the cause in the devices (`diagnose`) with what the nodes
themselves say (cordon, taints, labels, room), and knows the names that people use: pods for the
claims that hold devices, templates for claims made from them.
"""

import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dralab.allocation.backlog import Pending, key
from dralab.allocation.problem import Problem
from dralab.explanation.after_devices import after_devices
from dralab.explanation.causes import (
    Cause,
    Diagnosis,
    Help,
    MarkedField,
    NothingThere,
    Refused,
)
from dralab.explanation.diagnose import diagnose
from dralab.explanation.endings import UNKNOWN, HolderEnd, end_of
from dralab.explanation.helps import ordered
from dralab.explanation.moves import claim_name, move_for, preemption_for
from dralab.explanation.names import shortened, similar
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.structured import structured
from dralab.explanation.text import EVENT_BYTES, Names, ObjectFields, Spots, brief, page
from dralab.explanation.unfit import node_helps, nodes_unfit
from dralab.objects.claims import consumers_of, pod_claims
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.quota import CLASS_SUFFIX
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict

MISSING: Final = re.compile(
    r'(resourceclaim|resourceclaimtemplate|persistentvolumeclaim) "(.*)" not found'
)
EXCEEDED: Final = re.compile(
    r"exceeded quota: (.*), requested: (.*)=(.*), used: .*=(.*), limited: .*=(.*)"
)
KINDS: Final = {
    "resourceclaim": "ResourceClaim",
    "resourceclaimtemplate": "ResourceClaimTemplate",
    "persistentvolumeclaim": "PersistentVolumeClaim",
}
SCATTERED: Final = frozenset({"DRA030", "DRA032", "DRA033", "DRA038", "DRA039", "DRA041"})
"""Causes that end by themselves once others release their devices."""
CANNOT_ALLOCATE: Final = "cannot allocate all claims"
"""kube-scheduler's words for nodes that may run a pod and lack its devices."""
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
    if pending.allocated:
        # A new node has not the devices that the pod holds already.
        kept = tuple(each for each in diagnosis.helps if each.kind != "add")
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
    if pending.missing:
        return _missing(cluster, pending)
    nodes = cluster.candidates(pending, node)
    unfit = cluster.unfit_nodes(pending, node)
    problem = _without_own(cluster.problem(pending), pending)
    ends = ends_of(cluster)
    found = None
    if nodes or not unfit:
        found = diagnose(problem, nodes, subject=pending.title, catalog=cluster.catalog, ends=ends)
        if found is None:
            if pending.claims and nodes and cluster.place(pending, nodes) is None:
                # An expression that fails for some device ends the search on all nodes.
                found = diagnose(
                    problem,
                    nodes,
                    subject=pending.title,
                    catalog=cluster.catalog,
                    refused=True,
                    ends=ends,
                )
            return found or (after_devices(cluster, pending, nodes) if not node else None)
        if isinstance(found.cause, Refused) or not unfit:
            return found
    reasons = Counter(str(each) for several in unfit.values() for each in several)
    others = tuple(reasons.most_common())
    outside = [cluster.node(name) for name in list(unfit)[:MOST_UNFIT]]
    asking = FleetQuestions(problem, outside, catalog=cluster.catalog)
    able = [name for place in asking.servers() for name in place.names]
    helps = tuple(node_helps(cluster, pending, unfit, able))
    if found is not None and (not able or found.code in SCATTERED):
        return replace(found, unfit=others, helps=ordered([*found.helps[:3], *helps[:1]]))
    cause = nodes_unfit(cluster, pending, unfit, able)
    if nodes:
        without = (*cause.reasons, (CANNOT_ALLOCATE, len(nodes)))
        cause = replace(cause, total=cause.total + len(nodes), reasons=without)
    if not able and not pending.allocated:
        inside = diagnose(
            problem, outside, subject=pending.title, catalog=cluster.catalog, ends=ends
        )
        if inside is not None and isinstance(inside.cause, Refused):
            return inside
        if inside is not None and not isinstance(inside.cause, NothingThere):
            return replace(inside, unfit=others, helps=inside.helps)
    return Diagnosis(
        subject=pending.title, cause=cause, helps=helps, nodes=len(unfit), unfit=(),
    )  # fmt: skip


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


def _missing(cluster: Snapshot, pending: Pending) -> Diagnosis:
    match = MISSING.fullmatch(pending.missing)
    if exceeded := EXCEEDED.fullmatch(pending.missing):
        name, resource, asked, used, limit = exceeded.groups()
        what = resource.removesuffix(CLASS_SUFFIX)
        text = f"quota {name} allows {limit} of {what}, {used} in use and {asked} more asked for"
        mark = _entry_mark(pending, [entry.template for entry in pod_claims(pending.pod)])
        return Diagnosis(subject=pending.title, cause=Refused(code="DRA061", text=text, mark=mark))
    if match is None:
        about_volumes = cluster.rules is not None and cluster.rules.blocked(pending.pod)
        code = "DRA062" if about_volumes == pending.missing else "DRA003"
        mark = _unbound_mark(cluster, pending) if code == "DRA062" else None
        cause: Cause = Refused(code=code, text=pending.missing, mark=mark)
        return Diagnosis(subject=pending.title, cause=cause)
    kind, name = KINDS[match[1]], match[2]
    every = [key(item) for item in cluster.by_kind.get(kind, ())]
    known = tuple(each for space, each in every if space == pending.namespace)
    elsewhere = tuple(sorted({space for space, each in every if each == name}))
    mark = _entry_mark(pending, [name])
    helps: tuple[Help, ...] = ()
    near = "" if elsewhere else similar(name, known)
    if near:
        helps = (Help(kind="spelling", now=False, to=f"'{near}'", mark=mark),)
    cause = Refused(
        code="DRA001", text=pending.missing, missing=kind, name=name, known=known,
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
