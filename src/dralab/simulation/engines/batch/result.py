"""From the records of rigid jobs to a result."""

from collections import Counter
from collections.abc import Iterable

from dralab.simulation.engines.batch.engine import BatchSimulation
from dralab.simulation.engines.batch.hosts import PowerRow
from dralab.simulation.engines.batch.runs import warnings
from dralab.simulation.host_sets import members
from dralab.simulation.results.result import Result, StateSample, Task


def of_jobs(
    simulation: BatchSimulation, *, name: str, scheduler: str, seed: int = 0, complete: bool = True
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


def samples_of(tasks: Iterable[Task], power: Iterable[PowerRow] = ()) -> list[StateSample]:
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
            StateSample(
                when, now["waiting"], now["running"], now["cpu"], 0, 0.0, asked=now["asked"],
                ended=now["ended"], refused=now["refused"], joules=joules,
            )
        )  # fmt: skip
    return samples
