"""Longer steps over a timer of programs that have nothing to decide.

A scheduler looks into its queues every second, also where no pod waits. If its clock has advanced
by the same interval again and again, and it asked the server nothing, then several intervals are
passed in one step. Its timer fires at the end of that step, late, but before anything else happens.
If it then asks the server something after all, it might have done so earlier: `TimerMattered`, and
the run is repeated with each timer at its instant. So no decision is late. Ties may fall in another
way than with all timers, where a program draws lots for its timers and for its decisions.
"""

from typing import Final

from dralab.kernel.clock import SECOND

STEADY: Final = 5  # steps in which nothing happens before a longer one
ODD: Final = 3  # steps of other intervals in a row: then there is no such interval any more
# Longer steps end at multiples of this since the programs began: so timers of 1, 5, 10 or 30 s keep
# their instants, and what happens later happens when it would have.
STRIDE: Final = 30 * SECOND


class TimerMattered(Exception):  # noqa: N818 - no error: the run is repeated
    """A program has done something when a timer fired late."""


class Strides:
    """How far to go at once, by a clock on which programs began at `start`."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._interval = 0
        self._steady = self._odd = 0

    def stop(self) -> None:
        """Begin again with single steps: something has happened."""
        self._steady = 0

    def next(self, now: int, deadline: int, end: int) -> int:
        """Return up to which instant to go, before `end`, where a program waits for `deadline`."""
        interval = deadline - now
        self._steady += 1
        if interval != self._interval:
            self._odd += 1
            if self._odd > ODD:
                self._interval, self._odd = interval, 0
                self.stop()
            return deadline
        self._odd = 0
        if self._steady <= STEADY or not interval:
            return deadline
        stride = now + STRIDE - (now - self._start) % STRIDE
        return max(deadline, now + (min(stride, end) - now) // interval * interval)

    def went(self, *, late: bool, asked: bool) -> None:
        """Note whether programs `asked` the server something after a step, with a `late` timer."""
        if late and asked:
            raise TimerMattered
        if asked:
            self.stop()
