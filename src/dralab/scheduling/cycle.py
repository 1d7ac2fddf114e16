"""One scheduling cycle: from a pod and the state to a placement or the reasons for a refusal.

A cycle writes nothing and changes nothing: `ClusterState.assume_placement` records its decision,
`forget_placement` removes it. The steps are kube-scheduler's: filter, score, devices. All nodes are
checked.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dralab.allocation.outcome import Outcome, Unknown, Unsatisfiable
from dralab.objects.host_ports import NO_PORTS
from dralab.objects.metadata import NamespacedName
from dralab.scheduling import filters, scores, topology
from dralab.scheduling.allocatable import ClaimPlan, InsufficientResource, NodeShortage
from dralab.scheduling.demands import BlockedPod, DemandReader, PodDemand
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.filters import NodeFilter
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable, Scores
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.volumes import NONE_FREE, VolumePlan, Volumes

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
NOT_ON_NODE: Final = "resourceclaim not available on the node"
# With alternatives to rank, devices are found on at most this many nodes before one is chosen.
RANKED_NODES: Final = 100
# kube-scheduler looks for places on at least as many nodes (minFeasibleNodesToFind).
TRIED_NODES: Final = 100


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """A pod goes to a node, and these claims are to be written for it.

    `pod` asks for all that it takes of the node there, its devices included (`PodInfo.claimed`).
    """

    pod: PodInfo
    node: str
    plans: tuple[ClaimPlan, ...] = ()
    volumes: tuple[VolumePlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pod fits nowhere.

    `reasons` counts nodes by sentence; `outcomes` are the allocator's answers by node name, for
    explanations, `shortages` the nodes that have the devices and lack something else. `blocked`
    is set where the pod could not be tried at all, `fatal` where its claims cannot be met on any
    node. `kind` names the pods that would be refused likewise; `repeated` is what another pod of
    the kind was told a moment ago.
    """

    pod: PodInfo
    nodes: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    shortages: Mapping[str, NodeShortage] = field(default_factory=dict)
    blocked: str = ""
    fatal: str = ""
    kind: Hashable = None
    repeated: bool = False

    @property
    def message(self) -> str:
        """The sentence of kube-scheduler's FitError."""
        if self.blocked:
            return f"0/{self.nodes} nodes are available: {self.blocked}."
        if not self.nodes:
            return "no nodes available to schedule pods"
        if self.fatal:
            return f"0/{self.nodes} nodes are available: {self.fatal}."
        counted = sorted(f"{count} {reason}" for reason, count in self.reasons.items())
        return f"0/{self.nodes} nodes are available: {', '.join(counted)}."


@dataclass(frozen=True, slots=True)
class NodeAttempt:
    """A pod was tried on one node: its place there, or what the allocator or the node said.

    `points` are those of the chosen alternatives, None if nothing had to be allocated.
    """

    placement: PodPlacement | None
    refused: Unsatisfiable | Unknown | None = None
    shortage: NodeShortage | None = None
    points: int | None = None


@dataclass(slots=True)
class NominatedPod:
    """A pod for which others are being evicted from a node: the victims, by uid.

    `claims` are those of victims whose devices it awaits.
    """

    pod: PodInfo
    node: str
    victims: frozenset[str] = frozenset()
    claims: tuple[NamespacedName, ...] = ()


class ClusterState:
    """Nodes, pods and devices as the next cycle sees them."""

    def __init__(
        self,
        table: NodeTable,
        devices: ClusterDevices,
        demands: DemandReader,
        volumes: Volumes | None = None,
    ) -> None:
        self.table = table
        self.volumes = volumes
        self.devices = devices
        self.demands = demands
        self.filters = NodeFilter(table)
        self.nominees: dict[str, NominatedPod] = {}
        # The nodes of pods that are bound, or about to be, by uid.
        self.placed: dict[str, str] = {}
        self._refusals: OrderedDict[Hashable, tuple[tuple[int, int], Refusal]] = OrderedDict()
        # Demands whose selectors failed on no node, as long as the inventory is the same.
        self._sound: set[bytes] = set()
        self._sound_at = -1

    def is_sound(self, signature: bytes) -> bool:
        """Return whether the selectors of a demand are known to fail on no node."""
        if self._sound_at != self.devices.inventory_version:
            self._sound.clear()
            self._sound_at = self.devices.inventory_version
        return signature in self._sound

    def note_sound(self, signature: bytes) -> None:
        """Remember that the selectors of a demand fail on no node."""
        if len(self._sound) >= REMEMBERED:
            self._sound.clear()
        self._sound.add(signature)

    @property
    def versions(self) -> tuple[int, int]:
        """What was found out stays true while these do."""
        return self.table.version, self.devices.version

    def refused(self, kind: Hashable) -> Refusal | None:
        """Return the refusal of another pod of a kind, if it still holds."""
        found = self._refusals.get(kind)
        return found[1] if found is not None and found[0] == self.versions else None

    def remember(self, refusal: Refusal) -> None:
        """Keep a refusal for the other pods of its kind."""
        self._refusals[refusal.kind] = self.versions, refusal
        if len(self._refusals) > REMEMBERED:
            self._refusals.popitem(last=False)

    def assume_placement(self, placement: PodPlacement) -> None:
        """Count a pod and its devices as placed."""
        self.table.add_pod(placement.node, placement.pod)
        if placement.plans:
            self.devices.assume_plans(placement.plans, placement.pod)
        if placement.volumes and self.volumes is not None:
            self.volumes.assume(placement.volumes)

    def forget_placement(self, placement: PodPlacement) -> None:
        """Take a placement back."""
        self.table.remove_pod(placement.node, placement.pod.uid)
        if placement.plans:
            self.devices.forget_plans(placement.plans, placement.pod)
        if placement.volumes and self.volumes is not None:
            self.volumes.forget_plans(placement.volumes)

    def volume_plans(self, demand: PodDemand, row: int) -> tuple[VolumePlan, ...] | None:
        """Return what to write for the pod's volumes on a node; None: it cannot go there."""
        return () if self.volumes is None else self.volumes.plans(demand.volumes, row)

    def volume_rules(self, demand: PodDemand) -> list[tuple[str, Mask]]:
        """Return the nodes that a pod's volumes leave, by sentence."""
        if self.volumes is None or demand.volumes is None:
            return []
        return self.volumes.restrictions(demand.volumes)


def schedule(state: ClusterState, pod: PodInfo) -> PodPlacement | Refusal:
    """Return where a pod goes, or why it goes nowhere."""
    table = state.table
    demand = state.demands.demand_of(pod)
    if isinstance(demand, BlockedPod):
        return Refusal(pod=pod, nodes=table.count, blocked=demand.why)
    kind = None if state.nominees else kind_of(pod, demand)
    if kind is not None and (known := state.refused(kind)) is not None:
        return replace(known, pod=pod, repeated=True)
    outcomes: dict[str, Outcome] = {}
    shortages: dict[str, NodeShortage] = {}
    found = _placed(state, pod, demand, outcomes, shortages)
    if found is not None:
        return found
    refused = refusal(state, pod, demand, outcomes, shortages)
    if kind is not None:
        refused = replace(refused, kind=kind)
        state.remember(refused)
    return refused


def placement(state: ClusterState, pod: PodInfo) -> PodPlacement | None:
    """Return where a pod goes, None if nowhere: as `schedule`, for those who do not ask why."""
    demand = state.demands.demand_of(pod)
    return None if isinstance(demand, BlockedPod) else _placed(state, pod, demand, {}, {})


def _placed(
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    outcomes: dict[str, Outcome],
    shortages: dict[str, NodeShortage],
) -> PodPlacement | None:
    """Find the best place for a pod; what is found out on the way goes into the last two."""
    fitting = fits(state, pod, demand)
    if not fitting.any():
        return None
    if demand.claims or demand.extended:
        return _with_devices(state, pod, demand, fitting, outcomes, shortages)
    row = int(np.argmax(scores.total(state, pod, fitting)[0]))
    volumes = state.volume_plans(demand, row)
    return PodPlacement(pod, state.table.names[row], volumes=volumes or ())


def ranked(state: ClusterState, pod: PodInfo) -> list[str]:
    """Return the nodes for a pod without claims, the best first."""
    fitting = fits(state, pod, PodDemand())
    if not fitting.any():
        return []
    rows = np.argsort(-scores.total(state, pod, fitting)[0], kind="stable")
    return [state.table.names[row] for row in rows if fitting[row]]


def kind_of(pod: PodInfo, demand: PodDemand) -> Hashable | None:
    """Return the key of pods that fit or fail alike; None: the pod is a kind of its own."""
    by_pods = pod.affinity or pod.anti_affinity or pod.spread or pod.group
    if by_pods or pod.volume_claims or pod.ports:
        return None
    if any(item.allocation is not None for item in demand.claims):
        return None
    return (
        pod.key.namespace,
        pod.priority,
        pod.may_preempt,
        pod.placement,
        tuple(sorted(pod.requests.items())),
        tuple(sorted(pod.labels.items())),
        demand.signature,
    )


def fits(state: ClusterState, pod: PodInfo, demand: PodDemand) -> Mask:
    """Return the nodes that pass every filter, as far as that is known without allocating."""
    table = state.table
    found = filters.room(table, pod, _elsewhere(state, demand))
    found &= state.filters.mask(pod)
    if pod.ports:
        ports = filters.ports_free(table, pod)
        if ports is not None:
            found &= ports
    for _, mask in state.volume_rules(demand):
        found &= mask
    if topology.is_bound_by_pods(table, pod):
        for _, mask in topology.restrictions(table, state.filters, pod):
            found &= mask
    if state.nominees:
        _leave_to_nominees(state, pod, demand, found)
    devices = state.devices.candidates(demand)
    if devices is not None:
        found &= devices
    return found


def on_node(state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> NodeAttempt:
    """Try a pod that passes the filters on one node: its devices, and room for what they take."""
    found = state.devices.plans(pod, demand, row)
    if found.refused is not None:
        return NodeAttempt(None, found.refused)
    charged = state.devices.charged(pod, found.plans)
    if isinstance(charged, NodeShortage):
        return NodeAttempt(None, shortage=charged)
    shortage = None if charged is pod else _shortage(state, pod, charged, demand, row)
    if shortage is not None:
        return NodeAttempt(None, shortage=shortage)
    volumes = state.volume_plans(demand, row)
    if volumes is None:
        return NodeAttempt(None, shortage=NodeShortage((NONE_FREE,)))
    placement = PodPlacement(charged, state.table.names[row], found.plans, volumes)
    return NodeAttempt(placement, points=found.points if found.allocated else None)


def _shortage(
    state: ClusterState, pod: PodInfo, charged: PodInfo, demand: PodDemand, row: int
) -> NodeShortage | None:
    """Return what a node lacks for a pod with its devices; None if it lacks nothing."""
    table = state.table
    others = _promised(state, charged, table.names[row])
    for other in others:
        table.add_pod(table.names[row], other)
    reasons = filters.lacking(table, charged, row, frozenset(demand.extended))
    lacks = []
    for resource, needed in sorted(charged.requests.items()):
        own, free = pod.requests.get(resource, 0), int(table.free(resource)[row])
        if needed > max(own, free):
            lacks.append(InsufficientResource(resource, own, needed - own, free))
    for other in others:
        table.remove_pod(table.names[row], other.uid)
    return NodeShortage(tuple(reasons), tuple(lacks)) if reasons else None


def _with_devices(  # noqa: PLR0917 - what is found out on the way goes into the last two
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    fitting: Mask,
    outcomes: dict[str, Outcome],
    shortages: dict[str, NodeShortage],
) -> PodPlacement | None:
    """Find devices on the best node that has them.

    Where points depend on the other nodes, all nodes are tried, up to RANKED_NODES: those without
    devices do not count.
    """
    names = state.table.names
    points, relative = scores.total(state, pod, fitting)
    most = RANKED_NODES if relative or demand.ranked else 1
    left = fitting.copy()
    placed: dict[int, NodeAttempt] = {}
    while len(placed) < most:
        row = int(np.argmax(points))
        if points[row] == -np.inf:
            break
        points[row] = -np.inf
        tried = on_node(state, pod, demand, row)
        if tried.shortage is not None:
            shortages[names[row]] = tried.shortage
        elif tried.refused is not None:
            outcomes[names[row]] = tried.refused
            if isinstance(tried.refused, Unsatisfiable) and tried.refused.fatal:
                return None
        if tried.placement is None:
            left[row] = False
        else:
            placed[row] = tried
    if not placed or _fails_elsewhere(state, pod, demand, points, outcomes):
        return None
    if len(placed) > 1:
        points = scores.total(state, pod, left)[0]
        ranks = scores.devices_points([tried.points or 0 for tried in placed.values()])
        for row, more in zip(placed, ranks, strict=True):
            points[row] += more
    return placed[max(placed, key=lambda row: (points[row], -row))].placement


def _fails_elsewhere(
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    points: Scores,
    outcomes: dict[str, Outcome],
) -> bool:
    """Return whether a selector fails on a node that was not tried; the outcome then says how.

    Such a pod goes nowhere, although there are devices for it: there is something wrong with it.
    kube-scheduler tries that many nodes for each pod. Here one pod does, for all that ask the same.
    """
    if not demand.signature or state.is_sound(demand.signature):
        return False
    for row in np.argsort(-points, kind="stable")[:TRIED_NODES]:
        if points[row] == -np.inf:
            break
        refused = state.devices.plans(pod, demand, int(row)).refused
        if isinstance(refused, Unsatisfiable) and refused.fatal:
            outcomes[state.table.names[row]] = refused
            return True
    state.note_sound(demand.signature)
    return False


def refusal(
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    outcomes: Mapping[str, Outcome],
    shortages: Mapping[str, NodeShortage],
) -> Refusal:
    """Return why a pod fits nowhere: for each node the first filter that it fails."""
    table = state.table
    counted: Counter[str] = Counter()
    rules = [*state.volume_rules(demand), *topology.restrictions(table, state.filters, pod)]
    ports = filters.ports_free(table, pod)
    provided = frozenset(demand.extended)
    devices = state.devices.candidates(demand)
    fatal = ""
    for row in table.row_of.values():
        reason = state.filters.reason(pod, row)
        if reason:
            counted[reason] += 1
            continue
        if ports is not None and not ports[row]:
            counted[NO_PORTS] += 1
            continue
        # What is kept for others that were promised the node is lacking, too.
        others = _promised(state, pod, table.names[row])
        for other in others:
            table.add_pod(table.names[row], other)
        lacking = filters.lacking(table, pod, row, provided)
        for other in others:
            table.remove_pod(table.names[row], other.uid)
        if lacking:
            counted.update(lacking)
            continue
        broken = next((sentence for sentence, mask in rules if not mask[row]), "")
        if broken:
            counted[broken] += 1
            continue
        shortage = shortages.get(table.names[row])
        if shortage is not None:
            counted.update(shortage.reasons)
            continue
        outcome = outcomes.get(table.names[row])
        if isinstance(outcome, Unsatisfiable) and outcome.error:
            fatal = outcome.error if outcome.fatal else fatal
            counted[outcome.error] += 1
        elif devices is not None and not devices[row] and outcome is None and not demand.signature:
            counted[NOT_ON_NODE] += 1
        else:
            counted[CANNOT_ALLOCATE] += 1
    return Refusal(
        pod=pod,
        nodes=table.count,
        reasons=dict(counted),
        outcomes=dict(outcomes),
        shortages=dict(shortages),
        fatal=fatal,
    )


def _elsewhere(state: ClusterState, demand: PodDemand) -> dict[str, Mask] | None:
    if not demand.extended:
        return None
    return {name: state.table.allocatable(name) == 0 for name in demand.extended}


def _promised(state: ClusterState, pod: PodInfo, node: str) -> list[PodInfo]:
    """Return the pods of no lower priority for which room was cleared on a node."""
    return [
        nominee.pod
        for nominee in state.nominees.values()
        if nominee.node == node
        and nominee.pod.uid != pod.uid
        and nominee.pod.priority >= pod.priority
    ]


def _leave_to_nominees(state: ClusterState, pod: PodInfo, demand: PodDemand, found: Mask) -> None:
    """Keep the room that was cleared for pods of no lower priority.

    Where devices are cleared for one, no other pod that wants devices may go: which of them it
    will need is known once they are all free.
    """
    for node in sorted({nominee.node for nominee in state.nominees.values()}):
        row = state.table.row_of.get(node)
        others = _promised(state, pod, node)
        if row is None or not found[row] or not others:
            continue
        if demand.signature and _awaits_devices(state, others):
            found[row] = False
            continue
        for other in others:
            state.table.add_pod(node, other)
        found[row] = bool(filters.room(state.table, pod)[row])
        for other in others:
            state.table.remove_pod(node, other.uid)


def _awaits_devices(state: ClusterState, pods: list[PodInfo]) -> bool:
    return any(
        nominee.claims for pod in pods if (nominee := state.nominees.get(pod.uid)) is not None
    )
