"""What a broken rule about other pods or volumes means to a person, and what would lift it.

What is enough to wait for is tried on the rules; whether a pod then fits is for others to try.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dralab.explanation.conditions import fewest
from dralab.explanation.edits import pointer
from dralab.explanation.names import listed, shortened
from dralab.objects import host_ports
from dralab.objects.metadata import NamespacedName, spec_of
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.filters import FILTERS, Judgement, judgements
from dralab.scheduling.pods import SOFT, AffinityTerm, PodInfo, SpreadRule
from dralab.scheduling.reasons import NO_VOLUME, NOT_NEAR, TOO_NEAR, VOLUME_IN_USE, Reason
from dralab.scheduling.state import ClusterState
from dralab.scheduling.volumes import VolumeDemand
from dralab.values import labels
from dralab.values.json_types import JsonObject

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
    """A change of a pod after which a rule no longer keeps it away, in words and as JSON patch."""

    text: str
    edits: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that keeps a pod from a node, and what would lift it.

    `clause` is a sentence about the node, in which `{have}` stands for "has" or "have". `field` is
    where the pod states the rule, `text` what it says there (both are empty where another pod
    states it). `facts` are lines about what there is. `blockers` are the pods, as namespace/name,
    that are in the way: once all of them have ended, the rule is met. Each of `remedies` lifts it.
    """

    reason: Reason
    clause: str
    field: str = ""
    text: str = ""
    facts: Sequence[str] = ()
    blockers: Sequence[str] = ()
    remedies: Sequence[Remedy] = ()


class RuleTeller:
    """Tells a broken rule about other pods or volumes, on a state as it is."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.table = state.table

    def told(self, pod: PodInfo, row: int, reason: Reason) -> BrokenRule | None:
        """Return a broken rule with its clause, its place and its remedies.

        None for a rule about the node alone.
        """
        match reason.rule.plugin:
            case "NodePorts":
                return self._ports(pod, row, reason)
            case "InterPodAffinity" if reason.rule is NOT_NEAR:
                return self._affinity(pod, row, reason)
            case "InterPodAffinity" if reason.rule is TOO_NEAR:
                return self._anti_affinity(pod, row, reason)
            case "InterPodAffinity":
                return self._repelled(pod, row, reason)
            case "PodTopologySpread":
                return self._spread(pod, row, reason)
            case "VolumeRestrictions" | "VolumeBinding" | "VolumeZone":
                return self._volumes(pod, reason)
            case _:
                return None

    # --- by rule

    def _ports(self, pod: PodInfo, row: int, reason: Reason) -> BrokenRule:
        others = [
            each for each in self.table.pods[row].values()
            if any(host_ports.collide(mine, other) for mine in pod.ports for other in each.ports)
        ]  # fmt: skip
        taken = {
            mine[2] for mine in pod.ports for each in others for other in each.ports
            if host_ports.collide(mine, other)
        }  # fmt: skip
        field, port = next(_host_ports(pod.obj, taken), ("", 0))
        without = Remedy(
            "use another host port, or none: a Service reaches a pod without one",
            tuple(
                {"op": "remove", "path": pointer(each)} for each, _ in _host_ports(pod.obj, taken)
            ),
        )
        return BrokenRule(
            reason=reason,
            clause=f"host port {port} is taken there",
            field=field,
            text=str(port),
            facts=[self._there(others)],
            blockers=self._enough(pod, row, others),
            remedies=[without],
        )

    def _affinity(self, pod: PodInfo, row: int, reason: Reason) -> BrokenRule:
        number, term = next(
            (number, term)
            for number, term in enumerate(pod.affinity)
            if not self._beside(term, row) or not self._has_label(term.key, row)
        )
        wire = _terms(pod.obj, "podAffinity")[number]
        chosen = _selector_text(wire)
        there = [each for each in self._placed() if term.matcher.accepts(each[1])]
        facts = [f"no pod with {chosen} runs anywhere"]
        if there:
            where = [f"{_name(other)} on {node}" for node, other in there]
            facts = [f"pods with {chosen}: {listed(where)}"]
        return BrokenRule(
            reason=reason,
            clause=f"no pod with {chosen} runs {_same(term.key)}",
            field=f"spec.affinity.podAffinity.{REQUIRED}[{number}].topologyKey",
            text=term.key,
            facts=facts,
            remedies=[_preferring(pod.obj, "podAffinity", "pod affinity", number)],
        )

    def _anti_affinity(self, pod: PodInfo, row: int, reason: Reason) -> BrokenRule:
        number, term, others = next(
            (number, term, others)
            for number, term in enumerate(pod.anti_affinity)
            if (others := self._beside(term, row))
        )
        wire = _terms(pod.obj, "podAntiAffinity")[number]
        return BrokenRule(
            reason=reason,
            clause=f"its anti-affinity excludes pods with {_selector_text(wire)} {_same(term.key)}",
            field=f"spec.affinity.podAntiAffinity.{REQUIRED}[{number}].topologyKey",
            text=term.key,
            facts=[self._there(others)],
            blockers=self._enough(pod, row, others),
            remedies=[_preferring(pod.obj, "podAntiAffinity", "pod anti-affinity", number)],
        )

    def _repelled(self, pod: PodInfo, row: int, reason: Reason) -> BrokenRule:
        others = [
            other
            for node, other in self._placed()
            for term in other.anti_affinity
            if term.matcher.accepts(pod) and self._is_near(term.key, row, self.table.row_of[node])
        ]
        others = list(dict.fromkeys(others))
        return BrokenRule(
            reason=reason,
            clause="the anti-affinity of pods there excludes it",
            facts=[self._there(others)],
            blockers=self._enough(pod, row, others),
        )

    def _spread(self, pod: PodInfo, row: int, reason: Reason) -> BrokenRule:
        number, rule = next(
            (number, rule)
            for number, rule in enumerate(pod.spread)
            if rule.hard and not self._spreads(pod, rule, row)
        )
        wire = spec_of(pod.obj)["topologySpreadConstraints"][number]
        chosen, field = _selector_text(wire), f"spec.topologySpreadConstraints[{number}]"
        path = pointer(field)
        edits = [{"op": "replace", "path": f"{path}/whenUnsatisfiable", "value": SOFT}]
        if "minDomains" in wire:  # not allowed with it
            edits.append({"op": "remove", "path": f"{path}/minDomains"})
        text = f"set whenUnsatisfiable: {SOFT} in the spread constraint"
        remedies = [Remedy(text, tuple(edits))]
        if not self._has_label(rule.key, row):
            return BrokenRule(
                reason=reason,
                clause=f"{{have}} no label {rule.key}, by which its pods are spread",
                field=f"{field}.topologyKey",
                text=rule.key,
                remedies=remedies,
            )
        counts: Counter[str] = Counter()
        for at in self.table.row_of.values():
            value = self.table.labels[at].get(rule.key)
            if value is not None:
                there = self.table.pods[at].values()
                counts[value] += sum(rule.matcher.accepts(each) for each in there)
        told = [f"{value} {count}" for value, count in sorted(counts.items())]
        here = self._beside(AffinityTerm(rule.matcher, rule.key), row)
        return BrokenRule(
            reason=reason,
            clause=(
                f"one more pod with {chosen} {_same(rule.key)} would exceed maxSkew {rule.max_skew}"
            ),
            field=f"{field}.maxSkew",
            text=str(rule.max_skew),
            facts=[f"pods with {chosen} by {_short(rule.key)}: {listed(told, 8)}"],
            blockers=self._enough(pod, row, here),
            remedies=[*self._wider(pod, rule, row, path), *remedies],
        )

    def _volumes(self, pod: PodInfo, reason: Reason) -> BrokenRule:
        claims = [name for name, _ in pod.volume_claims]
        field, name = _volume_field(pod.obj, claims)
        clause = {
            NO_VOLUME: f"no volume there suits claim {name}",
            VOLUME_IN_USE: "another pod uses a claim that only one pod may use (ReadWriteOncePod)",
        }.get(reason.rule)
        if clause:
            return BrokenRule(reason=reason, clause=clause, field=field, text=name)
        plugin = reason.rule.plugin
        volumes = next(found for each, found in self._judged(pod) if each == plugin)
        reached = [node for node, at in sorted(self.table.row_of.items()) if volumes.mask[at]]
        where = f"on {listed(reached, 2)}" if reached else "where no node reaches it"
        whose = f"claim {name} has its volume" if len(claims) == 1 else "its volumes are"
        return BrokenRule(reason=reason, clause=f"{whose} {where}", field=field, text=name)

    # --- questions

    def _placed(self) -> Iterator[tuple[str, PodInfo]]:
        for node, row in self.table.row_of.items():
            for each in self.table.pods[row].values():
                yield node, each

    def _there(self, pods: Sequence[PodInfo]) -> str:
        """Return which pods are in the way of a node: on it, or elsewhere in its domain."""
        nodes = {each.uid: node for node, each in self._placed()}
        return listed(f"{_name(each)} on {nodes[each.uid]}" for each in pods)

    def _has_label(self, key: str, row: int) -> bool:
        return key in self.table.labels[row]

    def _is_near(self, key: str, row: int, other: int) -> bool:
        value = self.table.labels[row].get(key)
        return value is not None and self.table.labels[other].get(key) == value

    def _beside(self, term: AffinityTerm, row: int) -> list[PodInfo]:
        """Return the pods of a term in the same domain as a node."""
        return [
            each
            for node, each in self._placed()
            if term.matcher.accepts(each) and self._is_near(term.key, row, self.table.row_of[node])
        ]

    def _spreads(self, pod: PodInfo, rule: SpreadRule, row: int) -> bool:
        """Return whether a node meets one spread constraint by itself."""
        return self._accepted(replace(pod, spread=(rule,)), row, "PodTopologySpread") and (
            self._has_label(rule.key, row)
        )

    def _judged(self, pod: PodInfo) -> Iterator[tuple[str, Judgement]]:
        volumes = self.state.volumes.demand_of(pod) if self.state.volumes is not None else None
        demand = PodDemand(volumes=volumes if isinstance(volumes, VolumeDemand) else None)
        among = [each for each in FILTERS if each.plugin in OF_PODS]
        for each, judgement in judgements(self.state, pod, demand, among):
            yield each.plugin, judgement

    def _accepted(self, pod: PodInfo, row: int, only: str = "") -> bool:
        """Return whether the rules, or those of one plugin, let a pod onto a node."""
        return all(
            judgement.mask[row] for plugin, judgement in self._judged(pod) if only in {"", plugin}
        )

    def _wider(self, pod: PodInfo, rule: SpreadRule, row: int, path: str) -> Iterator[Remedy]:
        for skew in range(rule.max_skew + 1, rule.max_skew + MOST_SKEW):
            wider = replace(rule, max_skew=skew)
            rules = tuple(wider if each is rule else each for each in pod.spread)
            if self._accepted(replace(pod, spread=rules), row):
                edit = {"op": "replace", "path": f"{path}/maxSkew", "value": skew}
                yield Remedy(f"set maxSkew {skew} in the spread constraint", (edit,))
                return

    def _enough(self, pod: PodInfo, row: int, others: Sequence[PodInfo]) -> tuple[str, ...]:
        """Return which of some pods have to end so that a node may run a pod; none if that fails.

        No pod of the answer can be left out of it.
        """
        if not others or len(others) > MOST_BLOCKERS:
            return ()
        nodes = {each.uid: node for node, each in self._placed()}

        def accepted_without(gone: Sequence[PodInfo]) -> bool:
            for each in gone:
                self.table.remove_pod(nodes[each.uid], each.uid)
            try:
                return self._accepted(pod, row)
            finally:
                for each in gone:
                    self.table.add_pod(nodes[each.uid], each)

        kept = fewest(others, accepted_without) if accepted_without(others) else ()
        return tuple(str(NamespacedName(*each.key)) for each in kept)


def _name(pod: PodInfo) -> str:
    return shortened(str(pod.key))


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _same(key: str) -> str:
    return "there" if _short(key) == "hostname" else f"in the same {_short(key)}"


def _terms(pod: JsonObject, kind: str) -> Sequence[JsonObject]:
    found: Sequence[JsonObject] = (spec_of(pod)["affinity"].get(kind) or {}).get(REQUIRED) or ()
    return found


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


def _volume_field(pod: JsonObject, claims: Sequence[str]) -> tuple[str, str]:
    for number, volume in enumerate(spec_of(pod).get("volumes") or ()):
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if name in claims:
            return f"spec.volumes[{number}].persistentVolumeClaim.claimName", str(name)
    return "", claims[0] if claims else ""
