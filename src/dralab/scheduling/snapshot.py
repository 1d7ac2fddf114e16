"""A set of Kubernetes objects as a cluster: pending claims, and the devices they may get.

For commands that answer questions about files or about a cluster that is only read: pods (and those
of workloads) with claims and templates, also those of their PodGroup, claims alone, extended
resources of pods, nodes or what slices say of them, DeviceTaintRules. Allocations that are found
become part of the snapshot. In a live cluster the scheduler does this; it shares the allocator but
not this module. What waits is left to `backlog`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dralab.allocation import v1
from dralab.allocation.allocator import numbered_shares
from dralab.allocation.backlog import Backlog, Pending, key
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.optimum import Optimum, allocate_batch
from dralab.allocation.policy.policies import Policy
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import AllocationFeatures, InUse, Node, Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.claims import allocation_of
from dralab.objects.device_taints import rule_selects
from dralab.objects.extended_resources import classes_by_resource
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.nodes import NodeFilters, UnfitReason, is_unschedulable
from dralab.objects.slices import devices_of, pool_of
from dralab.objects.taints import UNSCHEDULABLE, tolerates
from dralab.scheduling.pod_rules import PodRules
from dralab.values.json_types import JsonDict
from dralab.values.labels import node_selector_accepts

CLAIM_ELSEWHERE: Final = "node(s) cannot use the devices of an allocated claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A node for what was pending, and a `status.allocation` per claim."""

    pending: Pending
    node: str
    allocations: Sequence[JsonDict]

    def objects(self) -> list[JsonDict]:
        """Return the claims with their `status.allocation`."""
        return [
            claim | {"status": {**status_of(claim), "allocation": allocation}}
            for claim, allocation in zip(self.pending.claims, self.allocations, strict=True)
        ]


class Snapshot:
    """Objects of resource.k8s.io/v1 and core/v1, checked and defaulted, as one cluster.

    With `rules` other pods and volumes decide, too, which nodes a pod may use.
    """

    def __init__(
        self,
        objects: Iterable[JsonDict],
        features: AllocationFeatures | None = None,
        *,
        rules: PodRules | None = None,
    ) -> None:
        self.features = features or AllocationFeatures()
        self.rules = rules
        self.by_kind: dict[str, list[JsonDict]] = {}
        for item in objects:
            self.by_kind.setdefault(str(item.get("kind")), []).append(item)
        self.reader = v1.V1Reader(CelSelectorCompiler(), keeps=True)
        taints = self.by_kind.get("DeviceTaintRule", [])
        published = [_tainted(item, taints) for item in self.by_kind.get("ResourceSlice", ())]
        self.slices = tuple(self.reader.slice(item) for item in published)
        self.catalog = SliceCatalog(self.slices)
        self.claims = {key(item): item for item in self.by_kind.get("ResourceClaim", ())}
        self._shares = numbered_shares()
        self._in_use: InUse | None = None
        self._users: list[tuple[JsonDict, Pending]] | None = None
        self._given = {share.share for share in self.in_use.shares}
        self.provided = classes_by_resource(self.by_kind.get("DeviceClass", ()))
        nodes = self._nodes()
        self.backlog = Backlog(self.by_kind, self.claims, self.provided)
        self.filters = NodeFilters(nodes, self.by_kind.get("Pod", ()), provided=self.provided)
        self.fleet = Fleet(
            self._with_cordoned(nodes),
            self.slices,
            self.by_kind.get("DeviceClass", ()),
            features=self.features,
            reader=self.reader,
            share_ids=self._new_share,
        )
        self.fleet.mark_all_in_use(
            allocation
            for claim in self.claims.values()
            if (allocation := allocation_of(claim)) is not None
        )

    @property
    def in_use(self) -> InUse:
        """What the claims hold, whether it is published here or not."""
        if self._in_use is None:
            self._in_use = v1.in_use(self.claims.values())
        return self._in_use

    def pending(self) -> list[Pending]:
        """Return everything that wants devices: pods in their order, then claims of no pod."""
        found = self.backlog.pending(list(self.fleet.number_of))
        if self.rules is None:
            return found
        return [
            replace(each, missing=self.rules.blocked(each.pod))
            if each.kind == "pod" and not each.missing
            else each
            for each in found
        ]

    def users(self) -> Sequence[tuple[JsonDict, Pending]]:
        """Return the pods that have claims, running ones too, with their claims."""
        if self._users is None:
            pods = self.backlog.pods(list(self.fleet.number_of))
            found = ((pod, self.backlog.of_pod(pod)) for pod in pods)
            self._users = [(pod, user) for pod, user in found if user is not None]
        return self._users

    def refreshed(self, pending: Pending) -> Pending:
        """Return what is still pending: claims that others share may have devices by now."""
        claims = [
            self.claims.get(key(claim), claim) for claim in (*pending.claims, *pending.allocated)
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

    def candidates(self, pending: Pending, only: str = "") -> list[Node]:
        """Return the nodes that may run a pod, as the scheduler filters them, with its claims."""
        return [
            node
            for node in self.fleet.nodes
            if (not only or node.name == only)
            and not self.refusals(pending, node.name)
            and all(_reaches(claim, node) for claim in pending.allocated)
        ]

    def unfit(self, pending: Pending, only: str = "") -> list[str]:
        """Return why nodes may not run a pod whatever their devices, node by node.

        A node that lacks several resources has a reason for each, as with kube-scheduler.
        """
        nodes = self.unfit_nodes(pending, only)
        return [str(reason) for reasons in nodes.values() for reason in reasons]

    def unfit_nodes(self, pending: Pending, only: str = "") -> dict[str, list[UnfitReason | str]]:
        """Return the nodes that may not run a pod whatever their devices, each with its reasons."""
        reached = {node.name: node for node in self.fleet.nodes}
        found: dict[str, list[UnfitReason | str]] = {}
        for name in self.filters.nodes:
            if only and name != only:
                continue
            refusals: list[UnfitReason | str] = list(self.refusals(pending, name))
            if not refusals and name in reached:
                node = reached[name]
                if not all(_reaches(claim, node) for claim in pending.allocated):
                    refusals.append(CLAIM_ELSEWHERE)
            if refusals:
                found[name] = refusals
        return found

    def node(self, name: str) -> Node:
        """Return a node as far as devices care, cordoned ones too."""
        return v1.node(self.filters.nodes[name])

    def refusals(self, pending: Pending, node: str) -> list[UnfitReason]:
        """Return why a node may not run a pod whatever its devices: the first rule that it breaks.

        A node that lacks several resources has a reason for each.
        """
        if pending.kind == "pod":
            found = self.filters.refusals(pending.pod, node)
            if found or self.rules is None:
                return found
            broken = self.rules.refusal(pending.pod, node)
            return [] if broken is None else [broken]
        # A claim alone stands for a pod that tolerates nothing.
        cordoned = is_unschedulable(self.filters.nodes[node])
        return [UnfitReason("NodeUnschedulable")] if cordoned else []

    def place(
        self, pending: Pending, nodes: Sequence[Node], policy: Policy | None = None
    ) -> Placed | None:
        """Return where what is pending can be served, None if it cannot be; take nothing yet.

        Without a policy the first of the nodes that fits is taken, with Kubernetes' choice of
        devices there.
        """
        candidates = self.fleet.candidates_of(node.name for node in nodes)
        found = self.fleet.allocate(pending.claims, candidates, policy)
        if not isinstance(found, DevicePlacement):
            return None
        for allocation in found.allocations:
            self.fleet.release(allocation)
        return Placed(pending=pending, node=found.node, allocations=found.allocations)

    def place_batch(self, batch: Sequence[Pending]) -> tuple[list[Placed | None], Optimum]:
        """Serve as many of a batch as possible and take their devices; any node will do for each.

        Returns per pending its place, None if it has none, and the proof of how good that is.
        MissingSolverError without OR-Tools.
        """
        optimum = allocate_batch(self.fleet, [each.claims for each in batch])
        places: list[Placed | None] = []
        for each, found in zip(batch, optimum.placements, strict=True):
            if found is None:
                places.append(None)
                continue
            placed = Placed(pending=each, node=found.node, allocations=found.allocations)
            self.claims.update((key(claim), claim) for claim in placed.objects())
            self._in_use = None
            self._users = None
            self.note_pod(each.pod, found.node)
            places.append(placed)
        return places, optimum

    def alone(self) -> list[Pending]:
        """Return what is pending that shares no claim with others and may go to every node.

        All of them together may go to any node: none keeps another from its room.
        """
        pending = self.pending()
        uses = Counter(key(claim) for each in pending for claim in each.claims)
        found: list[Pending] = []
        for each in pending:
            if (
                each.claims
                and not each.missing
                and not each.allocated
                and all(uses[key(claim)] == 1 for claim in each.claims)
                and len(self.candidates(each)) == len(self.fleet.nodes)
                and self._have_room([*found, each])
            ):
                found.append(each)
        return found

    def _have_room(self, batch: Sequence[Pending]) -> bool:
        pods = [each.pod for each in batch if each.kind == "pod"]
        return all(self.filters.fits_beside(pods, node.name) for node in self.fleet.nodes)

    def note_pod(self, pod: Mapping[str, Any], node: str) -> None:
        """Take it that a pod runs on a node; nothing is noted of a claim that has no pod."""
        if pod:
            self.filters.count_pod(pod, node)
            if self.rules is not None:
                self.rules.note_pod(pod, node)

    def note_claims(self, claims: Iterable[JsonDict]) -> None:
        """Take it that these claims are as they are now: what they were given is in use."""
        for claim in claims:
            known = self.claims.get(key(claim))
            if known is None or not allocation_of(known):
                self._hold(claim)
            self.claims[key(claim)] = claim
            self._in_use = None
            self._users = None

    def _hold(self, claim: JsonDict) -> None:
        """Mark what an allocated claim of the input holds; devices of no pool here hold nothing."""
        allocation = allocation_of(claim)
        if allocation is not None and allocation.get("devices"):
            self.fleet.mark_in_use(allocation)

    def _new_share(self) -> str:
        """Return the next share id that no object has."""
        while True:
            share = self._shares()
            if share not in self._given:
                return share

    def _nodes(self) -> list[JsonDict]:
        given = self.by_kind.get("Node", [])
        if given:
            return given
        names = {each.node_scope.node for each in self.slices if each.node_scope.node}
        names |= {
            device.node_scope.node
            for each in self.slices
            if each.per_device_scope
            for device in each.devices
            if device.node_scope.node
        }
        if not names and self.slices:
            # Only devices of the network: any node would do, so there is one.
            names = {"any-node"}
        return [{"metadata": {"name": name}} for name in sorted(names)]

    def _with_cordoned(self, nodes: list[JsonDict]) -> list[JsonDict]:
        """Return the nodes of the fleet: cordoned ones only where some pod goes to such."""
        taking = [node for node in nodes if not is_unschedulable(node)]
        # All pods are looked at, so once: not for each cordoned node.
        if len(taking) == len(nodes) or any(
            tolerates(spec_of(pod).get("tolerations") or (), UNSCHEDULABLE)
            for pod in self.backlog.templates()
        ):
            return nodes
        return taking


def _tainted(item: JsonDict, rules: Sequence[JsonDict]) -> JsonDict:
    """Return a slice with the taints of DeviceTaintRules among those of its devices."""
    spec, pool = item["spec"], pool_of(item)
    added: dict[str, list[JsonDict]] = {}
    for rule in rules:
        for device in devices_of(item):
            if rule_selects(rule, *pool, device["name"]):
                added.setdefault(device["name"], []).append(rule["spec"]["taint"])
    if not added:
        return item
    devices = [
        device | {"taints": [*(device.get("taints") or ()), *added[device["name"]]]}
        if device["name"] in added
        else device
        for device in spec["devices"]
    ]
    return item | {"spec": spec | {"devices": devices}}


def _reaches(claim: JsonDict, node: Node) -> bool:
    selector = (allocation_of(claim) or {}).get("nodeSelector")
    return selector is None or node_selector_accepts(selector, node.labels, node.name)
