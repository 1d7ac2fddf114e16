"""The state of nodes, pods and devices for scheduling cycles, and their decisions.

A reader fills the state; `assume_placement` records a decision and `forget_placement` removes it.
Nothing is decided here: that is left to `cycle`, `filters` and `scores`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import NamedTuple, Protocol

from dralab.allocation.outcome import Outcome
from dralab.objects.metadata import NamespacedName
from dralab.objects.pod_groups import PodGroups
from dralab.scheduling.allocatable import InsufficientResource, NodeShortage
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.demands import DemandReader, PodDemand
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import REMEMBERED, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import NO_NODES, ClusterChange, Reason, lifted_by, unavailable
from dralab.scheduling.scores import KUBERNETES, KeptScores, NodeChoice
from dralab.scheduling.volumes import VolumePlan, Volumes
from dralab.values.records import dataclass


class ScoresOfKinds(Protocol):
    """What is kept of each kind of pods (`kinds.KindScores`)."""

    def scores_of(self, kind: Hashable, pod: PodInfo, demand: PodDemand) -> KeptScores | None:
        """Return the score of every row, -1 where the pod does not fit; None: it is not kept."""
        ...

    def reasons_of(
        self, kind: Hashable, pod: PodInfo, demand: PodDemand
    ) -> dict[Reason, int] | None:
        """Return for how many nodes each reason holds; None where that is not kept."""
        ...


class PodPlacement(NamedTuple):
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

    `reasons` counts nodes by reason; `outcomes` are the allocator's answers by node name, for
    explanations, `shortages` the nodes that have the devices and lack something else. `blocked`
    is set where the pod could not be tried at all, `fatal` where its claims cannot be met on any
    node. `kind` names the pods that would be refused likewise; `repeated` is what another pod of
    the kind was told a moment ago.
    """

    pod: PodInfo
    nodes: int
    reasons: Mapping[Reason, int] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    shortages: Mapping[str, NodeShortage] = field(default_factory=dict)
    blocked: Reason | None = None
    fatal: Reason | None = None
    kind: Hashable = None
    repeated: bool = False

    @property
    def message(self) -> str:
        """The sentence of kube-scheduler's FitError."""
        if self.blocked:
            return f"0/{self.nodes} nodes are available: {self.blocked}."
        if not self.nodes:
            return str(Reason(NO_NODES))
        if self.fatal:
            return f"0/{self.nodes} nodes are available: {self.fatal}."
        return unavailable(self.nodes, self.reasons.items())

    @property
    def causes(self) -> tuple[Reason, ...]:
        """The reasons that the sentence names."""
        if self.blocked:
            return (self.blocked,)
        if not self.nodes:
            return (Reason(NO_NODES),)
        return (self.fatal,) if self.fatal else tuple(self.reasons)

    @property
    def least_short(self) -> tuple[str, tuple[InsufficientResource, ...]]:
        """The node that lacks least with the pod's devices, and what it lacks."""
        return min(
            ((name, each.lacks) for name, each in self.shortages.items()),
            key=lambda item: (
                not item[1],
                sum(e.own + e.devices - e.free for e in item[1]),
                item[0],
            ),
        )

    @property
    def code(self) -> str:
        """The most frequent code of the nodes, or that of all; `explanation` is more precise."""
        first = self.blocked or self.fatal or (None if self.nodes else Reason(NO_NODES))
        if first is None:
            ordered = sorted(self.reasons.items(), key=lambda item: (-item[1], str(item[0])))
            first = ordered[0][0] if ordered else None
        return "" if first is None else first.code

    @property
    def lifted_by(self) -> ClusterChange:
        """The changes after which the pod may be tried again.

        Changes of its claims and its group reach a pod by name.
        """
        if self.blocked is not None:
            return self.blocked.lifted_by
        if self.fatal is not None:
            return ClusterChange.DEVICES
        late = ClusterChange.DEVICES if self.shortages else ClusterChange.NOTHING
        return ClusterChange.NODE | lifted_by(self.reasons) | late


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
    """The state of nodes, pods and devices for the next cycle."""

    def __init__(
        self,
        table: NodeTable,
        devices: ClusterDevices,
        demands: DemandReader,
        volumes: Volumes | None = None,
        *,
        groups: PodGroups | None = None,
        choice: NodeChoice = KUBERNETES,
    ) -> None:
        self.table = table
        self.choice = choice
        self.groups = groups or PodGroups()
        self.volumes = volumes
        self.devices = devices
        self.demands = demands
        self.node_rules = NodeRules(table)
        self.nominees: dict[str, NominatedPod] = {}
        # Why the claims that a placement needs cannot be written; None where only a server knows.
        self.forbids: Callable[[PodPlacement], Reason | None] | None = None
        # The nodes of pods that are bound, or about to be, by uid.
        self.placed: dict[str, str] = {}
        self._refusals: OrderedDict[Hashable, tuple[tuple[int, int], Refusal]] = OrderedDict()
        # The groups that no eviction helps, and as of when.
        self.without_help: OrderedDict[Hashable, Hashable] = OrderedDict()
        # What `cycle` keeps of each kind of pods.
        self.kinds: ScoresOfKinds | None = None
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
        """The versions on which cached results depend."""
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

    def settled(self, pod: PodInfo, row: int) -> PodInfo:
        """Return a pod with the GPUs that it shares on a node where it fits."""
        return pod if pod.shares is None else self.choice.settled(self.table, pod, row)

    def volume_plans(self, demand: PodDemand, row: int) -> tuple[VolumePlan, ...] | None:
        """Return what to write for the pod's volumes on a node; None: it cannot go there."""
        return () if self.volumes is None else self.volumes.plans(demand.volumes, row)
