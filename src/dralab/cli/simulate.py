"""`dralab simulate`: workloads in simulated time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from dralab.simulation.errors import Complaints, InputError

if TYPE_CHECKING:
    from dralab.simulation.batch.engine import Simulation

FILE = click.Path(path_type=Path, dir_okay=False)
SCHEDULERS = ("fcfs", "easy", "easy-counting", "conservative")
OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "table"]),
    default="json",
    show_default=True,
    help="How to print the result.",
)
REPORT = click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write tables and a page to look at here.",
)
LENIENT = click.option("--lenient", is_flag=True, help="Skip broken entries, and count them.")


@click.group()
def simulate() -> None:
    """Run workloads in simulated time.

    Example: `dralab simulate swf --trace log.swf --hosts 128 --scheduler easy`
    """


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn an InputError into one line on stderr and exit code 2."""
    try:
        yield
    except InputError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None


def report_skipped(complaints: Complaints) -> None:
    """Say on stderr what a lenient reading left out."""
    for error in complaints.skipped[:10]:
        click.echo(f"skipped: {error}", err=True)
    if len(complaints.skipped) > 10:
        click.echo(f"skipped: {len(complaints.skipped) - 10} more", err=True)


def report_jobs(run: "Simulation", folder: Path | None, name: str, scheduler: str) -> None:
    """Write the page and the tables of a run of rigid jobs, where that is wanted."""
    if folder is not None:
        from dralab.simulation.reports import run as reports
        from dralab.simulation.scenarios import collect

        reports.write(collect.of_jobs(run, name=name, scheduler=scheduler), folder)


def show(values: Mapping[str, Any], output: str) -> None:
    """Print a result as JSON, YAML or a table."""
    if output == "json":
        click.echo(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(dict(values), sort_keys=False), nl=False)
    else:
        width = max((len(key) for key in values), default=0)
        for key, value in values.items():
            click.echo(f"{key.ljust(width)}  {_cell(value)}")


def _cell(value: object) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


@simulate.command()
@click.option("--workload", "workloads", type=FILE, required=True, multiple=True, help="JSON.")
@click.option("--platform", type=FILE, help="SimGrid XML; without it, nb_res equal hosts.")
@click.option("--scheduler", type=click.Choice(SCHEDULERS), default="easy", show_default=True)
@click.option("--out", "prefix", default="out", show_default=True, help="Prefix of the files.")
@click.option("--events", type=FILE, help="External events, one JSON object a line.")
@click.option("--master", default="master_host", show_default=True, help="Host not to compute on.")
@click.option("--hosts", type=click.IntRange(min=1), help="Use only so many of the hosts.")
@click.option("--energy", is_flag=True, help="Follow the power of the machines.")
@click.option("--socket", help="Let a decision process at this address decide: tcp://host:28000.")
@click.option("--enable-dynamic-jobs", "dynamic", is_flag=True, help="It may register jobs.")
@click.option("--forward-profiles-on-submission", "profiles", is_flag=True, help="To it.")
@click.option("--forward-unknown-events", "unknown", is_flag=True, help="To it.")
@click.option("--enable-compute-sharing", "sharing", is_flag=True, help="Jobs may share machines.")
@click.option(
    "--dialect", type=click.Choice(["4", "5"]), default="4", help="Of the files: Batsim's version."
)
@REPORT
@LENIENT
@OUTPUT
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
    dynamic: bool,
    profiles: bool,
    unknown: bool,
    sharing: bool,
    dialect: str,
    report: Path | None,
    lenient: bool,
    output: str,
) -> None:
    """Run Batsim workloads on rigid machines; write Batsim's CSV files.

    Example: `dralab simulate batsim --workload jobs.json --platform cluster.xml --out run1`
    """
    from dralab.simulation.batch import outputs, runs
    from dralab.simulation.batch.engine import Options

    complaints = Complaints(lenient=lenient)
    with bad_input():
        run = runs.batsim(
            list(workloads),
            platform=platform,
            scheduler=scheduler,
            events=events,
            master=master,
            hosts=hosts,
            options=Options(
                energy=energy,
                dynamic_jobs=dynamic,
                forward_unknown_events=unknown,
                share_machines=sharing,
                settings={"profiles-forwarded-on-submission": profiles},
            ),
            socket=socket,
            complaints=complaints,
        )
        outputs.write(run, prefix, dialect=int(dialect))
    report_jobs(run, report, workloads[0].stem, socket or scheduler)
    report_skipped(complaints)
    for warning in runs.warnings(run):
        click.echo(f"warning: {warning}", err=True)
    show(outputs.summary(run) | {"nb_entries_skipped": len(complaints.skipped)}, output)


@simulate.command()
@click.option("--trace", type=FILE, required=True, help="A trace in the Standard Workload Format.")
@click.option("--hosts", type=click.IntRange(min=1), help="Machines; default as the trace says.")
@click.option("--scheduler", type=click.Choice(SCHEDULERS), default="easy", show_default=True)
@click.option("--out", "prefix", help="Write Batsim's CSV files with this prefix.")
@click.option("--walltime-factor", default=2.0, show_default=True, help="Of the run time.")
@click.option("--requested-only", is_flag=True, help="Take only the requested time as walltime.")
@click.option("--grain", default=0, show_default=True, help="Round run times up; Batsim's is 1.")
@REPORT
@LENIENT
@OUTPUT
def swf(
    trace: Path,
    hosts: int | None,
    scheduler: str,
    prefix: str | None,
    walltime_factor: float,
    requested_only: bool,
    grain: int,
    report: Path | None,
    lenient: bool,
    output: str,
) -> None:
    """Run a trace of a parallel machine.

    Example: `dralab simulate swf --trace log.swf --hosts 128 --scheduler easy -o json`
    """
    from dralab.simulation.batch import outputs, runs
    from dralab.simulation.workloads.swf import Conversion

    complaints = Complaints(lenient=lenient)
    with bad_input():
        run = runs.swf(
            trace,
            hosts=hosts,
            scheduler=scheduler,
            conversion=Conversion(
                walltime_factor=walltime_factor, requested_only=requested_only, grain=grain
            ),
            complaints=complaints,
        )
        if prefix is not None:
            outputs.write(run, prefix)
    report_jobs(run, report, trace.stem, scheduler)
    report_skipped(complaints)
    show(outputs.summary(run) | {"nb_entries_skipped": len(complaints.skipped)}, output)


POLICIES = ("random", "dotprod", "clustering", "packing", "bestfit", "fgd", "firstfit")


@simulate.command()
@click.option("--nodes", type=FILE, required=True, help="CSV: sn,cpu_milli,memory_mib,gpu,model.")
@click.option("--pods", type=FILE, required=True, help="CSV: name,cpu_milli,memory_mib,num_gpu,…")
@click.option("--policy", type=click.Choice(POLICIES), default="fgd", show_default=True)
@click.option(
    "--inflate",
    type=click.FloatRange(min=0, min_open=True, max=100),
    default=1.3,
    show_default=True,
    help="Clone pods until they ask for so many times the GPUs.",
)
@click.option("--seed", default=42, show_default=True)
@click.option("--curve", type=FILE, help="Write the measures after every pod to this CSV file.")
@REPORT
@LENIENT
@OUTPUT
def openb(
    nodes: Path,
    pods: Path,
    policy: str,
    inflate: float,
    seed: int,
    curve: Path | None,
    report: Path | None,
    lenient: bool,
    output: str,
) -> None:
    """Place the pods of an openb GPU trace one by one, and measure fragmentation.

    Example: `dralab simulate openb --nodes nodes.csv --pods pods.csv --policy fgd --seed 42`
    """
    from dralab.simulation.openb import experiment
    from dralab.simulation.workloads import openb as traces

    complaints = Complaints(lenient=lenient)
    with bad_input():
        fleet = traces.read_nodes(nodes, complaints=complaints)
        workload = traces.read_pods(pods, complaints=complaints)
        if not any(node.gpus for node in fleet):
            raise InputError(nodes, "no node has a GPU")
        if not workload:
            raise InputError(pods, "there is no pod")
        outcome = experiment.run(
            fleet, workload, policy=policy, seed=seed, ratio=inflate, workload=pods.stem
        )
    report_skipped(complaints)
    if curve is not None:
        experiment.write_curve(outcome, curve)
    if report is not None:
        from dralab.simulation.reports import openb as pages

        pages.write(outcome, report)
    show(outcome.table(), output)


@simulate.command()
@click.argument("scenario", type=FILE)
@click.option("--scheduler", help="Use this one instead of the scenario's; `external` for outside.")
@click.option("--command", help="Start this outside scheduler; {kubeconfig} is replaced.")
@click.option("--seed", type=int, help="Use this seed instead of the scenario's.")
@click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False), help="Write all files here."
)
@click.option("--resume", type=FILE, help="Go on from the checkpoint of a run that was stopped.")
@click.option("--parquet", is_flag=True, help="Tables as Parquet, too (extra: parquet).")
@click.option(
    "--picture",
    type=click.Choice(["", "png", "svg"]),
    default="",
    help="The charts as a picture, too (extra: picture).",
)
@LENIENT
@OUTPUT
def run(
    scenario: Path,
    scheduler: str | None,
    command: str | None,
    seed: int | None,
    report: Path | None,
    resume: Path | None,
    parquet: bool,
    picture: str,
    lenient: bool,
    output: str,
) -> None:
    """Run a scenario file: fleet, workload, scheduler, life cycle, faults, seed, stop.

    Example: `dralab simulate run scenario.yaml --report results/`
    """
    from dralab.cli._progress import watching
    from dralab.simulation import outputs, worlds
    from dralab.simulation.outside import run as outside
    from dralab.simulation.reports import run as reports
    from dralab.simulation.scenarios import scenario as scenarios

    complaints = Complaints(lenient=lenient)
    with bad_input():
        loaded = scenarios.load(scenario, seed=seed, scheduler=scheduler, complaints=complaints)
        work = None
        if loaded.scheduler != scenarios.EXTERNAL:
            work = worlds.begin(loaded, resume)
    report_skipped(complaints)
    with bad_input(), watching(loaded.name) as watcher:
        if work is None:
            result = outside.run(
                loaded,
                outside.outside_of(loaded, command),
                say=lambda text: click.echo(text, err=True),
                progress=watcher.show,
                stop=watcher.stop,
            )
        else:
            result = work.go(watcher.show, watcher.stop)
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    if report is not None:
        try:
            reports.write(result, report, parquet=parquet, picture=picture)
        except RuntimeError as error:
            raise click.ClickException(str(error)) from None
    if not result.complete:
        click.echo("stopped: what there is so far was kept", err=True)
        if work is not None:
            checkpoint = (report or Path()) / "checkpoint"
            work.save(checkpoint)
            click.echo(f"go on with --resume {checkpoint}", err=True)
    summary = outputs.summary(result)
    show(summary if output != "table" else _flat(summary), output)
    if not result.complete:
        raise SystemExit(1)


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    head = {k: v for k, v in summary.items() if k not in {"metrics", "notes"}}
    return head | dict(summary["metrics"])


@simulate.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--pods", type=FILE, required=True, help="Pods with the annotation simSpec.")
@click.option("--preemption", is_flag=True, help="Delete pods of lower priority to make room.")
@click.option("--until", type=click.IntRange(min=1), help="Stop after so many simulated seconds.")
@OUTPUT
def ticks(config: Path, pods: Path, preemption: bool, until: int | None, output: str) -> None:
    """Run a k8s-cluster-simulator configuration, tick by tick; write its metrics.

    Example: `dralab simulate ticks config.yaml --pods pods.yaml`
    """
    from dralab.simulation.ticks import config as configs
    from dralab.simulation.ticks.schedulers import GenericScheduler
    from dralab.simulation.ticks.simulator import TickSimulator

    with bad_input():
        found = configs.read(config)
        writer = configs.Writer(found)
        try:
            simulator = TickSimulator(
                found.nodes,
                GenericScheduler(preemption=preemption),
                [configs.ManifestSubmitter(pods, found.start)],
                start=found.start,
                tick=found.tick,
                metrics_tick=found.metrics_tick,
                write=writer,
            )
            simulator.run(None if until is None else found.start + until)
        finally:
            writer.close()
    everything = [*simulator.ended, *simulator.bound.values()]
    summary = {
        "seconds": simulator.clock - found.start,
        "pods": len(everything) + len(simulator.queue),
        "succeeded": sum(b.status == "Ok" and not b.running(simulator.clock) for b in everything),
        "deleted": sum(bound.status == "Deleted" for bound in everything),
        "over_capacity": sum(bound.status == "OverCapacity" for bound in everything),
        "pending": len(simulator.queue),
    }
    show(summary, output)
