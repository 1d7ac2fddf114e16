"""The nodes of pools in a simulated cluster: they come, go and lose their pods by its API."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from dralab.api.status import ApiError
from dralab.capacity.changes import of_daemon_set
from dralab.components.simulated import SimulatedCluster
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import key_of, metadata_of, status_of
from dralab.objects.pods import is_finished
from dralab.objects.taints import taints_of
from dralab.runtime.client import amend
from dralab.runtime.reading import read_cluster
from dralab.runtime.resources import NODES, PODS, SLICES
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.created_objects import CreatedObjects
from dralab.simulation.engines.cluster.nodes import SimulatedNodes
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict


class ClusterPools:
    """The nodes of a cluster, for the machines of pools (`autoscaling.machines.PoolHost`).

    `lost` is called for a node that goes with its pods, `changed` when a machine is ready or gone.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        nodes: SimulatedNodes,
        created: CreatedObjects,
        *,
        lost: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.events = cluster.engine.events
        self.nodes = nodes
        self.created = created
        self.drivers_of = nodes.drivers_of
        self.machines_changed = changed
        self._lost = lost

    def create_once(self, body: JsonDict) -> None:
        """Create an object unless it is there."""
        try:
            self.created.create(body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def join(self, node: GpuNode, objects: Sequence[JsonDict], late: int) -> None:
        """Start a kubelet, and its drivers so long after it."""
        publish = None
        if objects:
            first, *slices = objects
            self.created.create(first)

            def publish() -> None:
                for item in slices:
                    self.created.create(item)

        self.nodes.add(node, late, publish)

    def taint(self, node: str, taint: JsonDict, *, add: bool) -> None:
        """Taint a node, or take the taint away."""

        def change(latest: JsonDict) -> bool:
            others = [each for each in taints_of(latest) if each["key"] != taint["key"]]
            latest.setdefault("spec", {})["taints"] = [*others, taint] if add else others
            return True

        amend(self.cluster.client, NODES, self.cluster.client.get(NODES, node), change)

    def evict(self, node: str) -> bool:
        """Ask each pod to leave: a budget may refuse."""
        pods = [
            pod
            for pod in self.nodes.kubelets.pods.find("node", node)
            if not is_finished(pod) and not of_daemon_set(pod)
        ]
        for pod in sorted(pods, key=key_of):
            metadata = metadata_of(pod)
            name, namespace = metadata["name"], metadata["namespace"]
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            }
            try:
                self.cluster.client.post(PODS, name, "eviction", body, namespace)
            except ApiError as error:
                if error.reason not in {"NotFound", "TooManyRequests"}:
                    raise
        return bool(pods)

    def remove(self, node: str, slices: Sequence[str]) -> None:
        """Delete a node that is gone; what is on it is lost."""
        self._lost(node)
        self.nodes.remove(node)
        for name in slices:
            try:
                self.cluster.client.delete(SLICES, name)
            except ApiError as error:
                if error.reason != "NotFound":
                    raise

    @contextmanager
    def model(self, late: Collection[str]) -> Iterator[ClusterModel]:
        """Read the cluster."""
        objects = (
            item
            for item in read_cluster(self.cluster.client)
            if item["kind"] != "Node" or metadata_of(item)["name"] not in late
        )
        yield ClusterModel(objects, all_nodes=True)

    def is_unschedulable(self, pod: PodInfo) -> bool:
        """Return whether a pod's condition says so."""
        told = condition_of(pod.obj, "PodScheduled") or {}
        return (
            told.get("status") == "False"
            and told.get("reason") == "Unschedulable"
            and not status_of(pod.obj).get("nominatedNodeName")
        )
