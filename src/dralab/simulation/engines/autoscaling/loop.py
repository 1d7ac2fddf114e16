"""What all autoscalers have: when they look, and what they see.

Where nothing has changed since one looked and no time has run out, it need not look.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dralab.kernel.events import LOOKING, Event
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.nodes import NodeTable, Scores
from dralab.scheduling.scores import KeptScores, NodeChoice
from dralab.simulation.engines.autoscaling.machines import Machine, Machines


class FirstByName(NodeChoice):
    """kube-scheduler's choice, and of equal nodes the first by name."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def best(self, scores: Scores | KeptScores) -> int:
        """Return the row of the best node."""
        rows = np.flatnonzero(scores == scores.max())
        return int(rows[0] if len(rows) == 1 else min(rows, key=self._table.names.__getitem__))


class Autoscaler(ABC):
    """The loop of an autoscaler: it looks every `period` at what has changed.

    A machine that has not come after `provision_timeout` has failed. `waits`: pods wait for a pool
    that is left alone for now.
    """

    def __init__(
        self, machines: Machines, *, begin: int, period: int, provision_timeout: int
    ) -> None:
        self.machines = machines
        self.host = machines.host
        self.events = machines.events
        self.begin = begin
        self.period = max(1, period)
        self.provision_timeout = provision_timeout
        self.waits = False
        self._next: Event | None = None
        self.look()

    @abstractmethod
    def act(self, model: ClusterModel) -> None:
        """Decide by what is there now."""

    @abstractmethod
    def failed(self, machine: Machine) -> None:
        """Take note of a machine that never came."""

    def adopted(self, machine: Machine) -> None:
        """Take note of a machine whose node was there already."""
        del machine
        self.look()

    def changed(self) -> None:
        """Take note that a machine has come, or is gone."""
        self.look()

    def pod_moved(self, node: str) -> None:
        """Take note that a pod came to a node, or left it."""
        del node
        self.look()

    def pod_refused(self, uid: str) -> None:
        """Take note that the scheduler has found no place for a pod."""
        del uid
        self.look()

    def look(self, when: int = 0) -> None:
        """Look at the cluster at the first turn from then on, at the latest."""
        later = max(when, self.events.now() + 1) - self.begin
        turn = self.begin + -(-later // self.period) * self.period
        if self._next is not None:
            if self._next.when <= turn and not self._next.cancelled:
                return
            self._next.cancel()
        self._next = self.events.at(turn, self._turn, priority=LOOKING)

    def _turn(self) -> None:
        self._next = None
        for machine in self.machines.to_come:
            due = machine.asked + self.provision_timeout
            if due > self.events.now():
                self.look(due)
            else:
                self.machines.give_up(machine, "never came")
                self.failed(machine)
        with self.looking() as model:
            self.act(model)
        self.machines.observer.looked()

    @contextmanager
    def looking(self) -> Iterator[ClusterModel]:
        """Give the cluster; a node whose devices are not all there is left out as one to come.

        Of equal nodes the first by name is taken, in every engine.
        """
        with self.host.model({each.name for each in self.machines.to_come}) as model:
            state = model.state
            before = state.choice, state.kinds
            # Scores that are kept are those of the other choice.
            state.choice, state.kinds = FirstByName(state.table), None
            try:
                yield model
            finally:
                state.choice, state.kinds = before

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
