"""SenseTime's Helios trace, `cluster_log.csv` of each cluster: a row a job of Slurm.

https://github.com/S-Lab-System-Group/HeliosData, described in https://doi.org/10.1145/3458817.3476223
(SC 2021). Lucid's `cluster_full_log.csv` (ASPLOS 2023) has these columns, too, but for `node_num`:
there a job takes whole nodes of 8 GPUs, once it needs more than one. A job on several nodes is a
gang with an equal part on each. Jobs that took no time never ran.
"""

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from dralab.scenarios.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.traces.slurm_jobs import MOST_NODES, SlurmJob, pods_of
from dralab.simulation.workloads.csv_rows import CsvRow

JOB: Final = ("job_id", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration")
GPUS_OF_A_NODE: Final = 8


def pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the pods of jobs that ran; the first job arrives at 0."""
    return pods_of(path, JOB, problems, _job, "gpu_num")


def _job(row: CsvRow) -> SlurmJob | None:
    gpus, duration = row.whole("gpu_num"), row.whole("duration")
    nodes = max(1, math.ceil(gpus / GPUS_OF_A_NODE))
    if row.text("node_num"):
        nodes = max(1, row.whole("node_num", most=MOST_NODES))
    job = SlurmJob(
        name=row.name("job_id"),
        submitted=_time(row, "submit_time"),
        duration=duration,
        nodes=nodes,
        cpus=row.whole("cpu_num"),
        gpus=gpus,
        user=row.text("user"),
        queue=row.text("vc"),
    )
    return job if duration else None


def _time(row: CsvRow, column: str) -> int:
    """Return a time in seconds."""
    try:
        found = datetime.strptime(f"{row.text(column)} +0000", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        text = f"{row.text(column)!r} is not a time such as 2020-06-09 18:41:01"
        raise row.error(column, text) from None
    return int(found.timestamp())
