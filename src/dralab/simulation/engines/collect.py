"""From an engine's own records to the one form that metrics, outputs and reports understand."""

from collections import Counter
from collections.abc import Iterable, Mapping

from dralab.simulation.engines.batch.engine import Simulation
from dralab.simulation.engines.batch.hosts import PowerRow
from dralab.simulation.engines.batch.runs import warnings
from dralab.simulation.engines.gpu.cluster import model_names
from dralab.simulation.engines.gpu.engine import GpuTask, PodSimulation
from dralab.simulation.host_sets import members
from dralab.simulation.results.result import Result, Sample, Task
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode


def of_jobs(
    simulation: Simulation, *, name: str, scheduler: str, seed: int = 0, complete: bool = True
) -> Result:
    """Return the result of rigid jobs; their lanes are machines."""
    platform = simulation.platform
    tasks = [
        Task(
            id=record.job.id,
            user=record.job.user,
            state=record.state or ("RUNNING" if record.runs else "SUBMITTED"),
            submitted=record.job.submitted,
            bound=record.started,
            started=record.started,
            ended=record.ended,
            width=record.job.width,
            lanes=tuple(members(record.machines)),
            reason=record.reason,
        )
        for record in simulation.records.values()
    ]
    return Result(
        name=name,
        scheduler=scheduler,
        seed=seed,
        tasks=tasks,
        samples=samples_of(tasks, simulation.hosts.power_rows),
        lanes=[host.name for host in platform.compute],
        capacity={"machines": platform.width},
        end=simulation.events.now(),
        joules=simulation.hosts.joules if simulation.hosts.energy else None,
        notes=list(warnings(simulation)),
        complete=complete,
        outages=[
            (int(name), since, until)
            for name, since, until in simulation.hosts.outages.until(simulation.events.now())
        ],
    )


def samples_of(tasks: Iterable[Task], power: Iterable[PowerRow] = ()) -> list[Sample]:
    """Return the numbers of waiting and running tasks, and machines in use, over time."""
    changes: dict[int, Counter[str]] = {}

    def at(when: int, **more: int) -> None:
        changes.setdefault(when, Counter()).update(more)

    for task in tasks:
        if task.state == "REJECTED":
            at(task.submitted, refused=1)
            continue
        at(task.submitted, waiting=1, asked=task.width)
        if task.started is not None:
            at(task.started, waiting=-1, asked=-task.width, running=1, cpu=task.width)
        if task.ended is not None:
            at(task.ended, running=-1, cpu=-task.width, ended=1)
    used = {row.when: row.joules for row in power}
    now: Counter[str] = Counter()
    joules = 0.0
    samples = []
    for when in sorted({*changes, *used}):
        now.update(changes.get(when, {}))
        joules = used.get(when, joules)
        samples.append(
            Sample(
                when, now["waiting"], now["running"], now["cpu"], 0, 0.0, asked=now["asked"],
                ended=now["ended"], refused=now["refused"], joules=joules,
            )
        )  # fmt: skip
    return samples


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
    pod = task.pod
    lanes: tuple[int, ...] = ()
    if task.node:
        base = place[task.node]
        lanes = tuple(sorted({base + 1 + gpu for gpu in task.gpus})) or (base,)
    return Task(
        id=pod.name if pod.namespace == "default" else pod.key,
        user=pod.user,
        state=task.state,
        submitted=pod.arrives,
        bound=task.bound,
        started=task.started,
        ended=task.ended,
        width=max(1, -(-pod.shape.cpu // 1000)),
        lanes=lanes,
        gpu_milli=pod.shape.demand,
        reason=task.reason,
        evictions=task.evictions,
    )
