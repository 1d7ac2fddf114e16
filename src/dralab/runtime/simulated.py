"""The simulated engine: time jumps from event to event, and the same input gives the same run."""

from collections.abc import Callable
from typing import TypeVar

from dralab.kernel.clock import ManualClock
from dralab.runtime.engine import Action, Agenda, Timer

T = TypeVar("T")


class SimulatedEngine:
    """Events on a clock that moves only here.

    >>> engine, seen = SimulatedEngine(ManualClock()), []
    >>> _ = engine.after(5, lambda: seen.append(engine.clock.now()))
    >>> engine.run(), seen
    (1, [5])
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._agenda = Agenda()

    def at(self, when: int, action: Action, *, priority: int = 0) -> Timer:
        """Run `action` at `when`; a time that has passed means now."""
        return self._agenda.put(max(when, self.clock.now()), action, priority)

    def after(self, delay: int, action: Action, *, priority: int = 0) -> Timer:
        """Run `action` in `delay` nanoseconds."""
        return self.at(self.clock.now() + delay, action, priority=priority)

    def soon(self, action: Action) -> None:
        """Run `action` at the present instant, after what is due already."""
        self._agenda.put(self.clock.now(), action)

    def offload(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `work` at the present instant, then `done`: a request takes no simulated time."""

        def both() -> None:
            try:
                result: T | Exception = work()
            except Exception as error:  # noqa: BLE001 - handed to whoever asked for the work
                result = error
            done(result)

        self.soon(both)

    def next_time(self) -> int | None:
        """Return when the next event happens; None where nothing will."""
        return self._agenda.next_time()

    def step(self) -> bool:
        """Let the next event happen, moving the clock to it; False where there is none."""
        when = self._agenda.next_time()
        if when is None:
            return False
        self.clock.advance_to(max(when, self.clock.now()))
        action = self._agenda.take().action
        if action is not None:
            action()
        return True

    def run(self, until: int | None = None, *, at_most: int | None = None) -> int:
        """Let events happen up to and including `until`, and leave the clock there.

        Without `until` it runs until nothing is left to happen, which a part with a heartbeat
        never reaches: give such a run an end. Returns how many events happened; `at_most` bounds
        it (RuntimeError: the parts answer each other without end).
        """
        count = 0
        while (when := self._agenda.next_time()) is not None and (until is None or when <= until):
            if at_most is not None and count >= at_most:
                raise RuntimeError(f"{count} events and no rest at {self.clock.now()} ns")
            self.step()
            count += 1
        if until is not None and until > self.clock.now():
            self.clock.advance_to(until)
        return count

    def settle(self, *, at_most: int = 1_000_000) -> int:
        """Let everything that is due at the present instant happen; the clock stays."""
        return self.run(self.clock.now(), at_most=at_most)
