"""A progress bar for simulated time, on stderr, only where that is a terminal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from types import FrameType
from typing import Final, ParamSpec, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dralab.kernel.clock import SECOND, WallClock

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class InterruptFlag:
    """Whether Ctrl-C was pressed once, or SIGTERM or a hangup came."""

    pressed: bool = False


_INTERRUPT: ContextVar[InterruptFlag | None] = ContextVar("interrupt", default=None)


@contextmanager
def _catching_interrupt() -> Iterator[InterruptFlag]:
    """Records a first Ctrl-C, SIGTERM or hangup; a second one stops at once."""
    outer = _INTERRUPT.get()
    if outer is not None:
        yield outer
        return
    interrupt = InterruptFlag()

    def ask(_: int, __: FrameType | None) -> None:
        interrupt.pressed = True
        for number in before:
            signal.signal(number, signal.default_int_handler)

    token = _INTERRUPT.set(interrupt)
    # What is ignored stays so: a hangup under nohup, Ctrl-C in a shell's background.
    heeded = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heeded}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _INTERRUPT.reset(token)


def keeping_results(command: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Let Ctrl-C, SIGTERM or a hangup stop a run without losing its results.

    While files are read, Ctrl-C stops the run before its first step, with a checkpoint. While
    results are written, they are written completely first.
    """

    @wraps(command)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Answer:
        with _catching_interrupt():
            return command(*given, **named)

    return call


@dataclass(slots=True)
class ProgressWatcher:
    """Shows a run's progress, and knows whether Ctrl-C was pressed."""

    interrupt: InterruptFlag
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
        """Return whether the run should stop."""
        return self.interrupt.pressed


@contextmanager
def watching(title: str) -> Iterator[ProgressWatcher]:
    """Yield a watcher; Ctrl-C asks it to stop, a second Ctrl-C stops at once."""
    console = Console(stderr=True)
    with _catching_interrupt() as interrupt:
        watcher = ProgressWatcher(interrupt)
        watcher.began = watcher.clock.now()
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
