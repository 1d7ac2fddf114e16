"""From an engine's own records to the one form that metrics, outputs and reports understand."""

from collections.abc import Iterable

from dralab.simulation.batch.engine import Simulation
from dralab.simulation.batch.runs import warnings
from dralab.simulation.machines import members
from dralab.simulation.pods.engine import PodRun, PodSimulation
from dralab.simulation.results import Result, Sample, Task


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
        samples=samples_of(tasks),
        lanes=[host.name for host in platform.compute],
        capacity={"machines": platform.width},
        end=simulation.events.now(),
        joules=simulation.hosts.joules if simulation.hosts.energy else None,
        notes=list(warnings(simulation)),
        complete=complete,
    )


def samples_of(tasks: Iterable[Task]) -> list[Sample]:
    """Return the numbers of waiting and running tasks, and machines in use, over time."""
    changes: dict[int, list[int]] = {}
    for task in tasks:
        if task.state == "REJECTED":
            continue
        changes.setdefault(task.submitted, [0, 0, 0])[0] += 1
        if task.started is not None:
            now = changes.setdefault(task.started, [0, 0, 0])
            now[0], now[1], now[2] = now[0] - 1, now[1] + 1, now[2] + task.width
        if task.ended is not None:
            end = changes.setdefault(task.ended, [0, 0, 0])
            end[1], end[2] = end[1] - 1, end[2] - task.width
    waiting = running = used = 0
    samples = []
    for when in sorted(changes):
        more = changes[when]
        waiting, running, used = waiting + more[0], running + more[1], used + more[2]
        samples.append(Sample(when, waiting, running, used, 0, 0.0))
    return samples


def of_pods(simulation: PodSimulation, *, name: str, complete: bool = True) -> Result:
    """Return the result of pods; lanes are nodes, and after a node its GPUs."""
    lanes: list[str] = []
    first: list[int] = []
    for node in simulation.nodes:
        first.append(len(lanes))
        lanes.append(node.name)
        lanes += [f"{node.name}/gpu{index}" for index in range(node.gpus)]
    capacity = {"cpu": sum(node.cpu for node in simulation.nodes)}
    if simulation.cluster.capacity:
        capacity["gpu"] = simulation.cluster.capacity
    return Result(
        name=name,
        scheduler=simulation.policy,
        seed=simulation.how.seed,
        tasks=[_task(run, first) for run in simulation.runs],
        samples=simulation.samples,
        lanes=lanes,
        capacity=capacity,
        end=simulation.events.now(),
        refusals=simulation.refusals,
        complete=complete,
    )


def _task(run: PodRun, first: list[int]) -> Task:
    pod = run.pod
    lanes: tuple[int, ...] = ()
    if run.node >= 0:
        base = first[run.node]
        lanes = tuple(sorted({base + 1 + gpu for gpu in run.gpus})) or (base,)
    return Task(
        id=pod.name if pod.namespace == "default" else pod.key,
        user=pod.user,
        state=run.state,
        submitted=pod.arrives,
        bound=run.bound,
        started=run.started,
        ended=run.ended,
        width=max(1, -(-pod.shape.cpu // 1000)),
        lanes=lanes,
        gpu_milli=pod.shape.demand,
        reason=run.reason,
        evictions=run.evictions,
    )
