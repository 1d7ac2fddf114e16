"""The output of containers, and readers that follow it.

Containers write from an engine's thread or from separate threads; readers ask from the
server's.
"""

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from dralab.kernel.clock import rfc3339_micro

MOST_LINES: Final = 20_000
MOST_CHARACTERS: Final = 8 * 1024 * 1024


class ContainerLog:
    """The lines of one run of a container, with the time of each."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._lines: deque[tuple[int, str]] = deque()
        self._weight = 0
        self._count = 0
        self._ended = False
        # Whether the last line came without its end.
        self.unfinished = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def write(self, when: int, line: str, *, whole: bool = True) -> None:
        """Add a line without its end, written at `when` (ns since the epoch).

        Not `whole`: its end has not come.
        """
        with self._lock:
            self.unfinished = not whole
            self._lines.append((when, line))
            self._count += 1
            self._weight += len(line)
            while len(self._lines) > self._most or self._weight > MOST_CHARACTERS:
                self._weight -= len(self._lines.popleft()[1])
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def end(self) -> None:
        """End the input."""
        with self._lock:
            self._ended = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def read(self, after: int = 0) -> tuple[list[tuple[int, str]], int]:
        """Return the lines after the first `after` ones, and where to go on."""
        with self._lock:
            new = min(max(0, self._count - after), len(self._lines))
            # From the end: a follower reads the last of thousands of lines, again and again.
            lines = list(islice(reversed(self._lines), new))
            return lines[::-1], self._count

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` from any thread when there is more; returns what ends that."""
        with self._lock:
            self._listeners.append(listener)

        def forget() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return forget


def shown(entry: tuple[int, str], *, timestamps: bool) -> bytes:
    """Return a line as `kubectl logs` shows it."""
    when, line = entry
    return (f"{rfc3339_micro(when)} {line}\n" if timestamps else f"{line}\n").encode()
