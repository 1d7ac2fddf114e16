"""What all autoscalers of a simulated cluster have: when they look, and what they see.

Where nothing has changed since one looked and no time has run out, it need not look.
"""

from abc import ABC, abstractmethod

from dralab.components.simulated import SimulatedCluster
from dralab.kernel.events import ENDING, Event
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import metadata_of, status_of
from dralab.runtime.reading import read_cluster
from dralab.runtime.resources import NODES, PODS, SLICES
from dralab.scheduling.model import ClusterModel
from dralab.simulation.engines.cluster.machines import Machine, Machines
from dralab.values.json_types import JsonObject


class Autoscaler(ABC):
    """The loop of an autoscaler: it looks every `period` at what has changed.

    A machine that has not come after `provision_timeout` has failed. `waits`: pods wait for a pool
    that is left alone for now.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        machines: Machines,
        *,
        begin: int,
        period: int,
        provision_timeout: int,
    ) -> None:
        self.cluster = cluster
        self.machines = machines
        self.begin = begin
        self.period = max(1, period)
        self.provision_timeout = provision_timeout
        self.waits = False
        self._next: Event | None = None
        for resource in (PODS, NODES, SLICES):
            cluster.manager.cache(resource).subscribe(lambda _old, _new: self.look())
        self.look()

    @abstractmethod
    def act(self, model: ClusterModel) -> None:
        """Decide by what is there now."""

    @abstractmethod
    def failed(self, machine: Machine) -> None:
        """Take note of a machine that never came."""

    def changed(self) -> None:
        """Take note that a machine has come, or is gone."""
        self.look()

    def look(self, when: int = 0) -> None:
        """Look at the cluster at the first turn from then on, at the latest."""
        later = max(when, self.cluster.now + 1) - self.begin
        turn = self.begin + -(-later // self.period) * self.period
        if self._next is not None:
            if self._next.when <= turn and not self._next.cancelled:
                return
            self._next.cancel()
        self._next = self.cluster.engine.at(turn, self._turn, priority=ENDING)

    def _turn(self) -> None:
        self._next = None
        for machine in self.machines.to_come:
            due = machine.asked + self.provision_timeout
            if due > self.cluster.now:
                self.look(due)
            else:
                self.machines.give_up(machine, "never came")
                self.failed(machine)
        self.act(self.model())

    def model(self) -> ClusterModel:
        """Return the cluster; a node whose devices are not all there is left out as one to come."""
        late = {each.name for each in self.machines.to_come}
        return ClusterModel(
            item
            for item in read_cluster(self.cluster.client)
            if item["kind"] != "Node" or metadata_of(item)["name"] not in late
        )

    def room(self, pool: str) -> int:
        """Return how many more nodes a pool may have."""
        return self.machines.pools[pool].most - len(self.machines.of(pool))

    def there(self) -> dict[str, Machine]:
        """Return the machines that are ready and stay for now, by name."""
        return {
            each.name: each
            for each in self.machines.here.values()
            if each.ready is not None and not each.leaving
        }


def is_unschedulable(pod: JsonObject) -> bool:
    """Return whether the scheduler has found no place for a pod, and awaits none by preemption."""
    told = condition_of(pod, "PodScheduled") or {}
    return (
        told.get("status") == "False"
        and told.get("reason") == "Unschedulable"
        and not status_of(pod).get("nominatedNodeName")
    )
