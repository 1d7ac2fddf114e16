"""`dralab conformance allocator`: run a case file of allocations."""

import json
import sys
from pathlib import Path

import click

from dralab.allocation.check.conformance import judged, readable
from dralab.cli._options import EXISTING, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.conformance import content


@click.command("allocator")
@options
def command(
    *,
    file: Path = arg(EXISTING),
    results: Path | None = opt(
        'Write a JSON line {"name", "results", "error"} for each case to this file.',
        click.Path(dir_okay=False, writable=True, path_type=Path),
    ),
    verbose: bool = opt("Also print the cases that pass.", flags="--verbose -v"),
) -> None:
    """Run a case file of allocations.

    A case expects exact results, or feasibility, or the devices of a minimal problem. The last line
    is "N passed, N failed".

    Example: dralab conformance allocator ../shared/cases/allocator-cases.json
    """
    cases = content(file)
    if not isinstance(cases, list):
        raise click.UsageError(f"{file}: expected a list of cases")
    for number, case in enumerate(cases):
        if not readable(case):
            raise click.UsageError(
                f"{file}: case {number}: expected name, claims, classes, slices, node, and one of "
                "expectResults, expectFeasible, expect"
            )
    passed = failed = 0
    lines = []
    for each in judged(cases):
        lines.append(
            json.dumps({"name": each.name, "results": each.results, "error": each.error}) + "\n"
        )
        if each.problems:
            failed += 1
            echo(f"FAIL {each.name}")
            for problem in each.problems:
                echo(f"     {problem}")
        else:
            passed += 1
            if verbose:
                echo(f"ok   {each.name}")
    if results is not None:
        results.write_text("".join(lines), encoding="utf-8")
    echo(f"{passed} passed, {failed} failed")
    if failed:
        sys.exit(1)
