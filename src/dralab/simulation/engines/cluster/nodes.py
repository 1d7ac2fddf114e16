"""Simulated nodes and drivers: kubelets whose heartbeats are computed, not executed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dralab.api.status import ignoring
from dralab.components.simulated import SimulatedCluster
from dralab.contracts.plugin import PluginError
from dralab.drivers.driver import Driver
from dralab.drivers.faults import CallFault, FaultyPlugin
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.drivers.publishing import SlicePublisher
from dralab.kernel.clock import SECOND, rfc3339_micro
from dralab.node.kubelet import Kubelet
from dralab.node.kubelets import LEASE_NAMESPACE, LEASE_SECONDS, RENEW, Kubelets
from dralab.node.node_spec import NodeSpec
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLASSES, LEASES, NODES
from dralab.simulation.engines.cluster.containers import TaskContainers
from dralab.simulation.engines.fleet_nodes import (
    device_names,
    driver_classes,
    gpu_drivers,
    node_spec,
)
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict

# A driver that dies is started again after this long.
RESTARTS_AFTER: Final = 5 * SECOND
MakeDriver = Callable[[str, str], Driver]


class SimulatedNodes:
    """All nodes of a fleet; `make` turns a driver's name and a node into a driver.

    `written` are drivers whose slices another client has created.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        nodes: Sequence[GpuNode],
        containers: TaskContainers,
        make: MakeDriver,
        written: Callable[[str], Sequence[Driver]] = lambda _node: (),
    ) -> None:
        self.cluster = cluster
        self.containers = containers
        self.kubelets = Kubelets(cluster.manager, containers, leases=False)
        self.kubelets.on_node = self._on_node
        self.publisher = SlicePublisher(cluster.manager)
        self._since = cluster.now
        self._make, self._written = make, written
        self._specs: dict[str, NodeSpec] = {}
        self._drivers: dict[str, list[Driver]] = {}
        self._late: dict[str, tuple[int, Callable[[], None]]] = {}
        self.plugins: dict[tuple[str, str], SimulatedPlugin] = {}
        for node in nodes:
            self._drivers[node.name] = self.drivers_of(node)
        self.create_classes(driver for found in self._drivers.values() for driver in found)
        for node in nodes:
            self.add(node)

    @property
    def devices(self) -> dict[str, list[str]]:
        """The names of each node's devices, in the order of its slices."""
        return {node: device_names(drivers) for node, drivers in self._drivers.items()}

    # --- nodes that come and go ---------------------------------------------------------------

    def add(self, node: GpuNode, after: int = 0, publish: Callable[[], None] | None = None) -> None:
        """Add a node: its drivers come so long `after` it.

        `publish` writes the slices that another client has.
        """
        self._specs[node.name] = node_spec(node)
        if node.name not in self._drivers:
            self._drivers[node.name] = self.drivers_of(node)
        if after or publish is not None:
            self._late[node.name] = after, publish or (lambda: None)
        self.kubelets.add_node(self._specs[node.name])

    def remove(self, name: str) -> None:
        """Remove a node for good, with all that runs on it."""
        self.kubelets.remove_node(name)
        self.containers.lose(name)
        for driver in self._drivers[name]:
            self.publisher.forget_driver(driver)
        for key in [key for key in self.plugins if key[0] == name]:
            del self.plugins[key]
        self.cluster.client.delete(NODES, name)

    def drivers_of(self, node: GpuNode) -> list[Driver]:
        """Return the drivers of a node that is, or may come to be."""
        return [*gpu_drivers(node), *(self._make(name, node.name) for name in node.drivers)]

    # --- nodes that go down and come back -----------------------------------------------------

    def lose(self, name: str) -> None:
        """Take a node down.

        Its lease is written with its last renewal: from then on the controllers react.
        """
        del self.kubelets.nodes[name]
        self.containers.lose(name)
        now = self.cluster.now
        renewed = rfc3339_micro(now - (now - self._since) % RENEW)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": renewed,
        }
        lease = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": spec}
        self.cluster.client.create(LEASES, lease, LEASE_NAMESPACE)

    def restore(self, name: str) -> None:
        """Bring a node back; its pods that were not evicted are restarted."""
        self.cluster.client.delete(LEASES, name, LEASE_NAMESPACE)
        self.kubelets.add_node(self._specs[name])

    def plugins_of(self, node: str, driver: str) -> list["SimulatedPlugin"]:
        """Return the plugins of a driver on a node; an empty name means all."""
        return [
            plugin
            for (on, name), plugin in sorted(self.plugins.items())
            if (not node or on == node) and (not driver or name == driver)
        ]

    # --- what is on a node --------------------------------------------------------------------

    def _on_node(self, kubelet: Kubelet) -> None:
        after, publish = self._late.pop(kubelet.name, (0, lambda: None))

        def serve() -> None:
            if self.kubelets.nodes.get(kubelet.name) is not kubelet:
                return  # it has gone meanwhile
            publish()
            for driver in self._drivers[kubelet.name]:
                known = self.plugins.get((kubelet.name, driver.name))
                self._register(kubelet, driver, known.faults if known else ())
                self.publisher.publish(driver)
            # The slices of these are there already.
            for driver in self._written(kubelet.name):
                self._register(kubelet, driver, ())

        if after:
            self.cluster.engine.after(after, serve)
        else:
            serve()

    def _register(self, kubelet: Kubelet, driver: Driver, faults: Iterable[CallFault]) -> None:
        plugin = SimulatedPlugin(self, kubelet, driver, faults)
        self.plugins[kubelet.name, driver.name] = plugin
        kubelet.register(plugin)

    def create_classes(self, drivers: Iterable[Driver]) -> None:
        """Create the classes that come with drivers."""
        for body in driver_classes(drivers):
            create_if_missing(self.cluster, CLASSES, body)


def create_if_missing(cluster: SimulatedCluster, resource: Resource, body: JsonDict) -> None:
    """Create an object unless the user's manifests have it already."""
    with ignoring("AlreadyExists"):
        cluster.client.create(resource, body, body["metadata"].get("namespace", ""))


class SimulatedPlugin(FaultyPlugin):
    """A driver on a node, to which faults happen in simulated time."""

    def __init__(
        self, nodes: SimulatedNodes, kubelet: Kubelet, driver: Driver, faults: Iterable[CallFault]
    ) -> None:
        hosted = HostedPlugin(driver, kubelet.client, kubelet.directory)
        super().__init__(hosted, _SimulatedHostProcess(self), list(faults))
        self.nodes = nodes
        self.kubelet = kubelet
        self.code = driver

    def begin_fault(self, fault: CallFault) -> None:
        """Begin a fault."""
        self.inject(fault)
        if fault.call == "slices":
            self._slices(fault)
        self.kubelet.wake_all()

    def end_fault(self, fault: CallFault) -> None:
        """End a fault."""
        # Compared by kind: one that happens a number of times may have fewer left.
        mine = (fault.call, fault.kind, fault.seconds)
        self.faults = [f for f in self.faults if (f.call, f.kind, f.seconds) != mine]
        if fault.call == "slices":
            self.nodes.publisher.publish(self.code)
        self.kubelet.wake_all()

    def _slices(self, fault: CallFault) -> None:
        if fault not in self.faults:
            return
        publisher, engine = self.nodes.publisher, self.nodes.cluster.engine
        period = max(1, int(fault.seconds * SECOND))
        if fault.kind == "republish":
            publisher.renew(self.code)
        else:
            publisher.withdraw(self.code)
            engine.after(period, lambda: publisher.publish(self.code))
            period *= 2
        engine.after(period, lambda: self._slices(fault))

    def die(self) -> None:
        """Crash, and come back after a while."""
        self.kubelet.plugins.deregister(self)
        engine = self.nodes.cluster.engine
        engine.after(RESTARTS_AFTER, lambda: self.kubelet.plugins.register(self))
        raise PluginError("rpc error: code = Unavailable desc = the driver has died")


class _SimulatedHostProcess:
    """Simulated time for faults."""

    def __init__(self, plugin: SimulatedPlugin) -> None:
        self.plugin = plugin

    def pause(self, seconds: float) -> None:
        """Delay the current call."""
        self.plugin.nodes.cluster.engine.pause(int(seconds * SECOND))

    def now(self) -> int:
        """Return the simulated time."""
        return self.plugin.nodes.cluster.now

    def die(self, code: int) -> None:
        """End the driver."""
        del code
        self.plugin.die()
