"""Time as an argument: integer nanoseconds since the Unix epoch, from the wall or simulated."""

import time
from datetime import UTC, datetime
from typing import NewType, Protocol

Nanoseconds = NewType("Nanoseconds", int)

SECOND = 1_000_000_000


class Clock(Protocol):
    """Something that knows what time it is."""

    def now(self) -> Nanoseconds:
        """Return the time, in nanoseconds since the Unix epoch."""
        ...


class WallClock:
    """The machine's own time."""

    def now(self) -> Nanoseconds:
        """Return the machine's time, in nanoseconds since the Unix epoch."""
        return Nanoseconds(time.time_ns())


class ManualClock:
    """A clock that moves only when told to; the simulated engine and the tests drive it."""

    def __init__(self, start: int = 0) -> None:
        self._now = start

    def now(self) -> Nanoseconds:
        """Return the time it was last moved to."""
        return Nanoseconds(self._now)

    def advance_to(self, when: int) -> None:
        """Move forward to `when`; ValueError where that would be backward."""
        if when < self._now:
            raise ValueError(f"time cannot go back: it is {self._now} and was asked to be {when}")
        self._now = when

    def advance(self, nanoseconds: int) -> None:
        """Move forward by `nanoseconds`."""
        self.advance_to(self._now + nanoseconds)


def rfc3339(when: int) -> str:
    """Return `when` as metav1.Time writes it: UTC, whole seconds.

    >>> rfc3339(1_700_000_000_999_999_999)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(when // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(when: int) -> str:
    """Return `when` as metav1.MicroTime writes it: UTC, six digits.

    >>> rfc3339_micro(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123456Z'
    """
    seconds, rest = divmod(when, SECOND)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest // 1000:06d}Z"


def from_rfc3339(text: str) -> Nanoseconds:
    """Return the time that an RFC 3339 text names; ValueError where it names none.

    >>> from_rfc3339("2023-11-14T22:13:20Z")
    1700000000000000000
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    since = moment - datetime.fromtimestamp(0, UTC)
    return Nanoseconds((since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1_000)
