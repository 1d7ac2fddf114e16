"""What all commands that simulate share: their options, bad input, and going on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import click

from dralab.cli._progress import watching
from dralab.simulation.errors import Complaints, InputError

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
REPORT = click.option("--report", type=FOLDER, help="Write tables and a page to look at here.")
LENIENT = click.option("--lenient", is_flag=True, help="Skip broken entries, and count them.")
RESUME = click.option(
    "--resume", type=FILE, help="Go on from the checkpoint of a run that was stopped."
)
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Stoppable(Protocol[Answer_co]):
    """A run that can be stopped, kept and gone on with."""

    def go(
        self,
        progress: Callable[[int, int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Answer_co:
        """Run on; `progress` gets simulated nanoseconds, tasks over, tasks."""
        ...


def watched(title: str, work: Stoppable[Answer]) -> Answer:
    """Let a run go on, with a bar, until Ctrl-C."""
    with bad_input(), watching(title) as watcher:
        return work.go(watcher.show, watcher.stop)


def keep(save: Callable[[Path], None], path: Path) -> None:
    """Say that a run was stopped, and write a checkpoint."""
    click.echo("stopped: what there is so far was kept", err=True)
    try:
        save(path)
    except InputError as error:
        click.echo(f"no checkpoint: {error.problem}", err=True)
    else:
        click.echo(f"go on with --resume {path}", err=True)


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn an InputError into one line on stderr and exit code 2."""
    try:
        yield
    except InputError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None


def report_skipped(complaints: Complaints) -> None:
    """Say on stderr what a lenient reading left out."""
    for error in complaints.skipped[:10]:
        click.echo(f"skipped: {error}", err=True)
    if len(complaints.skipped) > 10:
        click.echo(f"skipped: {len(complaints.skipped) - 10} more", err=True)
