"""Time shares that maximise the throughput of all jobs: Gavel, as Sia was compared with it.

Source: the policy `max_sum_throughput_perf` of Gavel (OSDI 2020) and its rounds, in the simulator
of Sia (SOSP 2023). Shares are computed anew in each round. A job comes first where it had the least
of its share, over all types of GPUs; GPUs that are left go to jobs without a share, too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from dralab.simulation.engines.fast.rounds import (
    GpuSlice,
    Grant,
    Job,
    JobProgress,
    RoundPolicy,
    RoundSimulation,
)
from dralab.simulation.engines.fast.time_division import most_throughput

# What a job counts for where there are too few GPUs for it.
HARDLY = 0.1


@dataclass(slots=True)
class WaitingShare(Generic[Job]):
    """A job on a type of GPU: its share, and how far it is behind it."""

    job: JobProgress[Job]
    model: str
    share: float
    priority: float


class ThroughputShares(RoundPolicy[Job]):
    """Nodes with so many GPUs of each type."""

    def __init__(self, of_a_node: Mapping[str, int], length: int) -> None:
        self.of_a_node = of_a_node
        self.length = length
        self._had: dict[tuple[int, str], float] = defaultdict(lambda: length / 2)
        self._used: Counter[str] = Counter()
        self._asked = b"", b"", b""
        self._shares = np.zeros((0, len(of_a_node)))
        self._gpus: dict[int, tuple[str, tuple[int, ...]]] = {}

    def arrived(self, job: JobProgress[Job]) -> None:
        """Count a new job as if it had run for half a round everywhere."""
        del job
        for model in self.of_a_node:
            self._used[model] += self.length // 2

    def ran(self, grant: Grant[Job], time: int) -> None:
        """Count a whole round, also of a job that has ended in it."""
        del time
        self._had[grant.jobs[0].number, grant.model] += self.length
        self._used[grant.model] += self.length

    def grants(self, run: RoundSimulation[Job]) -> list[Grant[Job]]:
        """Return who runs in the round that begins, and on which nodes."""
        jobs, models = run.active, list(self.of_a_node)
        capacity = np.array([float(run.capacity[model]) for model in models])
        speeds = np.array([[self._speed(job, model, run) for model in models] for job in jobs])
        widths = np.array([float(job.job.gpus) for job in jobs])
        asked = speeds.tobytes(), widths.tobytes(), capacity.tobytes()
        if asked != self._asked:
            self._asked = asked
            self._shares = most_throughput(speeds, capacity, widths).round(5)
        shares = self._shares
        entries = [
            self._entry(job, model, float(shares[row, column]))
            for column, model in enumerate(models)
            for row, job in enumerate(jobs)
        ]
        entries.sort(key=lambda each: (each.priority, each.share), reverse=True)
        left = Counter(run.capacity)
        chosen: dict[str, list[JobProgress[Job]]] = {model: [] for model in models}
        taken: set[int] = set()
        for entry in entries:
            wanted = entry.job.job.gpus
            able = entry.job.number not in taken and entry.job.job.runs_on(entry.model)
            if able and wanted <= left[entry.model]:
                taken.add(entry.job.number)
                left[entry.model] -= wanted
                chosen[entry.model].append(entry.job)
        found = [grant for model in models for grant in self._placed(model, chosen[model], run)]
        self._gpus = {grant.jobs[0].number: self._gpus[grant.jobs[0].number] for grant in found}
        return found

    def _speed(self, job: JobProgress[Job], model: str, run: RoundSimulation[Job]) -> float:
        gpus = job.job.gpus
        return job.job.speed(GpuSlice(model, gpus), 0) if gpus <= run.capacity[model] else HARDLY

    def _entry(self, job: JobProgress[Job], model: str, share: float) -> WaitingShare[Job]:
        part = self._had[job.number, model] / self._used[model]
        return WaitingShare(job, model, share, share / part)

    def _placed(
        self, model: str, jobs: Sequence[JobProgress[Job]], run: RoundSimulation[Job]
    ) -> Iterator[Grant[Job]]:
        """Yield grants with nodes, widest first: where a job was, or the next free GPUs."""
        of_a_node, down = self.of_a_node[model], run.down(model)
        nodes_there = run.capacity[model] // of_a_node + len(down)
        free = iter(range(nodes_there * of_a_node))
        taken = {gpu for node in down for gpu in range(node * of_a_node, (node + 1) * of_a_node)}
        for width in sorted({job.job.gpus for job in jobs}, reverse=True):
            alike = [job for job in jobs if job.job.gpus == width]
            moves = [job for job in alike if not self._stays(job, model, taken)]
            for job in moves:
                chosen: list[int] = []
                while len(chosen) < width:
                    gpu = next(free)
                    if gpu not in taken:
                        chosen.append(gpu)
                taken.update(chosen)
                self._gpus[job.number] = model, tuple(chosen)
            for job in alike:
                nodes = (gpu // of_a_node for gpu in self._gpus[job.number][1])
                yield Grant((job,), model, width, tuple(nodes))

    def _stays(self, job: JobProgress[Job], model: str, taken: set[int]) -> bool:
        """Take the GPUs that a job had, if it had some of the type, and they are free."""
        before, gpus = self._gpus.get(job.number, ("", ()))
        stays = before == model and taken.isdisjoint(gpus)
        if stays:
            taken.update(gpus)
        return stays
