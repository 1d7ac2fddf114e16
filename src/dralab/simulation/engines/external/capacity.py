"""The resources in use on each node, and which waiting pods could be placed.

A node has room where CPU, memory, GPUs, the number of pods, its labels and its GPUs' model allow a
pod. Whatever else a scheduler looks at only makes it refuse more: no room here, no bind there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from dralab.apiserver.storage import Key
from dralab.cluster import Cluster
from dralab.kernel.clock import rfc3339_micro
from dralab.objects.requests import requested
from dralab.objects.taints import taints_of
from dralab.runtime.resources import LEASES, NODES
from dralab.simulation.engines import objects
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode

# Fields of a pod that forbid nodes for reasons that are not counted here.
UNKNOWN: Final = (
    "affinity", "topologySpreadConstraints", "tolerations", "resourceClaims", "initContainers",
    "schedulingGates", "overhead", "schedulingGroup", "nodeName", "volumes",
)  # fmt: skip
KNOWN: Final = frozenset({"cpu", "memory", objects.GPU})


class PodNeeds(NamedTuple):
    """What a pod needs of a node; GPUs in milli.

    `unsure`: it asks for more than is known here (affinity, claims, other resources), and may have
    no room where there seems to be some.
    """

    cpu: int
    memory: int
    gpu: int
    models: str
    labels: str
    priority: int
    unsure: bool = False


class NodeUse(NamedTuple):
    """The resources of all pods of a node."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    pods: int = 0

    def plus(self, needs: PodNeeds, sign: int = 1) -> "NodeUse":
        """Return the resources with one pod more or less."""
        return NodeUse(
            self.cpu + sign * needs.cpu,
            self.memory + sign * needs.memory,
            self.gpu + sign * needs.gpu,
            self.pods + sign,
        )

    def fits(self, node: GpuNode) -> bool:
        """Whether it fits on the node."""
        return (
            self.cpu <= node.cpu
            and self.memory <= node.memory
            and self.gpu <= WHOLE_GPU * node.gpus
            and self.pods <= node.pods
        )


def is_unsure(body: Mapping[str, Any] | None) -> bool:
    """Whether a pod has requirements beyond CPU, memory, GPUs and labels."""
    spec = (body or {}).get("spec") or {}
    if any(spec.get(name) for name in UNKNOWN):
        return True
    for container in spec.get("containers") or ():
        asked = requested(container.get("resources"))
        if set(asked) - KNOWN or any(p.get("hostPort") for p in container.get("ports") or ()):
            return True
    return False


class ClusterCapacity:
    """The used capacity; with `claims`, a part of a GPU takes only that part."""

    def __init__(self, nodes: Sequence[GpuNode], *, claims: bool = False) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.claims = claims
        self.held = {name: NodeUse() for name in self.nodes}
        self.down: set[str] = set()
        self.cpu = self.gpu = 0
        self.waiting: dict[PodNeeds, dict[str, None]] = defaultdict(dict)
        self._before, self._down_before = dict(self.held), set(self.down)
        self._suited = cache(self._suited_for)

    def needs_of(self, pod: Pod) -> PodNeeds:
        """Return what a pod needs."""
        gpu = pod.request.demand if self.claims else WHOLE_GPU * objects.whole_gpus(pod)
        request = pod.request
        return PodNeeds(
            request.cpu,
            pod.memory,
            gpu,
            request.models,
            request.labels,
            pod.priority,
            is_unsure(pod.body),
        )

    def add_waiting(self, key: str, needs: PodNeeds) -> None:
        """Count a pod as waiting."""
        self.waiting[needs][key] = None

    def remove_waiting(self, key: str, needs: PodNeeds) -> None:
        """Stop counting it."""
        group = self.waiting[needs]
        group.pop(key, None)
        if not group:
            del self.waiting[needs]

    def take_for_pod(self, name: str, needs: PodNeeds) -> None:
        """Count a pod's needs on a node."""
        self._change(name, needs, 1)

    def give_back(self, name: str, needs: PodNeeds) -> None:
        """Release a pod's resources."""
        self._change(name, needs, -1)

    def _change(self, name: str, needs: PodNeeds, sign: int) -> None:
        self.held[name] = self.held[name].plus(needs, sign)
        self.cpu += sign * needs.cpu
        self.gpu += sign * needs.gpu

    def fits(self, name: str, needs: PodNeeds) -> bool:
        """Whether a node that is up has room for one more pod."""
        return name not in self.down and self.held[name].plus(needs).fits(self.nodes[name])

    def remember(self) -> None:
        """Remember the state of the nodes before a step."""
        self._before, self._down_before = dict(self.held), set(self.down)

    def had_room(self, name: str, needs: PodNeeds) -> bool:
        """Whether a node had room before this step, for one more pod at each call."""
        if name in self._down_before:
            return False
        self._before[name] = before = self._before[name].plus(needs)
        return before.fits(self.nodes[name])

    def placeable(self, *, surely: bool = False) -> set[str]:
        """Return the waiting pods for which some node has room; or only the certain ones."""
        found: set[str] = set()
        for needs, keys in self.waiting.items():
            if surely and needs.unsure:
                continue
            if any(self.fits(name, needs) for name in self._suited(needs.models, needs.labels)):
                found.update(keys)
        return found

    def after_evicting(self, running: Sequence[tuple[str, PodNeeds]]) -> set[str]:
        """Return the waiting pods that would have room without `running` ones of lower priority."""
        found: set[str] = set()
        for needs, keys in self.waiting.items():
            left = dict(self.held)
            lower = [(name, other) for name, other in running if other.priority < needs.priority]
            for name, other in lower:
                left[name] = left[name].plus(other, -1)
            suited = set(self._suited(needs.models, needs.labels)) - self.down
            names = suited & {name for name, _ in lower}
            if any(left[name].plus(needs).fits(self.nodes[name]) for name in names):
                found.update(keys)
        return found

    def _suited_for(self, models: str, labels: str) -> Sequence[str]:
        return tuple(self._all_suited(models, labels))

    def _all_suited(self, models: str, labels: str) -> Iterator[str]:
        allowed = frozenset(filter(None, models.split("|")))
        wanted = frozenset(filter(None, labels.split(",")))
        for node in self.nodes.values():
            has = node.labels | {f"kubernetes.io/hostname={node.name}"}
            if wanted <= has and (not allowed or node.model in allowed):
                yield node.name


LEASE_NAMESPACE: Final = "kube-node-lease"
LEASES_KEPT_AT: Final = "coordination.k8s.io/leases"
DURATION: Final = 40  # seconds, the kubelet's


class ServedNodes:
    """The nodes. With `heartbeats` (nanoseconds) they renew leases for the node controller.

    Without, this is the node controller, too, and knows at once when a node goes down.
    """

    def __init__(self, cluster: Cluster, heartbeats: int) -> None:
        self._cluster = cluster
        self._every = heartbeats
        self._beaten: int | None = None
        self._names: list[str] = []

    @property
    def report(self) -> bool:
        """Whether nodes send heartbeats, so that a controller notices lost ones."""
        return bool(self._every)

    def begin(self, name: str, now: int) -> None:
        """Start the heartbeats of a node."""
        if not self._every:
            return
        self._names.append(name)
        spec = {"holderIdentity": name, "leaseDurationSeconds": DURATION}
        body = {"metadata": {"name": name}, "spec": {**spec, "renewTime": rfc3339_micro(now)}}
        self._cluster.client.create(LEASES, body, LEASE_NAMESPACE)
        self._beaten = now

    def beat(self, now: int, down: Collection[str]) -> None:
        """Renew the leases of the nodes that are up, if it is time."""
        if self._beaten is None or now - self._beaten < self._every:
            return
        self._beaten = now
        for name in self._names:
            if name not in down:
                self._renew(name, now)

    def _renew(self, name: str, now: int) -> None:
        store, key = self._cluster.server.store, Key(LEASES_KEPT_AT, LEASE_NAMESPACE, name)
        stored = store.get(key)
        if stored is not None:
            value = stored.value
            metadata = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
            spec = {**value["spec"], "renewTime": rfc3339_micro(now)}
            store.update(key, {**value, "metadata": metadata, "spec": spec})

    def lose(self, name: str, now: int) -> None:
        """A node goes down."""
        if not self._every:
            self._write(name, now, up=False)

    def restore(self, name: str, now: int) -> None:
        """A node is up again."""
        if self._every:
            self._renew(name, now)
        self._write(name, now, up=True)

    def _write(self, name: str, now: int, *, up: bool) -> None:
        client = self._cluster.client
        node = client.get(NODES, name)
        if not self._every:
            lost = objects.taints_of_a_lost_node(now)
            kept = [taint for taint in taints_of(node) if taint["key"] != objects.UNREACHABLE]
            client.patch(NODES, name, {"spec": {"taints": [*kept, *([] if up else lost)] or None}})
        status = {"conditions": [objects.condition_of(now, up=up)]}
        client.patch(NODES, name, {"status": status}, subresource="status")
