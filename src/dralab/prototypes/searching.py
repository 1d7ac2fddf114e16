"""Shared by the clusters of older generations: objects by identity, and the search over nodes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import numpy as np

from dralab.allocation import problem as core
from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated, ClaimAllocation
from dralab.allocation.problem import InUse, Node, Problem
from dralab.objects.claims import consumer_of
from dralab.objects.metadata import status_of
from dralab.prototypes.findings import NormalizedDocument, identity
from dralab.prototypes.placement import (
    ExpressionFailure,
    NodeRefusal,
    PlacedDevice,
    PlacedPod,
    PlacementResult,
    UnallocatableError,
    UnplacedPod,
)
from dralab.scheduling import scores
from dralab.scheduling.demands import NOTHING_WANTED
from dralab.scheduling.filters import passing, reasons_by_node
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied
from dralab.values.quantity import Number
from dralab.values.records import dataclass

Key = tuple[str, str, str, str]
SHARED: Final = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimInProblem:
    """A claim of a pod: its object, the pod's name for it, and its form in the problem."""

    entry: str = ""
    item: JsonDict
    wanted: core.Claim

    @property
    def name(self) -> str:
        """The claim's name."""
        return str(self.item["metadata"]["name"])

    @property
    def allocation(self) -> Mapping[str, Any] | None:
        """Its present allocation."""
        found: Mapping[str, Any] | None = status_of(self.item).get("allocation")
        return found

    @property
    def is_allocated(self) -> bool:
        """Whether it has its devices already."""
        return self.allocation is not None


Asked = TypeVar("Asked", bound=ClaimInProblem)


class SearchedCluster(ABC, Generic[Asked]):
    """Objects, and placements of pods that change nothing until they are applied.

    `cluster_kinds` are those without a namespace; others without one are in `default`.
    `pool_kind` is the kind that describes devices. A generation says what a pod asks for (`_asked`)
    and writes what a claim gets (`_write`).
    """

    api_version: str
    cluster_kinds: frozenset[str] = frozenset()
    pool_kind: str = ""
    slices: tuple[core.Slice, ...]
    classes: Mapping[str, core.DeviceClass]

    def __init__(
        self, objects: Iterable[JsonDict], refused: Iterable[NormalizedDocument] = ()
    ) -> None:
        self.objects: dict[Key, JsonDict] = {}
        for item in objects:
            self.objects[self.key(item)] = item
        self.refused = {self.key(report.document): report for report in refused}

    @cached_property
    def model(self) -> ClusterModel:
        """The nodes with the pods on them; devices are the generation's own business."""
        given = {node["metadata"]["name"]: node for node in self.objects_of_kind("v1", "Node")}
        nodes: list[JsonDict] = [
            {"metadata": {"name": name}, **given.get(name, {}), "kind": "Node"}
            for name in self.nodes()
            if name
        ]
        return ClusterModel([*nodes, *map(_without_claims, self.pods())])

    def _info(self, pod: JsonDict) -> PodInfo:
        return self.model.info(self.model.objects.pod(_without_claims(pod)))

    def key(self, item: Mapping[str, Any]) -> Key:
        """Return apiVersion, kind, namespace and name of an object."""
        api_version, kind, namespace, name = identity(item)
        default = "" if kind in self.cluster_kinds else "default"
        return (api_version, kind, namespace or default, name)

    def objects_of_kind(self, api_version: str, kind: str) -> list[JsonDict]:
        """Return the objects of a kind, in the order in which they came."""
        return [item for key, item in self.objects.items() if key[:2] == (api_version, kind)]

    def _of(self, kind: str) -> list[JsonDict]:
        return self.objects_of_kind(self.api_version, kind)

    def named(self, kind: str, namespace: str, name: str, api_version: str = "") -> JsonDict:
        """Return an object that a claim or a pod names; UnallocatableError if there is none."""
        key = (api_version or self.api_version, kind, namespace, name)
        found = self.objects.get(key)
        if found is None:
            raise UnallocatableError(self.absent(key))
        return found

    def refused_of_kind(self, api_version: str, kind: str) -> dict[Key, NormalizedDocument]:
        """Return the stored objects of a kind that cannot be read."""
        return {
            key: report for key, report in self.refused.items() if key[:2] == (api_version, kind)
        }

    def absent(self, key: Key) -> str:
        """Return the error for a missing object: it does not exist, or it cannot be read."""
        title = f'{key[1]} "{"/".join(filter(None, key[2:]))}"'
        report = self.refused.get(key)
        if report is not None:
            return f"{title} is invalid: {report.problem}"
        known = [each[3] for each in self.objects if each[:3] == key[:3]]
        near = get_close_matches(key[3], known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        return f"{title} does not exist{hint}"

    def nodes(self) -> list[str]:
        """Return the names of all nodes, sorted: of Node objects, and those that pools name."""
        named = {key[3] for key in self.objects if key[:2] == ("v1", "Node")}
        return sorted(named | self.pool_nodes() - {""}) or [""]

    def apply(self, placed: PlacedPod) -> None:
        """Apply a placement."""
        for item in (*placed.claims, placed.pod):
            self.objects[self.key(item)] = item
        info = self._info(placed.pod)
        if info.uid not in self.model.running:
            self.model.place(PodPlacement(info, placed.node))

    def problems(self, pod: JsonDict) -> list[tuple[Node, Problem]]:
        """Return the allocation problem of a pod on every node that may run it."""
        problem = self.problem(pod)
        return [(Node(name), problem) for name in self._candidates(self._info(pod))]

    def _candidates(self, info: PodInfo) -> list[str]:
        """Return the nodes that may run a pod, the best first, as kube-scheduler scores them."""
        state = self.model.state
        if not state.table.count:
            return [""]
        fitting = passing(state, info, NOTHING_WANTED)
        points = scores.total(state, info, fitting)[0]
        ordered = np.argsort(-points, kind="stable")
        return [state.table.names[row] for row in ordered if fitting[row]]

    def fleet(self) -> Problem:
        """Return a problem without claims: all devices, and which of them are in use."""
        return self._problem(())

    def pods(self) -> list[JsonDict]:
        """Return the pods, in the order in which they came."""
        return self.objects_of_kind("v1", "Pod")

    def pool_nodes(self) -> set[str]:
        """Return the nodes that pools name."""
        return {each.node_scope.node for each in self.slices}

    def failures(self) -> Mapping[str, str]:
        """Return expressions that failed for some device, with the first error of each.

        None where such an error ends the search.
        """
        return {}

    def problem(self, pod: JsonDict) -> Problem:
        """Return the allocation problem of a pod; UnallocatableError if it cannot be met at all."""
        return self._problem(self._asked(pod))

    def _problem(self, asked: Sequence[Asked]) -> Problem:
        return Problem(
            claims=tuple(claim.wanted for claim in asked if not claim.is_allocated),
            classes=self.classes,
            slices=self.slices,
            in_use=self._in_use(),
        )

    @abstractmethod
    def _in_use(self) -> InUse:
        """Return the devices that are in use."""

    @abstractmethod
    def _asked(self, pod: JsonDict) -> list[Asked]:
        """Return the claims of a pod; UnallocatableError if they cannot be met at all."""

    def _to_place(self, pod: JsonDict) -> list[Asked]:
        """Return them with all that their status will need; UnallocatableError."""
        return self._asked(pod)

    @abstractmethod
    def _write(
        self, claim: Asked, item: JsonDict, allocation: ClaimAllocation, node: str
    ) -> Iterable[PlacedDevice]:
        """Write an allocation into a claim; return its devices."""

    @abstractmethod
    def _containers(
        self,
        pod: JsonDict,
        asked: Sequence[Asked],
        claims: Sequence[JsonDict],
        devices: Sequence[PlacedDevice],
    ) -> dict[str, tuple[str, ...]]:
        """Return what each container sees: by claims as written, or by the new devices."""

    def _nodes_of(self, claim: Asked) -> set[str]:
        """Return the nodes to which a claim's allocation ties a pod."""
        return {str((claim.allocation or {}).get("nodeName") or "")} - {""}

    def _reserve(self, status: JsonDict, pod: JsonDict) -> None:
        """Note a pod as a user of a claim."""
        user = consumer_of(pod)
        users = status.setdefault("reservedFor", [])
        if user not in users:
            users.append(user)

    def _placed(
        self,
        pod: JsonDict,
        node: str,
        asked: Sequence[Asked],
        allocations: Sequence[ClaimAllocation],
    ) -> PlacedPod:
        found = iter(allocations)
        claims: list[JsonDict] = []
        devices: list[PlacedDevice] = []
        for claim in asked:
            item = copied(claim.item)
            status = item.setdefault("status", {})
            if not claim.is_allocated:
                devices += self._write(claim, item, next(found), node)
            self._reserve(status, pod)
            claims.append(item)
        bound = copied(pod)
        bound["spec"]["nodeName"] = node
        return PlacedPod(
            pod=bound,
            node=node,
            devices=tuple(devices),
            claims=tuple(claims),
            containers=self._containers(bound, asked, claims, devices),
        )

    def place(self, pod: JsonDict) -> PlacementResult:
        """Return where a pod can run: the node that scores best, with the first devices."""
        try:
            asked = self._to_place(pod)
        except UnallocatableError as error:
            return UnplacedPod(pod=pod, reason=str(error))
        problem = self._problem(asked)
        # The nodes of claims that are allocated already: more than one is a reason.
        fixed = sorted({node for claim in asked for node in self._nodes_of(claim)})
        if len(fixed) > 1:
            reason = f"its claims are allocated on different nodes: {', '.join(fixed)}"
            return UnplacedPod(pod=pod, reason=reason)
        if problem.claims and not self.pool_nodes():
            return UnplacedPod(pod=pod, reason=f"there are no devices: no {self.pool_kind}")
        info = self._info(pod)
        unfit = reasons_by_node(self.model.state, info, NOTHING_WANTED)
        refusals = [NodeRefusal(node=name, unfit=why) for name, why in sorted(unfit.items())]
        for name in self._candidates(info):
            if fixed and name not in fixed:
                continue
            outcome = allocate(problem, Node(name))
            if isinstance(outcome, Allocated):
                return self._placed(pod, name, asked, outcome.claims)
            refusals.append(NodeRefusal(node=name, outcome=outcome))
        refusals.sort(key=lambda refusal: refusal.node)
        failures = sorted(self.failures().items())
        return UnplacedPod(
            pod=pod,
            nodes=tuple(refusals),
            failures=tuple(ExpressionFailure(text, message) for text, message in failures),
        )


def slices_of(
    driver: str,
    pool: core.NumberedPool,
    node: str,
    devices: Iterable[core.Device],
    shared: Mapping[str, Number],
) -> Iterator[core.Slice]:
    """Yield the slices of a pool: one with devices, one with counters where there are any."""
    made = core.Slice(
        name=f"{pool}-devices",
        driver=driver,
        pool=pool,
        slice_count=2 if shared else 1,
        node_scope=core.NodeScope(node=node, everywhere=not node),
        devices=tuple(devices),
    )
    yield made
    if shared:
        counters = (core.CounterSet(SHARED, shared),)
        yield replace(made, name=f"{pool}-shared", devices=(), counter_sets=counters)


def _without_claims(pod: JsonDict) -> JsonDict:
    """Return a pod without its claims, which only its generation reads."""
    left = {"resourceClaims", "deviceClaims"}
    spec = {name: part for name, part in pod["spec"].items() if name not in left}
    return {**pod, "kind": "Pod", "spec": spec}
