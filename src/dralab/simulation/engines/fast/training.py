"""Trainings whose GPUs may change while they run: epochs, batches and restarts.

Source: the simulators that were published with Pollux (OSDI 2021) and Sia (SOSP 2023). What a
training does in a step is measured (`workloads.training_profiles`); what its scheduler believes is
a model fitted to the steps that it has made (`goodput`). Epochs end at whole seconds, as there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.goodput import GoodputModel, StepModel, fitted, measurements
from dralab.simulation.engines.fast.rounds import GpuSlice, JobProgress, RoundSimulation
from dralab.simulation.workloads.training_profiles import (
    TINY,
    Placement,
    StepTime,
    TrainingProfile,
    full_nodes,
)

# A training is given at most so many times the GPUs with which it has run.
GROWTH: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training as it was submitted; `profiles` are its measurements by type of GPU.

    It wants `gpus` and `batch`, and can use `most` GPUs; with `tunes`, the best batch is chosen
    again and again. Nodes of a type have `of_a_node` GPUs. It writes a checkpoint each `checkpoint`
    of its time, loads one for `restart`, and is `slower` than measured. With `by_placement`, a GPU
    holds the batches that were measured on a placement, and a move to other nodes with as many GPUs
    each is free. Its model is fitted to a `tolerance`; None: that of SciPy.
    """

    name: str
    arrives: int
    profiles: Mapping[str, TrainingProfile]
    of_a_node: Mapping[str, int]
    gpus: int = 1
    least: int = 1
    most: int = 64
    batch: int | None = None
    tunes: bool = False
    restart: int = 30 * SECOND
    checkpoint: int = 0
    slower: float = 1.0
    by_placement: bool = False
    tolerance: float | None = None

    @property
    def kind(self) -> str:
        """The name of the model that is trained."""
        return next(iter(self.profiles.values())).name

    @property
    def work(self) -> float:
        """The progress of all epochs."""
        profile = next(iter(self.profiles.values()))
        return profile.epoch_end(profile.epochs)

    def runs_on(self, model: str) -> bool:
        """Whether it was measured on a type of GPU."""
        return model in self.profiles

    def loading(self, done: float) -> int:
        """Return how long it loads a checkpoint."""
        del done
        return self.restart

    def speed(self, gpus: GpuSlice, done: float) -> float:
        """Return its steps per second with the batch that it wants, on as few nodes as can be."""
        del done
        profile, placement = self.profiles[gpus.model], placement_of(gpus, self.of_a_node)
        batch = self.batch or profile.smallest_batch
        held = self.held(gpus.model, placement)
        # A batch of one GPU is always computed in parts here, as by Optimus and Gavel there.
        local, parts = split(batch, gpus.number, held, 0)
        time = profile.time(placement, min(local, profile.largest_batch // (gpus.number * parts)))
        if time is None:
            return 0.0
        return 1 / (time.step + (time.step - time.sync) * (parts - 1)) * (1 / self.slower)

    def held(self, model: str, placement: Placement) -> int:
        """Return the largest batch that a GPU holds."""
        profile = self.profiles[model]
        return profile.largest_local_on(placement) if self.by_placement else profile.largest_local


@dataclass(slots=True, eq=False)
class TrainingRun(JobProgress[Training]):
    """What became of a training so far.

    A GPU computes a batch `local`, and `parts` of them make a step. `loading` seconds are left to
    load its checkpoint. `course` is its progress after so much work on the GPUs that it has, even
    in between. `seen` are the steps that it has made on each type of GPU, by nodes, GPUs and batch.
    """

    placement: Placement = ()
    local: int = 0
    parts: int = 1
    loading: float = 0
    progress: float = 0.0
    epoch: int = 0
    gradient: tuple[float, float] | None = None
    course: list[tuple[int, float]] = field(default_factory=list)
    seen: dict[str, dict[tuple[int, int, int], StepTime]] = field(default_factory=dict)
    _models: dict[str, tuple[int, StepModel]] = field(default_factory=dict)
    _model: str = ""

    @property
    def left(self) -> float:
        """The progress that is left."""
        return self.job.work - self.progress

    @property
    def profile(self) -> TrainingProfile:
        """Its measurements where it runs."""
        return self.job.profiles[self._model]

    def most_seen(self, model: str) -> int:
        """Return the most GPUs of a type with which it has run."""
        return max((gpus for _, gpus, _ in self.seen.get(model, ())), default=0)

    def most_useful(self) -> int:
        """Return the most GPUs that a policy may give it, as it grows by doubling."""
        return max(
            1,
            *(
                min(
                    GROWTH * self.most_seen(model),
                    self.job.most,
                    profile.largest_batch // profile.smallest_local,
                )
                for model, profile in self.job.profiles.items()
            ),
        )

    @property
    def most(self) -> int:
        """How many GPUs it can use, each with the smallest batch that was measured."""
        smallest = next(iter(self.job.profiles.values())).smallest_local
        return min(self.job.most, (self.job.batch or 0) // smallest)

    def saves(self, gpus: GpuSlice, more: GpuSlice) -> float:
        """Return how many seconds the rest would be shorter with other GPUs."""
        profile, batch = self.job.profiles[gpus.model], self.job.batch or 0
        last = profile.epochs - 1
        steps = 1.0
        if self.epoch < last:
            steps = profile.iteration(batch, last) - profile.iteration(batch, self.epoch)
        return (1 / self.job.speed(gpus, 0) - 1 / self.job.speed(more, 0)) * steps

    def run(self, gpus: GpuSlice, now: int, length: int, *, whole: bool) -> tuple[float, int]:
        """Return the progress of a round, and how long that took."""
        del whole
        self._take(gpus, now)
        before, time = self.progress, self._advance(length / SECOND)
        self.count(time, gpus)
        return self.progress - before, time

    def begin(self) -> None:
        """Begin on other GPUs."""
        self.starts, self.worked, self.course = 0, 0, [(0, self.progress)]

    def go_back(self, kept: int) -> None:
        """Undo all that it did on its GPUs but so much of the time."""
        times, reached = zip(*self.course, strict=True)
        self.done = self.progress = float(np.interp(kept, times, reached))
        while self.progress < self.profile.epoch_end(self.epoch):
            self.epoch -= 1

    def _take(self, gpus: GpuSlice, now: int) -> None:
        """Begin on other GPUs, if they are others: it loads its checkpoint there."""
        before, self.gpus = self.gpus, gpus
        if before == gpus:
            return
        placement = placement_of(gpus, self.job.of_a_node)
        if (
            self.job.by_placement
            and before is not None
            and (before.model, self.placement) == (gpus.model, placement)
        ):
            return
        self.begin()
        self._model, self.placement = gpus.model, placement
        self._choose_batch()
        self.loading = self.job.loading(self.progress) / SECOND
        if self.started is None:
            self.started = now
        else:
            self.restarts += 1

    def _advance(self, seconds: float) -> int:
        passed = min(self.loading, seconds)
        self.loading -= passed
        self.load(round(passed * SECOND))
        while passed < seconds and self.left > 0:
            trained = self._train(seconds - passed)
            passed += trained
            self.worked += round(trained * SECOND)
            self.course.append((self.worked, self.progress))
            self._choose_batch()
        return round(passed * SECOND)

    def _train(self, seconds: float) -> float:
        """Train to the end of an epoch, or as long as there is time; return how long that was."""
        profile = self.profile
        gpus = sum(self.placement)
        batch = gpus * self.local * self.parts
        time = profile.time(self.placement, self.local)
        if time is None:
            where = f"{self.placement} GPUs {self._model} with a batch of {self.local} each"
            raise ValueError(f"{self.job.name}: {profile.name} was not measured on {where}")
        seen = self.seen.setdefault(self._model, {})
        seen.setdefault((len(self.placement), gpus, self.local), time)
        norm, variance = self.gradient = profile.gradient(batch, self.epoch)
        gain = (variance + norm) / (variance / (batch / profile.smallest_batch) + norm)
        speed = gain / (time.step + (time.step - time.sync) * (self.parts - 1))
        speed *= 1 / self.job.slower
        end = profile.epoch_end(self.epoch + 1)
        if self.progress + speed * seconds < end:
            self.progress += speed * seconds
            return seconds
        passed = round((end - self.progress) / speed)
        self.epoch += 1
        self.progress = end
        return passed

    def goodput(self, model: str) -> GoodputModel | None:
        """Return what is known of its goodput on a type of GPU; None: it has not run there."""
        seen = self.seen.get(model)
        if not seen or self.gradient is None:
            return None
        number, steps = self._models.get(model, (0, None))
        if steps is None or number != len(seen):
            steps = fitted(measurements(seen), self.job.tolerance)
            self._models[model] = len(seen), steps
        profile = self.job.profiles[model]
        return GoodputModel(
            steps=steps,
            gradient=self.gradient,
            smallest=profile.smallest_batch,
            largest=profile.largest_batch,
            smallest_local=profile.smallest_local,
            largest_local=profile.largest_local,
        )

    def _choose_batch(self) -> None:
        profile, gpus = self.profile, sum(self.placement)
        held = self.job.held(self._model, self.placement)
        known = self.goodput(self._model) if self.job.tunes else None
        if known is None:
            batch = None if self.job.tunes else self.job.batch
            batch = batch or max(profile.smallest_batch, profile.smallest_local * gpus)
            self.local, self.parts = split(batch, gpus, held, profile.smallest_batch)
        else:
            best = replace(known, largest_local=held).best(len(self.placement), gpus)
            self.local, self.parts = best.local.item(), best.parts.item()
        if self.job.by_placement and (most := profile.largest_local_of(gpus)):
            self.local = min(self.local, most)
        self.local = min(self.local, profile.largest_batch // (gpus * self.parts))


Trainings = RoundSimulation[Training]


def runs_of(run: Trainings) -> list[TrainingRun]:
    """Return the trainings that arrived and have not ended."""
    return [each for each in run.active if isinstance(each, TrainingRun)]


def placement_of(gpus: GpuSlice, of_a_node: Mapping[str, int]) -> Placement:
    """Return how many GPUs are on each node; on as few as can be, if no policy chose them."""
    if not gpus.nodes:
        return full_nodes(gpus.number, of_a_node[gpus.model])
    return tuple(len(list(same)) for _, same in groupby(gpus.nodes))


def split(batch: int, gpus: int, held: int, smallest: int) -> tuple[int, int]:
    """Return the batch of a GPU, and in how many parts it is computed, if a GPU holds so much.

    One GPU computes a batch above the smallest in two parts: one tells nothing of the noise.
    """
    local = math.ceil(batch / gpus - TINY)
    parts = math.ceil(local / held - TINY)
    if gpus == 1 and batch > smallest:
        parts = max(2, parts)
    return math.ceil(local / parts - TINY), parts
