"""The event queue: one heap of (time, priority, number), and the clock that it moves.

`step()` is the whole truth: it takes the earliest event, moves the clock there and calls what was
put there. Two events of one instant come in the order of their priority, then in the order in
which they were put in. So a run depends on nothing but what was put in: no hash order, no wall
clock. The shape is SimPy's, with integer nanoseconds and plain calls instead of generators.
"""

import heapq
from collections.abc import Callable
from itertools import chain
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

# Events are ordered by spans of 2**42 nanoseconds (73 minutes).
SPAN: Final = 42

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


# Tuples, which are compared without calls of Python; no two numbers are the same.
Entry = tuple[Nanoseconds, int, int, Event]


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
        # The events of the next time. Those beyond `_near` wait unordered in spans of time: a heap
        # of the few that come next stays in the caches of a processor.
        self._heap: list[Entry] = []
        self._near = (self.clock.time >> SPAN) + 1 << SPAN
        self._later: dict[int, list[Entry]] = {}
        self._spans: list[int] = []
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
        entry = Nanoseconds(when), priority, number, event
        if when < self._near:
            heapq.heappush(self._heap, entry)
            return event
        span = when >> SPAN
        later = self._later.get(span)
        if later is None:
            later = self._later[span] = []
            heapq.heappush(self._spans, span)
        later.append(entry)
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
        while heap or self._come_nearer():
            when, _, _, event = heap[0]
            if event.call is not None:
                return when
            heapq.heappop(heap)
        return None

    def _come_nearer(self) -> bool:
        """Order the events of the next span; False if there is none."""
        if not self._spans:
            return False
        span = heapq.heappop(self._spans)
        self._near = span + 1 << SPAN
        self._heap.extend(sorted(self._later.pop(span)))
        return True

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
        when = self.next_time()
        if when is None:
            return None
        event = heapq.heappop(self._heap)[-1]
        call, event.call = event.call, None
        self.clock.advance_to(when)
        return call

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
        entries = chain(self._heap, *self._later.values())
        return [event for *_, event in sorted(entries) if not event.cancelled]
