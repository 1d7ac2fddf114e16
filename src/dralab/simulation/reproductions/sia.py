"""Sia and Gavel on GPUs of three types, beside the numbers of Sia's authors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.goodput_shares import GoodputShares, SiaRules
from dralab.simulation.engines.fast.rounds import RoundPolicy
from dralab.simulation.engines.fast.throughput_shares import ThroughputShares
from dralab.simulation.engines.fast.training import Training, TrainingRun
from dralab.simulation.reproductions import trainings
from dralab.simulation.reproductions.registry import Case, ComparedNumber, DataFile, Reproduction

REPOSITORY: Final = "https://github.com/siasosp23/artifacts"
# Types of GPU → GPUs of a node, and of all nodes.
OF_A_NODE: Final[Mapping[str, int]] = {"aws": 4, "dgx-ext": 8, "rtx": 8}
CAPACITY: Final[Mapping[str, int]] = {"aws": 24, "dgx-ext": 16, "rtx": 24}
# Models and types whose GPUs hold less than was measured.
LARGEST_LOCAL: Final[Mapping[tuple[str, str], int]] = {("deepspeech2", "rtx"): 57}
HOUR: Final = 3600.0
# Trainings fit their models less closely than in the simulator of Pollux.
TOLERANCE: Final = 1e-5


class Costs(NamedTuple):
    """Seconds of a restart, those that Sia takes it to cost, and how much slower a model is."""

    restart: int
    penalty: int
    slower: float


COSTS: Final[Mapping[str, Costs]] = {
    "bert": Costs(120, 120, 1.2),
    "cifar10": Costs(50, 30, 1.8),
    "deepspeech2": Costs(25, 25, 1.2),
    "imagenet": Costs(250, 250, 1.2),
    "ncf": Costs(15, 30, 1.5),
    "yolov3": Costs(80, 45, 1.2),
}


class ComparedScheduler(NamedTuple):
    """A policy, the seconds of its rounds, and whether trainings choose their batch."""

    policy: Callable[[], RoundPolicy[Training]]
    seconds: int
    tunes: bool


SCHEDULERS: Final[Mapping[str, ComparedScheduler]] = {
    "gavel": ComparedScheduler(lambda: ThroughputShares(OF_A_NODE, 360 * SECOND), 360, tunes=False),
    "sia": ComparedScheduler(
        lambda: GoodputShares(
            OF_A_NODE,
            CAPACITY,
            SiaRules(penalties={model: each.penalty for model, each in COSTS.items()}),
        ),
        60,
        tunes=True,
    ),
}


class PaperMean(NamedTuple):
    """Mean completion in hours: of the paper (table 3) with its deviation, or of the artifact."""

    mean: float
    within: float


# Cases: the workloads of a trace (`saturn` is Helios in the paper), and what the paper has.
PAPER: Final[Mapping[str, Mapping[str, PaperMean]]] = {
    "gavel": {"saturn": PaperMean(2.5, 0.9), "philly": PaperMean(1.9, 0.3)},
    "sia": {"saturn": PaperMean(0.7, 0.1)},
}
# What the artifact prints of Gavel with these workloads, in its README.
README: Final[Mapping[str, float]] = {
    "mean completion": 2.548240277777778,
    "deviation of workloads": 0.9456597205311155,
    "99th percentile": 46.333888888888886,
    "mean makespan": 43.25152777777778,
    "restarts of a training": 7.408,
}


def read(path: Path, traces: Path, *, tunes: bool) -> list[Training]:
    """Return the trainings of a workload."""
    return [
        Training(
            name=row["name"],
            arrives=round(float(row["time"]) * SECOND),
            profiles={
                gpu: trainings.profile(traces, model, gpu, LARGEST_LOCAL.get((model, gpu)))
                for gpu in OF_A_NODE
            },
            of_a_node=OF_A_NODE,
            gpus=int(row["num_replicas"]),
            batch=int(row["batch_size"]),
            tunes=tunes,
            restart=COSTS[model].restart * SECOND,
            slower=COSTS[model].slower,
            by_placement=True,
            tolerance=TOLERANCE,
        )
        for row in trainings.lines_of(path)
        for model in [row["application"]]
    ]


def numbers(runs: Sequence[Sequence[TrainingRun]]) -> dict[str, float]:
    """Return what the artifact prints of the runs of some workloads, in hours."""
    times = [[trainings.completion(each) / HOUR for each in records] for records in runs]
    every = sorted(time for mine in times for time in mine)
    spans = [
        max((each.ended or 0) for each in records) - min(each.job.arrives for each in records)
        for records in runs
    ]
    restarts = sum(each.restarts for records in runs for each in records)
    return {
        "mean completion": float(np.mean(every)),
        "deviation of workloads": float(np.std([np.mean(mine) for mine in times])),
        "99th percentile": every[int(0.99 * len(every))],
        "mean makespan": float(np.mean(spans)) / SECOND / HOUR,
        "restarts of a training": restarts / len(every),
    }


def _case(name: str, trace: str, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    del seed
    traces, workloads = paths
    scheduler = SCHEDULERS[name]
    found = numbers(
        [
            trainings.run_rounds(
                read(path, traces, tunes=scheduler.tunes),
                CAPACITY,
                scheduler.policy(),
                scheduler.seconds,
            )
            for path in sorted(workloads.glob("workload-*.csv"))
        ]
    )
    paper = PAPER[name][trace]
    yield ComparedNumber(
        what="mean completion (paper)",
        published=paper.mean,
        ours=found["mean completion"],
        unit="h",
        # The paper has one digit, and the deviation of workloads.
        within=paper.within + 0.05,
    )
    exact = README if (name, trace) == ("gavel", "saturn") else {}
    for what, ours in found.items():
        yield ComparedNumber(
            what=what,
            published=exact.get(what),
            ours=ours,
            unit="" if what == "restarts of a training" else "h",
            within=0.0005 if what == "restarts of a training" else 1e-9,
        )


TEXT: Final = """
The cluster has 64 GPUs: six nodes with four (`aws`), two nodes with eight A100 (`dgx-ext`) and
three nodes with eight (`rtx`). Trainings of five models come over eight hours; the time of their
steps and the progress of their epochs were measured by the authors for each type (`traces/`), as
for [Pollux](pollux.md). One that changes its GPUs loads a checkpoint for 25 to 250 s, by model.
They run 1.2 to 1.8 times slower than measured, as the authors calibrated them.

- `gavel` gives each training the GPUs and the batch that its user chose, in rounds of 360 s. A
  linear program finds the shares of time with the most throughput of all
  (`max_sum_throughput_perf`).
- `sia` chooses type, number of GPUs and batch every 60 s: an integer program maximises normalised
  goodput (power -0.5, 1.1 for a training without GPUs), which each training has learned of its own
  steps.

**Gavel** is deterministic. On the ten workloads from Helios (`saturn`), each of the 1,600 trainings
ends in the same second as in a run of the authors' simulator, after as many restarts: the mean is
the 2.548 h of their README to the last digit. The linear program is solved as there (ECOS), by a
method that goes through the interior, so trainings that are alike have equal shares.

**Sia** depends on its solver: powers are rounded to two digits, so that many choices are equally
good, and CBC there and CP-SAT here take different ones. The mean is compared with table 3 of the
paper, within the deviation of workloads that it states and half of its last digit. The integer
program is solved to its optimum; there, to 0.01 %.

Their program, run here with CBC on the first workload of Helios, gave a mean completion of
2,091.0 s; ours gives 2,131.1 s. To find out whether only the choice among equals differs, both were
given the same solver and the same order of equally good choices, by the names of the trainings. In
the 47 rounds compared they then chose the same configuration for every training; the costs
differed by a hundredth in some, where a fitted model rounds to another digit.

Artifact and paper: the README prints 43.3 h as mean makespan and 46.3 h as 99th percentile of Gavel
on Helios, the paper 43.0 and 38.7 h. Table 3 names its first two traces Philly and Helios; the
2.548 h belong to Helios.

Not reproduced: Pollux on these GPUs (a genetic algorithm), Shockwave and Themis (the first needs a
licence for its solver), `newtrace`, pipelined models (`gpt_pmp`), and rigid trainings.

`--data` is the directory `sia-simulator`. The extras `training` and `optimal` are needed.
"""

REPRODUCTION: Final = Reproduction(
    name="sia",
    title="Sia and Gavel on GPUs of three types",
    paper="Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling, "
    "SOSP 2023",
    address=REPOSITORY,
    cases=tuple(
        Case(
            name=f"{name}/{trace}",
            run=partial(_case, name, trace),
            data=("traces/", f"workloads/{trace}/"),
        )
        for name, traces in PAPER.items()
        for trace in traces
    ),
    data=tuple(
        DataFile(
            name=name,
            address=f"{REPOSITORY}/tree/main/sia-simulator",
            licence="none stated",
        )
        for name in ("traces/", *(f"workloads/{trace}/" for trace in PAPER["gavel"]))
    ),
    time_there="33 s of one core (gavel) for a workload of 160 trainings",
    time_here=310,
    text=TEXT,
)
