"""The event queue: one heap of (time, priority, number), and the clock that it moves.

`step()` is the whole truth: it takes the earliest event, moves the clock there and calls what was
put there. Two events of one instant come in the order of their priority, then in the order in
which they were put in. So a run depends on nothing but what was put in: no hash order, no wall
clock. The shape is SimPy's, with integer nanoseconds and plain calls instead of generators.
"""

import heapq
from collections.abc import Callable
from typing import Final

from dralab.kernel.clock import ManualClock, Nanoseconds

# Of one instant: what ends comes before what begins, and decisions come after both: first those of
# quotas, then where pods go. Pods that lost their node are made anew only then: those for which
# they had to go are tried first. Machines become ready or go after all that; autoscalers look last.
ENDING: Final = 0
BEGINNING: Final = 1
NORMAL: Final = 2
ADMITTING: Final = 3
DECIDING: Final = 4
RETURNING: Final = 5
SCALING: Final = 6
LOOKING: Final = 7

Call = Callable[[], object]


class Event:
    """Something that will be called at a time, unless it is cancelled before."""

    __slots__ = ("call", "number", "priority", "when")

    def __init__(self, when: int, priority: int, number: int, call: Call | None) -> None:
        self.when = when
        self.priority = priority
        self.number = number
        self.call = call

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled or has already been called."""
        return self.call is None

    def cancel(self) -> None:
        """Forget it; cancelling twice, or after it happened, does nothing."""
        self.call = None

    def __repr__(self) -> str:
        return f"Event(when={self.when}, priority={self.priority}, number={self.number})"


class Events:
    """The events to come, and the clock that shows the time of the last one.

    >>> events = Events()
    >>> for name in ("second", "third"):
    ...     _ = events.at(5, lambda name=name: print(events.clock.now(), name))
    >>> _ = events.after(5, lambda: print(events.clock.now(), "first"), priority=ENDING)
    >>> events.run()
    5 first
    5 second
    5 third
    3
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = ManualClock() if clock is None else clock
        # Tuples, which are compared without calls of Python; no two numbers are the same.
        self._heap: list[tuple[Nanoseconds, int, int, Event]] = []
        self._number = 0

    def now(self) -> Nanoseconds:
        """Return the time of the clock; `Events` is itself a `Clock`."""
        return self.clock.time

    def reserve(self, count: int) -> int:
        """Reserve numbers for later events, and return the first."""
        self._number += count
        return self._number - count + 1

    def at(self, when: int, call: Call, *, priority: int = NORMAL, number: int = 0) -> Event:
        """Call `call` at `when`; ValueError if that has passed.

        Of one instant and priority, events come by their numbers: the next one, or one that was
        reserved.
        """
        if when < self.clock.time:
            raise ValueError(f"cannot schedule an event at {when}: it is already {self.clock.time}")
        # Its own, even if the garbage collector runs here and what it deletes puts an event in.
        if not number:
            self._number = number = self._number + 1
        event = Event(when, priority, number, call)
        heapq.heappush(self._heap, (Nanoseconds(when), priority, number, event))
        return event

    def after(self, delay: int, call: Call, *, priority: int = NORMAL) -> Event:
        """Call `call` when `delay` nanoseconds have passed."""
        return self.at(self.clock.time + delay, call, priority=priority)

    @property
    def put_in(self) -> int:
        """The number of events scheduled so far."""
        return self._number

    def next_time(self) -> Nanoseconds | None:
        """Return when the next event happens; None if nothing is to come."""
        heap = self._heap
        while heap:
            when, _, _, event = heap[0]
            if event.call is not None:
                return when
            heapq.heappop(heap)
        return None

    def next_before(self, priority: int) -> bool:
        """Return whether something of this instant comes before that priority."""
        heap = self._heap
        return bool(heap) and self.next_time() == self.clock.time and heap[0][1] < priority

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        call = self.take_event()
        if call is None:
            return False
        call()
        return True

    def take_event(self) -> Call | None:
        """Move to the next event and return its call for the caller to make; None if none."""
        heap = self._heap
        while heap:
            when, _, _, event = heapq.heappop(heap)
            call = event.call
            if call is not None:
                event.call = None
                self.clock.advance_to(when)
                return call
        return None

    def run(self, until: int | None = None) -> int:
        """Let events happen up to and including `until` (or all); return how many did.

        With `until`, the clock shows `until` afterwards even where nothing happened then.
        """
        happened = 0
        while (when := self.next_time()) is not None and (until is None or when <= until):
            self.step()
            happened += 1
        if until is not None and until > self.clock.now():
            self.clock.advance_to(until)
        return happened

    def __len__(self) -> int:
        return len(self.pending())

    def pending(self) -> list[Event]:
        """Return the events to come, in the order in which they will happen."""
        return [event for *_, event in sorted(self._heap) if not event.cancelled]
