"""Time as an argument: integer nanoseconds since the Unix epoch, from the wall or simulated.

How times are written is in `times`; its names are given on here, since who asks a clock mostly
writes down the answer.
"""

import time
from typing import Final, Protocol

from dralab.kernel.times import SECOND, Nanoseconds, from_rfc3339, rfc3339, rfc3339_micro

__all__ = [
    "SECOND",
    "Clock",
    "ManualClock",
    "Nanoseconds",
    "WallClock",
    "from_rfc3339",
    "rfc3339",
    "rfc3339_micro",
]


class Clock(Protocol):
    """Something that knows what time it is."""

    def now(self) -> Nanoseconds:
        """Return the time, in nanoseconds since the Unix epoch."""
        ...


# Measures how long something takes, in nanoseconds from no time in particular: for metrics, on
# which nothing else may depend.
stopwatch: Final = time.perf_counter_ns


class WallClock:
    """The machine's own time."""

    def now(self) -> Nanoseconds:
        """Return the machine's time, in nanoseconds since the Unix epoch."""
        return Nanoseconds(time.time_ns())


class ManualClock:
    """A clock that is advanced explicitly; the simulated engine and the tests drive it."""

    def __init__(self, start: int = 0) -> None:
        self.time = Nanoseconds(start)

    def now(self) -> Nanoseconds:
        """Return the time it was last moved to."""
        return self.time

    def advance_to(self, when: int) -> None:
        """Move forward to `when`; ValueError if that would be backward."""
        if when < self.time:
            raise ValueError(f"time cannot go backwards from {self.time} to {when}")
        self.time = Nanoseconds(when)

    def advance(self, nanoseconds: int) -> None:
        """Move forward by `nanoseconds`."""
        self.advance_to(self.time + nanoseconds)
