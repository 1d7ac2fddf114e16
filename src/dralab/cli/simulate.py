"""`dralab simulate`: run workloads in simulated time."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dralab.cli._options import ANY_PATH, FILE, FOLDER, arg, opt, options
from dralab.cli._output import echo_json, echo_table, echo_values, formats
from dralab.cli._progress import keeping_results
from dralab.cli._runs import LENIENT, REPORT, RESUME, bad_input, keep, report_skipped, watched
from dralab.cli._terminal import echo, echo_over
from dralab.cli.simulate_jobs import batsim, swf
from dralab.kernel.extras import require
from dralab.scenarios.errors import InputProblems


@click.command()
@options
def campaign(
    *,
    file: Path = arg(FILE),
    out: Path | None = opt(
        "Where to keep runs and tables; default: a folder beside the file, with its name.", FOLDER
    ),
    workers: int | None = opt("Worker processes; default: one per core.", least=1),
    engine: str = opt(
        "Where runs are executed: in processes of this machine, or on a Dask cluster.",
        ["processes", "dask"],
        default="processes",
    ),
    address: str = opt("The scheduler of the Dask cluster: tcp://host:8786.", default=""),
    output: str = formats("table", "json"),
) -> None:
    """Run every combination of scenarios, schedulers and seeds.

    Finished runs are kept and never repeated. After Ctrl-C, run the same command again to continue.

    Example: `dralab simulate campaign grid.yaml --workers 4`
    """
    from dralab.simulation.campaigns import comparison, executors, grid

    folder = out or file.with_suffix("")
    with bad_input():
        if engine == "dask":
            require("distributed", "--engine dask")
            if not address:
                raise click.UsageError("--engine dask needs --address")
        found = grid.read(file)
        chosen: executors.Executor = (
            executors.DaskExecutor(address)
            if engine == "dask"
            else executors.ProcessExecutor(workers)
        )

        def tell(done: int, reused: int, total: int) -> None:
            if sys.stderr.isatty():
                echo_over(f"{done}/{total} runs ({reused} kept)")

        try:
            numbers = executors.run(found.cases, folder, chosen, progress=tell)
        except KeyboardInterrupt:
            echo(
                f"stopped; finished runs are kept in {folder}. Run the same command again to "
                f"continue",
                err=True,
            )
            raise SystemExit(1) from None
        table = comparison.write(found, numbers, folder)
    echo(f"wrote runs, campaign.csv and report.html to {folder}", err=True)
    if output == "json":
        echo_json(table)
        return
    rows: list[Sequence[str]] = [comparison.COLUMNS]
    for row in table:
        cells = [row[column] for column in comparison.COLUMNS]
        rows.append([f"{c:,.3f}" if isinstance(c, float) else str(c or "") for c in cells])
    echo_table(rows, numbers=range(3, len(comparison.COLUMNS)))


@click.command()
@options
def compare(
    *,
    first: Path = arg(FOLDER),
    second: Path = arg(FOLDER),
    page: Path | None = opt("Write an HTML page to this file.", FILE),
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Compare the reports of two runs: metrics, and the tasks that ran elsewhere or at other times.

    Exit code 0: they are equal; 1: they differ.

    Example: `dralab simulate compare results/easy results/fcfs --page difference.html`
    """
    from dralab.simulation.reports import difference

    with bad_input():
        runs = difference.read(first), difference.read(second)
    found = difference.of(*runs)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        difference.page(*runs).write(page)
    if output == "table":
        numbers = {
            name: row["difference"] for name, row in found["numbers"].items() if row["difference"]
        }
        echo_values({**found["tasks"], **numbers}, output)
    else:
        echo_values(found, output)
    if found["tasks"]["same"] != len(runs[0].tasks) or found["tasks"]["only_in_second"]:
        raise SystemExit(1)


@click.group()
def simulate() -> None:
    """Run workloads in simulated time.

    Example: `dralab simulate swf --trace log.swf --hosts 128 --scheduler easy`
    """


simulate.add_command(campaign)
simulate.add_command(batsim)
simulate.add_command(swf)
simulate.add_command(compare)

POLICIES = ("random", "dotprod", "clustering", "packing", "bestfit", "fgd", "firstfit")


@simulate.command()
@options
@keeping_results
def openb(
    *,
    nodes: Path = opt("CSV: sn,cpu_milli,memory_mib,gpu,model.", FILE),
    pods: Path = opt("CSV: name,cpu_milli,memory_mib,num_gpu,…", FILE),
    policy: str = opt("The policy that places pods on nodes.", POLICIES, default="fgd"),
    inflate: float = opt(
        "Clone pods until they request this multiple of all GPUs.",
        click.FloatRange(min=0, min_open=True, max=100),
        default=1.3,
    ),
    seed: int = opt("Seed of what is random.", default=42),
    curve: Path | None = opt("Write the metrics after each pod to this CSV file.", FILE),
    report: Path | None = REPORT,
    resume: Path | None = RESUME,
    lenient: bool = LENIENT,
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Place the pods of an openb GPU trace one by one, and measure fragmentation.

    Example: `dralab simulate openb --nodes nodes.csv --pods pods.csv --policy fgd --seed 42`
    """
    from dralab.simulation.reproductions.fgd import page as pages
    from dralab.simulation.reproductions.fgd.experiment import PlacementRun, write_curve
    from dralab.simulation.scenario.scenario import placement

    problems = InputProblems(lenient=lenient)
    with bad_input():
        scenario = placement(
            nodes, pods, policy=policy, seed=seed, inflate=inflate, problems=problems
        )
        work = PlacementRun(scenario, resume)
    report_skipped(problems)
    result, outcome = watched(scenario.name, work), work.outcome()
    if curve is not None:
        write_curve(outcome, curve)
    if report is not None:
        pages.write(outcome, report)
    echo_values(outcome.table(), output)
    if not result.complete:
        keep(work.save, (report or Path()) / "checkpoint")
        raise SystemExit(1)


@simulate.command()
@options
@keeping_results
def run(
    *,
    scenario: Path = arg(FILE),
    scheduler: str | None = opt(
        "Override the scenario's scheduler; `external` is your own program."
    ),
    command: str | None = opt(
        "Start this external scheduler; {kubeconfig} is replaced by its path."
    ),
    seed: int | None = opt("Override the scenario's seed."),
    report: Path | None = opt("Write all results to this directory.", FOLDER),
    resume: Path | None = RESUME,
    parquet: bool | None = opt(
        "Also write tables as Parquet; default: if the extra `parquet` is installed.",
        flags="--parquet/--no-parquet",
    ),
    picture: str | None = opt(
        "Also write the charts as a picture (needs the extra `picture`).", ["png", "svg"]
    ),
    lenient: bool = LENIENT,
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Run a scenario file: fleet, workload, scheduler, life cycle, faults, seed and stop condition.

    Example: `dralab simulate run scenario.yaml --report results/`
    """
    from dralab.simulation import dispatch
    from dralab.simulation.reports import run as reports
    from dralab.simulation.results import outputs
    from dralab.simulation.scenario import scenario as scenarios

    problems = InputProblems(lenient=lenient)
    with bad_input():
        loaded = scenarios.load(scenario, seed=seed, scheduler=scheduler, problems=problems)
        wanted = loaded.outputs.but(report=report, parquet=parquet, picture=picture)
        checkpoint = (wanted.report or Path()) / "checkpoint"
        outputs.check(wanted.report, parquet=wanted.parquet, picture=wanted.picture)
        work = dispatch.begin(
            loaded, resume, command=command, say=lambda text: echo(text, err=True)
        )
    report_skipped(problems)
    result = watched(loaded.name, work)
    result = dispatch.measured(loaded, result)
    for note in result.notes:
        echo(f"note: {note}", err=True)
    if wanted.report is not None:
        reports.write(result, wanted.report, parquet=wanted.parquet, picture=wanted.picture or "")
    if not result.complete:
        keep(work.save, checkpoint)
    summary = outputs.summary(result)
    echo_values(summary if output != "table" else _flat(summary), output)
    if not result.complete:
        raise SystemExit(1)


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    head = {k: v for k, v in summary.items() if k not in {"metrics", "notes"}}
    return head | dict(summary["metrics"])


@simulate.command()
@options
@keeping_results
def ticks(
    *,
    config: Path = arg(ANY_PATH),
    pods: Path = opt("A file of pods with the annotation simSpec.", FILE),
    preemption: bool = opt("Delete pods of lower priority to make room."),
    until: int | None = opt("Stop after this many simulated seconds.", least=1),
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Run a k8s-cluster-simulator configuration tick by tick, and write its metrics.

    Example: `dralab simulate ticks config.yaml --pods pods.yaml`
    """
    from dralab.simulation.engines.fast.tick_metrics import MetricsWriter
    from dralab.simulation.engines.fast.ticks import TickRun
    from dralab.simulation.scenario import scenario as scenarios
    from dralab.simulation.scenario import simulator_config

    with bad_input():
        found = simulator_config.read(config)
        scenario = scenarios.ticks(found, pods, preemption=preemption, until=until)
        writer = MetricsWriter(found)
        work = TickRun(
            scenario, start=found.start, metrics_tick=found.metrics_tick, write=writer.write
        )
    try:
        result = watched(scenario.name, work)
    finally:
        writer.close()
    echo_values(work.counts(), output)
    if not result.complete:
        echo("stopped; metrics up to here were written", err=True)
        raise SystemExit(1)
