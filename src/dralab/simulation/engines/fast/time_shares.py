"""Gavel's mechanism: rounds follow the shares of time that a policy gives to jobs.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads", OSDI 2020, section 5, and the simulator published with it. Who has had the least of its
share on a type of GPU comes first there. Shares are computed again when jobs came or went, but not
more often than `every`; until then a new job can be chosen, and its GPUs stay idle, as there. What
time passes without any round counts as if the next one had begun before it, as there.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.rounds import (
    GpuSlice,
    Grant,
    JobProgress,
    RoundPolicy,
    RoundSimulation,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Unit = tuple[int, ...]
FIRST: Final = 1e9
EVERY: Final = 1920 * SECOND


class Throughputs(Protocol):
    """How fast jobs of a kind run."""

    def __call__(self, kind: str, gpus: GpuSlice) -> float:
        """Return steps per second; 0: not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job that needs so many GPUs of one type, whichever; `weight` is its priority.

    It can use from `least` to `most` of them (0: as many as it asks for). Each time that it gets
    other GPUs it starts for `startup`, and if it has done something, loads it for `restart`.
    """

    name: str
    kind: str
    arrives: int
    work: float
    gpus: int = 1
    weight: float = 1.0
    least: int = 0
    most: int = 0
    startup: int = 0
    restart: int = 0
    checkpoint: int = 0
    throughputs: Throughputs

    def runs_on(self, model: str) -> bool:
        """Whether it has a speed on a type of GPU."""
        return self.speed(GpuSlice(model, self.gpus), 0) > 0

    def loading(self, done: float) -> int:
        """Return how long it takes to begin on other GPUs."""
        return self.startup + (self.restart if done else 0)

    def speed(self, gpus: GpuSlice, done: float) -> float:
        """Return its steps per second."""
        del done
        return self.throughputs(self.kind, gpus)


Progress = JobProgress[TrainingJob]


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """The jobs to divide the time of `capacity` GPUs of each of the `models` among, at `now`.

    `speeds` has a row for each job and a column for each model.
    """

    jobs: Sequence[Progress]
    models: Sequence[str]
    capacity: Floats
    speeds: Floats
    now: int

    @property
    def widths(self) -> Floats:
        """The GPUs that each job needs."""
        return np.array([each.job.gpus for each in self.jobs], dtype=float)

    def of(self, rows: Ints, capacity: Floats) -> "ShareRequest | None":
        """Return the request of some rows for so many GPUs, without jobs that cannot run on any.

        None: there is no other job.
        """
        able = [row for row in rows.tolist() if self.speeds[row, capacity > 0].any()]
        if not able:
            return None
        jobs = [self.jobs[row] for row in able]
        return replace(self, jobs=jobs, capacity=capacity, speeds=self.speeds[able])


class SharePolicy(Protocol):
    """Divides the time of GPUs among jobs.

    One that is `aware` knows how fast jobs are on each type; `packs`: jobs may share GPUs in pairs;
    with `strict` a job without a share does not get GPUs that are left over.
    """

    @property
    def aware(self) -> bool:
        """Whether it knows speeds."""

    @property
    def packs(self) -> bool:
        """Whether jobs may share GPUs."""

    @property
    def strict(self) -> bool:
        """Whether jobs without a share get nothing."""

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return the share of each job or pair, by its numbers, on each model."""


class TimeShares(RoundPolicy[TrainingJob]):
    """Grants GPUs in rounds of `length` so that jobs get their shares.

    `models` go from the fastest; a policy that is not aware takes them in an order by `chance`.
    """

    def __init__(
        self,
        policy: SharePolicy,
        capacity: Mapping[str, int],
        *,
        length: int,
        chance: random.Random,
        every: int = EVERY,
    ) -> None:
        self.policy = policy
        self.models = tuple(capacity)
        self.capacity = capacity
        self.chance = chance
        self.every = every
        # A new job counts as if it had run for half a round.
        self.head_start = length // 2
        self.units: list[tuple[Progress, ...]] = []
        self._row: dict[Unit, int] = {}
        wide = (0, len(self.models))
        self._time = np.zeros(wide, dtype=np.int64)
        self._owed = np.zeros(wide)
        self._share = np.zeros(wide)
        self._runs = np.zeros(wide, dtype=bool)
        self._has_share = np.zeros(0, dtype=bool)
        self._used = np.zeros(len(self.models), dtype=np.int64)
        self._reset_at = 0
        self._stale = True
        self._ended = False
        # The end of the last round; how long nothing has run; the time of GPUs that was used.
        self._begun = self._end = self._idle = self.busy = 0

    def arrived(self, job: Progress) -> None:
        """Add a job, and with a policy that packs, its pairs."""
        self._forget()
        if not self.units and job.job.arrives > self._end and self._is_due(self._end):
            self._reset_at = self._end  # when the last job went, nobody's shares were computed
        pairs: list[tuple[Progress, ...]] = []
        if self.policy.packs:
            alone = [unit[0] for unit in self.units if len(unit) == 1]
            pairs = [(each, job) for each in alone if each.job.gpus == job.job.gpus]
        new = [(job,), *pairs]
        head_starts = np.zeros((len(new), len(self.models)), dtype=np.int64)
        head_starts[0] = self.head_start
        nothing = np.zeros((len(new), len(self.models)))
        self.units += new
        self._time = np.vstack([self._time, head_starts])
        self._owed = np.vstack([self._owed, nothing])
        self._share = np.vstack([self._share, nothing])
        self._runs = np.vstack([self._runs, [self._can_run(unit) for unit in new]])
        self._has_share = np.append(self._has_share, np.zeros(len(new), dtype=bool))
        self._number()
        self._stale = True

    def _can_run(self, unit: tuple[Progress, ...]) -> list[bool]:
        grants = [Grant(unit, model, unit[0].job.gpus) for model in self.models]
        return [all(each.job.speed(grant.of(each), 0) for each in unit) for grant in grants]

    def _number(self) -> None:
        self._jobs = sum(len(unit) == 1 for unit in self.units)
        self._row = {numbers_of(unit): row for row, unit in enumerate(self.units)}

    def _forget(self) -> None:
        """Remove units with a job that has ended."""
        if not self._ended:
            return
        self._ended = False
        kept = np.array([all(each.ended is None for each in unit) for unit in self.units])
        self.units = [unit for unit, keep in zip(self.units, kept, strict=True) if keep]
        self._time, self._owed, self._share = self._time[kept], self._owed[kept], self._share[kept]
        self._runs, self._has_share = self._runs[kept], self._has_share[kept]
        self._number()

    def ran(self, grant: Grant[TrainingJob], time: int) -> None:
        """Count the time of a grant."""
        self._end = max(self._end, self._begun + time)
        time += self._idle if time else 0
        self.busy += time * grant.gpus
        model = self.models.index(grant.model)
        row = self._row.get(numbers_of(grant.jobs))
        if row is not None:
            self._time[row, model] += time
            self._used[model] += time
        if not time or any(job.ended is not None for job in grant.jobs):
            self._stale = True
            self._ended = True

    def grants(self, run: RoundSimulation[TrainingJob]) -> list[Grant[TrainingJob]]:
        """Return who runs, by priority: the share beside what was had of it."""
        self._forget()
        if run.capacity != self.capacity:
            self.capacity, self._stale = run.capacity, True
        if self._stale and self._is_due(run.now):
            self._divide(run.now)
        self._begun, self._idle = run.now, run.now - self._end
        chosen = list(self._chosen())
        if not chosen and run.following is None and self._stale:
            self._divide(run.now)
            chosen = list(self._chosen())
        return chosen

    def _is_due(self, now: int) -> bool:
        return now - self._reset_at >= self.every or not self._reset_at

    def _divide(self, now: int) -> None:
        """Compute the shares anew, and note what was owed by the old ones."""
        self._owed += self._share * (now - self._reset_at) - (self._time - self.head_start)
        self._time[:] = self.head_start
        self._used[:] = self.head_start * len(self.units)
        self._reset_at, self._stale = now, False
        jobs = [unit[0] for unit in self.units if len(unit) == 1]
        speeds = [
            [each.job.speed(GpuSlice(model, each.job.gpus), 0) for model in self.models]
            for each in jobs
        ]
        capacity = np.array([float(self.capacity[model]) for model in self.models])
        every = ShareRequest(jobs, self.models, capacity, np.array(speeds), now)
        self._share[:] = 0.0
        asked = every.of(np.arange(len(jobs)), capacity)
        for numbers, share in self.policy.shares(asked).items() if asked else ():
            self._share[self._row[numbers]] = share
        self._has_share[:] = True

    def _priorities(self) -> Floats:
        """Return how far each unit is behind its share, on each model."""
        had = (self._time > 0) & (self._used > 0)
        part = np.divide(self._time, self._used, out=np.ones_like(self._share), where=had)
        return np.where(self._runs, np.where(had, self._share / part, self._share * FIRST), 0.0)

    def _chosen(self) -> Iterator[Grant[TrainingJob]]:
        priorities = self._priorities()
        models = list(range(len(self.models)))
        if not self.policy.aware and not self.policy.packs:
            self.chance.shuffle(models)
        taken: set[int] = set()
        for model in models:
            left = self.capacity[self.models[model]]
            column = priorities[:, model]
            able = self._runs[:, model] & (column > 0 if self.policy.strict else True)
            keys = (-self._share[:, model], -self._owed[:, model], -column)
            for row in np.lexsort(keys).tolist():
                if not left or len(taken) == self._jobs:
                    break
                unit = self.units[row]
                gpus = unit[0].job.gpus
                if not able[row] or gpus > left or any(each.number in taken for each in unit):
                    continue
                left -= gpus
                taken.update(each.number for each in unit)
                if self._has_share[row]:
                    yield Grant(unit, self.models[model], gpus)


def numbers_of(jobs: Sequence[Progress]) -> Unit:
    """Return the numbers of jobs."""
    return tuple(each.number for each in jobs)
