"""The live engine: the same heap of events, waiting for the wall clock in its own thread."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dralab.kernel.clock import SECOND, Clock, WallClock
from dralab.kernel.events import NORMAL, Call, Event, Events
from dralab.runtime.engine import Action

T = TypeVar("T")

logger = logging.getLogger(__name__)
LONGEST_WAIT = 3600.0


class LiveEngine:
    """Events in real time. Everything of a part runs on this engine's one thread.

    `workers` threads take what parts offload; with none of them it runs in line, which is
    right for a client in this process, whose answers wait for nothing.
    """

    def __init__(
        self, *, name: str = "engine", workers: int = 0, clock: Clock | None = None
    ) -> None:
        self.clock: Clock = clock or WallClock()
        self.name = name
        self._events = Events()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._pool = (
            ThreadPoolExecutor(workers, thread_name_prefix=f"{name}-offload") if workers else None
        )

    def at(self, when: int, action: Action, *, priority: int = NORMAL) -> Event:
        """Run `action` at `when` (ns since the epoch), or next where that has passed."""
        with self._changed:
            event = self._events.at(max(when, self._events.now()), action, priority=priority)
            self._changed.notify()
        return event

    def after(self, delay: int, action: Action, *, priority: int = NORMAL) -> Event:
        """Run `action` in `delay` nanoseconds."""
        return self.at(self.clock.now() + delay, action, priority=priority)

    def soon(self, action: Action) -> None:
        """Run `action` after what is due already; any thread may call it."""
        self.at(self.clock.now(), action)

    def offload(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `work` on a worker's thread, then `done` as an event of this engine."""

        def attempt() -> None:
            try:
                result: T | Exception = work()
            except Exception as error:  # noqa: BLE001 - handed to whoever asked for the work
                result = error
            self.soon(lambda: done(result))

        if self._pool is None:
            self.soon(attempt)
        else:
            self._pool.submit(attempt)

    def start(self) -> None:
        """Begin, in its own thread."""
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Let events happen until `stop`, in the caller's thread."""
        while (call := self._await()) is not None:
            try:
                call()
            except Exception:
                # One part's defect must not silence the others on this engine.
                logger.exception("an event failed")

    def stop(self, timeout: float = 10.0) -> None:
        """Stop after the event that is happening; `timeout` in seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _await(self) -> Call | None:
        """Wait for the next event; None when told to stop."""
        with self._changed:
            while not self._stopping:
                when = self._events.next_time()
                if when is None:
                    self._changed.wait(LONGEST_WAIT)
                    continue
                wait = when - self.clock.now()
                if wait <= 0:
                    return self._events.take_event()
                self._changed.wait(min(wait / SECOND, LONGEST_WAIT))
            return None
