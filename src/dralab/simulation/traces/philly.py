"""Microsoft's Philly trace: `cluster_job_log` (JSON) and `cluster_machine_list` (CSV).

https://github.com/msr-fiddle/philly-traces. A job is its last attempt that has both times: a pod on
each of its servers, with as many GPUs as it had there, all together a gang. Jobs without such an
attempt never ran.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.json_input import JsonFile
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.csv_rows import CsvRow, each_row
from dralab.simulation.workloads.openb import MOST_GPUS, WHOLE_GPU, GpuNode, PodRequest

JOB: Final = ("status", "vc", "jobid", "attempts", "submitted_time")
MACHINE: Final = ("machineId", "number of GPUs", "single GPU mem")
# The trace has no CPU and memory of jobs: a GPU comes with its part of a server of this size.
CPU_A_GPU: Final = 4000
MEMORY_A_GPU: Final = 32 << 30


def pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the pods of jobs that ran, in the order of the file."""
    file = JsonFile(path)
    if not isinstance(file.value, list):
        raise InputError(path, "must be a list of jobs")
    found: list[tuple[float, list[Pod]]] = []
    for index, job in enumerate(file.value):
        try:
            made = _job(file, index, job)
        except InputError as error:
            problems.about(error)
            continue
        if made is not None:
            found.append(made)
    first = min((when for when, _ in found), default=0.0)
    for when, members in found:
        for pod in members:
            object.__setattr__(pod, "arrives", round((when - first) * SECOND))
            yield pod


def _job(file: JsonFile, index: int, job: Any) -> tuple[float, list[Pod]] | None:
    if not isinstance(job, Mapping) or not isinstance(job.get("attempts"), list):
        raise file.error([index], "must be a job with `attempts`")
    submitted = _time(file, [index, "submitted_time"], job.get("submitted_time"))
    if submitted is None:
        raise file.error([index, "submitted_time"], "must be given")
    for number in reversed(range(len(job["attempts"]))):
        where: list[str | int] = [index, "attempts", number]
        attempt = job["attempts"][number]
        if not isinstance(attempt, Mapping) or not isinstance(attempt.get("detail"), list):
            raise file.error(where, "must have `detail`, a list of servers")
        start = _time(file, [*where, "start_time"], attempt.get("start_time"))
        end = _time(file, [*where, "end_time"], attempt.get("end_time"))
        if start is None or end is None or not attempt["detail"]:
            continue
        if end < start:
            raise file.error([*where, "end_time"], "must not be before start_time")
        name = str(job.get("jobid"))
        sizes = [_gpus(file, [*where, "detail", n], s) for n, s in enumerate(attempt["detail"])]
        members = [
            Pod(
                name=name if len(sizes) == 1 else f"{name}-{rank}",
                request=PodRequest(CPU_A_GPU * max(1, gpus), WHOLE_GPU if gpus else 0, gpus, ""),
                memory=MEMORY_A_GPU * max(1, gpus),
                duration=max(1, round((end - start) * SECOND)),
                queue=str(job.get("vc", "")),
                user=str(job.get("user", "")),
                gang=name if len(sizes) > 1 else "",
            )
            for rank, gpus in enumerate(sizes)
        ]
        return submitted, members
    return None


def _gpus(file: JsonFile, where: list[str | int], server: Any) -> int:
    gpus = server.get("gpus") if isinstance(server, Mapping) else None
    if not isinstance(gpus, list) or len(gpus) > MOST_GPUS:
        raise file.error(where, f"must have `gpus`, a list of at most {MOST_GPUS}")
    return len(gpus)


def _time(file: JsonFile, where: list[str | int], value: Any) -> float | None:
    """Return the seconds of a time; None: the trace lacks it."""
    if value in {None, "None", ""}:
        return None
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        raise file.error(where, f"{value!r} is not a time: 2017-10-07 01:11:39") from None


def nodes(path: Path, problems: InputProblems) -> Iterator[GpuNode]:
    """Yield the servers."""
    return each_row(path, MACHINE, problems, _node)


def _node(row: CsvRow) -> Iterator[GpuNode]:
    gpus = row.whole("number of GPUs", most=MOST_GPUS)
    cpu, memory = CPU_A_GPU * max(1, gpus), MEMORY_A_GPU * max(1, gpus)
    yield GpuNode(row.name("machineId"), cpu, memory, gpus, row.text("single GPU mem"))
