"""Nodes that go down in rounds, and come back: who runs there loses its work since a checkpoint."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from dralab.kernel.events import Events
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import RunConditions, Stream
from dralab.simulation.lifecycle.outages import NodeFaults
from dralab.simulation.workloads.openb import GpuNode

# A model, and the number of a node among those of the model.
NodePlace = tuple[str, int]
NOTHING: Final[AbstractSet[int]] = frozenset()


class RoundOutages:
    """The outages of a scenario, drawn as in the engines of pods: a seed gives the same in both.

    `capacity` are the GPUs of each model on nodes that are up, `down` the others. `of_model` are
    the nodes of each model, `nodes` all.
    """

    def __init__(
        self,
        nodes: Iterable[GpuNode],
        of_model: Mapping[str, Sequence[GpuNode]],
        how: RunConditions,
        stream: Stream,
    ) -> None:
        self._place: Mapping[str, NodePlace] = {
            node.name: (model, at)
            for model, found in of_model.items()
            for at, node in enumerate(found)
        }
        self._gpus = {node.name: node.gpus for node in nodes}
        self.capacity = {model: sum(n.gpus for n in found) for model, found in of_model.items()}
        self.down: dict[str, set[int]] = {model: set() for model in of_model}
        self._broke: dict[NodePlace, int] = {}
        self._agenda = Agenda(Events())
        self._faults = NodeFaults(
            self._agenda,
            lose=self._lose,
            restore=self._restore,
            at_random=how.random_faults,
            stream=stream,
        )
        self._faults.plan(how.faults, 0)
        self._faults.plan_random(self._gpus)

    def _lose(self, name: str) -> None:
        if place := self._place.get(name):
            model, at = place
            self.down[model].add(at)
            self.capacity[model] -= self._gpus[name]
            self._broke.setdefault(place, self._agenda.now())

    def _restore(self, name: str) -> None:
        if place := self._place.get(name):
            model, at = place
            self.down[model].remove(at)
            self.capacity[model] += self._gpus[name]

    def next_time(self) -> int | None:
        """Return when a node goes down or comes back next; None: never."""
        return self._agenda.next_time()

    def happen(self, until: int) -> Mapping[NodePlace, int]:
        """Let nodes go down and come back; return which went down, and when first."""
        self._broke = {}
        self._agenda.happen(until)
        return self._broke

    def until(self, end: int) -> Iterable[tuple[str, int, int]]:
        """Return all outages: node, from when, to when."""
        return self._faults.outages.until(end)
