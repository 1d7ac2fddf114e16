"""Nodes that have the devices and are ruled out all the same: by what, and what would lift it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dralab.allocation.backlog import Pending
from dralab.explanation.causes import Help, MarkedField, NodesUnfit
from dralab.explanation.names import listed
from dralab.objects.metadata import spec_of
from dralab.objects.nodes import UnfitReason
from dralab.objects.requests import amount_of
from dralab.objects.taints import UNSCHEDULABLE
from dralab.scheduling.pod_rules import BrokenRule
from dralab.scheduling.snapshot import CLAIM_ELSEWHERE, Snapshot
from dralab.values.json_types import JsonObject

CODES: Final = (
    ("node(s) were unschedulable", "DRA050"),
    ("node(s) had untolerated taint", "DRA051"),
    ("node(s) didn't match the requested node name", "DRA052"),
    ("node(s) didn't match Pod's node affinity", "DRA052"),
    ("Insufficient", "DRA053"),
    ("Too many pods", "DRA053"),
    (CLAIM_ELSEWHERE, "DRA054"),
    ("node(s) didn't have free ports", "DRA055"),
    ("node(s) didn't match pod affinity", "DRA056"),
    ("node(s) didn't match pod anti-affinity", "DRA057"),
    ("node(s) didn't satisfy existing pods anti-affinity", "DRA057"),
    ("node(s) didn't match pod topology spread", "DRA058"),
    ("node(s) didn't match PersistentVolume's node affinity", "DRA062"),
    ("node(s) didn't find available persistent volumes", "DRA062"),
)
BY_PODS: Final = frozenset({"NodePorts", "VolumeBinding", "PodTopologySpread", "InterPodAffinity"})
TOLERATES_CORDON: Final = {"key": UNSCHEDULABLE["key"], "operator": "Exists"}
MOST_TOLD: Final = 3
"""Nodes that are alike whose rules are told."""
Reason = UnfitReason | str


def nodes_unfit(
    cluster: Snapshot, pending: Pending, unfit: Mapping[str, list[Reason]], able: list[str]
) -> NodesUnfit:
    """Return that nodes are ruled out; `able` of them have the devices, and their rule leads."""
    reasons = Counter(str(each) for several in unfit.values() for each in several)
    ordered = reasons.most_common()
    alike = list(able)
    if able:
        first = str(unfit[able[0]][0])
        alike = [name for name in able if str(unfit[name][0]) == first]
        ordered.sort(key=lambda item: item[0] != first)
    text = ordered[0][0] if ordered else ""
    code = code_of(text)
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
    broken = told_rule(cluster, pending, alike[0]) if able else None
    facts: dict[str, None] = {}
    if broken is not None:
        have = "has" if len(alike) == 1 else "have"
        detail = f"{listed(alike, 2)} {have} the devices, but {broken.clause.format(have=have)}"
        for name in alike[:MOST_TOLD]:
            each = told_rule(cluster, pending, name)
            facts |= dict.fromkeys(each.facts if each is not None else ())
    return NodesUnfit(
        code=code,
        total=len(unfit),
        reasons=tuple(ordered),
        able=tuple(alike),
        detail=detail,
        mark=None if broken is None else _mark(pending, broken),
        facts=tuple(facts),
    )


def code_of(reason: str) -> str:
    """Return the code of a reason in kube-scheduler's words."""
    return next((code for start, code in CODES if reason.startswith(start)), "DRA059")


def told_rule(cluster: Snapshot, pending: Pending, node: str) -> BrokenRule | None:
    """Return the rule about other pods or volumes that keeps a pod from a node, if there is one."""
    return None if cluster.rules is None else cluster.rules.told(pending.pod, node)


def _mark(pending: Pending, broken: BrokenRule) -> MarkedField | None:
    if not broken.field:
        return None
    owner = f"{pending.namespace}/{pending.name}"
    return MarkedField(owner=("pod", owner), field=broken.field, text=broken.text)


def node_helps(
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
        if reason.filter in BY_PODS:
            alike = [each for each in able if unfit[each] == reasons]
            yield from _rule_helps(cluster, pending, alike)
        elif not cluster.refusals(_without_rule(pending, reason), name):
            yield from _own_helps(cluster, pending, name, reason)


def _own_helps(
    cluster: Snapshot, pending: Pending, name: str, reason: UnfitReason
) -> Iterator[Help]:
    """Yield what helps against a rule about the node alone, where it is the only one broken."""
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
            yield Help(kind="node", now=True, who=(name,), to=_label_help(cluster, pending, name))
        case "NodeResourcesFit":
            for resource, _, free in cluster.filters.shortages(pending.pod, name):
                if free > 0:
                    amount = amount_of(resource, free)
                    to = f"{amount} {resource} or less"
                    yield Help(kind="value", now=True, who=(name,), to=to)
        case "NodeName":
            yield Help(
                kind="node", now=True, who=(name,), to=f"leave out nodeName, {name} has them"
            )
        case _:
            return


def _without_rule(pending: Pending, reason: UnfitReason) -> Pending:
    """Return what is pending with a pod that a rule about nodes does not concern any more."""
    spec = dict(spec_of(pending.pod))
    match reason.filter:
        case "NodeUnschedulable":
            spec["tolerations"] = [*(spec.get("tolerations") or ()), TOLERATES_CORDON]
        case "TaintToleration":
            key = reason.subject.partition(": ")[0]
            tolerated = {"key": key, "operator": "Exists"}
            spec["tolerations"] = [*(spec.get("tolerations") or ()), tolerated]
        case "NodeAffinity":
            spec["nodeSelector"] = {}
            others = {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}
            spec["affinity"] = others
        case "NodeResourcesFit":
            spec |= {"containers": _requesting_nothing(spec.get("containers") or ())}
            spec |= {"initContainers": _requesting_nothing(spec.get("initContainers") or ())}
            spec |= {"overhead": {}, "resources": {}}
        case _:
            pass
    return replace(pending, pod={**pending.pod, "spec": spec})


def _requesting_nothing(containers: Iterable[JsonObject]) -> list[JsonObject]:
    return [{**each, "resources": {}} for each in containers]


def _rule_helps(cluster: Snapshot, pending: Pending, names: Sequence[str]) -> Iterator[Help]:
    """Yield what helps against a rule about other pods on some nodes: each remedy was tried."""
    told = [
        each
        for name in names[:MOST_TOLD]
        if (each := told_rule(cluster, pending, name)) is not None
    ]
    single = dict.fromkeys(f"pod {each.blockers[0]}" for each in told if len(each.blockers) == 1)
    several = [each.blockers for each in told if len(each.blockers) > 1]
    if single:
        yield Help(kind="wait", now=True, who=tuple(single), number=len(single), note="any")
    elif several:
        who = tuple(f"pod {each}" for each in min(several, key=len))
        yield Help(kind="wait", now=True, who=who, number=len(who), note="all")
    for text in told[0].remedies if told else ():
        yield Help(kind="node", now=True, who=(names[0],), to=text)


def _label_help(cluster: Snapshot, pending: Pending, name: str) -> str:
    labels = (cluster.filters.nodes[name]["metadata"].get("labels")) or {}
    wanted = spec_of(pending.pod).get("nodeSelector") or {}
    for label, value in wanted.items():
        if labels.get(label) != value:
            has = f'{label} "{labels[label]}"' if label in labels else f"no label {label}"
            return f'change nodeSelector {label} "{value}": {name} has {has}'
    return f"change the pod's node affinity: {name} has the devices"
