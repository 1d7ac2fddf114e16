"""The engine under every moving part: one heap of (time, priority, number, event).

A part is single-threaded: everything it does is an event of its engine, one after the other.
`live` waits for the wall clock between two events, `simulated` moves its clock to the next one;
that is the whole difference, so a part cannot tell which of the two it runs on.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dralab.kernel.clock import Clock

Action = Callable[[], None]
T = TypeVar("T")


@dataclass(slots=True, order=True)
class Timer:
    """An event that will happen: at one instant lower priorities first, then the older."""

    when: int
    priority: int
    number: int
    action: Action | None = field(compare=False)

    def cancel(self) -> None:
        """Make sure that it does not happen; does nothing where it did already."""
        self.action = None


class Engine(Protocol):
    """Something that makes events happen at their time."""

    @property
    def clock(self) -> Clock:
        """The time in which the events happen."""
        ...

    def at(self, when: int, action: Action, *, priority: int = 0) -> Timer:
        """Run `action` at `when` (ns since the epoch), or next where that has passed."""
        ...

    def after(self, delay: int, action: Action, *, priority: int = 0) -> Timer:
        """Run `action` in `delay` nanoseconds."""
        ...

    def soon(self, action: Action) -> None:
        """Run `action` after what is due already. The one method that any thread may call."""
        ...

    def offload(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run work that may wait for a network beside the events, then `done` as an event."""
        ...


class Agenda:
    """The heap itself: what will happen, in order. Both engines are built on it."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, when: int, action: Action, priority: int = 0) -> Timer:
        """Note an event."""
        self._number += 1
        timer = Timer(when, priority, self._number, action)
        heapq.heappush(self._heap, timer)
        return timer

    def next_time(self) -> int | None:
        """Return when the next event happens; None where nothing will."""
        while self._heap and self._heap[0].action is None:
            heapq.heappop(self._heap)
        return self._heap[0].when if self._heap else None

    def take(self) -> Timer:
        """Return the next event and forget it; IndexError where there is none."""
        return heapq.heappop(self._heap)
