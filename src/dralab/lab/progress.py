"""How far long work is, as one line on stderr: on terminals and in notebooks, after two seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dralab.kernel.clock import SECOND, Clock, WallClock

AFTER: Final = 2 * SECOND
EVERY: Final = SECOND // 5


class ProgressLine:
    """The line; it is written over itself, and gone at the end."""

    def __init__(self, title: str, clock: Clock, *, shown: bool) -> None:
        self.title = title
        self._clock = clock
        self._shown = shown
        self._next = clock.now() + AFTER
        self._width = 0

    def show(self, text: str) -> None:
        """Say how far it is, if it is time to."""
        if not self._shown or self._clock.now() < self._next:
            return
        self._next = self._clock.now() + EVERY
        self._write(f"{self.title}: {text}")

    def close(self) -> None:
        """Leave no trace."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)


@contextmanager
def progress_line(title: str) -> Iterator[ProgressLine]:
    """Yield a line that is shown where somebody may look."""
    shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    line = ProgressLine(title, WallClock(), shown=shown)
    try:
        yield line
    finally:
        line.close()
