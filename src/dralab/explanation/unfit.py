"""Nodes that a pod may not use: which rule leads, and which changes would let the pod in.

A change is proposed only if the scheduler then finds a place for the pod, in the whole state as it
is. What is wrong with devices is left to `diagnose`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dralab.explanation.broken_rules import BrokenRule, RuleTeller
from dralab.explanation.causes import Help, MarkedField, NodesUnfit
from dralab.explanation.names import listed
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.nodes import is_unschedulable
from dralab.objects.requests import amount_of, base_units, requested
from dralab.objects.taints import is_of_control_plane, taints_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.filters import Reasons
from dralab.scheduling.node_rules import NODE_RULES
from dralab.scheduling.reasons import (
    CORDONED,
    INSUFFICIENT,
    OTHER_NODE,
    TAINTED,
    TOO_MANY_PODS,
    UNSELECTED,
    Reason,
)
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict, JsonObject

OF_NODES: Final = frozenset({"NodeName", *(rule.plugin for rule in NODE_RULES)})
"""The filters that say for which nodes a pod is meant at all."""
MOST_TOLD: Final = 3
"""Nodes that are alike whose rules are told."""
Unfit = Mapping[str, Reasons]


def nearest(cluster: Snapshot, pending: Pending, names: Iterable[str], every: Unfit) -> list[str]:
    """Return nodes with the one first that lacks least: the fewest rules, the smallest part."""

    def missing(name: str) -> tuple[int, float]:
        reasons = every.get(name, ())
        parts = [
            (needed - max(free, 0)) / needed
            for _, needed, free in cluster.shortages(pending, name)
            if needed
        ]
        return len(reasons), max(parts, default=0.0)

    return sorted(names, key=lambda name: (*missing(name), name))


def nodes_unfit(
    cluster: Snapshot, pending: Pending, unfit: Unfit, able: Sequence[str]
) -> NodesUnfit:
    """Return that nodes are ruled out; `able` of them have the devices, and the first's rule leads.

    The nodes that are told of are those with the same rule.
    """
    reasons = Counter(each for several in unfit.values() for each in several)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], str(item[0])))
    alike = list(able)
    if able:
        lead = unfit[able[0]][0]
        alike = [name for name in able if unfit[name][0] == lead]
        ordered.sort(key=lambda item: item[0] != lead)
    lead = ordered[0][0]
    detail = ""
    if lead.rule is INSUFFICIENT and alike:
        resource, needed, free = cluster.shortages(pending, alike[0])[0]
        most = "" if len(alike) == 1 else "at most "
        detail = (
            f"{_subject(pending, alike)} {most}{amount_of(resource, max(free, 0))} of the "
            f"{amount_of(resource, needed)} {resource}"
        )
    broken = told_rule(cluster, pending, alike[0]) if alike else None
    facts: dict[str, None] = {}
    if broken is not None:
        have = "has" if len(alike) == 1 else "have"
        detail = f"{_subject(pending, alike, joined='')} {broken.clause.format(have=have)}".strip()
        for name in alike[:MOST_TOLD]:
            each = told_rule(cluster, pending, name)
            facts |= dict.fromkeys(each.facts if each is not None else ())
    return NodesUnfit(
        code=lead.code,
        total=len(unfit),
        reasons=tuple(ordered),
        able=tuple(alike),
        detail=detail,
        mark=None if broken is None else _mark(pending, broken),
        facts=tuple(facts),
        wants_devices=bool(pending.claims or pending.allocated),
    )


def _subject(pending: Pending, names: Sequence[str], joined: str = "") -> str:
    """Return `n1 has the devices, but` with the verb that a figure follows."""
    have = "has" if len(names) == 1 else "have"
    if pending.claims or pending.allocated:
        return f"{listed(names, 2)} {have} the devices, but" + joined
    return f"{listed(names, 2)} {have}" if not joined else f"{listed(names, 2)}:"


def told_rule(cluster: Snapshot, pending: Pending, node: str) -> BrokenRule | None:
    """Return the rule about other pods or volumes that keeps a pod from a node, if there is one."""
    reasons = cluster.refusals(pending, node)
    if not reasons:
        return None
    state = cluster.model.state
    return RuleTeller(state).told(cluster.info(pending), state.table.row_of[node], reasons[0])


def _mark(pending: Pending, broken: BrokenRule) -> MarkedField | None:
    if not broken.field:
        return None
    owner = f"{pending.namespace}/{pending.name}"
    return MarkedField(owner=("pod", owner), field=broken.field, text=broken.text)


def node_helps(
    cluster: Snapshot, pending: Pending, unfit: Unfit, able: Sequence[str]
) -> Iterator[Help]:
    """Yield what would let the pod onto nodes that have its devices; each change alone is enough.

    For each is shown that the scheduler places the pod then.
    """
    seen: set[Reason] = set()
    for name in able:
        reasons = unfit[name]
        if len(reasons) != 1 or reasons[0] in seen:
            continue
        seen.add(reasons[0])
        if reasons[0].rule.plugin in OF_NODES or reasons[0].rule in {INSUFFICIENT, TOO_MANY_PODS}:
            yield from _own_helps(cluster, pending, name, reasons[0])
        else:
            alike = [each for each in able if unfit[each] == reasons]
            yield from _rule_helps(cluster, pending, alike)


def _own_helps(cluster: Snapshot, pending: Pending, name: str, reason: Reason) -> Iterator[Help]:
    """Yield what helps against a rule about the node alone."""
    node = cluster.nodes[name]
    match reason.rule:
        case rule if rule is CORDONED or (rule is TAINTED and is_unschedulable(node)):
            if _fits(cluster, pending, node=cluster.model.uncordoned(name)):
                yield Help(
                    kind="node", now=True, to=f"uncordon {name}", who=(name,),
                    command=f"kubectl uncordon {name}",
                )  # fmt: skip
        case rule if rule is TAINTED:
            yield from _taint_helps(cluster, pending, name, reason)
        case rule if rule is UNSELECTED:
            yield from _label_help(cluster, pending, name)
        case rule if rule is INSUFFICIENT:
            yield from _request_helps(cluster, pending, name)
        case rule if rule is OTHER_NODE:
            spec = {key: part for key, part in spec_of(pending.pod).items() if key != "nodeName"}
            if _fits(cluster, pending, spec=spec):
                yield Help(
                    kind="node", now=True, who=(name,), to=f"leave out nodeName, {name} has them"
                )
        case _:
            return


def _taint_helps(cluster: Snapshot, pending: Pending, name: str, reason: Reason) -> Iterator[Help]:
    """Yield how to get past a taint; what the control plane sets says something about the node."""
    key, value = reason.fields
    if is_of_control_plane(key):
        return
    node = cluster.nodes[name]
    without = [item for item in taints_of(node) if item["key"] != key]
    taint = f"{key}={value}" if value else key
    if _fits(cluster, pending, node={**node, "spec": {**spec_of(node), "taints": without}}):
        yield Help(
            kind="node", now=True, who=(name,),
            to=f"add a toleration for {taint} to the pod, or remove the taint",
            command=f"kubectl taint nodes {name} {key}-",
        )  # fmt: skip


def _label_help(cluster: Snapshot, pending: Pending, name: str) -> Iterator[Help]:
    spec = spec_of(pending.pod)
    labels, wanted = labels_of(cluster.nodes[name]), spec.get("nodeSelector") or {}
    other = {label: value for label, value in wanted.items() if labels.get(label) != value}
    if len(other) == 1:
        [(label, value)] = other.items()
        changed = {key: part for key, part in wanted.items() if key != label}
        has = f"no label {label}"
        if label in labels:
            has, changed[label] = f'{label} "{labels[label]}"', labels[label]
        to = f'change nodeSelector {label} "{value}": {name} has {has}'
        if _fits(cluster, pending, spec={**spec, "nodeSelector": changed}):
            yield Help(kind="node", now=True, who=(name,), to=to)
    elif not other:
        affinity = {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}
        if _fits(cluster, pending, spec={**spec, "affinity": affinity}):
            to = f"change the pod's node affinity: {name} has the devices"
            yield Help(kind="node", now=True, who=(name,), to=to)


def _request_helps(cluster: Snapshot, pending: Pending, name: str) -> Iterator[Help]:
    """Yield with how much the pod would do."""
    for resource, needed, free in cluster.shortages(pending, name):
        if free <= 0:
            continue
        spec = {**spec_of(pending.pod), **_asking_less(pending.pod, resource, needed - free)}
        if _fits(cluster, pending, spec=spec):
            to = f"{amount_of(resource, free)} {resource} or less"
            yield Help(kind="value", now=True, who=(name,), to=to)


def _asking_less(pod: JsonObject, resource: str, less: int) -> JsonDict:
    """Return the containers of a pod, the one that asks for most asking for less of a resource."""
    spec = spec_of(pod)
    containers = [dict(each) for each in spec.get("containers") or ()]
    asked = [
        base_units(resource, requested(each.get("resources")).get(resource, "0"))
        for each in containers
    ]
    if not asked or max(asked) < less:
        return {}
    most = asked.index(max(asked))
    amount = amount_of(resource, asked[most] - less)
    resources = containers[most].get("resources") or {}
    containers[most]["resources"] = {
        **resources,
        "requests": {**(resources.get("requests") or {}), resource: amount},
        "limits": {k: v for k, v in (resources.get("limits") or {}).items() if k != resource},
    }
    return {"containers": containers}


def _fits(
    cluster: Snapshot,
    pending: Pending,
    *,
    spec: JsonObject | None = None,
    node: JsonObject | None = None,
) -> bool:
    """Return whether the scheduler would place a pod with another spec, or with a changed node."""
    asked = pending if spec is None else replace(pending, pod={**pending.pod, "spec": dict(spec)})
    model = cluster.model
    with model.tentatively():
        if node is not None:
            model.put_node(model.objects.with_room(node, cluster.provided))
        return isinstance(cluster.decide(asked), PodPlacement)


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
