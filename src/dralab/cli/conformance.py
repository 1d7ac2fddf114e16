"""`dralab conformance`: case files with expected answers."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._options import EXISTING, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.cli.main import LazyGroup
from dralab.files.reading import read
from dralab.files.sources import MAX_BYTES

if TYPE_CHECKING:
    from dralab.apiserver.conformance.senders import Sender

VERBOSE: Final = opt("Also print the cases that pass.", flags="--verbose -v")


@click.group("conformance", cls=LazyGroup)
def group() -> None:
    """Run a file of cases and compare the results with the expected ones.

    Example: dralab conformance cel cel-cases.json
    """


@group.command()
@options
def allocator(
    *,
    file: Path = arg(EXISTING),
    results: Path | None = opt(
        'Write a JSON line {"name", "results", "error"} for each case to this file.',
        click.Path(dir_okay=False, writable=True, path_type=Path),
        flags="--write",
    ),
    verbose: bool = VERBOSE,
) -> None:
    """Run a case file of allocations.

    A case expects exact results, or feasibility, or the devices of a minimal problem. The last line
    is "N passed, N failed".

    Example: dralab conformance allocator allocator-cases.json
    """
    from dralab.allocation.check.conformance import judged, readable

    cases = _content(file)
    if not isinstance(cases, list):
        raise click.UsageError(f"{file}: expected a list of cases")
    for number, case in enumerate(cases):
        if not readable(case):
            raise click.UsageError(
                f"{file}: case {number}: expected name, claims, classes, slices, node, and one of "
                "expectResults, expectFeasible, expect"
            )
    counts = {"passed": 0, "failed": 0}
    lines = []
    for each in judged(cases):
        lines.append(
            json.dumps({"name": each.name, "results": each.results, "error": each.error}) + "\n"
        )
        counts[_told(each.name, each.problems, verbose=verbose)] += 1
    if results is not None:
        results.write_text("".join(lines), encoding="utf-8")
    _end(counts)


@group.command()
@options
def apiserver(
    *,
    file: Path = arg(EXISTING),
    server: str | None = opt("Test this server instead of a new one in this process."),
    token: str = opt("The bearer token to send.", default="tok"),
    insecure: bool = opt("Do not verify the server's certificate."),
    verbose: bool = VERBOSE,
) -> None:
    """Replay recorded requests in order and compare the answers.

    With --server, the server must be empty, accept the token, allow everything, and run neither
    controllers nor the ServiceAccount admission plugin. Times, UIDs, resource versions and
    generated names may differ. The last line is "N passed, N failed, N different on purpose". Exit
    code 1 if a case failed.

    Example: dralab conformance apiserver semantics-v1.36.json
    """
    from dralab.apiserver.conformance.replay import RecordingError, Replay, cases_of
    from dralab.apiserver.conformance.senders import InProcess, OverHttp

    try:
        cases = cases_of(_content(file))
    except (ValueError, RecordingError) as error:
        raise click.UsageError(f"{file}: {error}") from None
    with refusing(ValueError, kind=click.UsageError):
        sender: Sender = InProcess() if server is None else OverHttp(server, insecure=insecure)
    counts = {"passed": 0, "failed": 0, "different on purpose": 0}
    try:
        for each in Replay(sender, token=token).run(cases):
            name = f"{each.number} {each.name}"
            if each.problems and each.on_purpose:
                counts["different on purpose"] += 1
                echo(f"diff {name}: {each.on_purpose}")
            else:
                counts[_told(name, each.problems, verbose=verbose)] += 1
    except OSError as error:
        raise UnusableInput(f"{server}: {error}") from None
    _end(counts)


@group.command()
@options
def cel(*, file: Path = arg(EXISTING), verbose: bool = VERBOSE) -> None:
    """Run a case file of CEL device selectors.

    Each case checks the match or error and the expected maximum cost, and the recorded estimated
    and actual cost if there are any. The last line is "N passed, N failed".

    Example: dralab conformance cel cel-cases.json
    """
    from dralab.cel.conformance import run_cases

    cases = _content(file)
    if not isinstance(cases, list) or not all(
        isinstance(case, dict) and {"name", "expression"} <= case.keys() for case in cases
    ):
        raise click.UsageError(
            f"{file}: expected a list of cases, each with a name and an expression"
        )
    counts = {"passed": 0, "failed": 0}
    for each in run_cases(cases):
        counts[_told(each.name, each.problems, verbose=verbose)] += 1
    _end(counts)


def _content(file: Path) -> Any:
    """Return the JSON of a case file. UsageError."""
    try:
        return json.loads(read(file, MAX_BYTES))
    except OSError as error:
        raise click.UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"{file}: not JSON: {error}") from None
    except RecursionError:
        raise click.UsageError(f"{file}: is nested too deep") from None


def _told(name: str, problems: Sequence[str], *, verbose: bool) -> str:
    """Print the result of a case, and return it."""
    if problems:
        echo("\n     ".join([f"FAIL {name}", *map(str, problems)]))
        return "failed"
    if verbose:
        echo(f"ok   {name}")
    return "passed"


def _end(counts: Mapping[str, int]) -> None:
    """Print the counts of results; exit code 1 if a case failed."""
    echo(", ".join(f"{count} {how}" for how, count in counts.items()))
    sys.exit(1 if counts["failed"] else 0)
