"""The tasks of a scenario as jobs of rounds: a pod, the pods of a gang, or a training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, inside
from dralab.simulation.engines.fast.rounds import GpuSlice
from dralab.simulation.engines.fast.speed_table import read_speeds
from dralab.simulation.engines.fast.time_shares import Throughputs, TrainingJob
from dralab.simulation.engines.fast.training import Training
from dralab.simulation.lifecycle.model import Pod, TrainingWork
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.workloads.training_profiles import TrainingProfile, read_profile

PLAIN: Final = TrainingWork(steps=None, speeds={})


@dataclass(frozen=True, slots=True)
class KnownSpeeds:
    """Steps per second by model and number of GPUs, between which they are interpolated.

    Without any it is 1 on each of the `models` (none: all). Those that share GPUs have a part each.
    """

    speeds: Mapping[str, Mapping[int, float]]
    models: Sequence[str]

    def __call__(self, kind: str, gpus: GpuSlice) -> float:
        """Return steps per second; 0: not there."""
        del kind
        if self.models and gpus.model not in self.models:
            return 0.0
        known = self.speeds.get(gpus.model, {gpus.number: 1.0})
        speed = known.get(gpus.number)
        if speed is None:
            speed = float(np.interp(gpus.number, list(known), list(known.values())))
        return speed / (1 + len(gpus.beside))


class TrainingKind(NamedTuple):
    """What is trained, on which model of GPU, and for how many epochs."""

    name: str
    model: str
    epochs: int


class TaskGroup(NamedTuple):
    """The pods that are one job."""

    pods: tuple[Pod, ...]
    job: TrainingJob | Training


def speeds_of(job: TrainingJob | Training, models: Iterable[str]) -> dict[str, float]:
    """Return the steps per second on each of some models that it can run on."""
    return {
        model: job.speed(GpuSlice(model, job.gpus), 0) for model in models if job.runs_on(model)
    }


class RoundJobs:
    """Makes jobs of a scenario, for GPUs of some models, so many `of_a_node`."""

    def __init__(
        self, scenario: Scenario, capacity: Mapping[str, int], of_a_node: Mapping[str, int]
    ) -> None:
        self.scenario = scenario
        self.capacity = capacity
        self.of_a_node = of_a_node
        self.life = scenario.conditions.life
        self.profiles = scenario.work.profiles or scenario.file.parent
        self._measured: dict[TrainingKind, TrainingProfile] = {}
        works = [pod.training for pod in scenario.work.pods if pod.training is not None]
        by_table = any(work.kind and work.epochs is None for work in works)
        self._table = read_speeds(self.profiles) if by_table else None

    def groups(self) -> list[TaskGroup]:
        """Return the jobs in the order of their arrival. InputError: profiles do not have one."""
        gangs: dict[tuple[str, bool], list[Pod]] = {}
        for pod in self.scenario.pods():
            name = f"{pod.namespace}/{pod.gang}" if pod.gang else pod.key
            gangs.setdefault((name, bool(pod.gang)), []).append(pod)
        found = [TaskGroup(tuple(pods), self._job(name, pods)) for (name, _), pods in gangs.items()]
        return sorted(found, key=lambda each: each.job.arrives)

    def _job(self, name: str, pods: Sequence[Pod]) -> TrainingJob | Training:
        arrives, startup = max(pod.arrives for pod in pods), max(pod.startup for pod in pods)
        checkpoint = max(self.life.checkpoint_of(pod) for pod in pods)
        gpus, work = sum(pod.request.gpus for pod in pods), pods[0].training or PLAIN
        if work.epochs is not None:
            return Training(
                name=name,
                arrives=arrives,
                profiles={
                    model: self._profile(pods[0], TrainingKind(work.kind, model, work.epochs))
                    for model in self.capacity
                },
                of_a_node=self.of_a_node,
                gpus=gpus,
                most=max(self.capacity.values()),
                batch=work.batch,
                tunes=work.batch is None,
                restart=startup + self.life.restart,
                checkpoint=checkpoint,
            )
        speeds: Throughputs | None = self._table if work.kind else None
        if speeds is None:
            models = [model for model in pods[0].request.models.split("|") if model]
            speeds = KnownSpeeds(work.speeds, models)
        longest = max((pod.duration or 0) for pod in pods) / SECOND
        return TrainingJob(
            name=name,
            kind=work.kind,
            arrives=arrives,
            work=longest if work.steps is None else work.steps,
            gpus=gpus,
            weight=work.weight,
            least=max((min(known) for known in work.speeds.values()), default=gpus),
            most=min((max(known) for known in work.speeds.values()), default=gpus),
            startup=startup,
            restart=self.life.restart,
            checkpoint=checkpoint,
            throughputs=speeds,
        )

    def _profile(self, pod: Pod, kind: TrainingKind) -> TrainingProfile:
        """Return the measurements of a kind. InputError: they are not of so much."""
        profile = self._measured.get(kind)
        if profile is None:
            folder = inside(
                self.profiles, kind.name, file=self.scenario.file, where="kind", folders=True
            )
            gpu = kind.model if (folder / f"placements-{kind.model}.csv").is_file() else ""
            profile = read_profile(folder, gpu=gpu, epochs=kind.epochs)
            self._measured[kind] = profile
        batch = None if pod.training is None else pod.training.batch
        least, most = profile.smallest_batch, profile.largest_batch
        known = min(len(each.progress) for each in profile.validation.values())
        problem = ""
        if kind.epochs > known:
            problem = f"{kind.epochs} epochs, and {profile.name} was measured for {known}"
        elif batch is not None and not least <= batch <= most:
            problem = f"a batch of {batch}, and {profile.name} was measured with {least} to {most}"
        if problem:
            raise InputError(self.scenario.file, f"has {problem}", where=f"training {pod.name}")
        return profile
