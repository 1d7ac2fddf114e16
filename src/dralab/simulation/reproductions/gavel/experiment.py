"""One run: a policy on the authors' workload, as their simulator runs it."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.round_policies import SHARES
from dralab.simulation.engines.fast.rounds import Grant, RoundRules, RoundSimulation
from dralab.simulation.engines.fast.speed_table import SpeedTable
from dralab.simulation.engines.fast.time_shares import SharePolicy, TimeShares, TrainingJob
from dralab.simulation.reproductions.gavel.workload import TEMPLATES, Templates, drawn

ROUND: Final = 360 * SECOND
MOST_IN_VAIN: Final = 5
# By the authors' names; each is made with random numbers of a seed.
POLICIES: Final[Mapping[str, Callable[[random.Random], SharePolicy]]] = {
    "fifo": SHARES["fifo-shares-agnostic"],
    "fifo_perf": SHARES["fifo-shares"],
    "max_min_fairness": SHARES["max-min-agnostic"],
    "max_min_fairness_perf": SHARES["max-min"],
    "finish_time_fairness": SHARES["finish-time-agnostic"],
    "finish_time_fairness_perf": SHARES["finish-time"],
    "allox": SHARES["allox"],
    "gandiva": SHARES["gandiva"],
    "min_total_duration": SHARES["makespan-agnostic"],
    "min_total_duration_perf": SHARES["makespan"],
}


@dataclass(slots=True)
class PublishedRounds(RoundSimulation[TrainingJob]):
    """The authors' rounds: whole steps, and an accident that they have.

    Each GPU of a job counts its part of the steps in whole numbers. Where fewer steps are left than
    the job has GPUs, that is none: the slice is in vain, and after five the job is given up.
    """

    in_vain: Counter[int] = field(default_factory=Counter)

    def counts(self, grant: Grant[TrainingJob], steps: Sequence[float]) -> bool:
        """Whether every GPU did a step; a job of one GPU always did."""
        if grant.gpus == 1 or all(each >= grant.gpus for each in steps):
            for job in grant.jobs:
                self.in_vain.pop(job.number, None)
            return True
        if len(grant.jobs) == 1:
            [job] = grant.jobs
            self.in_vain[job.number] += 1
            job.dropped = self.in_vain[job.number] >= MOST_IN_VAIN
        return False


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """What a run comes to: seconds until the watched jobs had finished, on average, and in all."""

    completion: float
    utilization: float
    makespan: float
    dropped: int


def run(
    policy: SharePolicy,
    jobs: Iterable[TrainingJob],
    capacity: Mapping[str, int],
    *,
    seed: int,
    watched: range,
) -> RunNumbers:
    """Run jobs until the watched ones have ended; the models of `capacity` go from the fastest."""
    chance = random.Random(seed + 5)  # noqa: S311
    shares = TimeShares(policy, capacity, length=ROUND, chance=chance)
    rules = RoundRules(length=ROUND, fixed=False, whole=True, together=True)
    simulation = PublishedRounds(jobs, capacity, shares, rules)
    waiting = list(reversed(watched))

    def enough() -> bool:
        while waiting and waiting[-1] < len(simulation.records):
            if simulation.records[waiting[-1]].ended is None:
                break
            waiting.pop()
        return not waiting

    simulation.go(enough)
    ended = simulation.records[watched.start : watched.stop]
    times = [job.completion / SECOND for job in ended if job.completion is not None]
    return RunNumbers(
        completion=fmean(times),
        utilization=shares.busy / (sum(capacity.values()) * simulation.now),
        makespan=simulation.now / SECOND,
        dropped=sum(job.dropped for job in ended),
    )


def continuous(
    speeds: SpeedTable,
    policy: str,
    *,
    seed: int,
    rate: float,
    several: bool = False,
    watched: range = range(4000, 5000),
    gpus: int = 36,
    templates: Templates = TEMPLATES,
) -> RunNumbers:
    """Run jobs that arrive at a rate per hour, on so many GPUs of each type."""
    jobs = drawn(speeds, seed, every=3600 / rate, several=several, templates=templates)
    made = POLICIES[policy](random.Random(seed))  # noqa: S311
    return run(made, jobs, _capacity(gpus), seed=seed, watched=watched)


def static(
    speeds: SpeedTable, policy: SharePolicy, *, seed: int, count: int, gpus: int
) -> RunNumbers:
    """Run so many jobs that are there at the beginning."""
    jobs = list(islice(drawn(speeds, seed, every=0, several=True), count))
    return run(policy, jobs, _capacity(gpus), seed=seed, watched=range(count))


def _capacity(gpus: int) -> dict[str, int]:
    return dict.fromkeys(("v100", "p100", "k80"), gpus)
