"""Whether a change helps: it is made on the model, and the scheduler's cycle is asked for the pod.

This is the one place where helps are confirmed, of whatever kind: beside the claims that are
allocated and reserved, with affinity, volumes and the rest of the pod's group. Which changes are
worth a trial is left to `helps`, `unfit` and `moves`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Final

from dralab.explanation.causes import Help, MarkedField
from dralab.explanation.edits import patch_of, pointer
from dralab.explanation.names import shortened
from dralab.objects.metadata import NamespacedName, key_of, spec_of
from dralab.objects.taints import UNSCHEDULABLE, taints_of
from dralab.scheduling.backlog import DEFAULT_NAMESPACE
from dralab.scheduling.copies import copies, put
from dralab.scheduling.model import ClusterModel, Decision
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict, JsonObject

MOST_NAMED: Final = 3
MOST_TOGETHER: Final = 48
"""Combinations of changes that are tried."""
STAYS: Final = frozenset({"spelling", "guard", "value", "count", "constraint", "tolerate", "drop"})
"""Changes of what is asked for: they may be right, although something else is missing too."""


class Trial:
    """Tries changes for one pod of a model, and forgets them."""

    def __init__(self, model: ClusterModel, asked: PodQuestion) -> None:
        self.model = model
        self.asked = asked
        self._known: dict[int, tuple[Help, Help | None]] = {}

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
                return Help(kind="several", now=True, parts=tuple(map(self._of_pod, parts)))
        return None

    def after(self, helps: Sequence[Help]) -> Decision | None:
        """Return what the scheduler decides once some helps are followed; None: nobody can tell."""
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

    # --- carrying out

    def _done(
        self, help_: Help, pod: JsonObject, moved: list[tuple[PodInfo, str]]
    ) -> JsonObject | None:
        """Follow a help on the model; return the pod as it is then, None where nobody can tell."""
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
        if kind == "class" and (known := self.model.state.demands.classes.get(name)) is not None:
            self.model.put_class(dict(json_patch(known, list(patch))))
            return pod
        group = self.model.objects.groups.get(_key(name)) if kind == "group" else None
        if group is not None:
            self.model.put_group(dict(json_patch(group, list(patch))))
            return pod
        claim = self.model.claims.get(_key(name)) if kind == "claim" else None
        if claim is None:
            return None
        self.model.put_claim(dict(json_patch(claim, list(patch))))
        return pod

    def _end(self, name: str) -> list[PodInfo]:
        """Let a pod end, or all that use a claim; return them as they would be made again."""
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
        containers = spec_of(asked.pod.obj).get("containers") or ()
        fields = [
            f"spec.containers[{number}].resources.{part}[{resource}]"
            for number, container in enumerate(containers)
            for part in ("requests", "limits")
            for resource in (container.get("resources") or {}).get(part) or ()
            if resource in asked.demand.extended
        ]
        if help_.kind != "count" or len(asked.demand.extended) != 1 or len(fields) > 2:
            return help_
        value = str(help_.number)
        edits = tuple({"op": "replace", "path": pointer(each), "value": value} for each in fields)
        owner = MarkedField(owner=("pod", str(asked.pod.key)), field=fields[0], text=value)
        return replace(help_, mark=owner, edits=edits)


def single(help_: Help) -> Iterator[Help]:
    """Yield a help as it is, or one for each of those whose end may be enough."""
    if help_.kind != "wait" or help_.note != "any":
        yield help_
        return
    for name in help_.who:
        yield replace(help_, who=(name,), number=1)


def claim_names_of(placed: PodPlacement) -> Iterator[str]:
    """Yield the names of the claims of a pod that runs, as helps name them."""
    for plan in placed.plans:
        if plan.claim["metadata"].get("name"):
            yield from (str(key_of(plan.claim)), shortened(str(key_of(plan.claim))))


def _key(name: str) -> NamespacedName:
    namespace, _, short = name.rpartition("/")
    return NamespacedName(namespace or DEFAULT_NAMESPACE, short)
