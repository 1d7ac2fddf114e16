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
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.csv_rows import CsvRow, each_row
from dralab.simulation.workloads.openb import MOST_GPUS, WHOLE_GPU, PodRequest

JOB: Final = ("job_id", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration")
GPUS_OF_A_NODE: Final = 8
MOST_NODES: Final = 100_000


def pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the pods of jobs that ran; the first job arrives at 0."""
    found = list(each_row(path, JOB, problems, _pods))
    first = min((when for when, _, _ in found), default=0)
    for when, names, given in found:
        for name in names:
            yield Pod(name=name, arrives=(when - first) * SECOND, **given)


def _pods(row: CsvRow) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    gpus, cpus = row.whole("gpu_num"), row.whole("cpu_num")
    submitted, duration = _time(row, "submit_time"), row.whole("duration")
    count = max(1, math.ceil(gpus / GPUS_OF_A_NODE))
    if row.text("node_num"):
        count = max(1, row.whole("node_num", most=MOST_NODES))
    of_a_node = math.ceil(gpus / count)
    if of_a_node > MOST_GPUS:
        raise row.error("gpu_num", f"is {of_a_node} GPUs a node; at most {MOST_GPUS}")
    if not duration:
        return
    name = row.name("job_id")
    yield (
        submitted,
        [name] if count == 1 else [f"{name}-{rank}" for rank in range(count)],
        {
            "request": PodRequest(
                1000 * math.ceil(cpus / count), WHOLE_GPU if of_a_node else 0, of_a_node, ""
            ),
            "duration": duration * SECOND,
            "queue": row.text("vc"),
            "user": row.text("user"),
            "gang": name if count > 1 else "",
        },
    )


def _time(row: CsvRow, column: str) -> int:
    """Return a time in seconds."""
    try:
        found = datetime.strptime(f"{row.text(column)} +0000", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        text = f"{row.text(column)!r} is not a time such as 2020-06-09 18:41:01"
        raise row.error(column, text) from None
    return int(found.timestamp())
