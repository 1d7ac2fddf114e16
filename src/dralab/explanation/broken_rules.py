"""Explains a broken rule about other pods or volumes, and what would lift it.

What is enough to wait for is tried on the rules; whether a pod then fits is for others to try.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dralab.explanation.causes import MarkedField
from dralab.explanation.conditions import fewest
from dralab.explanation.edits import pointer
from dralab.explanation.names import listed, shortened, volume_field
from dralab.objects import host_ports
from dralab.objects.metadata import NamespacedName, spec_of
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.filters import FILTERS, Judgement, judgements, promised
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import SOFT, AffinityTerm, PodInfo, SpreadRule
from dralab.scheduling.reasons import NO_VOLUME, NOT_NEAR, TOO_NEAR, VOLUME_IN_USE, Reason
from dralab.scheduling.volumes import VolumeDemand
from dralab.values import labels
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_BLOCKERS: Final = 24
MOST_SKEW: Final = 10
OF_PODS: Final = (
    "NodePorts", "VolumeRestrictions", "VolumeBinding", "VolumeZone", "PodTopologySpread",
    "InterPodAffinity",
)  # fmt: skip
"""The filters whose rules are about other pods and about volumes."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of a pod that satisfies a rule, in words and as a JSON patch."""

    text: str
    edits: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that keeps a pod from a node, and what would lift it.

    `clause` is a sentence about the node; with `lacks` it says what the node has not. `mark` is
    where the pod states the rule, if it does. `facts` are lines about what there is. `others` are
    the pods that are in the way: once all of them have ended, the rule is met. Each of `remedies`
    lifts it.
    """

    clause: str
    lacks: bool = False
    mark: MarkedField | None = None
    facts: Sequence[str] = ()
    others: Sequence[PodInfo] = ()
    remedies: Sequence[Remedy] = ()


class RuleFinder:
    """Finds the rule about other pods or volumes that keeps a pod from a node."""

    def __init__(self, asked: PodQuestion, node: str) -> None:
        self.state, self.table, self.pod = asked.state, asked.table, asked.pod
        self.row = self.table.row_of[node]
        self.refusals = asked.refusals(node)

    def broken_rule(self) -> BrokenRule | None:
        """Return the rule; None if no rule, or only one about the node itself, keeps it away."""
        found = self._told(self.refusals[0]) if self.refusals else None
        if found is None or found.facts or not found.others:
            return found
        return replace(found, facts=[listed(map(self._at, found.others))])

    def enough(self, others: Sequence[PodInfo]) -> tuple[str, ...]:
        """Return which of some pods have to end so that the node may run the pod, as ns/name.

        No pod of the answer can be left out of it; there is none where their end is not enough.
        """
        if not others or len(others) > MOST_BLOCKERS:
            return ()
        nodes = {
            uid: node for node, row in self.table.row_of.items() for uid in self.table.pods[row]
        }
        if any(each.uid not in nodes for each in others):
            return ()  # one is still to come

        def accepted_without(gone: Sequence[PodInfo]) -> bool:
            for each in gone:
                self.table.remove_pod(nodes[each.uid], each.uid)
            try:
                return self._accepted(self.pod)
            finally:
                for each in gone:
                    self.table.add_pod(nodes[each.uid], each)

        kept = fewest(others, accepted_without) if accepted_without(others) else ()
        return tuple(str(NamespacedName(*each.key)) for each in kept)

    # --- by rule

    def _told(self, reason: Reason) -> BrokenRule | None:
        match reason.rule.plugin:
            case "NodePorts":
                return self._ports()
            case "InterPodAffinity" if reason.rule is NOT_NEAR:
                return self._affinity()
            case "InterPodAffinity" if reason.rule is TOO_NEAR:
                return self._anti_affinity()
            case "InterPodAffinity":
                return self._repelled()
            case "PodTopologySpread":
                return self._spread()
            case "VolumeRestrictions" | "VolumeBinding" | "VolumeZone":
                return self._volumes(reason)
            case _:
                return None

    def _ports(self) -> BrokenRule:
        both = [
            (mine[2], each)
            for each in self.table.pods[self.row].values()
            for mine in self.pod.ports
            if any(host_ports.collide(mine, other) for other in each.ports)
        ]
        fields = list(_host_ports(self.pod.obj, {port for port, _ in both}))
        field, port = fields[0] if fields else ("", 0)
        without = Remedy(
            "use another host port, or none: a Service reaches a pod without one",
            tuple({"op": "remove", "path": pointer(each)} for each, _ in fields),
        )
        return BrokenRule(
            clause=f"host port {port} is taken there",
            mark=self._mark(field, str(port)),
            others=list(dict.fromkeys(each for _, each in both)),
            remedies=[without],
        )

    def _affinity(self) -> BrokenRule:
        number, term = next(
            (number, term)
            for number, term in enumerate(self.pod.affinity)
            if not self._beside(term) or not self._has_label(term.key)
        )
        chosen = _selector_text(_terms(self.pod.obj, "podAffinity")[number])
        there = [each for _, each in self._placed() if term.matcher.accepts(each)]
        fact = f"pods with {chosen}: {listed(map(self._at, there))}"
        return BrokenRule(
            clause=f"no pod with {chosen} runs {_same(term.key)}",
            mark=self._mark(_term_field("podAffinity", number), term.key),
            facts=[fact if there else f"no pod with {chosen} runs anywhere"],
            remedies=[_preferring(self.pod.obj, "podAffinity", "pod affinity", number)],
        )

    def _anti_affinity(self) -> BrokenRule:
        number, term, others = next(
            (number, term, others)
            for number, term in enumerate(self.pod.anti_affinity)
            if (others := self._beside(term))
        )
        chosen = _selector_text(_terms(self.pod.obj, "podAntiAffinity")[number])
        return BrokenRule(
            clause=f"its anti-affinity excludes pods with {chosen} {_same(term.key)}",
            mark=self._mark(_term_field("podAntiAffinity", number), term.key),
            others=others,
            remedies=[_preferring(self.pod.obj, "podAntiAffinity", "pod anti-affinity", number)],
        )

    def _repelled(self) -> BrokenRule:
        others = [
            other
            for node, other in self._placed()
            for term in other.anti_affinity
            if term.matcher.accepts(self.pod) and self._is_near(term.key, node)
        ]
        clause = "the anti-affinity of pods there excludes it"
        return BrokenRule(clause=clause, others=list(dict.fromkeys(others)))

    def _spread(self) -> BrokenRule:
        number, rule = next(
            (number, rule)
            for number, rule in enumerate(self.pod.spread)
            if rule.hard and not self._spreads(rule)
        )
        wire = spec_of(self.pod.obj)["topologySpreadConstraints"][number]
        chosen, field = _selector_text(wire), f"spec.topologySpreadConstraints[{number}]"
        path = pointer(field)
        edits = [{"op": "replace", "path": f"{path}/whenUnsatisfiable", "value": SOFT}]
        if "minDomains" in wire:  # not allowed with it
            edits.append({"op": "remove", "path": f"{path}/minDomains"})
        text = f"set whenUnsatisfiable: {SOFT} in the spread constraint"
        remedies = [Remedy(text, tuple(edits))]
        if not self._has_label(rule.key):
            return BrokenRule(
                clause=f"no label {rule.key}, by which its pods are spread",
                lacks=True,
                mark=self._mark(f"{field}.topologyKey", rule.key),
                remedies=remedies,
            )
        counts: Counter[str] = Counter()
        for at in self.table.row_of.values():
            value = self.table.labels[at].get(rule.key)
            if value is not None:
                there = self.table.pods[at].values()
                counts[value] += sum(rule.matcher.accepts(each) for each in there)
        told = [f"{value} {count}" for value, count in sorted(counts.items())]
        skew = rule.max_skew
        return BrokenRule(
            clause=f"one more pod with {chosen} {_same(rule.key)} would exceed maxSkew {skew}",
            mark=self._mark(f"{field}.maxSkew", str(skew)),
            facts=[f"pods with {chosen} by {_short(rule.key)}: {listed(told, 8)}"],
            others=self._beside(AffinityTerm(rule.matcher, rule.key)),
            remedies=[*self._wider(rule, path), *remedies],
        )

    def _volumes(self, reason: Reason) -> BrokenRule:
        claims = [name for name, _ in self.pod.volume_claims]
        field, name = volume_field(self.pod.obj, claims)
        clause = {
            NO_VOLUME: f"no volume there suits claim {name}",
            VOLUME_IN_USE: "another pod uses a claim that only one pod may use (ReadWriteOncePod)",
        }.get(reason.rule)
        if clause is None:
            judged = self._judged(self.pod)
            volumes = next(found for each, found in judged if each == reason.rule.plugin)
            reached = [node for node, at in sorted(self.table.row_of.items()) if volumes.mask[at]]
            where = f"on {listed(reached, 2)}" if reached else "where no node reaches it"
            whose = f"claim {name} has its volume" if len(claims) == 1 else "its volumes are"
            clause = f"{whose} {where}"
        return BrokenRule(clause=clause, mark=self._mark(field, name))

    # --- questions

    def _mark(self, field: str, text: str) -> MarkedField | None:
        if not field:
            return None
        return MarkedField(owner=("pod", str(self.pod.key)), field=field, text=text)

    def _placed(self) -> Iterator[tuple[str, PodInfo]]:
        """Yield the pods on nodes, and those for which room was cleared there."""
        for node, row in self.table.row_of.items():
            there = self.table.pods[row].values()
            for each in (*there, *promised(self.state, self.pod, node)):
                yield node, each

    def _at(self, pod: PodInfo) -> str:
        """Return a pod and its node, which may be elsewhere in the domain."""
        node = next(node for node, each in self._placed() if each.uid == pod.uid)
        return f"{shortened(str(pod.key))} on {node}"

    def _has_label(self, key: str) -> bool:
        return key in self.table.labels[self.row]

    def _is_near(self, key: str, node: str) -> bool:
        value = self.table.labels[self.row].get(key)
        return value is not None and self.table.labels[self.table.row_of[node]].get(key) == value

    def _beside(self, term: AffinityTerm) -> list[PodInfo]:
        """Return the pods of a term in the same domain as the node."""
        return [
            each
            for node, each in self._placed()
            if term.matcher.accepts(each) and self._is_near(term.key, node)
        ]

    def _spreads(self, rule: SpreadRule) -> bool:
        """Return whether the node meets one spread constraint by itself."""
        return self._has_label(rule.key) and self._accepted(
            replace(self.pod, spread=(rule,)), "PodTopologySpread"
        )

    def _judged(self, pod: PodInfo) -> Iterator[tuple[str, Judgement]]:
        volumes = self.state.volumes.demand_of(pod) if self.state.volumes is not None else None
        demand = PodDemand(volumes=volumes if isinstance(volumes, VolumeDemand) else None)
        among = [each for each in FILTERS if each.plugin in OF_PODS]
        for each, judgement in judgements(self.state, pod, demand, among):
            yield each.plugin, judgement

    def _accepted(self, pod: PodInfo, only: str = "") -> bool:
        """Return whether the rules, or those of one plugin, let a pod onto the node."""
        judged = self._judged(pod)
        return all(each.mask[self.row] for plugin, each in judged if only in {"", plugin})

    def _wider(self, rule: SpreadRule, path: str) -> Iterator[Remedy]:
        for skew in range(rule.max_skew + 1, rule.max_skew + MOST_SKEW):
            wider = replace(rule, max_skew=skew)
            rules = tuple(wider if each is rule else each for each in self.pod.spread)
            if self._accepted(replace(self.pod, spread=rules)):
                edit = {"op": "replace", "path": f"{path}/maxSkew", "value": skew}
                yield Remedy(f"set maxSkew {skew} in the spread constraint", (edit,))
                return


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _same(key: str) -> str:
    return "there" if _short(key) == "hostname" else f"in the same {_short(key)}"


def _terms(pod: JsonObject, kind: str) -> Sequence[JsonObject]:
    found: Sequence[JsonObject] = (spec_of(pod)["affinity"].get(kind) or {}).get(REQUIRED) or ()
    return found


def _term_field(kind: str, number: int) -> str:
    return f"spec.affinity.{kind}.{REQUIRED}[{number}].topologyKey"


def _selector_text(term: JsonObject) -> str:
    return labels.text_of(term.get("labelSelector")) or "any label"


def _host_ports(pod: JsonObject, taken: set[int]) -> Iterator[tuple[str, int]]:
    """Yield where a pod asks for one of some host ports."""
    for number, container in enumerate(spec_of(pod).get("containers") or ()):
        for index, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort") in taken:
                yield f"spec.containers[{number}].ports[{index}].hostPort", port["hostPort"]


def _preferring(pod: JsonObject, kind: str, what: str, number: int) -> Remedy:
    """Return a remedy that makes a required term of (anti-)affinity a preferred one."""
    path, part = f"/spec/affinity/{kind}", spec_of(pod)["affinity"][kind]
    preferred = {"weight": 100, "podAffinityTerm": part[REQUIRED][number]}
    added: JsonObject = {"op": "add", "path": f"{path}/{PREFERRED}", "value": [preferred]}
    if part.get(PREFERRED):
        added = {"op": "add", "path": f"{path}/{PREFERRED}/-", "value": preferred}
    removed = {"op": "remove", "path": f"{path}/{REQUIRED}/{number}"}
    return Remedy(f"make the {what} a preference ({PREFERRED})", (removed, added))
