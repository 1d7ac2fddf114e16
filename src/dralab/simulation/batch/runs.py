"""From files to a finished run, for the command line and for scenarios."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dralab.simulation.batch import external
from dralab.simulation.batch.engine import Options, Simulation
from dralab.simulation.batch.remote import RemoteScheduler
from dralab.simulation.batch.schedulers import SCHEDULERS
from dralab.simulation.errors import Complaints, InputError
from dralab.simulation.platforms import xml
from dralab.simulation.platforms.platform import Platform, plain
from dralab.simulation.workloads import batsim as batsim_files
from dralab.simulation.workloads import swf as swf_files


def batsim(
    workloads: Sequence[Path],
    *,
    platform: Path | None,
    scheduler: str,
    events: Path | None = None,
    master: str = "master_host",
    hosts: int | None = None,
    options: Options | None = None,
    socket: str | None = None,
    complaints: Complaints | None = None,
) -> Simulation:
    """Run Batsim workloads to the end; InputError where a file cannot be used."""
    machines = None if platform is None else xml.read(platform, master=master)
    if hosts is not None:
        machines = _narrowed(machines, hosts) if machines is not None else plain(hosts)
    width = None if machines is None else machines.width
    read = [
        batsim_files.read(path, name=f"w{index}", complaints=complaints, hosts=width)
        for index, path in enumerate(workloads)
    ]
    if machines is None:
        machines = plain(max(workload.machines for workload in read))
        if not machines.width:
            raise InputError(workloads[0], "nb_res is 0: name a platform", where="nb_res")
    happenings = [] if events is None else external.read(events, complaints=complaints)
    simulation = Simulation(
        machines,
        read,
        SCHEDULERS[scheduler]() if socket is None else RemoteScheduler(socket),
        options=options,
        external=happenings,
    )
    simulation.run()
    return simulation


def swf(
    trace: Path,
    *,
    hosts: int | None,
    scheduler: str,
    conversion: swf_files.Conversion | None = None,
    complaints: Complaints | None = None,
) -> Simulation:
    """Run an SWF trace to the end."""
    entries = swf_files.read(trace, complaints=complaints)
    width = hosts or entries.processors
    if not width:
        raise InputError(trace, "says neither MaxProcs nor MaxNodes: give the number of hosts")
    jobs = swf_files.jobs(entries, conversion, hosts=width, complaints=complaints)
    simulation = Simulation(plain(width), [jobs], SCHEDULERS[scheduler]())
    simulation.run()
    return simulation


def warnings(simulation: Simulation) -> Iterator[str]:
    """Yield what a reader of the numbers should know."""
    if simulation.shared_links:
        yield (
            f"{simulation.shared_links} jobs sent over a link that another job was using: "
            "their times are those of having it alone, and so too short"
        )
    if simulation.waiting:
        first = simulation.waiting[0].job.id
        yield f"{len(simulation.waiting)} jobs were never started, {first} the first of them"


def _narrowed(platform: Platform, hosts: int) -> Platform:
    if hosts > platform.width:
        raise InputError(platform.name, f"has {platform.width} hosts, not {hosts}")
    return replace(platform, compute=platform.compute[:hosts])
