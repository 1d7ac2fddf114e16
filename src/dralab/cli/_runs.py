"""Shared by the commands that simulate: bad input, progress, and resuming."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from dralab.cli._progress import watching
from dralab.cli._terminal import echo
from dralab.scenarios.errors import InputError, InputProblems

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class ResumableRun(Protocol[Answer_co]):
    """A run that can be stopped, saved and resumed."""

    def go(
        self,
        progress: Callable[[int, int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Answer_co:
        """Run on; `progress` gets the simulated nanoseconds, the finished tasks and all tasks."""
        ...


def watched(title: str, work: ResumableRun[Answer]) -> Answer:
    """Run until the end or Ctrl-C, with a progress bar."""
    with bad_input(), watching(title) as watcher:
        return work.go(watcher.show, watcher.stop)


def keep(save: Callable[[Path], None], path: Path) -> None:
    """Report that a run was stopped, and write its checkpoint."""
    echo("stopped; partial results saved", err=True)
    try:
        save(path)
    except InputError as error:
        echo(f"no checkpoint written: {error.problem}", err=True)
    else:
        echo(f"resume with --resume {path}", err=True)


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn an InputError into one line on stderr and exit code 2."""
    try:
        yield
    except InputError as error:
        echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None


def report_skipped(problems: InputProblems) -> None:
    """Report on stderr what --lenient skipped."""
    for error in problems.skipped[:10]:
        echo(f"skipped: {error}", err=True)
    if len(problems.skipped) > 10:
        echo(f"skipped: {len(problems.skipped) - 10} more", err=True)
