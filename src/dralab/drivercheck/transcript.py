"""The exchange between the bench and a driver: gRPC calls, API requests, starts and kills.

A check that fails shows the part of it that belongs to the check.
"""

import threading
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dralab.kernel.clock import SECOND, Clock

LONGEST: Final = 600  # characters of one message that are shown
MOST: Final = 20_000  # entries that are kept of one check


@dataclass(frozen=True, slots=True)
class Entry:
    """One event: when, in nanoseconds since the check began, on which channel, and what."""

    at: int
    channel: str
    text: str

    def __str__(self) -> str:
        return f"{self.at / SECOND:8.3f}s {self.channel:<5} {self.text}"


class Transcript:
    """The events of one check; any thread may add to it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._start = clock.now()

    def begin(self) -> None:
        """Forget all events: another check begins."""
        with self._lock:
            self._entries.clear()
            self._start = self.clock.now()

    def add(self, channel: str, text: str) -> None:
        """Note one event."""
        entry = Entry(self.clock.now() - self._start, channel, text)
        with self._lock:
            if len(self._entries) < MOST:
                self._entries.append(entry)

    @property
    def entries(self) -> list[Entry]:
        """All events so far."""
        with self._lock:
            return list(self._entries)

    def lines(self, most: int = 60) -> list[str]:
        """Return the last events as lines; a first line says how many are left out."""
        entries = self.entries
        left = len(entries) - most
        shown = [str(entry) for entry in entries[-most:]]
        return [f"… {left} earlier events", *shown] if left > 0 else shown


def short(value: Any, longest: int = LONGEST) -> str:
    """Return a message as JSON on one line, cut where it is long."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
