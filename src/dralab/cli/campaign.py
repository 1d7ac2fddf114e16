"""`dralab simulate campaign`: a grid of scenarios, schedulers and seeds."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from dralab.cli._options import FILE, FOLDER, arg, opt, options
from dralab.cli._output import echo_json, echo_table, formats
from dralab.cli._runs import bad_input
from dralab.cli._terminal import echo, echo_over
from dralab.kernel.extras import require


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
