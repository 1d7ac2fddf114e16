"""Alibaba's openb traces: nodes with GPUs of one model each, and pods that ask for parts of them.

Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli`,
then in some traces `gpu_spec` (allowed models joined by `|`), `qos`, `pod_phase` and three times
in seconds. `gpu_milli` is per GPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from dralab.scenarios.errors import InputProblems
from dralab.simulation.workloads.csv_rows import CsvRow, each_row

WHOLE_GPU: Final = 1000
NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MOST_GPUS: Final = 64

Item = TypeVar("Item", "GpuNode", "GpuPod")


@dataclass(frozen=True, slots=True)
class GpuNode:
    """One node; `model` is empty if it has no GPU.

    `labels` and `taints` are texts, `key=value` and `key=value:Effect`; `drivers` serve the node
    beside its GPUs: names of the catalogue, or `file.py:Class`.
    """

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str
    pods: int = 1001
    labels: frozenset[str] = frozenset()
    taints: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()


class PodRequest(NamedTuple):
    """What a pod asks of CPU and GPUs; `models` are the allowed ones, joined by `|`.

    `labels` are those its node must have, `key=value` joined by `,`.
    """

    cpu: int
    milli: int
    gpus: int
    models: str
    labels: str = ""

    @property
    def demand(self) -> int:
        """The total of GPU milli."""
        return self.gpus * self.milli

    @property
    def shares(self) -> bool:
        """Whether it asks for a part of one GPU."""
        return self.gpus == 1 and self.milli < WHOLE_GPU


@dataclass(frozen=True, slots=True)
class GpuPod:
    """One pod; times are seconds since the trace began, None if it has none."""

    name: str
    request: PodRequest
    memory: int
    created: int | None = None
    deleted: int | None = None


def read_nodes(path: Path, *, problems: InputProblems | None = None) -> tuple[GpuNode, ...]:
    """Return the nodes of a file. InputError, with line and column."""
    return tuple(_read(path, NODE_COLUMNS, _node, problems))


def read_pods(path: Path, *, problems: InputProblems | None = None) -> tuple[GpuPod, ...]:
    """Return the pods of a file. InputError, with line and column."""
    return tuple(_read(path, POD_COLUMNS, _pod, problems))


def _read(
    path: Path,
    columns: tuple[str, ...],
    make: Callable[[CsvRow], Item],
    problems: InputProblems | None,
) -> Iterator[Item]:
    problems = InputProblems() if problems is None else problems
    seen: dict[str, int] = {}

    def new(row: CsvRow) -> Iterator[Item]:
        item = make(row)
        if item.name in seen:
            raise row.error("name", f"{item.name!r} is already in line {seen[item.name]}")
        seen[item.name] = row.line
        yield item

    return each_row(path, columns, problems, new)


def _node(row: CsvRow) -> GpuNode:
    gpus = row.whole("gpu", most=MOST_GPUS)
    model = row.text("model")
    if gpus and not model:
        raise row.error("model", f"must be given: the node has {gpus} GPUs")
    return GpuNode(row.name("sn"), row.whole("cpu_milli"), row.whole("memory_mib"), gpus, model)


def _pod(row: CsvRow) -> GpuPod:
    gpus, milli = row.whole("num_gpu", most=MOST_GPUS), row.whole("gpu_milli")
    models = row.text("gpu_spec").strip("|")
    if not gpus:
        milli, models = 0, ""
    elif not milli:
        raise row.error("gpu_milli", f"must be above 0: the pod asks for {gpus} GPUs")
    request = PodRequest(row.whole("cpu_milli"), min(milli, WHOLE_GPU), gpus, models)
    created, deleted = row.maybe("creation_time"), row.maybe("deletion_time")
    if created is not None and deleted is not None and deleted < created:
        raise row.error("deletion_time", "must not be before creation_time")
    return GpuPod(row.name("name"), request, row.whole("memory_mib"), created, deleted)
