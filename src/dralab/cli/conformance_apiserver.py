"""`dralab conformance apiserver`: replay what a real API server answered."""

import sys
from pathlib import Path

import click

from dralab.apiserver.conformance.replay import RecordingError, Replay, cases_of
from dralab.apiserver.conformance.senders import TOKEN, InProcess, OverHttp, Sender
from dralab.cli.conformance import content
from dralab.cli.errors import Unusable


@click.command("apiserver")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--server", help="Ask this server instead of a fresh one in this process.")
@click.option("--token", default=TOKEN, show_default=True, help="The bearer token to show.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--verbose", "-v", is_flag=True, help="Also name the cases that pass.")
def command(file: Path, server: str | None, token: str, insecure: bool, verbose: bool) -> None:
    """Replay recorded requests in order and compare the answers.

    The server must be fresh, know the token, allow everything, and run no controllers and no
    admission of service accounts. Times, uids, revisions and generated names may differ. Ends
    with "N passed, N failed, N different on purpose"; exit code 1 where a case failed.

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
                    click.echo(f"ok   {outcome.number} {outcome.name}")
                continue
            if outcome.on_purpose:
                different += 1
                click.echo(f"diff {outcome.number} {outcome.name}: {outcome.on_purpose}")
                continue
            failed += 1
            click.echo(f"FAIL {outcome.number} {outcome.name}")
            for problem in outcome.problems:
                click.echo(f"     {problem}")
    except OSError as error:
        raise Unusable(f"{server}: {error}") from None
    click.echo(f"{passed} passed, {failed} failed, {different} different on purpose")
    sys.exit(1 if failed else 0)
