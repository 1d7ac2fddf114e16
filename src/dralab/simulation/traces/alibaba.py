"""Alibaba's traces of GPU clusters beside openb: v2020 (PAI), v2025 (DLRM) and v2026 (spot).

https://github.com/alibaba/clusterdata: `cluster-trace-gpu-v2020`, `cluster-trace-gpu-v2025`,
`cluster-trace-v2026-spot-gpu`. Instances of a task of v2020 are pods of their own; the workers of a
job of v2026 are a gang.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.csv_rows import CsvRow, each_row, has_header
from dralab.simulation.workloads.openb import MOST_GPUS, WHOLE_GPU, GpuNode, PodRequest

TASK: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
    "plan_gpu", "gpu_type",
)  # fmt: skip
SPEC: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
INSTANCE: Final = (
    "instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request",
    "creation_time", "deletion_time",
)  # fmt: skip
SPOT_JOB: Final = (
    "job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num",
    "submit_time", "duration", "job_type",
)  # fmt: skip
SPOT_NODE: Final = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
MOST_WORKERS: Final = 100_000
# The priority of high-priority jobs over spot jobs.
HIGH: Final = 100


def pai_pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the instances of tasks that started and ended; CPU and GPU are in per cent."""
    return each_row(path, TASK, problems, _pai_pods, _header(path, TASK))


def _pai_pods(row: CsvRow) -> Iterator[Pod]:
    if not row.text("start_time") or not row.text("end_time"):
        return
    start, end = row.number("start_time"), row.number("end_time")
    if not 0 < start <= end:
        return  # it never ran, or has lost one of its times
    gpus = row.number("plan_gpu", most=100 * MOST_GPUS) / 100 if row.text("plan_gpu") else 0.0
    memory = row.number("plan_mem") if row.text("plan_mem") else 0.0
    cpu = row.number("plan_cpu") if row.text("plan_cpu") else 0.0
    count = row.whole("inst_num", most=MOST_WORKERS) if row.text("inst_num") else 1
    name = f"{row.name('job_name')}-{row.name('task_name')}"
    for rank in range(count):
        yield Pod(
            name=name if count == 1 else f"{name}-{rank}",
            request=_request(10 * cpu, gpus, row.text("gpu_type")),
            memory=round(memory * (1 << 30)),
            arrives=round(start * SECOND),
            duration=max(1, round((end - start) * SECOND)),
        )


def pai_nodes(path: Path, problems: InputProblems) -> Iterator[GpuNode]:
    """Yield the machines."""
    return each_row(path, SPEC, problems, _pai_node, _header(path, SPEC))


def _pai_node(row: CsvRow) -> Iterator[GpuNode]:
    gpus = row.whole("cap_gpu", most=MOST_GPUS)
    memory = round(row.number("cap_mem") * (1 << 30))
    model = row.text("gpu_type") if gpus else ""
    yield GpuNode(row.name("machine"), 1000 * row.whole("cap_cpu"), memory, gpus, model)


def dlrm_pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the instances of services; those without a time of deletion never end."""
    return each_row(path, INSTANCE, problems, _instance)


def _instance(row: CsvRow) -> Iterator[Pod]:
    begin = row.number("creation_time") if row.text("creation_time") else 0.0
    end = row.number("deletion_time") if row.text("deletion_time") else None
    if end is not None and end < begin:
        raise row.error("deletion_time", "must not be before creation_time")
    yield Pod(
        name=row.name("instance_sn"),
        request=_request(1000 * row.number("cpu_request"), row.number("gpu_request"), ""),
        memory=round(row.number("memory_request") * (1 << 30)),
        arrives=round(begin * SECOND),
        duration=None if end is None else max(1, round((end - begin) * SECOND)),
        user=row.text("app_name"),
    )


def spot_pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the workers of jobs; those of high priority go before spot jobs."""
    return each_row(path, SPOT_JOB, problems, _spot_pods)


def _spot_pods(row: CsvRow) -> Iterator[Pod]:
    name, count = row.name("job_name"), row.whole("worker_num", most=MOST_WORKERS)
    if row.text("job_type") not in {"HP", "Spot"}:
        raise row.error("job_type", f"{row.text('job_type')!r} is not one of HP, Spot")
    gpus, model = row.number("gpu_request", most=MOST_GPUS), row.text("gpu_model")
    same: dict[str, Any] = {
        "request": _request(1000 * row.number("cpu_request"), gpus, model),
        "arrives": round(row.number("submit_time") * SECOND),
        "duration": max(1, round(row.number("duration") * SECOND)),
        "priority": HIGH if row.text("job_type") == "HP" else 0,
        "user": row.text("organization"),
        "gang": name if count > 1 else "",
    }
    for rank in range(count):
        yield Pod(name=name if count == 1 else f"{name}-{rank}", **same)


def spot_nodes(path: Path, problems: InputProblems) -> Iterator[GpuNode]:
    """Yield the nodes; the trace has no memory."""
    return each_row(path, SPOT_NODE, problems, _spot_node)


def _spot_node(row: CsvRow) -> Iterator[GpuNode]:
    gpus, cpu = row.whole("gpu_capacity_num", most=MOST_GPUS), 1000 * row.whole("cpu_num")
    model = row.name("gpu_model") if gpus else ""
    yield GpuNode(f"node-{row.name('node_name')}", cpu, 1 << 40, gpus, model)


def _request(cpu: float, gpus: float, models: str) -> PodRequest:
    """Return a request of CPU in milli; more than one GPU are whole ones."""
    if not gpus:
        return PodRequest(math.ceil(cpu), 0, 0, "")
    whole = math.ceil(gpus)
    milli = max(1, round(WHOLE_GPU * gpus)) if gpus < 1 else WHOLE_GPU
    return PodRequest(math.ceil(cpu), milli, whole, models)


def _header(path: Path, columns: Sequence[str]) -> Sequence[str] | None:
    """Return the columns of a table of v2020, whose header is a file of its own."""
    return None if has_header(path, columns) else columns
