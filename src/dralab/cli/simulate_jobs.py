"""`dralab simulate batsim` and `dralab simulate swf`: rigid jobs on whole machines."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._output import echo_values, output_option
from dralab.cli._progress import keeping_results
from dralab.cli._runs import (
    FILE,
    LENIENT,
    REPORT,
    RESUME,
    bad_input,
    keep,
    report_skipped,
    watched,
)
from dralab.cli._terminal import echo
from dralab.simulation.errors import InputProblems

if TYPE_CHECKING:
    from dralab.simulation.results.result import Result

SCHEDULERS = ("fcfs", "easy", "easy-counting", "conservative")


@click.command()
@click.option("--workload", "workloads", type=FILE, required=True, multiple=True, help="JSON.")
@click.option("--platform", type=FILE, help="A SimGrid platform XML; default: nb_res equal hosts.")
@click.option(
    "--scheduler",
    type=click.Choice(SCHEDULERS),
    default="easy",
    show_default=True,
    help="The built-in scheduler that decides.",
)
@click.option(
    "--out", "prefix", default="out", show_default=True, help="Prefix of the output files."
)
@click.option("--events", type=FILE, help="A file of external events, one JSON object per line.")
@click.option(
    "--master", default="master_host", show_default=True, help="The host that runs no jobs."
)
@click.option("--hosts", type=click.IntRange(min=1), help="Use only this many hosts.")
@click.option("--energy", is_flag=True, help="Compute the energy use of the machines.")
@click.option("--socket", help="Connect to the scheduler at this address: tcp://host:28000.")
@click.option(
    "--protocol",
    type=click.Choice(["4", "5"]),
    default="4",
    show_default=True,
    help="The protocol of that scheduler: of Batsim 1 to 4, or of Batsim 5 (batprotocol).",
)
@click.option(
    "--component-data", default="", help="With --protocol 5: data for the scheduler's start."
)
@click.option(
    "--enable-dynamic-jobs", "dynamic", is_flag=True, help="Let that scheduler register jobs."
)
@click.option(
    "--forward-profiles-on-submission",
    "profiles",
    is_flag=True,
    help="Send profiles with jobs to the external scheduler.",
)
@click.option(
    "--forward-unknown-events",
    "unknown",
    is_flag=True,
    help="Send events of unknown types to the external scheduler.",
)
@click.option(
    "--batsim-latency",
    "latency",
    is_flag=True,
    help="Let Batsim's own messages cross the platform, as in Batsim: jobs start later.",
)
@click.option("--enable-compute-sharing", "sharing", is_flag=True, help="Let jobs share machines.")
@click.option(
    "--dialect",
    type=click.Choice(["4", "5"]),
    default="4",
    help="Batsim version of the output format.",
)
@REPORT
@RESUME
@LENIENT
@output_option("json", "yaml", "table")
@keeping_results
def batsim(
    workloads: tuple[Path, ...],
    platform: Path | None,
    scheduler: str,
    prefix: str,
    events: Path | None,
    master: str,
    hosts: int | None,
    energy: bool,
    socket: str | None,
    protocol: str,
    component_data: str,
    dynamic: bool,
    profiles: bool,
    unknown: bool,
    latency: bool,
    sharing: bool,
    dialect: str,
    report: Path | None,
    resume: Path | None,
    lenient: bool,
    output: str,
) -> None:
    """Run Batsim workloads of rigid jobs, and write Batsim's CSV files.

    Example: `dralab simulate batsim --workload jobs.json --platform cluster.xml --out run1`
    """
    from dralab.simulation import checkpoints
    from dralab.simulation.engines.batch import outputs, runs
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
@click.option("--trace", type=FILE, required=True, help="A trace in the Standard Workload Format.")
@click.option(
    "--hosts", type=click.IntRange(min=1), help="Number of machines; default: from the trace."
)
@click.option(
    "--scheduler",
    type=click.Choice(SCHEDULERS),
    default="easy",
    show_default=True,
    help="The built-in scheduler that decides.",
)
@click.option("--out", "prefix", help="Write Batsim's CSV files with this prefix.")
@click.option(
    "--walltime-factor",
    default=2.0,
    show_default=True,
    help="Walltime as a multiple of the run time.",
)
@click.option("--requested-only", is_flag=True, help="Use only the requested time as walltime.")
@click.option(
    "--grain",
    default=0,
    show_default=True,
    help="Round run times up to a multiple of this; Batsim uses 1.",
)
@REPORT
@RESUME
@LENIENT
@output_option("json", "yaml", "table")
@keeping_results
def swf(
    trace: Path,
    hosts: int | None,
    scheduler: str,
    prefix: str | None,
    walltime_factor: float,
    requested_only: bool,
    grain: int,
    report: Path | None,
    resume: Path | None,
    lenient: bool,
    output: str,
) -> None:
    """Run an SWF trace of a parallel machine.

    Example: `dralab simulate swf --trace log.swf --hosts 128 --scheduler easy -o json`
    """
    from dralab.simulation import checkpoints
    from dralab.simulation.engines.batch import outputs, runs
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
