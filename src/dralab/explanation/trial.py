"""Whether a change helps: it is applied to the model, and the pod is scheduled on it.

This is the one place where helps are confirmed, of whatever kind: beside the claims that are
allocated and reserved, with affinity, volumes and the rest of the pod's group. Which changes are
worth a trial is left to `helps` and `unfit`; but whose end would be enough, and who could be moved,
deleted or preempted, is found out here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Final

from dralab.allocation.problem import DeviceId
from dralab.explanation.causes import Help, MarkedField
from dralab.explanation.conditions import fewest
from dralab.explanation.edits import patch_of, pointer
from dralab.explanation.inquiry import Inquiry
from dralab.explanation.names import UNKNOWN, listed, resource_fields, shortened
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.metadata import DEFAULT_NAMESPACE, NamespacedName, key_of, metadata_of, spec_of
from dralab.objects.pods import SAFE_TO_EVICT, is_finished
from dralab.objects.taints import UNSCHEDULABLE, taints_of
from dralab.scheduling.copies import copies, put
from dralab.scheduling.cycle import schedule
from dralab.scheduling.model import ClusterModel, Decision
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.scheduling.victims import PodsAway, Victim
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict, JsonObject

MOST_NAMED: Final = 3
MOST_TRIED: Final = 48
MOST_NODES: Final = 6
MOST_TOGETHER: Final = 48
"""Combinations of changes that are tried."""
MOST_CYCLES: Final = 8
"""Cycles of a scheduler at work for one event."""
STAYS: Final = frozenset({"spelling", "guard", "value", "count", "constraint", "tolerate", "drop"})
"""Changes of what is asked for: they may be right, although something else is missing too."""


class Confirming(ABC):
    """Confirms changes for one pod: each is tried, then undone."""

    def __init__(self, asked: PodQuestion) -> None:
        self.asked = asked
        self._known: dict[int, tuple[Help, Help | None]] = {}

    @abstractmethod
    def after(self, helps: Sequence[Help]) -> Decision | None:
        """Return the scheduler's decision after some helps; None if it cannot be predicted."""

    def confirmed(self, help_: Help) -> Help | None:
        """Return a help as the scheduler confirms it: `now`, or with what is `lacking` after it.

        None for one that does not help. Of several whose end is each enough, those remain for whom
        that is so.
        """
        known = self._known.get(id(help_))
        if known is None:
            found = self._confirmed(help_)
            known = self._known[id(help_)] = help_, found
            if found is not None:
                self._known[id(found)] = found, found
        return known[1]

    def is_enough(self, help_: Help) -> bool:
        """Return whether a pod gets its place after a help."""
        found = self.confirmed(help_)
        return found is not None and found.now

    def _confirmed(self, help_: Help) -> Help | None:
        found = self._of_pod(help_)
        if found.kind == "wait" and found.note == "any" and found.now:
            enough = (one.who[0] for one in single(found) if self._helps(one))
            who = tuple(islice(enough, MOST_NAMED))
            more = found.number - len(found.who) if len(found.who) <= MOST_NAMED else 0
            return replace(found, who=who, number=len(who) + more) if who else None
        decided = self.after(found.parts or [found])
        if decided is None:
            return replace(found, now=False)
        if isinstance(decided, PodPlacement):
            return replace(found, now=True)
        if found.kind not in STAYS:
            return None
        first = decided.blocked or decided.fatal
        lacking = ((first, 0),) if first else tuple(decided.reasons.items())
        return replace(found, now=False, lacking=lacking)

    def _helps(self, help_: Help) -> bool:
        return isinstance(self.after([help_]), PodPlacement)

    def _of_pod(self, help_: Help) -> Help:
        """Return a help as a change of an object that users can edit."""
        return help_


class Trial(Confirming):
    """Tries changes for one pod of a model."""

    def __init__(self, model: ClusterModel, asked: PodQuestion) -> None:
        super().__init__(asked)
        self.model = model

    def combined(self, choices: Iterable[Sequence[Sequence[Help]]]) -> Help | None:
        """Return the first combination that is enough: one help of each list of a choice."""
        sets = (
            parts
            for lists in choices
            for parts in product(
                *([one for each in some for one in single(each)] for some in lists)
            )
        )
        for several in islice(sets, MOST_TOGETHER):
            # Two reasons of one node may ask for the same change.
            parts = [each for at, each in enumerate(several) if each not in several[:at]]
            if isinstance(self.after(parts), PodPlacement):
                return Help(kind="several", parts=tuple(map(self._of_pod, parts)))
        return None

    def after(self, helps: Sequence[Help]) -> Decision | None:
        """Return the scheduler's decision after some helps; None if it cannot be predicted."""
        model, asked = self.model, self.asked
        with model.tentatively():
            changed: JsonObject = asked.pod.obj
            moved: list[tuple[PodInfo, str]] = []
            for each in map(self._of_pod, helps):
                found = self._done(each, changed, moved)
                if found is None:
                    return None
                changed = found
            pod = asked.pod
            if changed is not pod.obj:
                pod = model.info(model.objects.pod(changed))
            decided = model.decide(pod, asked.only)
            if isinstance(decided, PodPlacement) and moved:
                model.place(decided)
                places = [model.decide(each, to) for each, to in moved]
                decided = next((each for each in places if isinstance(each, Refusal)), decided)
            return decided

    # --- carrying out

    def _done(
        self, help_: Help, pod: JsonObject, moved: list[tuple[PodInfo, str]]
    ) -> JsonObject | None:
        """Apply a help to the model; return the resulting pod, None if it cannot be predicted."""
        model = self.model
        if patch := patch_of(help_):
            return self._patched(help_, patch, pod)
        if help_.kind in {"wait", "preempt", "move"}:
            ended = [self._end(name) for name in help_.who]
            moved += [(each, help_.to) for some in ended for each in some if help_.kind == "move"]
            return pod
        if help_.kind == "add" and model.node(help_.note) is not None:
            for item in copies(model, help_.note, 1):
                put(model, item)
            return pod
        if help_.kind == "node" and help_.taints:
            node = model.node(help_.who[0]) or {}
            spec = {**spec_of(node)}
            spec["taints"] = [each for each in taints_of(node) if each["key"] not in help_.taints]
            if UNSCHEDULABLE["key"] in help_.taints:
                spec.pop("unschedulable", None)
            model.put_node(model.objects.with_room({**node, "spec": spec}, model.provided))
            return pod
        return None

    def _patched(
        self, help_: Help, patch: Sequence[JsonDict], pod: JsonObject
    ) -> JsonObject | None:
        kind, name = help_.mark.owner if help_.mark is not None else ("", "")
        if kind == "pod":
            return dict(json_patch(pod, list(patch)))
        model, key = self.model, _key(name)
        stored, put = {
            "class": (model.state.demands.classes.get(name), model.put_class),
            "group": (model.objects.groups.get(key), model.put_group),
            "claim": (model.claims.get(key), model.put_claim),
        }.get(kind, (None, model.put_claim))
        if stored is None:
            return None
        put(dict(json_patch(stored, list(patch))))
        return pod

    def _end(self, name: str) -> list[PodInfo]:
        """End a pod, or all that use a claim; return them as they would be created again."""
        model = self.model
        uids = [
            uid
            for uid, each in model.running.items()
            if name in {f"pod {each.pod.key}", *claim_names_of(each)}
        ]
        if not uids and not name.startswith("pod ") and _key(name) in model.claims:
            model.release(_key(name))
        return [model.take_away(uid) for uid in sorted(uids)]

    def _of_pod(self, help_: Help) -> Help:
        """Return a help about the claim for extended resources as one about the pod itself."""
        mark, asked = help_.mark, self.asked
        if mark is None or mark.owner[0] != "claim" or _key(mark.owner[1]) in self.model.claims:
            return help_
        fields = resource_fields(asked.pod.obj, asked.demand.extended)
        if help_.kind != "count" or len(asked.demand.extended) != 1 or len(fields) > 2:
            return help_
        value = str(help_.number)
        edits = tuple({"op": "replace", "path": pointer(each), "value": value} for each in fields)
        owner = MarkedField(owner=("pod", str(asked.pod.key)), field=fields[0], text=value)
        return replace(help_, mark=owner, edits=edits)


class LiveTrial(Confirming):
    """Tries changes of a pod's own claims, or the end of others, on a scheduler's state.

    Each try is one cycle, and there are few. `claims` names the claims as helps name them.
    """

    def __init__(self, asked: PodQuestion, claims: Mapping[str, NamespacedName]) -> None:
        super().__init__(asked)
        self.claims = claims
        self.left = MOST_CYCLES

    def after(self, helps: Sequence[Help]) -> Decision | None:
        """Return the scheduler's decision after some helps; None if it cannot be predicted."""
        state, pod = self.asked.state, self.asked.pod
        supposed: dict[NamespacedName, JsonDict] = {}
        leaving: list[Victim] = []
        for each in helps:
            if patch := patch_of(each):
                key = self.claims.get(each.mark.owner[1]) if each.mark is not None else None
                claim = None if key is None else supposed.get(key) or state.demands.claim(key)
                if key is None or claim is None:
                    return None
                supposed[key] = dict(json_patch(claim, patch))
            elif each.kind == "wait":
                leaving += map(self._users, each.who)
            else:
                return None
        if self.left <= 0 or not all(unit.pods for unit in leaving):
            return None
        self.left -= 1
        away = PodsAway(state)
        try:
            for unit in leaving:
                away.take(unit)
            with state.demands.supposing(supposed):
                return schedule(state, pod, state.table.live)
        finally:
            away.bring_all_back()

    def _users(self, name: str) -> Victim:
        """Return the pods on nodes that use a claim; none where the claim has other users, too."""
        state = self.asked.state
        claim = state.demands.claim(_key(name))
        users = set() if claim is None else state.devices.users_of(claim)
        there = [
            (node, pods[uid])
            for node, pods in zip(state.table.names, state.table.pods, strict=True)
            for uid in sorted(users & pods.keys())
        ]
        return Victim(pods=tuple(there) if len(there) == len(users) else (), priority=0)


def single(help_: Help) -> Iterator[Help]:
    """Yield a help as it is, or one for each pod whose end may be enough."""
    if help_.kind != "wait" or help_.note != "any":
        yield help_
        return
    for name in help_.who:
        yield replace(help_, who=(name,), number=1)


def claim_names_of(placed: PodPlacement) -> Iterator[str]:
    """Yield the names of the claims of a pod that runs, as helps name them."""
    for plan in placed.plans:
        if not plan.is_new:
            yield from (str(key_of(plan.claim)), shortened(str(key_of(plan.claim))))


def _key(name: str) -> NamespacedName:
    namespace, _, short = name.rpartition("/")
    return NamespacedName(namespace or DEFAULT_NAMESPACE, short)


# --- whose end, or move, is enough


def waits_for(inquiry: Inquiry, holders: Sequence[str]) -> Iterator[Help]:
    """Yield the holders of devices whose end would be enough.

    Several that are each enough are one proposal, those that end first before others; where one is
    not enough, the fewest of one node.
    """
    if not holders:
        return
    held: dict[str, set[DeviceId]] = {}
    for device, names in inquiry.in_use.holders.items():
        for name in names:
            held.setdefault(name, set()).add(device)
    where = inquiry.asking.node_of_held
    enough: list[str] = []
    ends = inquiry.ends
    ordered = sorted(holders, key=lambda name: ends.get(name, UNKNOWN))
    for name in ordered[:MOST_TRIED]:
        devices = held.get(name, set())
        nodes = {where[device] for device in devices if device in where}
        if nodes and inquiry.asking.serves(freed=devices, nodes=nodes):
            enough.append(name)
            if len(enough) > MOST_NAMED:
                break
    if enough:
        more = len(holders) - len(enough) if len(enough) > MOST_NAMED else 0
        named = enough[:MOST_NAMED]
        yield Help(
            kind="wait", who=tuple(named), number=len(enough) + more, note="any",
            ends=ends.get(named[0], UNKNOWN).text,
        )  # fmt: skip
        return
    by_node: dict[str, list[str]] = {}
    for name, devices in held.items():
        for node in {where[device] for device in devices if device in where}:
            by_node.setdefault(node, []).append(name)

    def enough_of(node: str, names: Sequence[str]) -> bool:
        freed: set[DeviceId] = set().union(*(held[name] for name in names))
        return inquiry.asking.serves(freed=freed, nodes={node}) is True

    best: list[str] = []
    for node, several in sorted(by_node.items(), key=lambda item: len(item[1]))[: 4 * MOST_NODES]:
        if len(best) in {1, 2}:
            break
        if enough_of(node, several):
            kept = fewest(several, partial(enough_of, node))
            best = kept if not best or len(kept) < len(best) else best
    if best:
        yield Help.waiting(best, "all")


MOST_MOVED: Final = 3


def moves_for(model: ClusterModel, asked: PodQuestion, helps: Sequence[Help]) -> Iterator[Help]:
    """Yield single pods to move so that another fits: of those whose end is enough."""
    names = [
        name for each in helps if each.kind == "wait" and each.note == "any" for name in each.who
    ]
    for placed in model.in_order(model.running.values()):
        mine = [name for name in claim_names_of(placed) if name in names[:MOST_MOVED]]
        # A claim of several pods moves with all of them, or not at all; what a finished pod has is
        # given back without a move.
        shared = any(len(model.users_of(plan.claim)) > 1 for plan in placed.plans)
        kept = (metadata_of(placed.pod.obj).get("annotations") or {}).get(SAFE_TO_EVICT) == "false"
        if not mine or shared or kept or is_finished(placed.pod.obj):
            continue
        with model.tentatively():
            moved = model.take_away(placed.pod.uid)
            decided = model.decide(asked.pod, asked.only)
            if not isinstance(decided, PodPlacement):
                continue
            model.place(decided)
            model.cordon(placed.node)
            other = model.decide(moved)
        if isinstance(other, PodPlacement):
            yield Help(kind="move", who=(mine[0],), to=other.node, note=placed.node)


def preemption_for(
    model: ClusterModel, asked: PodQuestion, helps: Sequence[Help]
) -> Iterator[Help]:
    """Yield pods of a lower priority whose end is enough.

    kube-scheduler does not preempt pods for devices, so that a person has to delete them.
    """
    mine = asked.pod.priority
    if not asked.pod.may_preempt:
        return
    running = model.in_order(model.running.values())
    for each in helps:
        if each.kind != "wait" or not each.now:
            continue
        users = [
            (placed.pod.priority, name, placed.pod.key)
            for placed in running
            for name in dict.fromkeys(claim_names_of(placed))
            if name in each.who
        ]
        lower = [found for found in users if found[0] < mine]
        needed = lower if each.note == "any" else lower * (len(lower) == len(users))
        if not needed:
            continue
        chosen = [min(needed, key=lambda item: item[0])] if each.note == "any" else needed
        pods = " ".join(dict.fromkeys(key.name for _, _, key in chosen))
        if len({key.namespace for _, _, key in chosen}) > 1:
            continue
        namespace = chosen[0][2].namespace
        where = f" -n {namespace}" if namespace != "default" else ""
        yield Help(
            kind="preempt",
            who=tuple(name for _, name, _ in chosen),
            to=f"{max(found for found, _, _ in chosen)} < {mine}",
            command=f"kubectl delete pod {pods}{where}",
        )
        return


def eviction_of(model: ClusterModel, pod: PodInfo) -> Help | None:
    """Return which pods the scheduler preempts for another; None where it preempts none.

    Pods that would have to give up devices are left to `preemption_for`.
    """
    budgets = model.objects.of("PodDisruptionBudget")
    found = eviction_for(model.state, pod, budgets)
    if found is None or found.claims:
        return None
    names = [str(each.key) for each in found.victims]
    broken = [
        f"{item['metadata']['name']} allows {disruptions_allowed(item)}"
        for item in budgets
        if found.violations and any(covers(item, each.obj) for each in found.victims)
    ]
    return Help(
        kind="preempt",
        who=tuple(f"pod {name}" for name in names),
        to=f"{max(each.priority for each in found.victims)} < {pod.priority}",
        note=f"on {found.node}" + (f", although budget {listed(broken)}" if broken else ""),
    )
