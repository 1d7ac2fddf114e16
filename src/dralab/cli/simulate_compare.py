"""`dralab simulate compare`: compare two reports of the same workload."""

from pathlib import Path

import click

from dralab.cli._options import FILE, FOLDER, arg, opt, options
from dralab.cli._output import echo_values, formats
from dralab.cli._runs import bad_input


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
