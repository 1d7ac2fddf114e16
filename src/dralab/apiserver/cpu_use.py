"""CPU time that flows have used recently: the one that used least is served first."""

from collections.abc import Callable, Hashable
from typing import Final

FORGIVEN: Final = 0.25  # seconds of use that are forgotten in a second
MOST: Final = 2.0  # seconds: whoever has used more waits for others as long as that
KEPT: Final = 1024  # flows, before those that have nothing to be forgiven are dropped


class CpuUse:
    """Seconds of CPU time by flow; without a `clock` nothing is forgotten.

    >>> now = 0.0
    >>> use = CpuUse(lambda: now)
    >>> use.charge("jane", 1.5)
    >>> now = 2.0
    >>> use.of("jane"), use.of("joe")
    (1.0, 0.0)
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._used: dict[Hashable, tuple[float, float]] = {}  # and as of when
        self._most_kept = KEPT

    def __len__(self) -> int:
        return len(self._used)

    def charge(self, flow: Hashable, seconds: float) -> None:
        """Add to what a flow has used; a negative value takes it back."""
        now = self._clock()
        self._used[flow] = min(max(self._at(flow, now) + seconds, 0.0), MOST), now
        if len(self._used) > self._most_kept:
            self._used = {each: (left, now) for each in self._used if (left := self._at(each, now))}
            self._most_kept = max(KEPT, 2 * len(self._used))

    def of(self, flow: Hashable) -> float:
        """Return what a flow has used recently."""
        return self._at(flow, self._clock())

    def _at(self, flow: Hashable, now: float) -> float:
        used, since = self._used.get(flow, (0.0, now))
        return max(used - (now - since) * FORGIVEN, 0.0)
