"""`why`: everything that keeps one pod or claim of a snapshot waiting, as facts and as text.

This is what commands call. It joins the cause in the devices (`diagnose`) with what the nodes
themselves say (cordon, taints, labels, room), and knows the names that people use: pods for the
claims that hold devices, templates for claims made from them.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dralab.allocation.backlog import Pending, key
from dralab.allocation.explanation.causes import (
    Cause,
    Diagnosis,
    Help,
    MarkedField,
    NodesUnfit,
    NothingThere,
    Refused,
)
from dralab.allocation.explanation.diagnose import diagnose
from dralab.allocation.explanation.helps import ordered
from dralab.allocation.explanation.moves import claim_name, move_for
from dralab.allocation.explanation.names import listed, shortened, similar
from dralab.allocation.explanation.questions import FleetQuestions
from dralab.allocation.explanation.structured import structured
from dralab.allocation.explanation.text import EVENT_BYTES, Names, ObjectFields, Spots, brief, page
from dralab.allocation.snapshot import CLAIM_ELSEWHERE, Snapshot
from dralab.objects.claims import pod_claims
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.nodes import UnfitReason
from dralab.objects.quota import CLASS_SUFFIX
from dralab.objects.requests import amount_of
from dralab.values.json_types import JsonDict

MISSING: Final = re.compile(r'(resourceclaim|resourceclaimtemplate) "(.*)" not found')
EXCEEDED: Final = re.compile(
    r"exceeded quota: (.*), requested: (.*)=(.*), used: .*=(.*), limited: .*=(.*)"
)
KINDS: Final = {
    "resourceclaim": "ResourceClaim",
    "resourceclaimtemplate": "ResourceClaimTemplate",
}
CODES: Final = (
    ("node(s) were unschedulable", "DRA050"),
    ("node(s) had untolerated taint", "DRA051"),
    ("node(s) didn't match", "DRA052"),
    ("Insufficient", "DRA053"),
    ("Too many pods", "DRA053"),
    (CLAIM_ELSEWHERE, "DRA054"),
)
SCATTERED: Final = frozenset({"DRA030", "DRA032", "DRA033", "DRA038", "DRA039", "DRA041"})
"""Causes that end by themselves once others release their devices."""
CANNOT_ALLOCATE: Final = "cannot allocate all claims"
"""kube-scheduler's words for nodes that may run a pod and lack its devices."""
MOST_UNFIT: Final = 2000
Reason = UnfitReason | str


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
    if not node and (move := move_for(cluster, pending, diagnosis.helps)):
        diagnosis = replace(diagnosis, helps=ordered([*diagnosis.helps, move]))
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
    problem = cluster.problem(pending)
    found = None
    if nodes or not unfit:
        found = diagnose(problem, nodes, subject=pending.title, catalog=cluster.catalog)
        if found is None:
            if pending.claims and nodes and cluster.place(pending, nodes) is None:
                # An expression that fails for some device ends the search on all nodes.
                found = diagnose(
                    problem, nodes, subject=pending.title, catalog=cluster.catalog, refused=True
                )
            return found
        if isinstance(found.cause, Refused) or not unfit:
            return found
    reasons = Counter(str(each) for several in unfit.values() for each in several)
    others = tuple(reasons.most_common())
    outside = [cluster.node(name) for name in list(unfit)[:MOST_UNFIT]]
    asking = FleetQuestions(problem, outside, catalog=cluster.catalog)
    able = [name for place in asking.servers() for name in place.names]
    helps = tuple(_node_helps(cluster, pending, unfit, able))
    if found is not None and (not able or found.code in SCATTERED):
        return replace(found, unfit=others, helps=ordered([*found.helps[:3], *helps[:1]]))
    cause = _unfit(cluster, pending, unfit, able)
    if nodes:
        without = (*cause.reasons, (CANNOT_ALLOCATE, len(nodes)))
        cause = replace(cause, total=cause.total + len(nodes), reasons=without)
    if not able and not pending.allocated:
        inside = diagnose(problem, outside, subject=pending.title, catalog=cluster.catalog)
        if inside is not None and isinstance(inside.cause, Refused):
            return inside
        if inside is not None and not isinstance(inside.cause, NothingThere):
            return replace(inside, unfit=others, helps=inside.helps)
    return Diagnosis(
        subject=pending.title, cause=cause, helps=helps, nodes=len(unfit), unfit=(),
    )  # fmt: skip


def _missing(cluster: Snapshot, pending: Pending) -> Diagnosis:
    match = MISSING.fullmatch(pending.missing)
    if exceeded := EXCEEDED.fullmatch(pending.missing):
        name, resource, asked, used, limit = exceeded.groups()
        what = resource.removesuffix(CLASS_SUFFIX)
        text = f"quota {name} allows {limit} of {what}, {used} in use and {asked} more asked for"
        mark = _entry_mark(pending, [entry.template for entry in pod_claims(pending.pod)])
        return Diagnosis(subject=pending.title, cause=Refused(code="DRA061", text=text, mark=mark))
    if match is None:
        cause: Cause = Refused(code="DRA003", text=pending.missing)
        return Diagnosis(subject=pending.title, cause=cause)
    kind, name = KINDS[match[1]], match[2]
    known = tuple(
        item["metadata"]["name"]
        for item in cluster.by_kind.get(kind, ())
        if (item["metadata"].get("namespace") or "default") == pending.namespace
    )
    mark = _entry_mark(pending, [name])
    helps: tuple[Help, ...] = ()
    if near := similar(name, known):
        helps = (Help(kind="spelling", now=False, to=f"'{near}'", mark=mark),)
    cause = Refused(
        code="DRA001", text=pending.missing, missing=kind, name=name, known=known, mark=mark
    )
    return Diagnosis(subject=pending.title, cause=cause, helps=helps)


def _entry_mark(pending: Pending, names: Sequence[str]) -> MarkedField | None:
    """Return where a pod names the first of some claims or templates."""
    for number, entry in enumerate(pod_claims(pending.pod)):
        for end, name in (("Name", entry.claim), ("TemplateName", entry.template)):
            if name and name in names:
                field = f"spec.resourceClaims[{number}].resourceClaim{end}"
                owner = f"{pending.namespace}/{pending.name}"
                return MarkedField(owner=("pod", owner), field=field, text=name)
    return None


def _unfit(
    cluster: Snapshot, pending: Pending, unfit: Mapping[str, list[Reason]], able: list[str]
) -> NodesUnfit:
    reasons = Counter(str(each) for several in unfit.values() for each in several)
    ordered = reasons.most_common()
    alike = list(able)
    if able:
        first = str(unfit[able[0]][0])
        alike = [name for name in able if str(unfit[name][0]) == first]
        ordered.sort(key=lambda item: item[0] != first)
    text = ordered[0][0] if ordered else ""
    code = next((code for start, code in CODES if text.startswith(start)), "DRA059")
    detail = ""
    if code == "DRA053" and able and text.startswith("Insufficient"):
        best = max(alike, key=lambda name: cluster.filters.shortages(pending.pod, name)[0][2])
        resource, needed, free = cluster.filters.shortages(pending.pod, best)[0]
        have = "has" if len(alike) == 1 else "have"
        most = "" if len(alike) == 1 else "at most "
        detail = (
            f"{listed(alike, 2)} {have} the devices, but {most}"
            f"{amount_of(resource, max(free, 0))} of the {amount_of(resource, needed)} {resource}"
        )
    return NodesUnfit(
        code=code, total=len(unfit), reasons=tuple(ordered), able=tuple(alike), detail=detail
    )


def _node_helps(
    cluster: Snapshot, pending: Pending, unfit: Mapping[str, list[Reason]], able: list[str]
) -> Iterator[Help]:
    """Yield what would let the pod onto nodes that have its devices; each node alone is enough."""
    seen: set[str] = set()
    for name in able:
        reasons = unfit[name]
        if len(reasons) != 1 or str(reasons[0]) in seen:
            continue
        seen.add(str(reasons[0]))
        reason = reasons[0]
        if isinstance(reason, str):
            continue
        match reason.filter:
            case "NodeUnschedulable":
                yield Help(
                    kind="node", now=True, to=f"uncordon {name}", who=(name,),
                    command=f"kubectl uncordon {name}",
                )  # fmt: skip
            case "TaintToleration":
                key, _, value = reason.subject.partition(": ")
                taint = f"{key}={value}" if value else key
                yield Help(
                    kind="node", now=True, who=(name,),
                    to=f"add a toleration for {taint} to the pod, or remove the taint",
                    command=f"kubectl taint nodes {name} {key}-",
                )  # fmt: skip
            case "NodeAffinity":
                yield Help(
                    kind="node", now=True, who=(name,), to=_label_help(cluster, pending, name)
                )
            case "NodeResourcesFit":
                for resource, _, free in cluster.filters.shortages(pending.pod, name):
                    if free > 0:
                        amount = amount_of(resource, free)
                        yield Help(
                            kind="value", now=True, who=(name,), to=f"{amount} {resource} or less"
                        )
            case "NodeName":
                yield Help(
                    kind="node", now=True, who=(name,), to=f"leave out nodeName, {name} has them"
                )


def _label_help(cluster: Snapshot, pending: Pending, name: str) -> str:
    labels = (cluster.filters.nodes[name]["metadata"].get("labels")) or {}
    wanted = spec_of(pending.pod).get("nodeSelector") or {}
    for label, value in wanted.items():
        if labels.get(label) != value:
            has = f'{label} "{labels[label]}"' if label in labels else f"no label {label}"
            return f'change nodeSelector {label} "{value}": {name} has {has}'
    return f"change the pod's node affinity: {name} has the devices"


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


def templates_of(cluster: Snapshot) -> dict[str, str]:
    """Return, by claim as explanations name it, the template that it is made from."""
    found: dict[str, str] = {}
    for pod, user in cluster.users():
        if not any(entry.template for entry in pod_claims(pod)):
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
