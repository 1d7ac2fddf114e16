"""The simulated engine: time jumps from event to event, and the same input gives the same run."""

from collections.abc import Callable
from typing import TypeVar

from dralab.kernel.clock import ManualClock
from dralab.kernel.events import NORMAL, Event, Events
from dralab.runtime.engine import Action

T = TypeVar("T")


class SimulatedEngine:
    """Events on a clock that moves only here; `events` may be shared with a simulation's own.

    >>> engine, seen = SimulatedEngine(), []
    >>> _ = engine.after(5, lambda: seen.append(engine.clock.now()))
    >>> engine.run(), seen
    (1, [5])
    """

    def __init__(self, events: Events | None = None) -> None:
        self.events = Events() if events is None else events
        self._paused = 0

    @property
    def clock(self) -> ManualClock:
        """The simulated time."""
        return self.events.clock

    def at(self, when: int, action: Action, *, priority: int = NORMAL) -> Event:
        """Run `action` at `when`; a time that has passed means now."""
        return self.events.at(max(when, self.clock.now()), action, priority=priority)

    def after(self, delay: int, action: Action, *, priority: int = NORMAL) -> Event:
        """Run `action` in `delay` nanoseconds."""
        return self.at(self.clock.now() + delay, action, priority=priority)

    def soon(self, action: Action) -> None:
        """Run `action` at the present instant, after what is due already."""
        self.events.at(self.clock.now(), action)

    def offload(
        self,
        work: Callable[[], T],
        done: Callable[[T | Exception], None],
        *,
        lane: str = "",  # noqa: ARG002 - nothing waits here
    ) -> None:
        """Run `work` at the present instant, then `done`: a request takes no simulated time.

        What the work says to `pause` passes between the two.
        """

        def both() -> None:
            self._paused = 0
            try:
                result: T | Exception = work()
            except Exception as error:  # noqa: BLE001 - handed to the caller of the work
                result = error
            if self._paused:
                self.after(self._paused, lambda: done(result))
            else:
                done(result)

        self.soon(both)

    def pause(self, delay: int) -> None:
        """Let the current work take `delay` nanoseconds, such as a slow driver's."""
        self._paused += delay

    def step(self) -> bool:
        """Let the next event happen, moving the clock to it; False if there is none."""
        return self.events.step()

    def run(self, until: int | None = None, *, at_most: int | None = None) -> int:
        """Let events happen up to and including `until`, and leave the clock there.

        Without `until` it runs until nothing is left to happen, which a part with a heartbeat
        never reaches: give such a run an end. Returns how many events happened; `at_most` bounds
        it (RuntimeError: the parts answer each other without end).
        """
        count = 0
        while (when := self.events.next_time()) is not None and (until is None or when <= until):
            if at_most is not None and count >= at_most:
                raise RuntimeError(f"{count} events without progress at {self.clock.now()} ns")
            self.step()
            count += 1
        if until is not None and until > self.clock.now():
            self.clock.advance_to(until)
        return count

    def settle(self, *, at_most: int = 1_000_000) -> int:
        """Let everything that is due at the present instant happen; the clock stays."""
        return self.run(self.clock.now(), at_most=at_most)
