"""Which nodes may run a pod for the nodes' own sake: cordon, taints, labels, and room.

Order and words are those of kube-scheduler's plugins (NodeName, NodeUnschedulable, TaintToleration,
NodeAffinity, NodeResourcesFit). The scheduler asks `placement_refusal` node by node and keeps room
in columns; commands on files use `NodeFilters`.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from dralab.objects.metadata import spec_of, status_of
from dralab.objects.pods import is_finished
from dralab.objects.requests import base_units, pod_requests
from dralab.objects.taints import REPELLING, UNSCHEDULABLE, taints_of, tolerates, untolerated
from dralab.values import labels
from dralab.values.json_types import JsonObject
from dralab.values.quantity import QuantityError

PODS: Final = "pods"
REQUESTING: Final = ("containers", "initContainers", "overhead", "resources")
"""The fields of a pod's spec that its requests are computed from."""


# Of nodes that a pod does not name whose affinity names nodes: they are not looked at.
NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


@dataclass(frozen=True, slots=True)
class UnfitReason:
    """Why a node may not run a pod: the filter, and the taint or resource that it is about.

    Of the filters that look at other pods and at volumes, `subject` is the whole sentence.

    >>> str(UnfitReason("NodeResourcesFit", "cpu"))
    'Insufficient cpu'
    """

    filter: Literal[
        "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit",
        "NodePorts", "VolumeRestrictions", "VolumeBinding", "VolumeZone", "PodTopologySpread",
        "InterPodAffinity",
    ]  # fmt: skip
    subject: str = ""

    def __str__(self) -> str:
        match self.filter:
            case "NodeName":
                return "node(s) didn't match the requested node name"
            case "NodeUnschedulable":
                return "node(s) were unschedulable"
            case "TaintToleration":
                return f"node(s) had untolerated taint {{{self.subject}}}"
            case "NodeAffinity" if self.subject:
                return self.subject
            case "NodeAffinity":
                return "node(s) didn't match Pod's node affinity/selector"
            case "NodeResourcesFit":
                return "Too many pods" if self.subject == PODS else f"Insufficient {self.subject}"
            case _:
                return self.subject


def counted(reasons: Iterable[object]) -> str:
    """Return reasons of several nodes in kube-scheduler's form: `2 Insufficient cpu, 1 …`."""
    found = Counter(map(str, reasons))
    return ", ".join(sorted(f"{count} {reason}" for reason, count in found.items()))


def unavailable(nodes: int, reasons: Iterable[object]) -> str:
    """Return kube-scheduler's sentence on nodes of which none can run a pod (FitError)."""
    return f"0/{nodes} nodes are available: {counted(reasons)}."


def is_unschedulable(node: JsonObject) -> bool:
    """Return whether a node is cordoned."""
    return bool(spec_of(node).get("unschedulable"))


def offered(node: JsonObject) -> Mapping[str, Any]:
    """Return the amounts that a node has for pods, as quantities."""
    status = status_of(node)
    found: Mapping[str, Any] = status.get("allocatable") or status.get("capacity") or {}
    return found


def required_affinity(spec: JsonObject) -> JsonObject | None:
    """Return the NodeSelector that the affinity of a pod's spec requires."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    found: JsonObject | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return found


def selects(node: JsonObject, selector: Mapping[str, str], affinity: JsonObject | None) -> bool:
    """Return whether a pod's node selector and required affinity accept a node."""
    metadata = node["metadata"]
    own = metadata.get("labels") or {}
    if any(own.get(key) != value for key, value in selector.items()):
        return False
    return affinity is None or labels.node_selector_accepts(affinity, own, metadata["name"])


def placement_refusal(
    node: JsonObject,
    *,
    tolerations: Sequence[JsonObject],
    selector: Mapping[str, str],
    affinity: JsonObject | None,
) -> UnfitReason | None:
    """Return why a pod may not go to a node whatever room there is; None if it may."""
    if is_unschedulable(node) and not tolerates(tolerations, UNSCHEDULABLE):
        return UnfitReason("NodeUnschedulable")
    taint = untolerated(tolerations, taints_of(node), REPELLING)
    if taint is not None:
        return UnfitReason("TaintToleration", f"{taint['key']}: {taint.get('value', '')}")
    if not selects(node, selector, affinity):
        return UnfitReason("NodeAffinity")
    return None


class NodeFilters:
    """The nodes and bound pods of some files, and which nodes may run one more pod.

    A node that does not say what it has (no allocatable, no capacity) has room for everything; one
    that does not say how many pods it takes, takes any number. `provided` are extended resources
    that devices provide where the node itself has none.
    """

    def __init__(
        self,
        nodes: Iterable[JsonObject],
        pods: Iterable[JsonObject] = (),
        *,
        provided: Container[str] = (),
    ) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self._provided = provided
        self._free = {name: self._offered(node) for name, node in self.nodes.items()}
        self._counted: set[tuple[str, str]] = set()
        self._requests: dict[bytes, dict[str, int]] = {}
        for pod in pods:
            name = spec_of(pod).get("nodeName")
            if name and not is_finished(pod):
                # One whose requests cannot be read counts for nothing.
                with suppress(QuantityError):
                    self.count_pod(pod, name)

    def count_pod(self, pod: JsonObject, node: str) -> None:
        """Count a pod on a node; a second time does nothing. QuantityError: a bad request."""
        metadata = pod["metadata"]
        key = (metadata.get("namespace") or "default", metadata["name"])
        free = self._free.get(node)
        if key in self._counted or not free:
            return
        needed = self._needed(spec_of(pod))
        self._counted.add(key)
        for resource, amount in needed.items():
            if resource in free:
                free[resource] -= amount

    def _needed(self, spec: JsonObject) -> dict[str, int]:
        """Return what a pod takes of a node; pods of one template are read once."""
        # Of the fields that `pod_requests` reads.
        read = [
            spec.get(name) for name in ("containers", "initContainers", "overhead", "resources")
        ]
        text = orjson.dumps(read)
        found = self._requests.get(text)
        if found is None:
            found = self._requests[text] = {**pod_requests(spec), PODS: 1}
        return found

    def refusals(self, pod: JsonObject, node: str) -> list[UnfitReason]:
        """Return why a node may not run a pod: the first rule against it, or all that it lacks.

        A pod that names its node runs there, as it does past a scheduler. QuantityError: a bad
        request.
        """
        spec = spec_of(pod)
        if spec.get("nodeName"):
            return [] if spec["nodeName"] == node else [UnfitReason("NodeName")]
        refusal = placement_refusal(
            self.nodes.get(node) or {"metadata": {"name": node}},
            tolerations=spec.get("tolerations") or (),
            selector=spec.get("nodeSelector") or {},
            affinity=required_affinity(spec),
        )
        if refusal is not None:
            return [refusal]
        return [UnfitReason("NodeResourcesFit", resource) for resource in self._lacking(spec, node)]

    def shortages(self, pod: JsonObject, node: str) -> list[tuple[str, int, int]]:
        """Return what a node has too little of for a pod: (resource, needed, free), base units."""
        free = self._free.get(node) or {}
        needed = self._needed(spec_of(pod))
        return [
            (name, needed[name], free.get(name, 0)) for name in self._lacking(spec_of(pod), node)
        ]

    def fits_beside(self, pods: Sequence[JsonObject], node: str) -> bool:
        """Return whether all of some pods have room on a node together."""
        free = self._free.get(node)
        if not free:
            return True
        total: Counter[str] = Counter({PODS: len(pods)})
        for pod in pods:
            total.update(pod_requests(spec_of(pod)))
        return not any(self._lacks(free, resource, amount) for resource, amount in total.items())

    def _offered(self, node: JsonObject) -> dict[str, int]:
        found = {name: base_units(name, text) for name, text in offered(node).items()}
        return {name: n for name, n in found.items() if n or name not in self._provided}

    def _lacking(self, spec: JsonObject, node: str) -> list[str]:
        free = self._free.get(node)
        if not free:
            return []
        needed = self._needed(spec)
        # The number of pods comes first, then the resources by name.
        names = sorted(needed, key=lambda resource: (resource != PODS, resource))
        return [name for name in names if self._lacks(free, name, needed[name])]

    def _lacks(self, free: Mapping[str, int], resource: str, amount: int) -> bool:
        if resource not in free:
            return bool(amount) and resource != PODS and resource not in self._provided
        return bool(amount) and free[resource] < amount
