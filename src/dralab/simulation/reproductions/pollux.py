"""Tiresias and Optimus as Pollux was compared with them, job by job."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import content_of
from dralab.simulation.engines.fast.attained_service import AttainedService
from dralab.simulation.engines.fast.free_nodes import FreeNodes
from dralab.simulation.engines.fast.marginal_gains import MarginalGains
from dralab.simulation.engines.fast.rounds import RoundPolicy
from dralab.simulation.engines.fast.training import Training
from dralab.simulation.reproductions import trainings
from dralab.simulation.reproductions.registry import Case, ComparedNumber, DataFile, Reproduction

REPOSITORY: Final = "https://github.com/petuum/adaptdl"
NODES, GPUS = 16, 4
# Loads relative to that of the paper → directories of workloads.
LOADS: Final[Mapping[str, str]] = {
    "0.5": "workloads-0.5/",
    "1.0": "workloads/",
    "1.5": "workloads-1.5/",
    "2.0": "workloads-2.0/",
}
# A GPU holds less of this model than was measured.
LARGEST_LOCAL: Final[Mapping[str, int]] = {"yolov3": 8}
# This model does not get faster with a second GPU.
ALONE: Final = "ncf"
POLICIES: Final[Mapping[str, Callable[[], RoundPolicy[Training]]]] = {
    "tiresias": lambda: AttainedService((16 * 3600,), steady=True, nodes=FreeNodes(NODES, GPUS)),
    "optimus": lambda: MarginalGains(FreeNodes(NODES, GPUS)),
}


def read(path: Path, traces: Path) -> list[Training]:
    """Return the trainings of a workload."""
    return [
        Training(
            name=row["name"],
            arrives=int(row["time"]) * SECOND,
            profiles={"": trainings.profile(traces, model, "", LARGEST_LOCAL.get(model))},
            of_a_node={"": GPUS},
            gpus=int(row["num_replicas"]),
            batch=int(row["batch_size"]),
            most=1 if model == ALONE else NODES * GPUS,
        )
        for row in trainings.lines_of(path)
        for model in [row["application"]]
    ]


def _case(policy: str, load: str, paths: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
    del seed
    traces, workloads, results = paths
    recorded: dict[str, Any] = orjson.loads(
        content_of(results / f"{policy}-{load}" / "summary.json")
    )
    other, means = 0, []
    for name, times in sorted(recorded["jcts"].items()):
        runs = trainings.run_rounds(
            read(workloads / f"{name}.csv", traces), {"": NODES * GPUS}, POLICIES[policy](), 60
        )
        ours = {run.job.name: trainings.completion(run) for run in runs}
        other += sum(ours[job] != time for job, time in times.items())
        means.append(sum(ours.values()) / len(ours))
    yield ComparedNumber(
        what="mean completion",
        published=recorded["mean"],
        ours=sum(means) / len(means),
        unit="s",
        within=1e-6,
    )
    yield ComparedNumber(what="trainings that took another time", published=0, ours=float(other))


TEXT: Final = """
A cluster has 16 nodes with four GPUs. Every 60 s a scheduler decides which training has which GPUs;
one whose GPUs change loads its checkpoint for 30 s. How long a step takes, and how much progress it
makes, was measured by the authors for six models (`traces/`): on up to four nodes by placement, and
on up to 16 nodes by number of nodes and GPUs, between which both simulators interpolate.

Each case has eight workloads of 80 to 320 trainings (`workloads*/`), at half to twice the load of
the paper. *Published* are the recorded results of the authors (`results-jobload/`, the data of
figure 8a), which have the completion time of each training.

- `tiresias` has two queues by GPU time, with a limit of 16 GPU hours, and places trainings where
  most GPUs are free.
- `optimus` gives the next GPU to the training that it saves most time, and knows how many steps
  each needs (Optimus+Oracle in the paper).

Both are deterministic, and all 12,800 trainings end in the same second as in the recorded results.

The policy of Pollux itself, a genetic algorithm, is not reproduced; the goodput that it goes by is
(`dralab.simulation.engines.fast.goodput`), and serves [Sia](sia.md). The recorded means of
Pollux are 1,533.98, 2,751.13, 3,685.41 and 5,289.20 s at the four loads.

`--data` is the directory `simulator` of the branch `osdi21-artifact`. The extra `training` is
needed.
"""

REPRODUCTION: Final = Reproduction(
    name="pollux",
    title="Tiresias and Optimus on the workloads of Pollux",
    paper="Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep "
    "Learning, OSDI 2021",
    address=f"{REPOSITORY}/tree/osdi21-artifact",
    cases=tuple(
        Case(
            name=f"{policy}/{load}",
            run=partial(_case, policy, load),
            data=("traces/", folder, "results-jobload/"),
        )
        for policy in POLICIES
        for load, folder in LOADS.items()
    ),
    data=tuple(
        DataFile(
            name=name,
            address=f"{REPOSITORY}/tree/osdi21-artifact/simulator",
            licence="Apache-2.0, as its programs",
        )
        for name in ("traces/", *LOADS.values(), "results-jobload/")
    ),
    time_there="13 s (tiresias) to 57 s (optimus) of one core for a workload of 160 trainings",
    time_here=25,
    text=TEXT,
)
