"""The pods that a node refuses: those that do not fit, whatever a scheduler decided.

Source: kubelet 1.36, `pkg/kubelet/lifecycle/predicate.go` with kube-scheduler's `AdmissionCheck`.
Left out: making room for critical pods. What a node does not state that it has is not limited here.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dralab.objects.claims import extended_claim
from dralab.objects.host_ports import TakenPort, collide, host_ports
from dralab.objects.metadata import (
    NamespacedName,
    is_deleting,
    labels_of,
    status_of,
    uid_of,
)
from dralab.objects.nodes import PODS, offered, required_affinity, selects
from dralab.objects.requests import base_units, pod_requests
from dralab.objects.taints import NO_EXECUTE, taints_of, untolerated
from dralab.runtime.cache import Cache
from dralab.runtime.client import Client
from dralab.runtime.resources import NODES
from dralab.scheduling.reasons import PORT_TAKEN, UNSELECTED, Reason
from dralab.values.json_types import JsonObject

CONTAINERS: Final = ("containers", "initContainers")
OS_LABEL: Final = "kubernetes.io/os"
UNTOLERATED: Final = "node(s) had taints that the pod didn't tolerate"
# The order of `fitsRequest`; the other resources follow by their names.
FIRST: Final = (PODS, "cpu", "memory", "ephemeral-storage")


class PodRejection(NamedTuple):
    """Why a node refuses a pod: the reason of its status and event, and the sentence."""

    reason: str
    message: str


class _Share(NamedTuple):
    amounts: dict[str, int]
    ports: frozenset[TakenPort]


class PodAdmission:
    """The pods that one node has admitted.

    `nodes` are those that are known. `is_over` says of the UID of a pod whether nothing of it runs
    any more.
    """

    def __init__(
        self, client: Client, name: str, nodes: Cache, is_over: Callable[[str], bool]
    ) -> None:
        self._client, self._name, self._nodes, self._is_over = client, name, nodes, is_over
        self._shares: dict[str, _Share] = {}
        # Of all shares, also of pods that are over: these are looked for when it becomes tight.
        self._total: Counter[str] = Counter()

    def admit(self, pod: JsonObject) -> PodRejection | None:
        """Admit and count a new pod, or return why it may not run here. ApiError.

        One that has started, before a restart of this process, or that ends, is not asked about.
        """
        new = "startTime" not in status_of(pod) and not is_deleting(pod)
        rejection = self.rejection(pod) if new else None
        uid = uid_of(pod)
        if rejection is None and uid not in self._shares:
            share = self._shares[uid] = _share(pod)
            self._total.update(share.amounts)
        return rejection

    def forget(self, uid: str) -> None:
        """Stop counting a pod."""
        share = self._shares.pop(uid, None)
        if share is not None:
            self._total.subtract(share.amounts)

    def rejection(self, pod: JsonObject) -> PodRejection | None:
        """Return the reason to reject a pod beside the others; None if it may run. ApiError."""
        system = labels_of(pod).get(OS_LABEL, "linux"), (pod["spec"].get("os") or {}).get("name")
        if system[0] != "linux":
            return PodRejection(
                "PodOSSelectorNodeLabelDoesNotMatch",
                f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label",
            )
        if system[1] not in {None, "linux"}:
            return PodRejection(
                "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
            )
        node = self._nodes.get(NamespacedName("", self._name))
        if node is None:
            return None
        share = _share(pod)
        found = self._first(node, pod, share)
        if found is None:
            return None
        for uid in [uid for uid in self._shares if self._is_over(uid)]:
            self.forget(uid)
        # Labels and taints may be newer than what is known of the node.
        return self._first(self._client.get(NODES, self._name), pod, share)

    def _first(self, node: JsonObject, pod: JsonObject, share: _Share) -> PodRejection | None:
        spec = pod["spec"]
        for resource, needed, used, capacity in self._lacking(node, share):
            return PodRejection(
                f"OutOf{resource}",
                f"Node didn't have enough resource: {resource}, requested: {needed}, "
                f"used: {used}, capacity: {capacity}",
            )
        if not selects(node, spec.get("nodeSelector") or {}, required_affinity(spec)):
            return _failed("NodeAffinity", str(Reason(UNSELECTED)))
        if share.ports and any(
            collide(mine, other)
            for taken in self._shares.values()
            for other in taken.ports
            for mine in share.ports
        ):
            return _failed("NodePorts", str(Reason(PORT_TAKEN)))
        tolerations: Sequence[JsonObject] = spec.get("tolerations") or ()
        if untolerated(tolerations, taints_of(node), {NO_EXECUTE}) is not None:
            return _failed("TaintToleration", UNTOLERATED)
        return None

    def _lacking(self, node: JsonObject, share: _Share) -> Iterator[tuple[str, int, int, int]]:
        """Yield insufficient resources: (resource, needed, used, capacity)."""
        has = offered(node)
        for resource in sorted(share.amounts, key=_in_order):
            needed, used = share.amounts[resource], self._total[resource]
            if needed and resource in has:
                capacity = base_units(resource, has[resource])
                if needed > capacity - used:
                    yield resource, needed, used, capacity


def _share(pod: JsonObject) -> _Share:
    spec = pod["spec"]
    return _Share({PODS: 1, **pod_requests(_without_devices(pod))}, host_ports(spec))


def _without_devices(pod: JsonObject) -> JsonObject:
    """Return a pod's spec without the extended resources for which a claim has devices."""
    spec: JsonObject = pod["spec"]
    backed = {
        (each["containerName"], each["resourceName"])
        for each in extended_claim(pod).get("requestMappings") or ()
    }
    if not backed:
        return spec

    def left(container: JsonObject) -> JsonObject:
        resources = {
            part: {
                name: amount
                for name, amount in amounts.items()
                if (container["name"], name) not in backed
            }
            for part, amounts in (container.get("resources") or {}).items()
            if part in {"requests", "limits"}
        }
        return {**container, "resources": resources}

    lists = {part: [left(each) for each in spec.get(part) or ()] for part in CONTAINERS}
    return {**spec, **lists}


def _in_order(resource: str) -> tuple[int, str]:
    return (FIRST.index(resource) if resource in FIRST else len(FIRST)), resource


def _failed(predicate: str, why: str) -> PodRejection:
    return PodRejection(predicate, f"Predicate {predicate} failed: {why}")
