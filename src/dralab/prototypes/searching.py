"""Shared by the clusters of older generations: objects by identity, and the search over nodes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated, ClaimAllocation
from dralab.allocation.problem import Node, Problem
from dralab.prototypes.findings import NormalizedDocument, identity
from dralab.prototypes.placement import (
    ExpressionFailure,
    NodeRefusal,
    PlacedPod,
    PlacementResult,
    UnplacedPod,
)
from dralab.scheduling import scores
from dralab.scheduling.demands import NOTHING_WANTED
from dralab.scheduling.filters import passing, reasons_by_node
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict

Key = tuple[str, str, str, str]


class SearchedCluster(ABC):
    """Objects, and placements of pods that change nothing until they are applied.

    `cluster_kinds` are those without a namespace; others without one are in `default`.
    `pool_kind` is the kind that describes devices.
    """

    cluster_kinds: frozenset[str] = frozenset()
    pool_kind: str = ""

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

    @abstractmethod
    def _problem(self, asked: Sequence[Any], /) -> Problem:
        """Return the problem of a pod's claims, in the form that the generation reads them in."""

    @abstractmethod
    def pods(self) -> list[JsonDict]:
        """Return the pods, in the order in which they came."""

    @abstractmethod
    def problem(self, pod: JsonDict) -> Problem:
        """Return the allocation problem of a pod; ValueError if it cannot be met at all."""

    @abstractmethod
    def pool_nodes(self) -> set[str]:
        """Return the nodes that pools name."""

    @abstractmethod
    def failures(self) -> Mapping[str, str]:
        """Return expressions that failed for some device, with the first error of each."""

    def searched(
        self,
        pod: JsonDict,
        problem: Problem,
        fixed: Sequence[str],
        placed: Callable[[str, Sequence[ClaimAllocation]], PlacedPod],
    ) -> PlacementResult:
        """Return the best node that can run a pod, or why none can.

        `fixed` are the nodes of claims that are allocated already: more than one is a reason.
        """
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
                return placed(name, outcome.claims)
            refusals.append(NodeRefusal(node=name, outcome=outcome))
        refusals.sort(key=lambda refusal: refusal.node)
        failures = sorted(self.failures().items())
        return UnplacedPod(
            pod=pod,
            nodes=tuple(refusals),
            failures=tuple(ExpressionFailure(text, message) for text, message in failures),
        )


def _without_claims(pod: JsonDict) -> JsonDict:
    """Return a pod without its claims, which only its generation reads."""
    left = {"resourceClaims", "deviceClaims"}
    spec = {name: part for name, part in pod["spec"].items() if name not in left}
    return {**pod, "kind": "Pod", "spec": spec}
