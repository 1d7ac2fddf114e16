"""Policies that divide the time of GPUs among jobs: those of Gavel's paper.

`aware` ones know how fast each job is on each type of GPU; the others take all types for alike.
Sources: see `time_shares`, and for AlloX: Le et al., EuroSys 2020.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast import time_division
from dralab.simulation.engines.fast.rounds import GpuSlice, Grant
from dralab.simulation.engines.fast.time_shares import (
    Floats,
    Progress,
    SharePolicy,
    ShareRequest,
    Unit,
)

Ints = npt.NDArray[np.int64]

NEVER: Final = 1e10


@dataclass(slots=True)
class Fifo:
    """The jobs that came first, on the fastest type that is free; no share for the others."""

    aware: bool = True
    packs: bool = False
    strict: bool = True

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return whole shares."""
        free = asked.capacity.copy()
        found: dict[Unit, Floats] = {}
        for job, speeds in zip(asked.jobs, asked.speeds, strict=True):
            width = job.job.gpus
            room = free >= max(width, 1)
            if not room.any():
                break  # whoever came later does not overtake
            model = int(np.argmax(np.where(room, speeds, -1.0)))
            if speeds[model] > 0:
                found[job.number,] = np.eye(len(free))[model]
                free[model] -= width
        return found


@dataclass(slots=True)
class AgnosticFifo:
    """The jobs that came first, on types that they keep; whoever is next takes a free place.

    As published, a slip included: a type is drawn, but the job gets the last one by name, as long
    as any has room; the draw says which type is crossed off once that one is full.
    """

    chance: random.Random
    aware: bool = False
    packs: bool = False
    strict: bool = True
    _placed: dict[int, tuple[int, int]] = field(default_factory=dict)

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return whole shares."""
        speeds = {job.number: row for job, row in zip(asked.jobs, asked.speeds, strict=True)}
        self._leave_lost_places(asked)
        queue = [job for job in asked.jobs if job.number not in self._placed]
        free = asked.capacity.copy()
        for number in sorted(self._placed):
            model, gpus = self._placed[number]
            if number in speeds:
                free[model] -= gpus
                continue
            del self._placed[number]
            if queue and queue[0].job.gpus <= free[model] and speeds[queue[0].number][model]:
                self._place(queue.pop(0), model, free)
        left = [model for model in by_name(asked) if free[model] > 0]
        while queue and left:
            job = queue.pop(0)
            room = [model for model in left if free[model] >= job.job.gpus]
            if not room:
                break
            drawn, model = room[self.chance.randrange(len(room))], left[-1]
            if speeds[job.number][model]:
                self._place(job, model, free)
                if not free[model]:
                    left.remove(drawn)
        whole = np.eye(len(free))
        return {(number,): whole[model] for number, (model, _) in self._placed.items()}

    def _leave_lost_places(self, asked: ShareRequest) -> None:
        """Queue jobs again whose places are on nodes that went down; those without GPUs first."""
        room = asked.capacity.copy()
        for job in sorted(asked.jobs, key=lambda job: job.gpus is None):
            if job.number in self._placed:
                model, gpus = self._placed[job.number]
                if gpus > room[model]:
                    del self._placed[job.number]
                else:
                    room[model] -= gpus

    def _place(self, job: Progress, model: int, free: Floats) -> None:
        self._placed[job.number] = (model, job.job.gpus)
        free[model] -= job.job.gpus


@dataclass(slots=True)
class Gandiva:
    """An equal part of all GPUs for each job; where they are too many, they are paired by `chance`.

    A pair is parted when its jobs are slower together than one alone, over all types.
    """

    chance: random.Random
    aware: bool = False
    packs: bool = True
    strict: bool = False
    _pairs: dict[int, Unit] = field(default_factory=dict)

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return equal shares of jobs, or of pairs."""
        jobs = {job.number: job for job in asked.jobs}
        for pair in set(self._pairs.values()):
            together = all(number in jobs for number in pair)
            if not together or self._gain(asked, [jobs[number] for number in pair]) < 1:
                self._pairs = {key: each for key, each in self._pairs.items() if each != pair}
        if asked.widths.sum() <= asked.capacity.sum():
            return self._equal(asked, [(number,) for number in jobs])
        alone = [number for number in jobs if number not in self._pairs]
        for _ in range(len(alone)):
            if len(alone) < 2:
                break
            drawn = self.chance.sample(alone, 2)
            if jobs[drawn[0]].job.gpus == jobs[drawn[1]].job.gpus:
                alone = [number for number in alone if number not in drawn]
                pair = (min(drawn), max(drawn))
                self._pairs |= dict.fromkeys(pair, pair)
        return self._equal(asked, [*((number,) for number in alone), *set(self._pairs.values())])

    @staticmethod
    def _equal(asked: ShareRequest, units: list[Unit]) -> Mapping[Unit, Floats]:
        widths = {job.number: job.job.gpus for job in asked.jobs}
        found = {unit: asked.capacity / len(units) / widths[unit[0]] for unit in units}
        return {unit: share / max(share.sum(), 1.0) for unit, share in found.items()}

    @staticmethod
    def _gain(asked: ShareRequest, pair: list[Progress]) -> float:
        """Return the speeds of a pair beside those alone; 0 if it cannot run on some type."""
        gain = 0.0
        for model in asked.models:
            grant = Grant(tuple(pair), model, pair[0].job.gpus)
            for each in pair:
                shared = each.job.speed(grant.of(each), 0)
                if not shared:
                    return 0.0
                gain += shared / each.job.speed(GpuSlice(model, each.job.gpus), 0)
        return gain


@dataclass(slots=True)
class AlloX:
    """The assignment of jobs to GPUs that has the least mean completion time; of one GPU each.

    Whoever has a GPU keeps it while it is there. Of those that are assigned to the same GPU the
    first gets it.
    """

    aware: bool = True
    packs: bool = False
    strict: bool = False
    _model: dict[int, int] = field(default_factory=dict)

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return whole shares. ValueError: a job needs several GPUs."""
        if wide := [job.job.name for job in asked.jobs if job.job.gpus != 1]:
            raise ValueError(f"AlloX assigns jobs of one GPU; {wide[0]} needs more")
        free = asked.capacity.astype(int)
        kept = {}
        for job in sorted(asked.jobs, key=lambda job: job.gpus is None):
            model = self._model.get(job.number)
            if model is not None and free[model]:
                kept[job.number] = model
                free[model] -= 1
        self._model = kept
        rows = [row for row, job in enumerate(asked.jobs) if job.number not in self._model]
        rows.sort(key=lambda row: asked.jobs[row].job.arrives)
        if rows and free.any():
            for row, model in self._first(asked, rows, free):
                self._model[asked.jobs[row].number] = model
        whole = np.eye(len(free))
        return {(number,): whole[model] for number, model in self._model.items()}

    @staticmethod
    def _first(asked: ShareRequest, rows: list[int], free: Ints) -> Iterator[tuple[int, int]]:
        """Yield the jobs that get a GPU now, and its type.

        A column is a place on a free GPU, counted from the last to run there: a job that has k
        others behind it delays them, too.
        """
        models = by_name(asked)
        gpus = np.repeat(models, free[models])
        left = np.array([asked.jobs[row].left for row in rows])
        waited = np.array([asked.now - asked.jobs[row].job.arrives for row in rows]) / SECOND
        speeds = asked.speeds[rows]
        times = (left[:, None] / np.where(speeds > 0, speeds, 1 / NEVER))[:, gpus]
        places = np.arange(1, len(rows) + 1)[None, :, None]
        costs = times[:, None, :] * places + waited[:, None, None]
        columns = cheapest_assignment(costs.reshape(len(rows), -1))
        first: dict[int, tuple[int, int]] = {}
        for row, column in zip(rows, columns.tolist(), strict=True):
            place, gpu = divmod(column, len(gpus))
            first[gpu] = max(first.get(gpu, (-1, -1)), (place, row))
        for gpu, (_, row) in sorted(first.items()):
            yield row, int(gpus[gpu])


@dataclass(slots=True)
class MaxMin:
    """Least attained service: the least gain is as great as can be.

    A job's gain is its speed, beside that with an equal part of all GPUs, times its GPUs, by its
    weight. One that is not `aware` takes all types for alike.
    """

    aware: bool = True
    packs: bool = False
    strict: bool = False

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return the shares in the middle of the optimal ones."""
        speeds = asked.speeds if self.aware else np.ones_like(asked.speeds)
        usual = speeds @ asked.capacity / asked.capacity.sum()
        weights = np.array([each.job.weight for each in asked.jobs])
        gains = speeds * (asked.widths / (usual * weights))[:, None]
        return by_job(asked, time_division.max_min(gains, asked.capacity, asked.widths))


@dataclass(slots=True)
class FinishTimeFairness:
    """Jobs end as late, beside what an equal part of the cluster would give, as others do."""

    aware: bool = True
    packs: bool = False
    strict: bool = False
    # By job: its time in an equal part so far; how much was left, and the speed there, last time.
    _alone: dict[int, float] = field(default_factory=dict)
    _before: dict[int, tuple[float, float]] = field(default_factory=dict)

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return the shares in the middle of the optimal ones."""
        speeds = known_speeds(asked, aware=self.aware)
        equal = asked.capacity / len(asked.jobs) / asked.widths[:, None]
        equal /= np.maximum(equal.sum(axis=1), 1.0)[:, None]
        own_speed = (speeds * equal).sum(axis=1)
        left = np.array([each.left for each in asked.jobs])
        waited = np.array([asked.now - each.job.arrives for each in asked.jobs]) / SECOND
        for job in asked.jobs:
            before = self._before.get(job.number)
            so_far = 0.0 if before is None else (before[0] - job.left) / before[1]
            self._alone[job.number] = self._alone.get(job.number, 0.0) + so_far
        self._before = {
            job.number: (job.left, float(speed))
            for job, speed in zip(asked.jobs, own_speed, strict=True)
        }
        alone = np.array([self._alone[job.number] for job in asked.jobs]) + left / own_speed
        try:
            shares = time_division.fairest_finish(
                speeds, left / alone, waited / alone, asked.capacity, asked.widths
            )
        except ArithmeticError:  # the published one has its solver's failures, too
            shares = equal
        return by_job(asked, shares)


@dataclass(slots=True)
class MinMakespan:
    """All jobs end as soon as can be, or at most 5 % later if it is not the `least` time."""

    aware: bool = True
    packs: bool = False
    strict: bool = False
    least: bool = False

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return shares in the middle of those that do it."""
        speeds = known_speeds(asked, aware=self.aware)
        left = np.array([each.left for each in asked.jobs])
        gains = speeds / left[:, None]
        fastest = time_division.max_min(gains, asked.capacity, asked.widths)
        if self.least:
            return by_job(asked, fastest)
        rate = float((gains * fastest).sum(axis=1).min())
        least, most = 100.0, 1e6
        while 1 / rate > most:
            least, most = most, most * 10
        while 1.05 * least < most:
            time = (least + most) / 2
            least, most = (least, time) if time * rate > 1 else (time, most)
        shares = time_division.at_least(speeds, left / most, asked.capacity, asked.widths)
        return by_job(asked, shares)


@dataclass(slots=True)
class InParts:
    """Jobs and GPUs in parts, each of which has a policy of its own; a job's part is drawn.

    Source: Narayanan et al., "Solving Large-Scale Granular Resource Allocation Problems Efficiently
    with POP", SOSP 2021.
    """

    policies: Sequence[SharePolicy]
    chance: random.Random

    @property
    def aware(self) -> bool:
        """Whether the policies know speeds."""
        return self.policies[0].aware

    @property
    def packs(self) -> bool:
        """Whether jobs may share GPUs."""
        return self.policies[0].packs

    @property
    def strict(self) -> bool:
        """Whether jobs without a share get nothing."""
        return self.policies[0].strict

    def shares(self, asked: ShareRequest) -> Mapping[Unit, Floats]:
        """Return the shares of all parts."""
        count = len(self.policies)
        drawn = np.array([self.chance.randrange(count) for _ in asked.jobs])
        found: dict[Unit, Floats] = {}
        for part, policy in enumerate(self.policies):
            own = asked.of(np.flatnonzero(drawn == part), asked.capacity // count)
            found |= policy.shares(own) if own else {}
        return found


def by_name(asked: ShareRequest) -> list[int]:
    """Return the models in the order of their names, which decides among equals."""
    return sorted(range(len(asked.models)), key=lambda model: asked.models[model])


def known_speeds(asked: ShareRequest, *, aware: bool) -> Floats:
    """Return the speeds as a policy knows them: as on the first model if it is not `aware`."""
    return asked.speeds if aware else np.repeat(asked.speeds[:, :1], len(asked.models), axis=1)


def by_job(asked: ShareRequest, shares: Floats) -> dict[Unit, Floats]:
    """Return shares by the numbers of the jobs."""
    rows = zip(asked.jobs, shares.clip(0.0, 1.0), strict=True)
    return {(job.number,): row for job, row in rows}


def cheapest_assignment(costs: Floats) -> Ints:
    """Return a column for each row, no column twice, so that the sum of the costs is least.

    There are at least as many columns as rows. By shortest augmenting paths (Crouse, "On
    implementing 2D rectangular assignment algorithms", 2016); of columns alike those are taken
    that scipy's `linear_sum_assignment` takes, which the published numbers depend on.

    >>> cheapest_assignment(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])).tolist()
    [1, 0, 2]
    """
    rows, columns = costs.shape
    of_row, of_column = np.zeros(rows), np.zeros(columns)
    owner, found = np.full(columns, -1), np.full(rows, -1)
    for start in range(rows):
        length, before = np.full(columns, np.inf), np.full(columns, -1)
        open_columns = np.arange(columns)[::-1].copy()
        row, lowest, settled = start, 0.0, []
        while True:
            through = lowest + costs[row, open_columns] - of_row[row] - of_column[open_columns]
            better = through < length[open_columns]
            length[open_columns[better]], before[open_columns[better]] = through[better], row
            lengths = length[open_columns]
            lowest = lengths.min()
            alike = np.flatnonzero(lengths == lowest)
            unowned = alike[owner[open_columns[alike]] < 0]
            index = unowned[-1] if len(unowned) else alike[0]
            column = int(open_columns[index])
            if len(unowned):
                break
            settled.append(column)
            row = int(owner[column])
            open_columns[index] = open_columns[-1]
            open_columns = open_columns[:-1]
        of_row[start] += lowest
        of_row[owner[settled]] += lowest - length[settled]
        of_column[settled] -= lowest - length[settled]
        while column >= 0:
            row = int(before[column])
            owner[column], found[row], column = row, column, int(found[row])
    return found
