"""`dralab conformance cel`: run a case file of device selectors."""

import sys
from pathlib import Path

import click

from dralab.cel.conformance import run_cases
from dralab.cli._options import EXISTING, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.conformance import content


@click.command("cel")
@options
def command(
    *,
    file: Path = arg(EXISTING),
    verbose: bool = opt("Also print the cases that pass.", flags="--verbose -v"),
) -> None:
    """Run a case file of CEL device selectors.

    Each case checks the match or error and the expected maximum cost, and the recorded estimated
    and actual cost if there are any. The last line is "N passed, N failed".

    Example: dralab conformance cel ../shared/cases/cel-cases.json
    """
    cases = content(file)
    if not isinstance(cases, list) or not all(
        isinstance(case, dict) and {"name", "expression"} <= case.keys() for case in cases
    ):
        raise click.UsageError(
            f"{file}: expected a list of cases, each with a name and an expression"
        )
    passed = failed = 0
    for outcome in run_cases(cases):
        if outcome.problems:
            failed += 1
            echo(f"FAIL {outcome.name}")
            for problem in outcome.problems:
                echo(f"     {problem}")
        else:
            passed += 1
            if verbose:
                echo(f"ok   {outcome.name}")
    echo(f"{passed} passed, {failed} failed")
    if failed:
        sys.exit(1)
