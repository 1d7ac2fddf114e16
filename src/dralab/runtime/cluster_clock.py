"""The clock of a cluster in a test: it runs in real time, and a test can advance it.

>>> clock = ClusterClock("2026-01-01T00:00:00Z", running=False)
>>> clock.advance("1h30m")
>>> clock.time
'2026-01-01T01:30:00Z'

Engines attach themselves when they start (`live`). While the clock is moved, it stands still
between their events: each happens at its time, after all that it depends on.
"""

import threading
from asyncio import to_thread
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from dralab.kernel.clock import Nanoseconds, WallClock, from_rfc3339, rfc3339
from dralab.kernel.durations import duration

# Real seconds in which what is due at one instant must be done: drivers and processes take some.
PATIENCE: Final = 60.0


class Advanced(Protocol):
    """An engine whose time is the clock's."""

    name: str

    @property
    def put_in(self) -> int:
        """The number of events scheduled so far."""
        ...

    def wait_idle(self, patience: float) -> int | None:
        """Return when its next event happens, once none is due; None if there is none.

        TimeoutError after `patience` seconds.
        """
        ...

    def wake(self) -> None:
        """Look at the clock again."""
        ...


class ClusterClock:
    """A clock that a test advances, with all events of that time.

    It starts at the machine's time, or at `start` (RFC 3339), and keeps running from there unless
    `running` is false: then it moves by `advance` alone. Any thread may use it, except those of
    the cluster.
    """

    def __init__(self, start: str = "", *, running: bool = True) -> None:
        self.running = running
        self._wall = WallClock()
        self._start = from_rfc3339(start) if start else None
        self._lock = threading.Lock()
        self._moving = threading.Lock()
        self._engines: list[Advanced] = []
        self._afterwards: Callable[[], None] = lambda: None
        self._base = self._since = 0
        self._held = not running
        self.reset()

    @property
    def time(self) -> str:
        """The time in the format of the API."""
        return rfc3339(self.now())

    def now(self) -> Nanoseconds:
        """Return the cluster's time, in nanoseconds since the Unix epoch."""
        with self._lock:
            return Nanoseconds(self._reading())

    def advance(self, by: str | float | timedelta) -> None:
        """Let time pass at once: a duration such as `1h30m`, seconds, or a timedelta.

        Returns when everything that was due in that time has happened. What clients in other
        processes do in answer follows at the new time. ValueError: not a duration. TimeoutError:
        a component is still busy after a minute of real time.
        """
        distance = duration(by)
        with self._moving:
            self._hold()
            try:
                self._move_to(self._base + distance)
            finally:
                self._release()

    async def advance_async(self, by: str | float | timedelta) -> None:
        """Do the same as `advance` without holding up the caller's event loop."""
        await to_thread(self.advance, by)

    def settle(self) -> None:
        """Wait until components have done all that is due now, without advancing time."""
        self.advance(0)

    def reset(self) -> None:
        """Reset to the start time; for a cluster whose components have stopped."""
        with self._lock:
            self._since = self._wall.now()
            self._base = self._since if self._start is None else self._start

    # --- for clusters and their engines ---------------------------------------------------

    def attach(self, engine: Advanced) -> None:
        """Let the events of an engine happen while the clock is moved."""
        with self._lock:
            self._engines.append(engine)

    def detach(self, engine: Advanced) -> None:
        """Forget an engine that ends."""
        with self._lock:
            if engine in self._engines:
                self._engines.remove(engine)

    def afterwards(self, call: Callable[[], None]) -> None:
        """Call a function each time the clock was advanced."""
        self._afterwards = call

    # --- within ---------------------------------------------------------------------------

    def _reading(self) -> int:
        return self._base if self._held else self._base + self._wall.now() - self._since

    def _hold(self) -> None:
        with self._lock:
            self._base = self._reading()
            self._held = True

    def _release(self) -> None:
        with self._lock:
            self._since = self._wall.now()
            self._held = not self.running
        self._wake()

    def _move_to(self, target: int) -> None:
        while (when := self._rest()) is not None and when <= target:
            self._set(when)
        self._set(target)
        self._rest()
        self._afterwards()
        self._rest()

    def _set(self, when: int) -> None:
        with self._lock:
            self._base = max(self._base, when)
        self._wake()

    def _wake(self) -> None:
        for engine in tuple(self._engines):
            engine.wake()

    def _rest(self) -> int | None:
        """Wait until nothing is due on any engine; return when the next event happens.

        An engine that was idle may have been given something to do by one that was looked at
        later, so all have to be idle in a round in which none was given anything.
        """
        while True:
            engines = tuple(self._engines)
            before = [engine.put_in for engine in engines]
            found = [engine.wait_idle(PATIENCE) for engine in engines]
            if [engine.put_in for engine in engines] == before:
                return min((when for when in found if when is not None), default=None)
