"""A set of Kubernetes objects as a cluster: what waits for devices, and where it fits.

For commands that answer questions about files or about a cluster that is only read: pods (and those
of workloads) with claims and templates, also those of their PodGroup, claims alone, extended
resources of pods, nodes or what slices say of them, DeviceTaintRules. Which node, which devices and
why not is the answer of the model, the same as the live scheduler's; what was placed stays placed.
What waits is left to `backlog`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from dralab.allocation import v1
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.optimum import Optimum, allocate_batch
from dralab.allocation.policy.policies import Policy
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import AllocationFeatures, InUse, Node, Problem, Slice
from dralab.objects.claims import allocation_of, consumer_of
from dralab.objects.extended_resources import synthetic_claim
from dralab.objects.metadata import NamespacedName, full_key, status_of
from dralab.objects.nodes import is_unschedulable
from dralab.scheduling.backlog import Backlog, Key, Pending
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.nodes import Mask
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reading import features_of
from dralab.scheduling.reasons import Reason
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

ENTRY: Final = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A node for what was pending, and a `status.allocation` per claim."""

    pending: Pending
    node: str
    allocations: Sequence[JsonDict]
    decision: PodPlacement

    def objects(self) -> list[JsonDict]:
        """Return the claims with their `status.allocation`."""
        return [
            claim | {"status": {**status_of(claim), "allocation": allocation}}
            for claim, allocation in zip(self.pending.claims, self.allocations, strict=True)
        ]


class Snapshot:
    """Objects of resource.k8s.io/v1 and core/v1, checked and defaulted, as one cluster."""

    def __init__(
        self, objects: Iterable[JsonDict], features: AllocationFeatures | None = None
    ) -> None:
        given = list(objects)
        self.by_kind: dict[str, list[JsonDict]] = {}
        for item in given:
            self.by_kind.setdefault(str(item.get("kind")), []).append(item)
        self.features = features or features_of(self.by_kind.get("Node", ()))
        claims = self.by_kind.get("ResourceClaim", ())
        self.claims: dict[Key, JsonDict] = {full_key(item): item for item in claims}
        self.model = ClusterModel(given, features=self.features, completing=False)
        self.provided = self.model.provided
        self.backlog = Backlog(self.by_kind, self.claims, self.provided)
        self._in_use: InUse | None = None
        self._users: list[tuple[JsonDict, Pending]] | None = None
        self._infos: dict[int, tuple[JsonObject, PodInfo]] = {}

    # --- what is there

    @property
    def reader(self) -> v1.V1Reader:
        """The reader of claims, classes and slices; it keeps their wire forms."""
        return self.model.reader

    @property
    def fleet(self) -> Fleet:
        """The devices and what is in use of them."""
        return self.model.devices.fleet

    @property
    def catalog(self) -> SliceCatalog:
        """The slices by pool."""
        return self.model.devices.catalog

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The slices, with the taints of DeviceTaintRules."""
        return self.model.devices.slices

    @cached_property
    def nodes(self) -> dict[str, JsonDict]:
        """The nodes by name; without Node objects those that slices and pods name."""
        return {node["metadata"]["name"]: node for node in self.model.objects.nodes}

    @property
    def in_use(self) -> InUse:
        """What the claims hold, published here or not."""
        if self._in_use is None:
            self._in_use = v1.in_use(self.claims.values())
        return self._in_use

    def pending(self, *, every: bool = False) -> list[Pending]:
        """Return everything that waits for devices: pods in their order, then other claims.

        With `every` pods that wait for anything else are in it, too.
        """
        return self.backlog.pending(list(self.nodes), every=every)

    def pending_of(self, pod: JsonDict) -> Pending:
        """Return a pod with its claims, waiting or not."""
        found = self.backlog.of_pod(pod)
        if found is not None:
            return self.refreshed(found)
        return self.backlog.without_devices(pod)

    def users(self) -> Sequence[tuple[JsonDict, Pending]]:
        """Return the pods that have claims, running ones too, with their claims."""
        if self._users is None:
            pods = self.backlog.pods(list(self.nodes))
            found = ((pod, self.backlog.of_pod(pod)) for pod in pods)
            self._users = [(pod, user) for pod, user in found if user is not None]
        return self._users

    def refreshed(self, pending: Pending) -> Pending:
        """Return what is still pending: shared claims may have been allocated."""
        claims = [
            self.claims.get(full_key(claim), claim)
            for claim in (*pending.claims, *pending.allocated)
        ]
        return Pending(
            kind=pending.kind,
            namespace=pending.namespace,
            name=pending.name,
            claims=tuple(claim for claim in claims if not allocation_of(claim)),
            allocated=tuple(claim for claim in claims if allocation_of(claim)),
            pod=pending.pod,
            missing=pending.missing,
        )

    def problem(self, pending: Pending) -> Problem:
        """Return the allocation problem of what is pending, with everything that is in use."""
        return Problem(
            claims=tuple(self.reader.claim(claim) for claim in pending.claims),
            classes=self.fleet.classes,
            slices=self.slices,
            in_use=self.in_use,
            features=self.features,
        )

    # --- which node, and why not

    def info(self, pending: Pending) -> PodInfo:
        """Return what is pending as the scheduler reads it.

        A claim alone stands for a pod of its name that requests nothing and tolerates nothing.
        """
        pod: JsonObject = pending.pod if pending.kind == "pod" else _pod_of(pending)
        known = self._infos.get(id(pending.pod))
        if known is None or known[0] is not pod:
            known = (pod, self.model.info(self.model.objects.pod(pod)))
            if pending.kind == "pod":
                self._infos[id(pod)] = known
        return known[1]

    def question(self, pending: Pending, only: str = "") -> PodQuestion:
        """Return what is pending as a question to the nodes; with `only` to that one."""
        held = frozenset(NamespacedName(*full_key(claim)) for claim in pending.allocated)
        return PodQuestion(self.model.state, self.info(pending), only, held)

    def blocked(self, pending: Pending) -> Reason | None:
        """Return the reason not to try a pod or claim on any node; None if it can be tried."""
        found = self.model.state.demands.demand_of(self.info(pending))
        return found.reason if isinstance(found, BlockedPod) else None

    def candidates(self, pending: Pending, only: str = "") -> list[Node]:
        """Return the nodes that may run a pod, whatever their free devices are."""
        return self.question(pending, only).candidates()

    def node(self, name: str) -> Node:
        """Return a node as far as devices care, cordoned ones too."""
        return self.model.devices.node(self.model.state.table.row_of[name])

    # --- placing

    def decide(self, pending: Pending, only: str = "") -> PodPlacement | Refusal:
        """Return the scheduler's decision now; `only` restricts the nodes to one.

        A pod of a gang is decided with the others of its gang.
        """
        return self.model.decide(self.info(pending), only)

    def place(
        self, pending: Pending, policy: Policy | None = None, only: str = ""
    ) -> Placed | None:
        """Return a placement of what is pending, or None; nothing is taken yet.

        Without a policy that is the scheduler's decision. A policy chooses node and devices by
        their cost, among the nodes that the filters leave.
        """
        if policy is None:
            decided = self.decide(pending, only)
            return self.placed(pending, decided) if isinstance(decided, PodPlacement) else None
        mask = self.question(pending, only).usable()
        candidates = int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")
        found = self.fleet.allocate(pending.claims, candidates, policy)
        if not isinstance(found, DevicePlacement):
            return None
        for allocation in found.allocations:
            self.fleet.release(allocation)
        return self._with_devices(pending, found)

    def placed(self, pending: Pending, decided: PodPlacement) -> Placed:
        """Return a decision with the claims as they are written."""
        by_name = {plan.claim["metadata"].get("name"): plan.allocation for plan in decided.plans}
        # The claim for extended resources is named when it is made.
        allocations = [
            dict(by_name.get(claim["metadata"]["name"]) or by_name[None])
            for claim in pending.claims
        ]
        return Placed(pending=pending, node=decided.node, allocations=allocations, decision=decided)

    def _with_devices(self, pending: Pending, found: DevicePlacement) -> Placed | None:
        """Return a place with devices chosen by a policy; None if they consume too much."""
        asked = self.question(pending)
        info = asked.pod
        wire, mappings = synthetic_claim(info.obj, asked.demand.extended)
        plans = []
        for claim, allocation in zip(pending.claims, found.allocations, strict=True):
            known = self.model.claims.get(NamespacedName(*full_key(claim)))
            # The claim for extended resources is named when it is made.
            chosen = (wire, tuple(mappings)) if known is None else (known, ())
            plans.append(ClaimPlan(chosen[0], consumer_of(info.obj), allocation, chosen[1]))
        plans += [
            ClaimPlan(item.claim, item.consumer, item.allocation)
            for item in asked.allocated
            if item.allocation is not None
        ]
        charged = self.model.devices.charged(info, plans)
        if not isinstance(charged, PodInfo):
            return None
        decision = PodPlacement(charged, found.node, tuple(plans))
        return Placed(
            pending=pending, node=found.node, allocations=found.allocations, decision=decision
        )

    def accept(self, placed: Placed) -> None:
        """Take a place, with its devices."""
        for claim in placed.objects():
            self.claims[full_key(claim)] = claim
        self._in_use = None
        self._users = None
        if placed.decision.pod.uid in self.model.running:
            self.model.take_away(placed.decision.pod.uid)
        self.model.place(placed.decision)

    def alone(self) -> list[Pending]:
        """Return what is pending that shares no claim with others and may go to every node.

        Cordoned nodes do not count. All of them together may go to any node: none keeps another
        from its room.
        """
        pending = self.pending()
        uses = Counter(full_key(claim) for each in pending for claim in each.claims)
        table = self.model.state.table
        everywhere = self._open()
        found: list[Pending] = []
        total: Counter[str] = Counter()
        for each in pending:
            if (
                not each.claims
                or each.missing
                or each.allocated
                or any(uses[full_key(claim)] > 1 for claim in each.claims)
                or self.blocked(each) is not None
                or self.info(each).group
                or not (self.question(each).usable() >= everywhere).all()
            ):
                continue
            more = total + Counter({"pods": 1, **self.info(each).requests})
            if all((table.free(name)[everywhere] >= n).all() for name, n in more.items() if n):
                total = more
                found.append(each)
        return found

    def _open(self) -> Mask:
        table = self.model.state.table
        found = table.live.copy()
        for row in table.row_of.values():
            found[row] &= not is_unschedulable(table.objects[row] or {})
        return found

    def place_batch(self, batch: Sequence[Pending]) -> tuple[list[Placed | None], Optimum]:
        """Serve as many of a batch as possible and take their devices; all may use any node.

        Returns per pending its place, None if it has none, and the proof of how good that is.
        MissingExtraError without OR-Tools.
        """
        fleet, everywhere = self.fleet.copied(), self._open()
        for row in self.model.state.table.row_of.values():
            if not everywhere[row]:
                fleet.remove_node(row)
        optimum = allocate_batch(fleet, [each.claims for each in batch])
        places: list[Placed | None] = []
        for each, found in zip(batch, optimum.placements, strict=True):
            placed = None if found is None else self._with_devices(each, found)
            if placed is not None:
                self.accept(placed)
            places.append(placed)
        return places, optimum


def _pod_of(pending: Pending) -> JsonDict:
    """Return the pod that a claim alone stands for."""
    return {
        "metadata": {
            "name": pending.name,
            "namespace": pending.namespace,
            "uid": f"claim/{pending.namespace}/{pending.name}",
        },
        "spec": {"resourceClaims": [{"name": ENTRY, "resourceClaimName": pending.name}]},
    }
