"""From the records of pods on nodes with GPUs to a result."""

from collections.abc import Iterable, Mapping

from dralab.simulation.engines.gpu.cluster import model_names
from dralab.simulation.engines.gpu.engine import GpuTask, PodSimulation
from dralab.simulation.results.result import Result, Task
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode


def of_pods(simulation: PodSimulation, *, name: str, complete: bool = True) -> Result:
    """Return the result of pods; lanes are nodes, and after a node its GPUs."""
    lanes: list[str] = []
    place: dict[str, int] = {}
    for node in simulation.nodes:
        place[node.name] = len(lanes)
        lanes.append(node.name)
        lanes += [f"{node.name}/gpu{index}" for index in range(node.gpus)]
    capacity, types = capacity_of(simulation.nodes)
    return Result(
        name=name,
        scheduler=simulation.policy,
        seed=simulation.how.seed,
        tasks=[_task(task, place) for task in simulation.tasks.values()],
        samples=simulation.samples,
        lanes=lanes,
        capacity=capacity,
        end=simulation.events.now(),
        refusals=simulation.refusals,
        complete=complete,
        types=types,
        outages=[
            (place[name], since, until)
            for name, since, until in simulation.lives.faults.outages.until(simulation.events.now())
        ],
    )


def capacity_of(nodes: Iterable[GpuNode]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what nodes have in all, and how much of each type of GPU."""
    nodes = tuple(nodes)
    capacity = {
        "cpu": sum(node.cpu for node in nodes), "memory": sum(node.memory for node in nodes),
    }  # fmt: skip
    types = {model: 0 for model in model_names(nodes) if model}
    for node in nodes:
        if node.gpus:
            types[node.model] += WHOLE_GPU * node.gpus
    if types:
        capacity["gpu"] = sum(types.values())
    return capacity, types


def _task(task: GpuTask, place: Mapping[str, int]) -> Task:
    lanes: list[int] = []
    if task.node:
        base = place[task.node]
        lanes = sorted({base + 1 + gpu for gpu in task.gpus}) or [base]
    return task.task(lanes)
