"""Rigid jobs on machines, placed by a built-in scheduler, a user's, or one behind a socket.

A checkpoint says how far a run is: going on runs up to there again.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path

from dralab.kernel.randomness import Randomness
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation import checkpoints
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.batch import external
from dralab.simulation.engines.batch.batprotocol.ends import RemoteComponent
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.hosts import PowerRow
from dralab.simulation.engines.batch.messages import JobScheduler
from dralab.simulation.engines.batch.own_scheduler import scheduler_of
from dralab.simulation.engines.batch.remote import RemoteScheduler
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.host_sets import members
from dralab.simulation.lifecycle.model import RunConditions
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.platforms.platform import Platform, plain
from dralab.simulation.policies.user_policy import UserPolicy
from dralab.simulation.results.result import Result, SampleColumns, StateSample, Task
from dralab.simulation.scenario.scenario import Scenario, digest
from dralab.simulation.workloads import batsim as batsim_files
from dralab.simulation.workloads import swf as swf_files


class BatchRun:
    """One run; only a checkpoint with the same `key` fits."""

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
        """Write a checkpoint of the progress. InputError: another process decides."""
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
    scheduler: JobScheduler
    if scenario.is_own:
        chance = Randomness(scenario.seed).stream("policy")
        scheduler = scheduler_of(UserPolicy(scenario, "batch", chance))
    else:
        scheduler = SCHEDULERS[name]()
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


def _samples(tasks: Sequence[Task], power: Iterable[PowerRow] = ()) -> SampleColumns:
    """Return the numbers of waiting and running tasks, and machines in use, over time."""
    ran = [task for task in tasks if task.state != "REJECTED"]
    changes = heapq.merge(
        _in_order("submitted", tasks),
        _in_order("started", (task for task in ran if task.started is not None)),
        _in_order("ended", (task for task in ran if task.ended is not None)),
        ((row.when, "power", row) for row in power),
        key=itemgetter(0),
    )
    samples = SampleColumns(0)
    waiting = asked = running = used = ended = refused = 0
    joules = 0.0
    for when, together in groupby(changes, key=itemgetter(0)):
        for _, what, item in together:
            if isinstance(item, PowerRow):
                joules = item.joules
            elif what == "submitted" and item.state == "REJECTED":
                refused += 1
            elif what == "submitted":
                waiting += 1
                asked += item.width
            elif what == "started":
                waiting -= 1
                asked -= item.width
                running += 1
                used += item.width
            else:
                running -= 1
                used -= item.width
                ended += 1
        samples.add(
            StateSample(
                when, waiting, running, used, 0, 0.0, asked=asked, ended=ended, refused=refused,
                joules=joules,
            )
        )  # fmt: skip
    return samples


def _in_order(what: str, tasks: Iterable[Task]) -> Iterator[tuple[int, str, Task | PowerRow]]:
    """Yield tasks by one of their times, with the time and its name."""
    when = attrgetter(what)
    yield from ((when(task), what, task) for task in sorted(tasks, key=when))


def of_batsim(
    workloads: Sequence[Path],
    *,
    platform: Path | None,
    scheduler: str,
    events: Path | None = None,
    master: str = "master_host",
    hosts: int | None = None,
    options: BatchOptions | None = None,
    socket: str | None = None,
    component: str | None = None,
    problems: InputProblems | None = None,
) -> BatchSimulation:
    """Return a run of Batsim workloads that has not begun.

    With `component`, the process behind the socket is one for Batsim 5, and gets these data.
    """
    machines = None if platform is None else simgrid_xml.read(platform, master=master)
    if hosts is not None:
        machines = _narrowed(machines, hosts) if machines is not None else plain(hosts)
    read = [
        batsim_files.read(path, name=f"w{index}", problems=problems)
        for index, path in enumerate(workloads)
    ]
    if machines is None:
        machines = plain(max(workload.machines for workload in read))
        if not machines.width:
            raise InputError(workloads[0], "nb_res is 0: name a platform", where="nb_res")
    happenings = (
        [] if events is None else external.read(events, problems=problems, machines=machines.width)
    )
    options = options or BatchOptions()
    decider: JobScheduler
    if socket is None:
        decider = SCHEDULERS[scheduler]()
    elif component is None:
        decider = RemoteScheduler(socket)
    else:
        decider = RemoteComponent(socket, data=component)
        options = decider.options(options)
    return BatchSimulation(
        machines,
        read,
        decider,
        options=options,
        external=happenings,
    )


def of_swf(
    trace: Path,
    *,
    hosts: int | None,
    scheduler: str,
    conversion: swf_files.SwfConversion | None = None,
    problems: InputProblems | None = None,
) -> BatchSimulation:
    """Return a run of an SWF trace that has not begun."""
    entries = swf_files.read(trace, problems=problems)
    width = hosts or entries.processors
    if not width:
        raise InputError(trace, "has neither MaxProcs nor MaxNodes: give the number of hosts")
    jobs = swf_files.jobs(entries, conversion, hosts=width, problems=problems)
    return BatchSimulation(plain(width), [jobs], SCHEDULERS[scheduler]())


def warnings(simulation: BatchSimulation) -> Iterator[str]:
    """Yield notes about the numbers."""
    for workload in simulation.workloads.values():
        if workload.dropped:
            listed = ", ".join(f"{n} with {why}" for why, n in sorted(workload.dropped.items()))
            yield f"lines that Batsim's converter skips: {listed}"
    if simulation.resized:
        yield (
            f"{simulation.resized} changes of the number of machines of jobs: the time left was "
            "taken to shrink as the machines grow"
        )
    if simulation.shared_links:
        yield (
            f"{simulation.shared_links} jobs used a link at the same time as another job: their "
            f"times are too short, as if each ran alone"
        )
    rejected = [record for record in simulation.finished if record.state == "REJECTED"]
    if rejected:
        first, why = rejected[0].job.id, rejected[0].reason
        yield f"{len(rejected)} jobs were rejected, the first is {first}" + (
            f": it {why}" if why else ""
        )
    if simulation.waiting:
        first = simulation.waiting[0].job.id
        yield f"{len(simulation.waiting)} jobs were never started, the first is {first}"


def _narrowed(platform: Platform, hosts: int) -> Platform:
    if hosts > platform.width:
        raise InputError(platform.name, f"has {platform.width} hosts, not {hosts}")
    return replace(platform, compute=platform.compute[:hosts])
