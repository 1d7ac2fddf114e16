"""Faults of the cluster around the programs: pods, nodes, drivers, the connection to the server.

Each begins and ends as in a real cluster. What happens to one program alone is left to `world` and
`client`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.node.simulated_runtime import SimulatedContainer
from dralab.objects.metadata import metadata_of, owners_of
from dralab.objects.pods import is_finished
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import PODS
from dralab.runtime.simulated import SimulatedEngine
from dralab.testing import history as kinds
from dralab.testing.faults import PlannedFault
from dralab.testing.history import TrialHistory
from dralab.testing.plan import FaultPlan
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.node.kubelet import Kubelet
    from dralab.node.kubelets import Kubelets

T = TypeVar("T")
# Controllers that replace a pod and keep no account of it: a Job's count of failures would differ.
REPLACING: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
# A kubelet deletes the slices of a driver that is gone for half a minute.
DRIVER_BACK: Final = 20 * SECOND


class CutOffProcess(Protocol):
    """A program that loses its connections."""

    def cut(self) -> None:
        """End its watches."""
        ...


class MisfortuneSurroundings(Protocol):
    """What cluster faults need of a trial."""

    engine: SimulatedEngine
    plan: FaultPlan
    history: TrialHistory
    user: LocalClient

    @property
    def processes(self) -> Sequence[CutOffProcess]:
        """The programs under test."""
        ...


class ClusterMisfortunes:
    """Injects faults into the cluster, and ends those that last.

    `kubelets` are the nodes beside the programs, None where there are none.
    """

    def __init__(self, around: MisfortuneSurroundings) -> None:
        self._around = around
        self._ends_at = 0
        self.kubelets: Kubelets | None = None

    def happen(self, fault: PlannedFault) -> None:
        """Inject a fault, if it has a target."""
        happenings: dict[str, Callable[[PlannedFault], None]] = {
            "outage": self._lose_server,
            "delete-pod": partial(self._delete, PODS, _is_replaced),
            "out-of-memory": self._kill_container,
            "node-down": self._lose_node,
            "driver-down": self._lose_driver,
        }
        happenings[fault.fault](fault)

    @property
    def ends_at(self) -> int:
        """When the last fault ends; a past time if all have ended."""
        return self._ends_at

    def _mend_after(self, duration: int, mend: Callable[[], None]) -> None:
        engine = self._around.engine
        self._ends_at = max(self._ends_at, engine.clock.now() + duration)
        engine.after(duration, mend)

    def _note(self, text: str) -> None:
        self._around.history.add("other", kinds.LIFE, text)

    # --- the way to the server --------------------------------------------------------------------

    def _lose_server(self, fault: PlannedFault) -> None:
        self._around.plan.begin(fault, self._around.engine.clock.now())
        for process in self._around.processes:
            process.cut()

    # --- pods and other objects -------------------------------------------------------------------

    def _delete(
        self, resource: Resource, deletes: Callable[[JsonDict], bool], fault: PlannedFault
    ) -> None:
        """Delete one of the objects of a resource that `deletes` accepts, as another client."""
        around = self._around
        objects = [each for each in around.user.list(resource).items if deletes(each)]
        if not objects:
            return
        metadata: Any = metadata_of(_chosen(objects, fault))
        try:
            around.user.delete(resource, metadata["name"], metadata["namespace"])
            around.history.add("other", kinds.WRITE, f"delete {resource.plural} {metadata['name']}")
        except ApiError as error:
            around.history.add("other", kinds.WRITE, f"delete {resource.plural} -> {error.code}")

    def _kill_container(self, fault: PlannedFault) -> None:
        found = [
            (pod, each.name, each.container)
            for kubelet in self._nodes()
            for life in kubelet.pods.values()
            if _is_replaced(pod := life.pod)
            for each in life.containers
            if isinstance(each.container, SimulatedContainer)
        ]
        if found:
            pod, name, container = _chosen(found, fault)
            self._note(f"container {name} of pods {pod['metadata']['name']}: OOMKilled")
            container.run_out_of_memory()

    # --- nodes and drivers ------------------------------------------------------------------------

    def _nodes(self) -> Sequence["Kubelet"]:
        return list(self.kubelets.nodes.values()) if self.kubelets is not None else []

    def _lose_node(self, fault: PlannedFault) -> None:
        # Where all pods are replaced: of others the ends would differ.
        nodes = [
            node
            for node in self._nodes()
            if all(_is_replaced(life.pod) for life in node.pods.values())
        ]
        if self.kubelets is None or not nodes:
            return
        node = _chosen(nodes, fault)
        self._note(f"node {node.name} loses power")
        del self.kubelets.nodes[node.name]
        self._mend_after(fault.duration, partial(self._restore, node))

    def _restore(self, lost: "Kubelet") -> None:
        """Bring a node back: its containers are gone, its address is the same."""
        assert self.kubelets is not None  # noqa: S101 - it had the node
        self._note(f"node {lost.name} is back")
        node = self.kubelets.add_node(lost.spec)
        node.number, node.ip = lost.number, lost.ip

    def _lose_driver(self, fault: PlannedFault) -> None:
        found = [(node, name) for node in self._nodes() for name in node.plugins.drivers]
        if not found:
            return
        node, name = _chosen(found, fault)
        plugin = node.plugins.get(name)
        if plugin is None:
            return
        self._note(f"driver {name} of node {node.name} is gone")
        node.plugins.deregister(plugin)

        def back() -> None:
            self._note(f"driver {name} of node {node.name} is back")
            node.plugins.register(plugin)
            node.wake_all()

        self._mend_after(min(fault.duration, DRIVER_BACK), back)


def _is_replaced(pod: JsonDict) -> bool:
    """Return whether a pod that runs has a controller that replaces it."""
    return not is_finished(pod) and bool({o.get("kind") for o in owners_of(pod)} & REPLACING)


def _chosen(found: Sequence[T], fault: PlannedFault) -> T:
    """Return the target of a fault: the n-th, modulo the number of targets."""
    return found[(fault.nth - 1) % len(found)]
