"""`dralab simulate`: campaigns of simulations, and what differs between two runs."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from dralab.cli._options import FILE, FOLDER, arg, opt, options
from dralab.cli._output import echo_json, echo_table, echo_values, formats
from dralab.cli._runs import bad_input
from dralab.cli._terminal import echo, echo_over
from dralab.cli.main import LazyGroup
from dralab.kernel.extras import require

COMMANDS: Final[Mapping[str, str]] = {
    "run": "Run a scenario, or the files of another simulator.",
    "program": "Run any program in simulated time.",
    "batsim-scheduler": "Act as the scheduler of a real Batsim (ZeroMQ).",
}


@click.group(cls=LazyGroup, table=COMMANDS, modules={name: f"simulate {name}" for name in COMMANDS})
def simulate() -> None:
    """Run workloads in simulated time.

    Example: `dralab simulate run scenario.yaml --write results/`
    """


@simulate.command(epilog="Example: `dralab simulate schedulers`")
@options
def schedulers(*, output: str = formats("table", "json")) -> None:
    """List the schedulers of simulations.

    A class of your own works, too: `--scheduler file.py:Class`.
    """
    from dralab.simulation.scenario.schedulers import FOR

    if output == "json":
        echo_json([{"name": name, "for": what} for name, what in FOR])
        return
    echo_table([("NAME", "SCHEDULES"), *FOR])


@simulate.command()
@options
def campaign(
    *,
    file: Path = arg(FILE),
    folder: Path | None = opt(
        "Keep runs and tables in this directory; default: beside the file, with its name.",
        FOLDER,
        flags="--write",
    ),
    workers: int | None = opt("Worker processes; default: one per core.", least=1),
    engine: str = opt(
        "Where runs are executed: in processes of this machine, or on a Dask cluster.",
        ["processes", "dask"],
        default="processes",
    ),
    address: str = opt("The scheduler of the Dask cluster: tcp://host:8786."),
    output: str = formats("table", "json"),
) -> None:
    """Run every combination of scenarios, schedulers and seeds.

    Finished runs are kept and never repeated. After Ctrl-C, run the same command again to continue.

    Example: `dralab simulate campaign grid.yaml --workers 4`
    """
    from dralab.simulation.campaigns import comparison, executors, grid

    folder = folder or file.with_suffix("")
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


@simulate.command()
@options
def compare(
    *,
    first: Path = arg(FOLDER),
    second: Path = arg(FOLDER),
    page: Path | None = opt("Write an HTML page to this file.", FILE, flags="--write"),
    output: str = formats("json", "yaml", "table"),
) -> None:
    """Compare the reports of two runs: metrics, and the tasks that ran elsewhere or at other times.

    Exit code 0: they are equal; 1: they differ.

    Example: `dralab simulate compare results/easy results/fcfs --write difference.html`
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
