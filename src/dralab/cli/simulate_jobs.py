"""`dralab simulate batsim` and `dralab simulate swf`: rigid jobs on whole machines."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._options import FILE, opt, options
from dralab.cli._output import echo_values, formats
from dralab.cli._progress import keeping_results
from dralab.cli._runs import LENIENT, REPORT, RESUME, bad_input, keep, report_skipped, watched
from dralab.cli._terminal import echo
from dralab.scenarios.errors import InputProblems

if TYPE_CHECKING:
    from dralab.simulation.results.result import Result

SCHEDULERS = ("fcfs", "easy", "easy-counting", "conservative")


@click.command()
@options
@keeping_results
def batsim(
    *,
    workloads: tuple[Path, ...] = opt("JSON.", FILE, flags="--workload", required=True),
    platform: Path | None = opt("A SimGrid platform XML; default: nb_res equal hosts.", FILE),
    scheduler: str = opt("The built-in scheduler that decides.", SCHEDULERS, default="easy"),
    prefix: str = opt("Prefix of the output files.", flags="--out", default="out"),
    events: Path | None = opt("A file of external events, one JSON object per line.", FILE),
    master: str = opt("The host that runs no jobs.", default="master_host"),
    hosts: int | None = opt("Use only this many hosts.", least=1),
    energy: bool = opt("Compute the energy use of the machines."),
    socket: str | None = opt("Connect to the scheduler at this address: tcp://host:28000."),
    protocol: str = opt(
        "The protocol of that scheduler: of Batsim 1 to 4, or of Batsim 5 (batprotocol).",
        ["4", "5"],
        default="4",
    ),
    component_data: str = opt("With --protocol 5: data for the scheduler's start.", default=""),
    dynamic: bool = opt("Let that scheduler register jobs.", flags="--enable-dynamic-jobs"),
    profiles: bool = opt(
        "Send profiles with jobs to the external scheduler.",
        flags="--forward-profiles-on-submission",
    ),
    unknown: bool = opt(
        "Send events of unknown types to the external scheduler.", flags="--forward-unknown-events"
    ),
    latency: bool = opt(
        "Let Batsim's own messages cross the platform, as in Batsim: jobs start later.",
        flags="--batsim-latency",
    ),
    sharing: bool = opt("Let jobs share machines.", flags="--enable-compute-sharing"),
    dialect: str = opt(
        "Batsim version of the output format.", ["4", "5"], show_default=False, default="4"
    ),
    report: Path | None = REPORT,
    resume: Path | None = RESUME,
    lenient: bool = LENIENT,
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Run Batsim workloads of rigid jobs, and write Batsim's CSV files.

    Example: `dralab simulate batsim --workload jobs.json --platform cluster.xml --out run1`
    """
    from dralab.simulation import checkpoints
    from dralab.simulation.engines.batch import outputs
    from dralab.simulation.engines.batch import run as runs
    from dralab.simulation.engines.batch.engine import BatchOptions
    from dralab.simulation.engines.batch.run import BatchRun

    problems = InputProblems(lenient=lenient)
    with bad_input():
        made = runs.of_batsim(
            list(workloads),
            platform=platform,
            scheduler=scheduler,
            events=events,
            master=master,
            hosts=hosts,
            options=BatchOptions(
                energy=energy,
                dynamic_jobs=dynamic,
                forward_unknown_events=unknown,
                share_machines=sharing,
                latency=latency,
                settings={"profiles-forwarded-on-submission": profiles},
            ),
            socket=socket,
            component=component_data if protocol == "5" else None,
            problems=problems,
        )
        files = [*workloads, *(path for path in (platform, events) if path is not None)]
        parts = (scheduler, master, hosts, energy, sharing, latency, lenient, *map(str, workloads))
        key, name = checkpoints.digest(parts, files), workloads[0].stem
        run = BatchRun(made, key, name=name, scheduler=socket or scheduler, resume=resume)
    report_skipped(problems)
    result = watched(name, run)
    with bad_input():
        outputs.write(run.simulation, prefix, dialect=int(dialect))
    _tell(result, report)
    skipped = {"nb_entries_skipped": len(problems.skipped)}
    echo_values(outputs.summary(run.simulation) | skipped, output)
    if not result.complete:
        keep(run.save, Path(f"{prefix}_checkpoint"))
        raise SystemExit(1)


@click.command()
@options
@keeping_results
def swf(
    *,
    trace: Path = opt("A trace in the Standard Workload Format.", FILE),
    hosts: int | None = opt("Number of machines; default: from the trace.", least=1),
    scheduler: str = opt("The built-in scheduler that decides.", SCHEDULERS, default="easy"),
    prefix: str | None = opt("Write Batsim's CSV files with this prefix.", flags="--out"),
    walltime_factor: float = opt("Walltime as a multiple of the run time.", default=2.0),
    requested_only: bool = opt("Use only the requested time as walltime."),
    grain: int = opt("Round run times up to a multiple of this; Batsim uses 1.", default=0),
    report: Path | None = REPORT,
    resume: Path | None = RESUME,
    lenient: bool = LENIENT,
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Run an SWF trace of a parallel machine.

    Example: `dralab simulate swf --trace log.swf --hosts 128 --scheduler easy -o json`
    """
    from dralab.simulation import checkpoints
    from dralab.simulation.engines.batch import outputs
    from dralab.simulation.engines.batch import run as runs
    from dralab.simulation.engines.batch.run import BatchRun
    from dralab.simulation.workloads.swf import SwfConversion

    problems = InputProblems(lenient=lenient)
    conversion = SwfConversion(
        walltime_factor=walltime_factor, requested_only=requested_only, grain=grain
    )
    with bad_input():
        made = runs.of_swf(
            trace,
            hosts=hosts,
            scheduler=scheduler,
            conversion=conversion,
            problems=problems,
        )
        parts = (scheduler, hosts, conversion, lenient)
        key = checkpoints.digest(parts, [trace])
        run = BatchRun(made, key, name=trace.stem, scheduler=scheduler, resume=resume)
    report_skipped(problems)
    result = watched(trace.stem, run)
    if prefix is not None:
        outputs.write(run.simulation, prefix)
    _tell(result, report)
    (workload,) = run.simulation.workloads.values()
    counts = {
        "nb_entries_skipped": len(problems.skipped),
        "nb_entries_dropped": sum(workload.dropped.values()),
    }
    echo_values(outputs.summary(run.simulation) | counts, output)
    if not result.complete:
        keep(
            run.save, Path(f"{prefix}_checkpoint") if prefix else (report or Path()) / "checkpoint"
        )
        raise SystemExit(1)


def _tell(result: "Result", report: Path | None) -> None:
    """Print notes about the numbers, and write the report if one is requested."""
    for note in result.notes:
        echo(f"warning: {note}", err=True)
    if report is not None:
        from dralab.simulation.reports import run as reports

        reports.write(result, report)
