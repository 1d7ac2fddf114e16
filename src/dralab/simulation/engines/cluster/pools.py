"""The nodes of pools in a simulated cluster: they come, go and lose their pods by its API."""

from collections.abc import Callable, Sequence

from dralab.api.status import ignoring
from dralab.components.simulated import SimulatedCluster
from dralab.runtime.resources import SLICES
from dralab.simulation.engines.autoscaling.served_pools import ServedPools
from dralab.simulation.engines.cluster.created_objects import CreatedObjects
from dralab.simulation.engines.cluster.nodes import SimulatedNodes
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict


class ClusterPools(ServedPools):
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
        super().__init__(cluster.client, nodes.kubelets.pods)
        self.events = cluster.engine.events
        self.nodes = nodes
        self.created = created
        self.drivers_of = nodes.drivers_of
        self.machines_changed = changed
        self._lost = lost

    def create_once(self, body: JsonDict) -> None:
        """Create an object unless it is there."""
        with ignoring("AlreadyExists"):
            self.created.create(body)

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

    def is_ready(self, node: str) -> bool:
        """Return that it is: its drivers have just published."""
        del node
        return True

    def remove(self, node: str, slices: Sequence[str]) -> None:
        """Delete a node that is gone; what is on it is lost."""
        self._lost(node)
        self.nodes.remove(node)
        for name in slices:
            self.delete_if_there(SLICES, name)
