"""k8s-cluster-simulator: its own program's decisions beside the `ticks` scheduler."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.simulation import dispatch
from dralab.simulation.reproductions.registry import Case, ComparedNumber, Reproduction
from dralab.simulation.scenario import scenario as scenarios

PODS: Final = 300
TICK: Final = 10
# Ticks between two pods.
GAPS: Final = (2, 3, 5, 8, 13, 21, 34, 1)
SMALL: Final = {"name": "node-0", "cpu": 4, "memory": "8Gi", "gpus": 1, "pods": 2}
LARGE: Final = {"name": "node-1", "cpu": 8, "memory": "16Gi", "gpus": 2, "pods": 4}
METRICS: Final = ("mean wait", "longest wait", "last start")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgramRuns:
    """What its program gave on some nodes: mean and standard deviation of METRICS."""

    name: str
    nodes: tuple[Mapping[str, Any], ...]
    numbers: tuple[tuple[float, float], ...]


# Of 2 and of 20 runs of the program.
RUNS: Final = (
    _ProgramRuns(
        name="one-node", nodes=(LARGE,), numbers=((12726.033333, 0), (25680, 0), (48960, 0))
    ),
    _ProgramRuns(
        name="two-nodes",
        nodes=(SMALL, LARGE),
        numbers=((4654.7183, 119.5752), (9799, 167), (33079, 167)),
    ),
)
NOT_PUBLISHED: Final = "computed with its program, not published"


def _pods() -> Iterator[dict[str, Any]]:
    at = 0
    for number in range(PODS):
        at += TICK * GAPS[number * number % 7 if number % 3 else number // 3 % 8]
        minutes = 1 + number * 7 % 11 + (10 if number % 9 == 0 else 0)
        yield {
            "name": f"pod-{number:03}",
            "at": f"{at}s",
            "duration": f"{60 * minutes + 10 * (number % 5)}s",
            "cpu": 1 + number * 5 % 4,
            "memory": f"{1 + number * 3 % 7 % 4}Gi",
            "gpus": int(number % 3 == 0),
        }


def _case(found: _ProgramRuns, _paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    content = {
        "fleet": {"nodes": list(found.nodes)},
        "workload": {"pods": list(_pods())},
        "scheduler": "ticks",
        "tick": TICK,
        "seed": seed,
    }
    tasks = dispatch.begin(scenarios.load(Path("ticks"), content=content)).go().tasks
    starts = [(task.bound or 0) / SECOND for task in tasks]
    waits = [start - task.submitted / SECOND for start, task in zip(starts, tasks, strict=True)]
    ours = fmean(waits), max(waits), max(starts)
    for what, (mean, sd), value in zip(METRICS, found.numbers, ours, strict=True):
        yield ComparedNumber(
            what=what,
            published=mean,
            ours=value,
            unit="s",
            within=max(1e-6, round(2 * sd, 3)),
            why=NOT_PUBLISHED,
        )


TEXT: Final = """
k8s-cluster-simulator publishes no results: its example draws pods with the time of day as the seed.
So its own program was built from its repository and given the pods below in place of the example's;
the other numbers are ours.

- 300 pods of 1 to 4 CPUs, 1 to 4 GiB and in every third 1 GPU, each for 1 to 22 minutes, arrive one
  after the other, 10 s to 340 s apart. A pod asks for as much as it uses.
- The nodes are those of its example (4 CPUs, 8 GiB, 1 GPU, 2 pods; 8 CPUs, 16 GiB, 2 GPUs, 4 pods),
  or the larger one alone. The tick is 10 s.
- Its scheduler has the predicate and the two priorities of the example, without its extender, and
  its queue `FIFOQueue`: the first pod that fits nowhere ends the decisions of a tick.

On one node all pods start at the same tick there and here. On two, the program itself varies: its
nodes are in a Go map, whose order is random, and among nodes with equal scores it takes turns. A
number agrees within two standard deviations of 20 runs. Scores are whole points from 0 to 10, as in
Kubernetes 1.14. dralab had fractions of points before: with another list of pods they made the mean
wait 2 % longer than the program's.

Its `PriorityQueue` is not compared: a refused pod changes its place in the heap without the heap
being told, so that the order of pods of equal priority depends on the history of the heap. dralab
keeps them in the order of their arrival.
"""

REPRODUCTION: Final = Reproduction(
    name="k8s-cluster-simulator",
    title="k8s-cluster-simulator, tick by tick",
    paper="pfnet-research/k8s-cluster-simulator (no paper, no published results)",
    address="https://github.com/pfnet-research/k8s-cluster-simulator",
    cases=tuple(Case(name=each.name, run=partial(_case, each)) for each in RUNS),
    time_there="1 s",
    time_here=1,
    text=TEXT,
)
