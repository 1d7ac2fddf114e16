"""Where the GPUs are that a policy of rounds grants, and who held which from when to when."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dralab.simulation.engines.fast.rounds import Grant, JobProgress, RoundPolicy, RoundSimulation
from dralab.simulation.results.result import TaskStay

Lanes = tuple[int, ...]


class GpuPlaces(RoundPolicy[Any]):
    """A policy whose grants get GPUs of nodes: `gpus` has their lanes, by model and node.

    Who has as many GPUs of a model as before keeps them, unless the policy chooses other nodes.
    Others get them on one node, the fullest with room, or on as few as can be; widest first.
    """

    def __init__(self, policy: RoundPolicy[Any], gpus: Mapping[str, Sequence[Lanes]]) -> None:
        self.policy = policy
        self.gpus = gpus
        self.nodes = {
            lane: node
            for of_model in gpus.values()
            for node, lanes in enumerate(of_model)
            for lane in lanes
        }
        self.stays: dict[int, list[TaskStay]] = {}
        # By job: since when it holds which GPUs.
        self.held: dict[int, tuple[int, Lanes]] = {}
        self._begun = 0

    def arrived(self, job: JobProgress[Any]) -> None:
        """Note a new job."""
        self.stays[job.number] = []
        self.policy.arrived(job)

    def holds(self) -> int | None:
        """Return how long the last grants hold."""
        return self.policy.holds()

    def ran(self, grant: Grant[Any], time: int) -> None:
        """Note that a grant was used."""
        for job in grant.jobs:
            if job.ended is not None:
                self._leave(job.number, job.ended)
            elif job.gpus is None:  # its node went down
                self._leave(job.number, self._begun + time)
        self.policy.ran(grant, time)

    def grants(self, run: RoundSimulation[Any]) -> list[Grant[Any]]:
        """Return the grants of the policy, with nodes that are up."""
        self._begun = run.now
        granted = self.policy.grants(run)
        free = {
            model: [[] if at in run.down(model) else list(mine) for at, mine in enumerate(nodes)]
            for model, nodes in self.gpus.items()
        }
        lanes: dict[int, Lanes] = {}
        for at, grant in enumerate(granted):
            kept = self._kept(grant)
            if kept and all(lane in free[grant.model][self.nodes[lane]] for lane in kept):
                self._take(free, grant.model, kept)
                lanes[at] = kept
        moves = [at for at in range(len(granted)) if at not in lanes]
        for at in sorted(moves, key=lambda at: -granted[at].gpus):
            lanes[at] = self._choice(free, granted[at])
            self._take(free, granted[at].model, lanes[at])
        self._note(run.now, granted, lanes)
        return [
            replace(grant, nodes=tuple(self.nodes[lane] for lane in lanes[at]))
            for at, grant in enumerate(granted)
        ]

    def _kept(self, grant: Grant[Any]) -> Lanes:
        for job in grant.jobs:
            if job.number in self.held and job.gpus is not None:
                lanes = self.held[job.number][1]
                same = (job.gpus.model, len(lanes)) == (grant.model, grant.gpus)
                nodes = Counter(self.nodes[lane] for lane in lanes)
                if same and (not grant.nodes or nodes == Counter(grant.nodes)):
                    return lanes
        return ()

    def _take(self, free: Mapping[str, list[list[int]]], model: str, lanes: Lanes) -> None:
        for lane in lanes:
            free[model][self.nodes[lane]].remove(lane)

    @staticmethod
    def _choice(free: Mapping[str, list[list[int]]], grant: Grant[Any]) -> Lanes:
        nodes = free[grant.model]
        if grant.nodes:
            return tuple(
                lane
                for node, number in sorted(Counter(grant.nodes).items())
                for lane in nodes[node][:number]
            )
        fits = [node for node, lanes in enumerate(nodes) if len(lanes) >= grant.gpus]
        order = [min(fits, key=lambda node: len(nodes[node]))] if fits else list(range(len(nodes)))
        order.sort(key=lambda node: -len(nodes[node]))
        found: list[int] = []
        for node in order:
            found += nodes[node][: grant.gpus - len(found)]
        return tuple(sorted(found))

    def _note(self, now: int, granted: Sequence[Grant[Any]], lanes: Mapping[int, Lanes]) -> None:
        new = {job.number: lanes[at] for at, grant in enumerate(granted) for job in grant.jobs}
        for number in list(self.held):
            if new.get(number) != self.held[number][1]:
                self._leave(number, now)
        for number, mine in new.items():
            self.held.setdefault(number, (now, mine))

    def _leave(self, number: int, now: int) -> None:
        since, lanes = self.held.pop(number)
        self.stays[number].append(TaskStay(since, now, lanes))

    def stays_of(self, number: int, now: int) -> tuple[TaskStay, ...]:
        """Return when a job held which GPUs, so far."""
        since, lanes = self.held.get(number, (now, ()))
        return (*self.stays[number], *([TaskStay(since, now, lanes)] if lanes else ()))
