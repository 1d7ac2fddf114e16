"""Nodes that a pod may not use: which rule leads, and which changes would let the pod in.

A change is proposed only if the scheduler then finds a place for the pod, in the whole state as it
is. What is wrong with devices is left to `diagnose`.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from dralab.explanation.after_devices import ending_enough
from dralab.explanation.broken_rules import BrokenRule, RuleTeller
from dralab.explanation.causes import Help, MarkedField, NodesUnfit
from dralab.explanation.names import joined, listed, shortened
from dralab.explanation.patches import escaped
from dralab.explanation.words import reason_text
from dralab.objects.metadata import key_of, labels_of, spec_of
from dralab.objects.nodes import HOSTNAME, is_unschedulable
from dralab.objects.pods import containers_of
from dralab.objects.requests import amount_of, base_units, requested
from dralab.objects.taints import REPELLING, is_of_control_plane, taints_of, untolerated
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
from dralab.scheduling.state import PodPlacement
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict, JsonObject

OF_NODES: Final = frozenset({"NodeName", *(rule.plugin for rule in NODE_RULES)})
"""The filters that say for which nodes a pod is meant at all."""
MOST_TOLD: Final = 3
"""Nodes that are alike whose rules are told."""
Unfit = Mapping[str, Reasons]


def nearest(asked: PodQuestion, names: Iterable[str], every: Unfit) -> list[str]:
    """Return nodes with the one first that lacks least: the fewest rules, the smallest part."""

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
    broken = told_rule(asked, alike[0]) if alike else None
    facts: dict[str, None] = {}
    if broken is not None:
        have = "has" if len(alike) == 1 else "have"
        # The clauses that say what a node has bring their verb.
        subject = _subject(asked, alike, verb=False)
        if broken.clause.startswith("{") and not asked.wants_devices:
            subject = listed(alike, 2)
        detail = f"{subject} {broken.clause.format(have=have)}"
        for name in alike[:MOST_TOLD]:
            each = told_rule(asked, name)
            facts |= dict.fromkeys(each.facts if each is not None else ())
    return NodesUnfit(
        code=lead.code,
        total=len(unfit),
        reasons=tuple(ordered),
        able=tuple(alike),
        detail=detail,
        mark=None if broken is None else _mark(asked, broken),
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


def told_rule(asked: PodQuestion, node: str) -> BrokenRule | None:
    """Return the rule about other pods or volumes that keeps a pod from a node, if there is one."""
    reasons = asked.refusals(node)
    if not reasons:
        return None
    row = asked.table.row_of[node]
    return RuleTeller(asked.state).told(asked.pod, row, reasons[0])


def _mark(asked: PodQuestion, broken: BrokenRule) -> MarkedField | None:
    if not broken.field:
        return None
    return MarkedField(owner=("pod", str(asked.pod.key)), field=broken.field, text=broken.text)


def node_helps(
    model: ClusterModel, asked: PodQuestion, unfit: Unfit, able: Sequence[str]
) -> Iterator[Help]:
    """Yield what would let the pod onto nodes that have its devices; each change alone is enough.

    For each is shown that the scheduler places the pod then.
    """
    seen: set[Reason] = set()
    for name in able:
        reasons = unfit[name]
        short = all(each.rule is INSUFFICIENT for each in reasons)
        if (len(reasons) != 1 and not short) or reasons[0] in seen:
            continue
        seen.add(reasons[0])
        if reasons[0].rule.plugin in OF_NODES or reasons[0].rule in {INSUFFICIENT, TOO_MANY_PODS}:
            yield from _own_helps(model, asked, name, reasons[0])
        else:
            alike = [each for each in able if unfit[each] == reasons]
            yield from _rule_helps(model, asked, alike)


def _own_helps(
    model: ClusterModel, asked: PodQuestion, name: str, reason: Reason
) -> Iterator[Help]:
    """Yield what helps against a rule about the node alone."""
    node = model.node(name) or {}
    match reason.rule:
        case rule if rule is CORDONED or (rule is TAINTED and is_unschedulable(node)):
            if _fits(model, asked, node=model.uncordoned(name)):
                yield Help(
                    kind="node", now=True, to=f"uncordon {name}", who=(name,),
                    command=f"kubectl uncordon {name}",
                )  # fmt: skip
        case rule if rule is TAINTED:
            yield from _taint_helps(model, asked, name)
        case rule if rule is UNSELECTED:
            yield from _label_help(model, asked, name)
        case rule if rule in {INSUFFICIENT, TOO_MANY_PODS}:
            if ending := ending_enough(model, asked.pod, name):
                who = tuple(f"pod {each}" for each in ending)
                yield Help(kind="wait", now=True, who=who, number=len(who), note="any")
            yield from _request_helps(model, asked, name)
        case rule if rule is OTHER_NODE:
            edits = ({"op": "remove", "path": "/spec/nodeName"},)
            to = f"leave out nodeName, {name} has them"
            yield from _edited(model, asked, name, to, edits)
        case _:
            return


def _taint_helps(model: ClusterModel, asked: PodQuestion, name: str) -> Iterator[Help]:
    """Yield how to get past a taint; what the control plane sets says something about the node."""
    node, keys, found = model.node(name) or {}, set[str](), list[str]()
    while (left := untolerated(asked.pod.tolerations, _others(node, keys), REPELLING)) is not None:
        key, value = str(left["key"]), left.get("value")
        if is_of_control_plane(key):
            return
        keys.add(key)
        found.append(f"{key}={value}" if value else key)
    without, taint = _others(node, keys), joined(found)
    several = "them" if len(found) > 1 else "the taint"
    if _fits(model, asked, node={**node, "spec": {**spec_of(node), "taints": without}}):
        yield Help(
            kind="node", now=True, who=(name,),
            to=f"add a toleration for {taint} to the pod, or remove {several}",
            command=f"kubectl taint nodes {name} {' '.join(f'{key}-' for key in sorted(keys))}",
        )  # fmt: skip


def _others(node: JsonObject, keys: Container[str]) -> list[JsonObject]:
    """Return the taints of a node but for those with some keys."""
    return [item for item in taints_of(node) if item["key"] not in keys]


def _label_help(model: ClusterModel, asked: PodQuestion, name: str) -> Iterator[Help]:
    spec = spec_of(asked.pod.obj)
    labels, wanted = labels_of(model.node(name) or {}), spec.get("nodeSelector") or {}
    other = {label: value for label, value in wanted.items() if labels.get(label) != value}
    if len(other) == 1:
        [(label, value)] = other.items()
        edit: JsonDict = {"op": "remove", "path": f"/spec/nodeSelector/{escaped(label)}"}
        has = f"no label {label}"
        if label in labels:
            has = f'{label} "{labels[label]}"'
            edit |= {"op": "replace", "value": labels[label]}
        to = f'change nodeSelector {label} "{value}": {name} has {has}'
        yield from _edited(model, asked, name, to, (edit,))
    elif not other:
        edits = ({"op": "remove", "path": "/spec/affinity/nodeAffinity"},)
        to = f"change the pod's node affinity: {name} has the devices"
        yield from _edited(model, asked, name, to, edits)


def _request_helps(model: ClusterModel, asked: PodQuestion, name: str) -> Iterator[Help]:
    """Yield with how much the pod would do."""
    edits, amounts = list[JsonObject](), list[str]()
    pod = asked.pod.obj
    for resource, needed, free in asked.shortages(name):
        edit = _asking_less(pod, resource, needed - free)
        if free <= 0 or edit is None:
            return
        edits.append(edit)
        amounts.append(f"{amount_of(resource, free)} {resource}")
        pod = json_patch(pod, [dict(edit)])
    to = f"{joined(amounts)} or less"
    yield from _edited(model, asked, name, to, tuple(edits), kind="value")


def _asking_less(pod: JsonObject, resource: str, less: int) -> JsonObject | None:
    """Return an edit by which the container that asks for most asks for less of a resource."""
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
    model: ClusterModel,
    asked: PodQuestion,
    name: str,
    to: str,
    edits: tuple[JsonObject, ...],
    *,
    kind: Literal["node", "value"] = "node",
) -> Iterator[Help]:
    """Yield a help that edits the pod to go to a node, if the pod then fits."""
    pod = json_patch(asked.pod.obj, [dict(each) for each in edits])
    if _fits(model, asked, spec=spec_of(pod)):
        mark = MarkedField(owner=("pod", str(asked.pod.key)), field="spec")
        yield Help(kind=kind, now=True, who=(name,), to=to, mark=mark, edits=edits)


def _fits(
    model: ClusterModel,
    asked: PodQuestion,
    *,
    spec: JsonObject | None = None,
    node: JsonObject | None = None,
) -> bool:
    """Return whether the scheduler would place a pod with another spec, or with a changed node."""
    pod = asked.pod
    if spec is not None:
        pod = model.info(model.objects.pod({**pod.obj, "spec": dict(spec)}))
    with model.tentatively():
        if node is not None:
            model.put_node(model.objects.with_room(node, model.provided))
        return isinstance(model.decide(pod, asked.only), PodPlacement)


def _rule_helps(model: ClusterModel, asked: PodQuestion, names: Sequence[str]) -> Iterator[Help]:
    """Yield what helps against a rule about other pods on some nodes: each was tried."""
    told = [each for name in names[:MOST_TOLD] if (each := told_rule(asked, name)) is not None]
    ending = [each.blockers for each in told if each.blockers and fits_without(model, asked, each)]
    single = dict.fromkeys(f"pod {each[0]}" for each in ending if len(each) == 1)
    several = [each for each in ending if len(each) > 1]
    if single:
        yield Help(kind="wait", now=True, who=tuple(single), number=len(single), note="any")
    elif several:
        who = tuple(f"pod {each}" for each in min(several, key=len))
        yield Help(kind="wait", now=True, who=who, number=len(who), note="all")
    for remedy in told[0].remedies if told else ():
        yield from _edited(model, asked, names[0], remedy.text, remedy.edits)


def fits_without(model: ClusterModel, asked: PodQuestion, broken: BrokenRule) -> bool:
    """Return whether a pod fits once the pods that are in its way have ended."""
    ending = set(broken.blockers)
    gone = [uid for uid, each in model.running.items() if str(each.pod.key) in ending]
    with model.tentatively():
        for uid in gone:
            model.take_away(uid)
        return isinstance(model.decide(asked.pod), PodPlacement)


def confirmed(model: ClusterModel, asked: PodQuestion, helps: Iterable[Help]) -> tuple[Help, ...]:
    """Return helps as far as the scheduler then places the pod, in the whole state.

    Whose end is awaited is tried. Where nobody's end is enough, a further node of the kind is not
    either: something else than its devices is missing.
    """
    tried = [_ending(model, asked, each) for each in helps]
    enough = all(each is not None for each in tried)
    return tuple(each for each in tried if each is not None and (enough or each.kind != "add"))


def _ending(model: ClusterModel, asked: PodQuestion, found: Help) -> Help | None:
    """Return a help with those whose end is enough; None where nobody's is."""
    if found.kind != "wait" or not found.now:
        return found
    if found.note != "any":
        return found if _fits_after(model, asked, found.who) else None
    who = tuple(name for name in found.who if _fits_after(model, asked, [name]))
    number = found.number - len(found.who) + len(who)
    return replace(found, who=who, number=number) if who else None


def _fits_after(model: ClusterModel, asked: PodQuestion, who: Sequence[str]) -> bool:
    """Return whether a pod fits once others have ended: pods, or those that use a claim."""
    uids = {
        uid
        for uid, each in model.running.items()
        if not {f"pod {each.pod.key}", *_claims(each)}.isdisjoint(who)
    }
    if not uids:
        return True  # nobody uses the claim: its end cannot be tried
    with model.tentatively():
        for uid in sorted(uids):
            model.take_away(uid)
        return isinstance(model.decide(asked.pod, asked.only), PodPlacement)


def _claims(placed: PodPlacement) -> Iterator[str]:
    """Yield the names of a pod's claims, as helps name them."""
    for plan in placed.plans:
        if plan.claim["metadata"].get("name"):
            yield from (str(key_of(plan.claim)), shortened(str(key_of(plan.claim))))


def takes_another(model: ClusterModel, asked: PodQuestion, like: str) -> bool:
    """Return whether a new node like another one would be one that the pod may use."""
    name = f"{like}-another"
    node = model.node(like) or {}
    labels = {**labels_of(node), HOSTNAME: name}
    metadata = {**node["metadata"], "name": name, "labels": labels}
    with model.tentatively():
        model.put_node(model.objects.with_room({**node, "metadata": metadata}, model.provided))
        return not PodQuestion(model.state, asked.pod, name).unfit()
