"""Rigid jobs on machines, placed by a built-in scheduler, a user's, or one behind a socket.

A checkpoint says how far a run is: going on runs up to there again.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dralab.scenarios.errors import InputError
from dralab.simulation import checkpoints
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.batch.batprotocol.ends import RemoteComponent
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.hosts import PowerRow
from dralab.simulation.engines.batch.messages import JobScheduler
from dralab.simulation.engines.batch.remote import RemoteScheduler
from dralab.simulation.engines.batch.runs import warnings
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.host_sets import members
from dralab.simulation.lifecycle.model import RunConditions
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario


class BatchRun:
    """One run; `key` says what it depends on, and only a checkpoint with the same key fits."""

    def __init__(
        self,
        simulation: BatchSimulation,
        key: str,
        *,
        name: str,
        scheduler: str,
        conditions: RunConditions | None = None,
        resume: Path | None = None,
    ) -> None:
        self.key, self.name, self.scheduler = key, name, scheduler
        self.conditions = RunConditions() if conditions is None else conditions
        self.complete = False
        self.simulation = simulation
        if resume is not None:
            how = self.conditions
            simulation.run(how.until, ended=how.ended, steps=checkpoints.read(resume, key))

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Continue the run."""
        simulation, total = self.simulation, len(self.simulation.records)
        if progress is not None:
            simulation.progress = lambda now, over: progress(now, over, total)
        try:
            self.complete = simulation.run(self.conditions.until, stop, self.conditions.ended)
        finally:
            simulation.progress = None
        return self.result()

    def result(self) -> Result:
        """Return the result so far."""
        return _result(
            self.simulation,
            name=self.name,
            scheduler=self.scheduler,
            seed=self.conditions.seed,
            complete=self.complete,
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint: how far it is. InputError: another process decides."""
        if isinstance(self.simulation.scheduler, RemoteScheduler | RemoteComponent):
            raise InputError(
                path, "cannot be written: the state of an external decision process cannot be saved"
            )
        checkpoints.write(path, self.key, self.simulation.steps)


def scenario_run(scenario: Scenario, resume: Path | None = None) -> BatchRun:
    """Return a scenario's run; InputError: the workload is not one of jobs."""
    return BatchRun(
        _simulation(scenario),
        digest(scenario),
        name=scenario.name,
        scheduler=scenario.scheduler,
        conditions=scenario.conditions,
        resume=resume,
    )


def _simulation(scenario: Scenario) -> BatchSimulation:
    file, name = scenario.file, scenario.scheduler
    unsupported.refuse_for_jobs(file, scenario.conditions)
    if scenario.work.jobs is None:
        raise InputError(file, f"{name!r} schedules rigid jobs, not pods", where="scheduler")
    platform = scenario.fleet.as_platform()
    scheduler: JobScheduler = (
        scenario.own_policy("decide") if scenario.is_own else SCHEDULERS[name]()
    )
    return BatchSimulation(
        platform, [scenario.work.jobs], scheduler, options=BatchOptions(energy=scenario.energy)
    )


def _result(
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
        samples=_samples(tasks, simulation.hosts.power_rows),
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


def _samples(tasks: Iterable[Task], power: Iterable[PowerRow] = ()) -> list[StateSample]:
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
