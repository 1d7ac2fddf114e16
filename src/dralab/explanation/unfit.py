"""Nodes that a pod may not use: the decisive rule, and changes that would allow the pod.

What is wrong with devices is left to `diagnose`; whether a change helps is `trial`'s answer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from dralab.cel.functions.patches import escape_key
from dralab.explanation.broken_rules import RuleFinder
from dralab.explanation.causes import Help, MarkedField, NodesUnfit
from dralab.explanation.names import joined, listed, shortened
from dralab.explanation.sentences import reason_text
from dralab.explanation.trial import Trial
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.pods import containers_of
from dralab.objects.requests import amount_of, base_units, requested
from dralab.objects.taints import (
    REPELLING,
    UNSCHEDULABLE,
    is_of_control_plane,
    taints_of,
    untolerated,
)
from dralab.scheduling.filters import Reasons
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.node_rules import NODE_RULES
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.reasons import (
    CORDONED,
    INSUFFICIENT,
    OTHER_NODE,
    PODS,
    TAINTED,
    TOO_MANY_PODS,
    UNSELECTED,
    Reason,
)
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict, JsonObject

OF_NODES: Final = frozenset({"NodeName", *(rule.plugin for rule in NODE_RULES)})
"""The filters that say for which nodes a pod is meant at all."""
MOST_TOLD: Final = 3
"""Nodes that are alike whose rules are told."""
MOST_TRIED: Final = 24
"""Pods of a node whose end is tried."""
CORDON: Final = UNSCHEDULABLE["key"]
Unfit = Mapping[str, Reasons]


def by_reason(unfit: Unfit) -> tuple[tuple[Reason, tuple[str, ...]], ...]:
    """Return the nodes that break each rule; the rule that most of them break comes first."""
    nodes: dict[Reason, list[str]] = {}
    for name, reasons in unfit.items():
        for each in reasons:
            nodes.setdefault(each, []).append(name)
    found = [(reason, tuple(names)) for reason, names in nodes.items()]
    return tuple(sorted(found, key=lambda item: -len(item[1])))


def nearest(asked: PodQuestion, names: Iterable[str], every: Unfit) -> list[str]:
    """Return nodes sorted by how little they lack: the fewest rules, the smallest shortage."""

    def missing(name: str) -> tuple[int, float]:
        reasons = every.get(name, ())
        parts = [
            (needed - max(free, 0)) / needed for _, needed, free in asked.shortages(name) if needed
        ]
        return len(reasons), max(parts, default=0.0)

    return sorted(names, key=lambda name: (*missing(name), name))


def nodes_unfit(asked: PodQuestion, unfit: Unfit, able: Sequence[str], every: Unfit) -> NodesUnfit:
    """Return that nodes are ruled out; `able` of them have the devices, and the first's rule leads.

    The nodes that are told of are those that break the same rules, `every` one of them.
    """
    reasons = Counter(each for several in unfit.values() for each in several)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], str(item[0])))
    alike = list(able)
    if able:
        lead = unfit[able[0]][0]
        alike = [name for name in able if every[name] == every[able[0]]]
        ordered.sort(key=lambda item: item[0] != lead)
    lead = ordered[0][0]
    detail = ""
    short = [each for each in asked.shortages(alike[0]) if each[0] != PODS] if alike else []
    amounts = joined(
        [
            f"{amount_of(resource, max(free, 0))} of the "
            f"{_written(asked.pod.obj, resource, needed)} {resource}"
            for resource, needed, free in short
        ]
    )
    if lead.rule is INSUFFICIENT and alike:
        most = "" if len(alike) == 1 else "at most "
        detail = f"{_subject(asked, alike)} {most}{amounts}"
    elif alike and len(every[alike[0]]) > 1:
        rules = [each for each in every[alike[0]] if each.rule.plugin in OF_NODES]
        told = [reason_text(each, len(alike)) for each in rules]
        told += [f"{'has' if len(alike) == 1 else 'have'} {amounts}"] * bool(short)
        detail = f"{_subject(asked, alike, verb=False)} {joined(list(dict.fromkeys(told)))}"
    broken = RuleFinder(asked, alike[0]).broken_rule() if alike else None
    facts: dict[str, None] = {}
    if broken is not None:
        have = "has" if len(alike) == 1 else "have"
        subject = _subject(asked, alike, verb=broken.lacks)
        verb = f"{have} " if broken.lacks and asked.wants_devices else ""
        detail = f"{subject} {verb}{broken.clause}"
        for name in alike[:MOST_TOLD]:
            each = RuleFinder(asked, name).broken_rule()
            facts |= dict.fromkeys(each.facts if each is not None else ())
    for name in alike[:MOST_TOLD]:
        if kept := asked.promised(name):
            pods = listed(shortened(str(each.key)) for each in kept)
            facts[f"room on {name} is kept for {pods} (nominated)"] = None
    return NodesUnfit(
        code=lead.code,
        total=len(unfit),
        reasons=tuple(ordered),
        able=tuple(alike),
        detail=detail,
        mark=None if broken is None else broken.mark,
        facts=tuple(facts),
        wants_devices=asked.wants_devices,
    )


def _subject(asked: PodQuestion, names: Sequence[str], *, verb: bool = True) -> str:
    """Return `n1 has the devices, but`; without devices `n1 has`, or `n1:` before a sentence."""
    have = "has" if len(names) == 1 else "have"
    if asked.wants_devices:
        return f"{listed(names, 2)} {have} the devices, but"
    return f"{listed(names, 2)} {have}" if verb else f"{listed(names, 2)}:"


def _written(pod: JsonObject, resource: str, units: int) -> str:
    """Return an amount as the pod writes it, where one container asks for just that."""
    for container in containers_of(pod):
        text = requested(container.get("resources")).get(resource)
        if text is not None and base_units(resource, text) == units:
            return str(text)
    return amount_of(resource, units)


def node_helps(trial: Trial, unfit: Unfit, able: Sequence[str]) -> Iterator[Help]:
    """Yield changes that would let a pod onto nodes with its devices; each is enough alone."""
    seen: set[Reason] = set()
    for name in able:
        reasons = unfit[name]
        short = all(each.rule is INSUFFICIENT for each in reasons)
        if (len(reasons) != 1 and not short) or reasons[0] in seen:
            continue
        seen.add(reasons[0])
        alike = [each for each in able if unfit[each] == reasons][:MOST_TOLD]
        waits = False
        for each in _against(trial.model, trial.asked, alike, reasons[0]):
            if each.kind == "wait" and waits:
                continue
            if trial.is_enough(each):
                waits = waits or each.kind == "wait"
                yield each


def against_all(trial: Trial, name: str, reasons: Reasons) -> list[list[Help]]:
    """Return what may help against each of the rules that keep a pod from a node."""
    found: dict[object, list[Help]] = {}
    for reason in reasons:
        of_room = reason.rule in {INSUFFICIENT, TOO_MANY_PODS}
        key: object = "room" if of_room else reason.rule
        if key not in found:
            found[key] = list(_against(trial.model, trial.asked, [name], reason))
    return list(found.values())


def _against(
    model: ClusterModel, asked: PodQuestion, names: Sequence[str], reason: Reason
) -> Iterator[Help]:
    """Yield what may help against the rule that keeps a pod from some nodes."""
    name = names[0]
    match reason.rule:
        case rule if rule is CORDONED or (rule is TAINTED and reason.subject == CORDON):
            yield Help(
                kind="node", to=f"uncordon {name}", who=(name,), taints=(CORDON,),
                command=f"kubectl uncordon {name}",
            )  # fmt: skip
        case rule if rule is TAINTED:
            yield from _taint_help(model, asked, name)
        case rule if rule is UNSELECTED:
            yield from _label_help(model, asked, name)
        case rule if rule in {INSUFFICIENT, TOO_MANY_PODS}:
            if who := [f"pod {each.pod.key}" for each in model.on(name)[:MOST_TRIED]]:
                yield Help.waiting(who)
            yield from _request_help(asked, name)
        case rule if rule is OTHER_NODE:
            edits = ({"op": "remove", "path": "/spec/nodeName"},)
            yield _edited(asked, name, f"leave out nodeName, {name} has them", edits)
        case rule if rule.plugin not in OF_NODES:
            yield from _rule_helps(asked, names)
        case _:
            return


def _taint_help(model: ClusterModel, asked: PodQuestion, name: str) -> Iterator[Help]:
    """Yield how to tolerate or remove taints; those of the control plane are explained."""
    node, keys, found = model.node(name) or {}, list[str](), list[str]()
    taints = [item for item in taints_of(node) if item["key"] != CORDON]
    while (left := untolerated(asked.pod.tolerations, taints, REPELLING)) is not None:
        key, value = str(left["key"]), left.get("value")
        if is_of_control_plane(key):
            return
        taints = [item for item in taints if item["key"] != key]
        keys.append(key)
        found.append(f"{key}={value}" if value else key)
    several = "them" if len(found) > 1 else "the taint"
    yield Help(
        kind="node", who=(name,), taints=tuple(keys),
        to=f"add a toleration for {joined(found)} to the pod, or remove {several}",
        command=f"kubectl taint nodes {name} {' '.join(f'{key}-' for key in sorted(keys))}",
    )  # fmt: skip


def _label_help(model: ClusterModel, asked: PodQuestion, name: str) -> Iterator[Help]:
    spec = spec_of(asked.pod.obj)
    labels, wanted = labels_of(model.node(name) or {}), spec.get("nodeSelector") or {}
    other = {label: value for label, value in wanted.items() if labels.get(label) != value}
    if len(other) == 1:
        [(label, value)] = other.items()
        edit: JsonDict = {"op": "remove", "path": f"/spec/nodeSelector/{escape_key(label)}"}
        has = f"no label {label}"
        if label in labels:
            has = f'{label} "{labels[label]}"'
            edit |= {"op": "replace", "value": labels[label]}
        to = f'change nodeSelector {label} "{value}": {name} has {has}'
        yield _edited(asked, name, to, (edit,))
    elif not other:
        edits = ({"op": "remove", "path": "/spec/affinity/nodeAffinity"},)
        to = f"change the pod's node affinity: {name} has the devices"
        yield _edited(asked, name, to, edits)


def _request_help(asked: PodQuestion, name: str) -> Iterator[Help]:
    """Yield the amounts with which the pod would fit."""
    edits, amounts = list[JsonObject](), list[str]()
    pod = asked.pod.obj
    for resource, needed, free in asked.shortages(name):
        edit = _asking_less(pod, resource, needed - free)
        if free <= 0 or edit is None:
            return
        edits.append(edit)
        amounts.append(f"{amount_of(resource, free)} {resource}")
        pod = json_patch(pod, [dict(edit)])
    yield _edited(asked, name, f"{joined(amounts)} or less", tuple(edits), kind="value")


def _asking_less(pod: JsonObject, resource: str, less: int) -> JsonObject | None:
    """Return an edit that lowers the largest request for a resource."""
    containers = spec_of(pod).get("containers") or ()
    asked = [
        base_units(resource, requested(each.get("resources")).get(resource, "0"))
        for each in containers
    ]
    if not asked or max(asked) < less:
        return None
    most = asked.index(max(asked))
    amount = amount_of(resource, asked[most] - less)
    resources = containers[most].get("resources") or {}
    limits = dict(resources.get("limits") or {})
    if resource in limits:
        limits[resource] = amount
    changed = {**resources, "requests": {**(resources.get("requests") or {}), resource: amount}}
    changed |= {"limits": limits} if limits else {}
    return {"op": "add", "path": f"/spec/containers/{most}/resources", "value": changed}


def _edited(
    asked: PodQuestion,
    name: str,
    to: str,
    edits: tuple[JsonObject, ...],
    kind: Literal["node", "value"] = "node",
) -> Help:
    """Return a help that edits the pod to go to a node."""
    mark = MarkedField(owner=("pod", str(asked.pod.key)), field="spec")
    return Help(kind=kind, who=(name,), to=to, mark=mark, edits=edits)


def _rule_helps(asked: PodQuestion, names: Sequence[str]) -> Iterator[Help]:
    """Yield what may help against a rule about other pods on some nodes."""
    tellers = [RuleFinder(asked, name) for name in names]
    told = [(teller, each) for teller in tellers if (each := teller.broken_rule()) is not None]
    enough = [teller.enough(each.others) for teller, each in told]
    ending = [tuple(f"pod {name}" for name in each) for each in enough if each]
    if alone := list(dict.fromkeys(who[0] for who in ending if len(who) == 1)):
        yield Help.waiting(alone)
    for who in sorted((who for who in ending if len(who) > 1), key=len):
        yield Help.waiting(who, "all")
    for remedy in told[0][1].remedies if told else ():
        yield _edited(asked, names[0], remedy.text, remedy.edits)
