"""`dralab conformance apiserver`: replay what a real API server answered."""

import sys
from pathlib import Path

import click

from dralab.apiserver.conformance.replay import RecordingError, Replay, cases_of
from dralab.apiserver.conformance.senders import TOKEN, InProcess, OverHttp, Sender
from dralab.cli._options import EXISTING, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.conformance import content
from dralab.cli.errors import UnusableInput


@click.command("apiserver")
@options
def command(
    *,
    file: Path = arg(EXISTING),
    server: str | None = opt("Test this server instead of a new one in this process."),
    token: str = opt("The bearer token to send.", default=TOKEN),
    insecure: bool = opt("Do not verify the server's certificate."),
    verbose: bool = opt("Also print the cases that pass.", flags="--verbose -v"),
) -> None:
    """Replay recorded requests in order and compare the answers.

    With --server, the server must be empty, accept the token, allow everything, and run neither
    controllers nor the ServiceAccount admission plugin. Times, UIDs, resource versions and
    generated names may differ. The last line is "N passed, N failed, N different on purpose". Exit
    code 1 if a case failed.

    Example: dralab conformance apiserver ../shared/testdata/apiserver/semantics-v1.36.json
    """
    try:
        cases = cases_of(content(file))
    except (ValueError, RecordingError) as error:
        raise click.UsageError(f"{file}: {error}") from None
    sender: Sender
    try:
        sender = InProcess() if server is None else OverHttp(server, insecure=insecure)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    passed = failed = different = 0
    try:
        for outcome in Replay(sender, token=token).run(cases):
            if not outcome.problems:
                passed += 1
                if verbose:
                    echo(f"ok   {outcome.number} {outcome.name}")
                continue
            if outcome.on_purpose:
                different += 1
                echo(f"diff {outcome.number} {outcome.name}: {outcome.on_purpose}")
                continue
            failed += 1
            echo(f"FAIL {outcome.number} {outcome.name}")
            for problem in outcome.problems:
                echo(f"     {problem}")
    except OSError as error:
        raise UnusableInput(f"{server}: {error}") from None
    echo(f"{passed} passed, {failed} failed, {different} different on purpose")
    sys.exit(1 if failed else 0)
