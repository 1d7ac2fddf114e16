"""MIT Supercloud's scheduler log, `slurm-log.csv`: a row a job of Slurm.

https://dcc.mit.edu, described in https://arxiv.org/abs/2108.02037. `tres_alloc` holds what a job
had: 1 CPUs, 2 memory in MB, 1001 and 1002 GPUs (Tesla and Volta), as `1=20,2=170000,1002=2`. Times
are seconds. A job on several nodes is a gang with an equal part on each.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dralab.scenarios.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.traces.slurm_jobs import MOST_NODES, SlurmJob, pods_of
from dralab.simulation.workloads.csv_rows import CsvRow

JOB: Final = ("id_job", "time_submit", "time_start", "time_end", "nodes_alloc", "tres_alloc")
CPU: Final = "1"
MEMORY: Final = "2"
GPUS: Final = {"1001": "tesla", "1002": "volta"}
RESOURCES: Final = re.compile(r"(?:\d+=\d+(?:,|$))*")


def pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the pods of jobs that ran; the first job arrives at 0."""
    return pods_of(path, JOB, problems, _job, "tres_alloc")


def _job(row: CsvRow) -> SlurmJob | None:
    submitted, started, ended = (
        row.whole(f"time_{name}") if row.text(f"time_{name}") else 0
        for name in ("submit", "start", "end")
    )
    nodes = row.whole("nodes_alloc", most=MOST_NODES) if row.text("nodes_alloc") else 0
    if not (started and ended and nodes):
        return None
    if ended < started:
        raise row.error("time_end", "must not be before time_start")
    text = row.text("tres_alloc").strip("\"'")
    if not RESOURCES.fullmatch(text):
        raise row.error("tres_alloc", f"{text!r} is not a list such as 1=20,2=170000,1002=2")
    had = {
        key: int(amount) for key, amount in (each.split("=") for each in text.split(",") if each)
    }
    return SlurmJob(
        name=row.name("id_job"),
        submitted=submitted,
        duration=max(1, ended - started),
        nodes=nodes,
        cpus=had.get(CPU, 0),
        gpus=sum(had.get(key, 0) for key in GPUS),
        models="|".join(model for key, model in GPUS.items() if had.get(key)),
        memory=had.get(MEMORY, 0),
        user=row.text("id_user"),
    )
