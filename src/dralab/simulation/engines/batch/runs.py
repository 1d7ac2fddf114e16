"""Builds a simulation from files of jobs, with notes on its results."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.engines.batch import external
from dralab.simulation.engines.batch.batprotocol.ends import RemoteComponent
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.messages import JobScheduler
from dralab.simulation.engines.batch.remote import RemoteScheduler
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.platforms.platform import Platform, plain
from dralab.simulation.workloads import batsim as batsim_files
from dralab.simulation.workloads import swf as swf_files


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
    """Yield notes for the reader of the numbers."""
    for workload in simulation.workloads.values():
        if workload.dropped:
            listed = ", ".join(f"{n} with {why}" for why, n in sorted(workload.dropped.items()))
            yield f"lines that Batsim's converter skips: {listed}"
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
