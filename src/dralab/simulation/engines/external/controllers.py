"""Controllers of dralab beside external schedulers, on the heap of the simulation."""

from collections.abc import Collection

from dralab.cluster import Cluster
from dralab.controllers import registry
from dralab.kernel.events import Events
from dralab.kernel.randomness import Randomness
from dralab.runtime.manager import Manager
from dralab.runtime.simulated import SimulatedEngine


def start(cluster: Cluster, events: Events, names: Collection[str], seed: int) -> None:
    """Start the controllers of these names at the present instant; they act with the events.

    Only where no other thread writes while events happen.
    """
    manager = Manager(
        SimulatedEngine(events), cluster.client, Randomness(seed), client_of=cluster.client_of
    )
    registry.assemble(
        manager,
        without=set(registry.CONTROLLERS) - set(names),
        kinds=cluster.server.resources.kinds,
        ca=cluster.ca,
        signing_files=cluster.signing_files,
    )
    manager.start()
