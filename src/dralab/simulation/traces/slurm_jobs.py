"""Jobs of Slurm as pods: a job on several nodes is a gang with an equal part on each."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.csv_rows import CsvRow, each_row
from dralab.simulation.workloads.openb import MOST_GPUS, WHOLE_GPU, PodRequest

MOST_NODES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One job, with what it has on all its nodes together; times in seconds, memory in MiB."""

    name: str
    submitted: int
    duration: int
    nodes: int
    cpus: int
    gpus: int
    models: str = ""
    memory: int = 0
    user: str = ""
    queue: str = ""

    def pods(self, begin: int) -> Iterator[Pod]:
        """Yield its pods; the time of the first job is `begin`."""
        is_gang, gpus = self.nodes > 1, self.of_a_node(self.gpus)
        milli = WHOLE_GPU if gpus else 0
        for rank in range(self.nodes):
            yield Pod(
                name=f"{self.name}-{rank}" if is_gang else self.name,
                arrives=(self.submitted - begin) * SECOND,
                request=PodRequest(1000 * self.of_a_node(self.cpus), milli, gpus, self.models),
                memory=self.of_a_node(self.memory) << 20,
                duration=self.duration * SECOND,
                user=self.user,
                queue=self.queue,
                gang=self.name if is_gang else "",
            )

    def of_a_node(self, amount: int) -> int:
        """Return one node's part of an amount, rounded up."""
        return math.ceil(amount / self.nodes)


def pods_of(
    path: Path,
    columns: Sequence[str],
    problems: InputProblems,
    read: Callable[[CsvRow], SlurmJob | None],
    gpus_in: str,
) -> Iterator[Pod]:
    """Yield the pods of the jobs that ran; the first job arrives at 0.

    `read` returns None for a job that did not run; the column `gpus_in` has the GPUs.
    """

    def job(row: CsvRow) -> Iterator[SlurmJob]:
        found = read(row)
        if found is None:
            return
        if (gpus := found.of_a_node(found.gpus)) > MOST_GPUS:
            raise row.error(gpus_in, f"{gpus} GPUs a node are more than {MOST_GPUS}")
        yield found

    jobs = list(each_row(path, columns, problems, job))
    begin = min((each.submitted for each in jobs), default=0)
    for each in jobs:
        yield from each.pods(begin)
