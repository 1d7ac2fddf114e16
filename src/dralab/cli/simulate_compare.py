"""`dralab simulate compare`: compare two reports of the same workload."""

from pathlib import Path

import click

from dralab.cli._output import echo_values, output_option
from dralab.cli._runs import FOLDER, bad_input


@click.command()
@click.argument("first", type=FOLDER)
@click.argument("second", type=FOLDER)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML page to this file.",
)
@output_option("json", "yaml", "table")
def compare(first: Path, second: Path, page: Path | None, output: str) -> None:
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
