"""MIT Supercloud's scheduler log, `slurm-log.csv`: a row a job of Slurm.

https://dcc.mit.edu, described in https://arxiv.org/abs/2108.02037. `tres_alloc` holds what a job
had: 1 CPUs, 2 memory in MB, 1001 and 1002 GPUs (Tesla and Volta), as `1=20,2=170000,1002=2`. Times
are seconds. A job on several nodes is a gang with an equal part on each.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.csv_rows import CsvRow, each_row
from dralab.simulation.workloads.openb import MOST_GPUS, WHOLE_GPU, PodRequest

JOB: Final = ("id_job", "time_submit", "time_start", "time_end", "nodes_alloc", "tres_alloc")
CPU: Final = "1"
MEMORY: Final = "2"
GPUS: Final = {"1001": "tesla", "1002": "volta"}
RESOURCES: Final = re.compile(r"(?:\d+=\d+(?:,|$))*")
MOST_NODES: Final = 100_000


def pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the pods of jobs that ran; the first job arrives at 0."""
    found = list(each_row(path, JOB, problems, _pods))
    first = min((when for when, _, _ in found), default=0)
    for when, names, given in found:
        for name in names:
            yield Pod(name=name, arrives=(when - first) * SECOND, **given)


def _pods(row: CsvRow) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    submitted, started, ended = (
        row.whole(f"time_{name}") if row.text(f"time_{name}") else 0
        for name in ("submit", "start", "end")
    )
    count = row.whole("nodes_alloc", most=MOST_NODES) if row.text("nodes_alloc") else 0
    if not (started and ended and count):
        return
    if ended < started:
        raise row.error("time_end", "must not be before time_start")
    text = row.text("tres_alloc").strip("\"'")
    if not RESOURCES.fullmatch(text):
        raise row.error("tres_alloc", f"{text!r} is not a list such as 1=20,2=170000,1002=2")
    had = {
        key: int(amount) for key, amount in (each.split("=") for each in text.split(",") if each)
    }
    gpus = math.ceil(sum(had.get(key, 0) for key in GPUS) / count)
    if gpus > MOST_GPUS:
        raise row.error("tres_alloc", f"has {gpus} GPUs a node; at most {MOST_GPUS}")
    models = "|".join(model for key, model in GPUS.items() if had.get(key))
    cpu, memory = (math.ceil(had.get(key, 0) / count) for key in (CPU, MEMORY))
    name = row.name("id_job")
    yield (
        submitted,
        [name] if count == 1 else [f"{name}-{rank}" for rank in range(count)],
        {
            "request": PodRequest(1000 * cpu, WHOLE_GPU if gpus else 0, gpus, models),
            "memory": memory << 20,
            "duration": max(1, ended - started) * SECOND,
            "user": row.text("id_user"),
            "gang": name if count > 1 else "",
        },
    )
