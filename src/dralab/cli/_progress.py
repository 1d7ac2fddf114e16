"""A progress bar for simulated time, on stderr, only where that is a terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dralab.kernel.clock import SECOND, WallClock


@dataclass(slots=True)
class Watcher:
    """Shows how far a run is, and knows whether Ctrl-C was pressed."""

    interrupted: bool = False
    bar: Progress | None = None
    task: int = 0
    clock: WallClock = field(default_factory=WallClock)
    began: int = 0

    def show(self, now: int, over: int, total: int) -> None:
        """Move the bar: simulated time, how much faster than real, and what is left."""
        if self.bar is None:
            return
        real = max(1, self.clock.now() - self.began)
        days, rest = divmod(now // SECOND, 86_400)
        when = f"day {days} {rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
        self.bar.update(
            self.bar.tasks[0].id,
            completed=over,
            total=total,
            when=when,
            speed=f"{now / real:,.0f}x",
        )

    def stop(self) -> bool:
        """Return whether the run shall leave off."""
        return self.interrupted


@contextmanager
def watching(title: str) -> Iterator[Watcher]:
    """Yield a watcher; Ctrl-C asks it to stop, a second Ctrl-C stops at once."""
    watcher = Watcher()
    watcher.began = watcher.clock.now()

    def ask(_: int, __: FrameType | None) -> None:
        watcher.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    console = Console(stderr=True)
    try:
        if not console.is_terminal:
            yield watcher
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[when]}"), TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console, transient=True) as bar:
            bar.add_task(title, when="", speed="")
            watcher.bar = bar
            yield watcher
    finally:
        signal.signal(signal.SIGINT, before)
