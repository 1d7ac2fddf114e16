"""Queues whose order is decided anew at each event, with preemption: the model of Tiresias.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, and
the simulator published with it. A job keeps what it has done, and continues at no cost. Whoever is
first in the order and fits gets GPUs; others wait, also those that had some.

By attained service (2D-LAS), a job sinks to a lower queue when the GPU time that it has had
reaches a limit. With a distribution of what jobs need (2D-Gittins), those of a queue come in the
order of their chance to end soon.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.free_nodes import FreeNodes
from dralab.simulation.engines.fast.rounds import (
    GpuSlice,
    Grant,
    Job,
    JobProgress,
    RoundPolicy,
    RoundSimulation,
)

# GPU seconds, as in the simulator of the authors.
LIMITS: Final = (3250, 7200)


class Queue(RoundPolicy[Job]):
    """One queue of jobs that fit or wait.

    Without an `order`, those that run go on, and others come as they arrived. Where the queue
    `blocks`, the first that does not fit ends it. With `nodes`, which only such a queue may have,
    GPUs have a place. A job runs where it did; otherwise on the type that is fastest for it.
    """

    def __init__(
        self,
        order: Callable[[JobProgress[Job], Iterable[str]], float] | None = None,
        *,
        blocks: bool = False,
        nodes: FreeNodes | None = None,
    ) -> None:
        self.order = order
        self.blocks = blocks
        self.nodes = nodes
        self.jobs: list[JobProgress[Job]] = []

    def arrived(self, job: JobProgress[Job]) -> None:
        """Add a job at the end."""
        self.jobs.append(job)

    def grants(self, run: RoundSimulation[Job]) -> list[Grant[Job]]:
        """Return who runs until the next event."""
        self.jobs = [job for job in self.jobs if job.ended is None]
        # Equals keep the order that they had.
        if (order := self.order) is None:
            self.jobs.sort(key=lambda job: job.gpus is None)
        else:
            self.jobs.sort(key=lambda job: order(job, run.capacity))
        return list(self.chosen(self.jobs, run.capacity))

    def chosen(
        self, jobs: Sequence[JobProgress[Job]], capacity: Mapping[str, int]
    ) -> list[Grant[Job]]:
        """Return the jobs that fit, taken in their order."""
        left = dict(capacity)
        if self.nodes is not None:
            self.nodes.empty([job.gpus.nodes for job in jobs if job.gpus is not None])
        found = []
        for job in jobs:
            wanted = job.job.gpus
            model = job.model_among(left, wanted)
            if model is not None and (nodes := self._place(job)) is not None:
                left[model] -= wanted
                found.append(Grant((job,), model, wanted, nodes))
            elif self.blocks:
                break
        return found

    def _place(self, job: JobProgress[Job]) -> tuple[int, ...] | None:
        if self.nodes is None:
            return ()
        return self.nodes.place(job.job.gpus) if job.gpus is None else job.gpus.nodes


@dataclass(slots=True)
class Service:
    """What a job had since it last came to the first queue, in seconds, and how long it waits."""

    queue: int = 0
    had: int = 0
    waits: int = 0
    rank: float = 0.0
    last: int = 0


class AttainedService(Queue[Job]):
    """Queues by the time that jobs had, or with `of_gpus` by time and GPUs.

    A job that has waited `patience` times as long as it ran returns to the first queue (0: never).
    `gittins` orders the jobs of a queue. Those that wait fall behind those that run, unless a queue
    is `steady`. With `nodes` GPUs have a place, which does not decide who runs.
    """

    def __init__(
        self,
        limits: Sequence[int] = LIMITS,
        *,
        of_gpus: bool = True,
        patience: float = 0,
        gittins: "Gittins | None" = None,
        steady: bool = False,
        nodes: FreeNodes | None = None,
    ) -> None:
        super().__init__()
        self.steady = steady
        self.places = nodes
        self.limits = limits
        self.of_gpus = of_gpus
        self.patience = patience
        self.gittins = gittins
        self._until_change: int | None = None
        self.queues: list[list[JobProgress[Job]]] = [[] for _ in range(len(limits) + 1)]
        self.served: dict[int, Service] = {}

    def arrived(self, job: JobProgress[Job]) -> None:
        """Add a job to the first queue."""
        super().arrived(job)
        self.queues[0].append(job)
        self.served[job.number] = Service(last=job.job.arrives // SECOND)

    def grants(self, run: RoundSimulation[Job]) -> list[Grant[Job]]:
        """Return who runs until the next event."""
        self.jobs = [job for job in self.jobs if job.ended is None]
        self.queues = [[job for job in queue if job.ended is None] for queue in self.queues]
        for job in self.jobs:
            self._serve(job, run.now // SECOND)
        if self.gittins is not None:
            for queue in self.queues:
                queue.sort(key=self._rank, reverse=True)
        found = self.chosen([job for queue in self.queues for job in queue], run.capacity)
        runs = {grant.jobs[0].number for grant in found}
        if not self.steady:
            for queue in self.queues:
                queue.sort(key=lambda job: job.number not in runs)
        pauses = [self._pause(job, runs=job.number in runs) for job in self.jobs]
        self._until_change = min(
            (each * SECOND for each in pauses if each is not None), default=None
        )
        return found if self.places is None else placed(found, self.places)

    def holds(self) -> int | None:
        """Return how long it takes until a job changes its queue."""
        return self._until_change

    def _rank(self, job: JobProgress[Job]) -> tuple[float, int]:
        return self.served[job.number].rank, -job.job.arrives

    def _width(self, job: JobProgress[Job]) -> int:
        return job.job.gpus if self.of_gpus else 1

    def _serve(self, job: JobProgress[Job], now: int) -> None:
        """Count the time since the last event, and change the queue of a job."""
        served = self.served[job.number]
        passed, served.last = now - served.last, now
        if job.gpus is not None:
            served.had += passed
            lowest = served.queue == len(self.limits)
            if not lowest and served.had * self._width(job) >= self.limits[served.queue]:
                self._move(job, served.queue + 1)
        elif served.had:
            served.waits += passed
            if self.patience and served.queue and served.waits >= int(served.had * self.patience):
                self._move(job, 0)
                served.had = served.waits = 0
        if self.gittins is not None:
            served.rank = self.gittins.index(served.had * self._width(job))

    def _move(self, job: JobProgress[Job], queue: int) -> None:
        served = self.served[job.number]
        self.queues[served.queue].remove(job)
        self.queues[queue].append(job)
        served.queue = queue

    def _pause(self, job: JobProgress[Job], *, runs: bool) -> int | None:
        """Return in how many seconds a job may change its queue; None: not by itself."""
        served = self.served[job.number]
        if runs and served.queue < len(self.limits):
            # As in the authors' simulator, which divides the limit by the GPUs, and with it what
            # the job has had: it looks late, and a job sinks late unless another event comes.
            return (self.limits[served.queue] - served.had) // self._width(job)
        if not runs and self.patience and served.queue and served.had:
            left = int(served.had * self.patience - served.waits)
            return left if left > 0 else None
        return None


class Gittins:
    """The chance that a job ends within `ahead`, by what it would take, after what it has had.

    >>> Gittins([100, 200, 10_000], 300).index(0) > Gittins([100, 200, 10_000], 300).index(250)
    True
    """

    def __init__(self, needs: Sequence[int], ahead: int = LIMITS[0]) -> None:
        self.needs = sorted(needs)
        self.ahead = ahead
        self.indexes = [self._index(need - 1) for need in self.needs]

    def _index(self, had: int) -> float:
        """Return the index after some service, with as many digits as the authors compute."""
        needs, number = self.needs, len(self.needs)
        if had > needs[-1] - 1:
            return 0.0
        first = bisect_right(needs, had)
        further = had + self.ahead
        last = number - 1 if further > needs[-1] - 1 else bisect_right(needs, further)
        chance = _rounded((last - first) / (number - first), 5)
        spent = sum(needs[first:last]) + self.ahead * (number - last)
        # The simulator runs on Python 2, where the quotient of whole numbers is whole.
        return _rounded(chance * 1_000_000 / (spent // (number - first)), 4)

    def index(self, had: int) -> float:
        """Return the index of the next need that is larger; 0 beyond all."""
        place = bisect_right(self.needs, had)
        return self.indexes[place] if place < len(self.needs) else 0.0


def _rounded(value: float, digits: int) -> float:
    """Return a number as Python 2 rounds it: a tie away from zero."""
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def placed(grants: Sequence[Grant[Job]], nodes: FreeNodes) -> list[Grant[Job]]:
    """Return grants with nodes: who had as many GPUs keeps them, others get what is free."""
    kept = [_kept(grant) for grant in grants]
    nodes.empty(kept)
    return [
        replace(grant, nodes=where or nodes.place(grant.gpus) or ())
        for grant, where in zip(grants, kept, strict=True)
    ]


def _kept(grant: Grant[Job]) -> tuple[int, ...]:
    held = grant.jobs[0].gpus
    return held.nodes if held is not None and held.number == grant.gpus else ()


def shortest(job: JobProgress[Job], models: Iterable[str]) -> float:
    """Order by the time that is left on the fastest of some models."""
    return job.left / max(job.job.speed(GpuSlice(each, job.job.gpus), job.done) for each in models)


def shortest_service(job: JobProgress[Job], models: Iterable[str]) -> float:
    """Order by the time that is left, times the GPUs."""
    return shortest(job, models) * job.job.gpus


def smallest(job: JobProgress[Job], models: Iterable[str]) -> float:
    """Order by GPUs."""
    del models
    return job.job.gpus
