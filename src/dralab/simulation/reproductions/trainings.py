"""The trainings of Pollux and Sia: six models, their measurements, and workloads of them."""

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import content_of
from dralab.simulation.engines.fast.rounds import RoundPolicy, RoundRules, RoundSimulation
from dralab.simulation.engines.fast.training import Training, TrainingRun
from dralab.simulation.workloads.training_profiles import TrainingProfile, read_profile

# Models → how many epochs a training of each has.
EPOCHS: Final[Mapping[str, int]] = {
    "bert": 2,
    "cifar10": 100,
    "deepspeech2": 80,
    "imagenet": 90,
    "ncf": 10,
    "yolov3": 50,
}


@cache
def profile(
    traces: Path, model: str, gpu: str = "", largest_local: int | None = None
) -> TrainingProfile:
    """Return the measurements of a model on a type of GPU."""
    return read_profile(traces / model, gpu=gpu, epochs=EPOCHS[model], largest_local=largest_local)


def lines_of(path: Path) -> list[dict[str, str]]:
    """Return the lines of a workload: name, time, application, num_replicas, batch_size."""
    return list(csv.DictReader(content_of(path).decode().splitlines()))


def run_rounds(
    trainings: Sequence[Training],
    capacity: Mapping[str, int],
    policy: RoundPolicy[Training],
    seconds: int,
) -> list[TrainingRun]:
    """Return what becomes of trainings in rounds; the first begins after the length of one."""
    length = seconds * SECOND
    run = RoundSimulation(
        trainings, capacity, policy, RoundRules(length=length), now=length, progress=TrainingRun
    )
    run.go()
    return [each for each in run.records if isinstance(each, TrainingRun)]


def completion(record: TrainingRun) -> float:
    """Return how long a training took from its arrival, in seconds."""
    return (record.completion or 0) / SECOND
