"""The nodes of pools in a cluster that runs (`autoscaling.machines.PoolHost`)."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dralab.api.status import ignoring
from dralab.components.nodes import Nodes
from dralab.drivers.driver import Driver
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.node.kubelets import LEASE_NAMESPACE
from dralab.objects.conditions import is_true
from dralab.objects.metadata import NamespacedName, labels_of, spec_of
from dralab.objects.taints import taints_of
from dralab.runtime.client import Client, Resource, amend, drop_finalizer
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLASSES, LEASES, NODES, PODS, SLICES
from dralab.simulation.engines.autoscaling.served_pools import ServedPools
from dralab.simulation.engines.cluster.created_objects import ManifestDriver
from dralab.simulation.engines.fleet_nodes import node_spec
from dralab.simulation.scenario.pools import POOL_LABEL
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.node.kubelet import Kubelet

NOT_READY = "node.kubernetes.io/not-ready"
KINDS = {"DeviceClass": CLASSES, "ResourceSlice": SLICES}


class Dresser(Protocol):
    """Makes a node that of an autoscaler's provider, which keeps it by the finalizer, if any."""

    finalizer: str

    def dressed(self, node: JsonDict, pool: str) -> JsonDict:
        """Return a new node of a pool as the provider makes it."""
        ...


class LivePools(ServedPools):
    """Nodes that kubelets of the part `nodes` run; `changed`: a machine is ready or gone."""

    def __init__(
        self,
        engine: LiveEngine,
        manager: Manager,
        nodes: Nodes,
        provider: Dresser,
        changed: Callable[[], None],
    ) -> None:
        pods = manager.cache(PODS)
        pods.index("node", lambda pod: filter(None, [spec_of(pod).get("nodeName")]))
        super().__init__(manager.client, pods)
        self.events = engine
        self.known_nodes = manager.cache(NODES)
        self.known_slices = manager.cache(SLICES)
        self.nodes = nodes
        self.provider = provider
        self.machines_changed = changed
        # How many slices each node has when its drivers have published.
        self._slices: dict[str, int] = {}

    def drivers_of(self, node: GpuNode) -> Sequence[Driver]:
        """Return none: all devices are in the manifests of pools."""
        del node
        return ()

    def create_once(self, body: JsonDict) -> None:
        """Create an object that comes with a pool, unless it is there."""
        create_if_missing(self.client, KINDS[body["kind"]], body)

    def join(self, node: GpuNode, objects: Sequence[JsonDict], late: int) -> None:
        """Create a node unless it is there, and start its kubelet, then its drivers."""
        first, *slices = objects
        body = self.provider.dressed(first, labels_of(first)[POOL_LABEL])
        create_if_missing(self.client, NODES, body)
        self._slices[node.name] = len(slices)

        def joined(kubelet: "Kubelet") -> None:
            engine = kubelet.kubelets.manager.engine
            engine.after(late, partial(self._publish, kubelet, slices))

        self.nodes.add_node(node_spec(node), joined)

    def _publish(self, kubelet: "Kubelet", slices: Sequence[JsonDict]) -> None:
        """Start the drivers of a node and publish its devices, in the thread of its kubelet."""
        if kubelet.name not in self._slices:
            return  # it has gone meanwhile
        for name in sorted({item["spec"]["driver"] for item in slices}):
            driver = ManifestDriver(kubelet.name, name)
            kubelet.register(HostedPlugin(driver, kubelet.client, kubelet.directory))
        for item in slices:
            create_if_missing(self.client, SLICES, item)

    def is_ready(self, node: str) -> bool:
        """Return whether it says so, is not tainted for it, and has its devices."""
        found = self.known_nodes.get(NamespacedName("", node))
        if found is None or not is_true(found, "Ready"):
            return False
        there = Counter(spec_of(item).get("nodeName") for item in self.known_slices)
        tainted = any(each["key"] == NOT_READY for each in taints_of(found))
        return not tainted and there[node] >= self._slices.get(node, 0)

    def remove(self, node: str, slices: Sequence[str]) -> None:
        """Delete a node that is gone, its lease and its devices."""
        del slices
        self._slices.pop(node, None)
        self.nodes.remove_node(node)
        self.client.delete_collection(SLICES, field_selector=f"spec.nodeName={node}")
        self.delete_if_there(LEASES, node, LEASE_NAMESPACE)
        with ignoring("NotFound"):
            release = partial(drop_finalizer, name=self.provider.finalizer)
            amend(self.client, NODES, self.client.get(NODES, node), release)
        self.delete_if_there(NODES, node)


def create_if_missing(client: Client, resource: Resource, body: JsonDict) -> None:
    """Create an object of the whole cluster unless it is there. ApiError."""
    with ignoring("AlreadyExists"):
        client.create(resource, body)
