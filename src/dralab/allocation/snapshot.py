"""A set of Kubernetes objects as a cluster: pending claims, and the devices they may get.

For commands that work on files: pods (and those of workloads) with claims and templates, also those
of their PodGroup, claims alone, extended resources of pods, nodes or what slices say of them,
DeviceTaintRules. Allocations that are found become part of the snapshot. In a live cluster the
scheduler does this; it shares the allocator but not this module.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dralab.allocation import v1
from dralab.allocation.allocator import numbered_shares
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.optimum import Optimum, allocate_batch
from dralab.allocation.policy.policies import Policy
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import AllocationFeatures, Node, Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.claims import PodClaim, allocation_of, is_shared, pod_claims
from dralab.objects.device_taints import rule_selects
from dralab.objects.extended_resources import classes_by_resource, synthetic_claim
from dralab.objects.metadata import metadata_of, spec_of, status_of
from dralab.objects.nodes import NodeFilters, UnfitReason, is_unschedulable
from dralab.objects.pods import group_of
from dralab.objects.requests import pod_requests
from dralab.objects.slices import devices_of, pool_of
from dralab.objects.taints import UNSCHEDULABLE, tolerates
from dralab.objects.workloads import KINDS, pods_of
from dralab.values.json_types import JsonDict
from dralab.values.labels import node_selector_accepts
from dralab.values.quantity import QuantityError

DEFAULT_NAMESPACE: Final = "default"
CLAIM_ELSEWHERE: Final = "node(s) cannot use the devices of an allocated claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What wants devices: a pod with all of its claims that have none, or one claim alone.

    `missing` says what the pod refers to that is not there; such a pod cannot be served.
    """

    kind: str
    namespace: str
    name: str
    claims: tuple[JsonDict, ...]
    allocated: tuple[JsonDict, ...] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""

    @property
    def title(self) -> str:
        """Kind and name, as messages call it: `pod ml/train`."""
        return f"{self.kind} {self.namespace}/{self.name}"


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
    """Objects of resource.k8s.io/v1 and core/v1, checked and defaulted, as one cluster."""

    def __init__(
        self, objects: Iterable[JsonDict], features: AllocationFeatures | None = None
    ) -> None:
        self.features = features or AllocationFeatures()
        self.by_kind: dict[str, list[JsonDict]] = {}
        for item in objects:
            self.by_kind.setdefault(str(item.get("kind")), []).append(item)
        self.reader = v1.V1Reader(CelSelectorCompiler())
        rules = self.by_kind.get("DeviceTaintRule", [])
        published = [_tainted(item, rules) for item in self.by_kind.get("ResourceSlice", ())]
        self.slices = tuple(self.reader.slice(item) for item in published)
        self.catalog = SliceCatalog(self.slices)
        self.claims = {_key(item): item for item in self.by_kind.get("ResourceClaim", ())}
        self._shares = numbered_shares()
        self._given = {share.share for share in v1.in_use(self.claims.values()).shares}
        self.provided = classes_by_resource(self.by_kind.get("DeviceClass", ()))
        nodes = self._nodes()
        bound = [pod for pod in self.by_kind.get("Pod", ()) if _quantities(pod) == ""]
        self.filters = NodeFilters(nodes, bound, provided=self.provided)
        self.fleet = Fleet(
            [node for node in nodes if not is_unschedulable(node) or self._is_wanted_cordoned()],
            published,
            self.by_kind.get("DeviceClass", ()),
            features=self.features,
            reader=self.reader,
            share_ids=self._new_share,
        )
        for claim in self.claims.values():
            self._hold(claim)

    def pending(self) -> list[Pending]:
        """Return everything that wants devices: pods in their order, then claims of no pod."""
        found: list[Pending] = []
        used: set[tuple[str, str]] = set()
        for pod in self._pods():
            one = self._of_pod(pod, used)
            if one is not None:
                found.append(one)
        for key, claim in self.claims.items():
            if key not in used and not allocation_of(claim):
                found.append(Pending(kind="claim", namespace=key[0], name=key[1], claims=(claim,)))
        return found

    def refreshed(self, pending: Pending) -> Pending:
        """Return what is still pending: claims that others share may have devices by now."""
        claims = [
            self.claims.get(_key(claim), claim) for claim in (*pending.claims, *pending.allocated)
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
            in_use=v1.in_use(self.claims.values()),
            features=self.features,
        )

    def candidates(self, pending: Pending, only: str = "") -> list[Node]:
        """Return the nodes that may run a pod, as the scheduler filters them, with its claims."""
        return [
            node
            for node in self.fleet.nodes
            if (not only or node.name == only)
            and not self._refusals(pending, node.name)
            and all(_reaches(claim, node) for claim in pending.allocated)
        ]

    def unfit(self, pending: Pending, only: str = "") -> list[str]:
        """Return why nodes may not run a pod whatever their devices, node by node.

        A node that lacks several resources has a reason for each, as with kube-scheduler.
        """
        reached = {node.name: node for node in self.fleet.nodes}
        found: list[str] = []
        for name in self.filters.nodes:
            if only and name != only:
                continue
            refusals = self._refusals(pending, name)
            found += map(str, refusals)
            if not refusals and name in reached:
                node = reached[name]
                if not all(_reaches(claim, node) for claim in pending.allocated):
                    found.append(CLAIM_ELSEWHERE)
        return found

    def _refusals(self, pending: Pending, node: str) -> list[UnfitReason]:
        if pending.kind == "pod":
            return self.filters.refusals(pending.pod, node)
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
            self.claims |= {_key(claim): claim for claim in placed.objects()}
            self.note_pod(each.pod, found.node)
            places.append(placed)
        return places, optimum

    def alone(self) -> list[Pending]:
        """Return what is pending that shares no claim with others and may go to every node.

        All of them together may go to any node: none keeps another from its room.
        """
        pending = self.pending()
        uses = Counter(_key(claim) for each in pending for claim in each.claims)
        found: list[Pending] = []
        for each in pending:
            if (
                each.claims
                and not each.missing
                and not each.allocated
                and all(uses[_key(claim)] == 1 for claim in each.claims)
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

    def note_claims(self, claims: Iterable[JsonDict]) -> None:
        """Take it that these claims are as they are now: what they were given is in use."""
        for claim in claims:
            known = self.claims.get(_key(claim))
            if known is None or not allocation_of(known):
                self._hold(claim)
            self.claims[_key(claim)] = claim

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

    def _is_wanted_cordoned(self) -> bool:
        """Return whether some pod goes to cordoned nodes; the fleet has them only then."""
        return any(
            tolerates(spec_of(pod).get("tolerations") or (), UNSCHEDULABLE)
            for pod in self._templates()
        )

    def _templates(self) -> Iterator[Mapping[str, Any]]:
        yield from self.by_kind.get("Pod", ())
        for kind in sorted(KINDS):
            for workload in self.by_kind.get(kind, ()):
                yield spec_of(workload).get("template") or {}

    def _pods(self) -> list[JsonDict]:
        """Return the pods of the input and those that its workloads ask for."""
        names = list(self.fleet.number_of)
        made = [
            pod
            for kind in sorted(KINDS)
            for workload in self.by_kind.get(kind, ())
            for pod in pods_of(workload, names)
        ]
        return [*self.by_kind.get("Pod", ()), *made]

    def _of_pod(self, pod: JsonDict, used: set[tuple[str, str]]) -> Pending | None:
        metadata = pod["metadata"]
        namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
        claims: list[JsonDict] = []
        missing = ""
        for item in pod_claims(pod):
            found = self._claim_of(item, namespace, self._owner(item, pod, namespace))
            if isinstance(found, str):
                missing = missing or found
                continue
            used.add(_key(found))
            claims.append(found)
        bad = _quantities(pod)
        synthetic = None if bad else self._extended(pod, namespace)
        if synthetic is not None:
            claims.append(synthetic)
        if not claims and not missing:
            return None
        missing = missing or bad
        return Pending(
            kind="pod",
            namespace=namespace,
            name=metadata["name"],
            claims=tuple(claim for claim in claims if not allocation_of(claim)),
            allocated=tuple(claim for claim in claims if allocation_of(claim)),
            pod=pod,
            missing=missing,
        )

    def _owner(self, entry: PodClaim, pod: JsonDict, namespace: str) -> str:
        """Return after whom a claim made from a template is named: the pod, or its PodGroup.

        KEP-5729: an entry that equals one of the group is the group's, one claim for all.
        """
        own = str(pod["metadata"]["name"])
        group = group_of(pod)
        for item in self.by_kind.get("PodGroup", ()) if group else ():
            if _key(item) == (namespace, group):
                return group if is_shared(entry, item) else own
        return own

    def _claim_of(self, entry: PodClaim, namespace: str, owner: str) -> JsonDict | str:
        """Return the claim of a pod's entry, or what is missing."""
        if entry.claim:
            named = self.claims.get((namespace, entry.claim))
            return named or f'resourceclaim "{entry.claim}" not found'
        wanted = (namespace, entry.template)
        for template in self.by_kind.get("ResourceClaimTemplate", ()):
            if _key(template) == wanted:
                spec = template["spec"]
                made: JsonDict = {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    # A cluster would add five random characters.
                    "metadata": dict(metadata_of(spec))
                    | {"name": f"{owner}-{entry.entry}", "namespace": namespace},
                    "spec": spec["spec"],
                }
                return self.claims.get(_key(made), made)
        return f'resourceclaimtemplate "{wanted[1]}" not found'

    def _extended(self, pod: JsonDict, namespace: str) -> JsonDict | None:
        """Return the claim that stands for a pod's extended resources (KEP-5004), if it has any."""
        made, mappings = synthetic_claim(pod, self.provided)
        if not mappings:
            return None
        # A cluster would add five random characters.
        name = made["metadata"]["generateName"].removesuffix("-")
        made["metadata"] = {"name": name, "namespace": namespace}
        return self.claims.get(_key(made), made)


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


def _key(item: JsonDict) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace") or DEFAULT_NAMESPACE, metadata["name"]


def _quantities(pod: Mapping[str, Any]) -> str:
    """Return what keeps a pod's requests from being counted; empty if they are quantities."""
    try:
        pod_requests(spec_of(pod))
    except QuantityError as error:
        return f"it requests {error.text!r}, which is not a quantity"
    return ""


def _reaches(claim: JsonDict, node: Node) -> bool:
    selector = (allocation_of(claim) or {}).get("nodeSelector")
    return selector is None or node_selector_accepts(selector, node.labels, node.name)
