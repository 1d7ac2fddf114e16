"""Pods as the scheduler reasons about them, read once from their wire form.

Source: kube-scheduler `framework.PodInfo`. The rules are those of `dralab.objects`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Final

import orjson

from dralab.kernel.clock import from_rfc3339
from dralab.objects.claims import PodClaim, extended_claim, pod_claims
from dralab.objects.host_ports import TakenPort, host_ports
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, status_of
from dralab.objects.nodes import required_affinity
from dralab.objects.pods import group_of
from dralab.objects.requests import pod_requests
from dralab.objects.volumes import claims_of
from dralab.scheduling.shares import Shares
from dralab.values import labels
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import copied, dataclass

DEFAULT_SCHEDULER: Final = "default-scheduler"
# What a container that asks for nothing counts as in scores (schedutil.DefaultMilliCPURequest).
UNSAID: Final = {"cpu": 100, "memory": 200 * 1024 * 1024}
# What required affinity of a pod that is there counts for those that come (hardPodAffinityWeight).
REQUIRED_WEIGHT = 1
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """Which existing pods a term selects; `namespaces` None means all of them.

    Topology spread counts no pods in deletion, and none at all where its selector is empty
    (`for_spread`).
    """

    namespaces: frozenset[str] | None
    selector: labels.Selector
    for_spread: bool = False

    def accepts(self, pod: "PodInfo") -> bool:
        """Return whether the term selects a pod."""
        if self.for_spread and (is_deleting(pod.obj) or not self.selector.requirements):
            return False
        if self.namespaces is not None and pod.key.namespace not in self.namespaces:
            return False
        return self.selector.accepts(pod.labels)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A pod affinity or anti-affinity term: the pods of `matcher`, by the node label `key`."""

    matcher: PodMatcher
    key: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A spread constraint: the pods of `matcher` over the values of the node label `key`."""

    matcher: PodMatcher
    key: str
    max_skew: int
    hard: bool
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


@dataclass(frozen=True, slots=True, eq=False)
class PodLoad:
    """What a pod takes of a node's amounts, and counts for in scores; equal ones are one object."""

    requests: tuple[tuple[str, int], ...]
    scored: tuple[int, int]


# Forgetting the oldest costs time alone.
_load = lru_cache(maxsize=1 << 14)(PodLoad)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodInfo:
    """One pod. `requests` are in base units: millicores, bytes, pieces.

    Pods that agree on `tolerating` tolerate the same taints, those that agree on `selecting` select
    the same nodes; `placement` adds what they prefer, and `asking` all that they ask of a node but
    devices and pods beside them.
    """

    obj: JsonDict
    key: NamespacedName
    uid: str
    labels: Mapping[str, str]
    priority: int
    created: int
    requests: Mapping[str, int]
    scored: tuple[int, int]
    placement: bytes
    tolerating: bytes
    selecting: bytes
    node_selector: Mapping[str, str]
    node_affinity: JsonObject | None
    preferred_nodes: tuple[JsonObject, ...]
    tolerations: tuple[JsonObject, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    preferred_pods: tuple[AffinityTerm, ...]
    # What it wishes of pods that come after it: what it prefers, and what it requires as weight 1.
    wishes: tuple[AffinityTerm, ...]
    spread: tuple[SpreadRule, ...]
    ports: frozenset[TakenPort]
    node_name: str
    group: str
    claims: tuple[PodClaim, ...]
    gates: tuple[str, ...]
    # What devices take of the node, by claim: entries of nodeAllocatableResourceClaimStatuses.
    claimed: tuple[JsonObject, ...] = ()
    # The images of its containers and volumes, and how many containers it has, for scores.
    images: tuple[str, ...] = ()
    containers: int = 1
    # Names of its persistent volume claims, and whether each is made for it.
    volume_claims: tuple[tuple[str, bool], ...] = ()
    # What it has, or asks for, of GPUs that pods share.
    shares: Shares | None = None
    asking: bytes = field(init=False)
    load: PodLoad = field(init=False)

    def __post_init__(self) -> None:
        taken = tuple(item for item in self.requests.items() if item[1])
        object.__setattr__(self, "load", _load(taken, self.scored))
        asked: list[object] = [self.key.namespace, self.priority, self.may_preempt]
        asked += [self.requests, self.asked_in_scores, self.labels]
        object.__setattr__(self, "asking", b"\n".join((self.placement, _bytes(asked))))

    @property
    def asked_in_scores(self) -> tuple[int, int]:
        """The cpu and memory that a waiting pod counts for in scores.

        kube-scheduler looks at its containers alone there, whatever the pod itself requests; on
        its node the latter counts (`scored`).
        """
        spec = self.obj["spec"]
        if not spec.get("resources"):
            return self.scored
        return _scored({**spec, "resources": {}}, self.claimed, {})

    @property
    def claim_names(self) -> list[str]:
        """The names of its claims, the one for its extended resources last."""
        names = [item.name for item in self.claims if item.name]
        extended = extended_claim(self.obj).get("resourceClaimName")
        return [*names, extended] if extended else names

    @property
    def may_preempt(self) -> bool:
        """Whether the pod may preempt others."""
        return bool(self.obj["spec"].get("preemptionPolicy") != "Never")


def pod_info(
    obj: JsonDict, namespaces: Callable[[JsonObject], Iterable[str]] | None = None
) -> PodInfo:
    """Return a pod; `namespaces` names those that a namespace selector of a term selects."""
    spec, metadata = obj["spec"], obj["metadata"]
    key = key_of(obj)
    own_labels = metadata.get("labels") or {}
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    near, far = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    read = _TermReader(key.namespace, own_labels, namespaces or (lambda _: ()))
    # Before a pod has its node, this was left behind by a failed attempt.
    status = status_of(obj) if spec.get("nodeName") else {}
    claimed = tuple(status.get("nodeAllocatableResourceClaimStatuses") or ())
    requests = pod_requests(spec, claimed, status=status)
    required = required_affinity(spec)
    preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    tolerations = spec.get("tolerations") or ()
    selector = spec.get("nodeSelector") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    named = [container.get("image") or "" for container in containers]
    named += [
        volume["image"].get("reference") or ""
        for volume in spec.get("volumes") or ()
        if volume.get("image")
    ]
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    wished = "preferredDuringSchedulingIgnoredDuringExecution"
    together = tuple(read.term(term, REQUIRED_WEIGHT) for term in near.get(needed) or ())
    preferred_pods = (
        *(read.term(t["podAffinityTerm"], t["weight"]) for t in near.get(wished) or ()),
        *(read.term(t["podAffinityTerm"], -t["weight"]) for t in far.get(wished) or ()),
    )
    selecting, tolerating = _bytes([selector, required]), _bytes(tolerations)
    return PodInfo(
        obj=obj,
        key=key,
        uid=metadata.get("uid", ""),
        labels=own_labels,
        priority=spec.get("priority") or 0,
        created=_time(metadata.get("creationTimestamp")),
        requests=requests,
        scored=_scored(spec, claimed, status),
        placement=b"\n".join((selecting, tolerating, _bytes(preferred))),
        tolerating=tolerating,
        selecting=selecting,
        node_selector=selector,
        node_affinity=required,
        preferred_nodes=tuple(preferred),
        tolerations=tuple(tolerations),
        affinity=together,
        anti_affinity=tuple(read.term(term) for term in far.get(needed) or ()),
        preferred_pods=preferred_pods,
        wishes=(*preferred_pods, *together),
        spread=tuple(read.rule(rule) for rule in spec.get("topologySpreadConstraints") or ()),
        ports=host_ports(spec),
        node_name=spec.get("nodeName") or "",
        group=group_of(obj),
        claims=tuple(pod_claims(obj)),
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        claimed=claimed,
        images=tuple(map(_image, named)),
        containers=len(containers),
        volume_claims=tuple(claims_of(obj)) if spec.get("volumes") else (),
    )


def changed(pod: PodInfo, **changes: Any) -> PodInfo:
    """Return a copy of a pod with some fields replaced."""
    return copied(pod, changes)


def with_claimed(pod: PodInfo, claimed: Iterable[JsonObject]) -> PodInfo:
    """Return a pod that also requests the node resources of its devices."""
    spec = pod.obj["spec"]
    entries = tuple(claimed)
    status = status_of(pod.obj) if pod.node_name else {}
    return replace(
        pod,
        requests=pod_requests(spec, entries, status=status),
        scored=_scored(spec, entries, status),
        claimed=entries,
    )


class _TermReader:
    """Reads the terms of one pod."""

    def __init__(
        self,
        namespace: str,
        own_labels: Mapping[str, str],
        namespaces: Callable[[JsonObject], Iterable[str]],
    ) -> None:
        self.namespace = namespace
        self.labels = own_labels
        self.namespaces = namespaces

    def term(self, wire: JsonObject, weight: int = 0) -> AffinityTerm:
        named = wire.get("namespaces") or ()
        chooser = wire.get("namespaceSelector")
        found: frozenset[str] | None
        if chooser is None:
            found = frozenset(named or (self.namespace,))
        elif not chooser:
            found = None
        else:
            found = frozenset(named) | frozenset(self.namespaces(chooser))
        return AffinityTerm(
            PodMatcher(found, self.selector(wire)), wire.get("topologyKey", ""), weight
        )

    def rule(self, wire: JsonObject) -> SpreadRule:
        return SpreadRule(
            matcher=PodMatcher(frozenset((self.namespace,)), self.selector(wire), for_spread=True),
            key=wire["topologyKey"],
            max_skew=wire["maxSkew"],
            hard=wire.get("whenUnsatisfiable") != SOFT,
            min_domains=wire.get("minDomains") or 1,
            honor_affinity=wire.get("nodeAffinityPolicy") != "Ignore",
            honor_taints=wire.get("nodeTaintsPolicy") == "Honor",
        )

    def selector(self, wire: JsonObject) -> labels.Selector:
        wanted = wire.get("labelSelector")
        if wanted is None:
            return _NOTHING
        found = labels.from_mapping(wanted)
        own = [
            labels.Requirement(name, operator, (self.labels[name],))
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for name in wire.get(field) or ()
            if name in self.labels
        ]
        return labels.Selector((*found.requirements, *own)) if own else found


def _bytes(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


# A term without a selector selects no pod.
_NOTHING: Final = labels.Selector((labels.Requirement("", "In", ()),))


def _scored(spec: JsonObject, claimed: Iterable[JsonObject], status: JsonObject) -> tuple[int, int]:
    """Return the cpu and memory that a pod counts for in scores, with defaults for containers."""
    found = pod_requests(spec, claimed, unsaid=UNSAID, status=status)
    return found.get("cpu", 0), found.get("memory", 0)


def _image(name: str) -> str:
    """Return an image as nodes name it, with the default tag `latest`."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


@lru_cache(maxsize=4096)
def _time(text: str | None) -> int:
    return from_rfc3339(text) if text else 0
