"""The live engine: the same heap of events, waiting for the wall clock in its own thread."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dralab.kernel.clock import SECOND, Clock, WallClock, rfc3339
from dralab.kernel.events import NORMAL, Call, Event, Events
from dralab.runtime.cluster_clock import ClusterClock
from dralab.runtime.engine import Action

T = TypeVar("T")

logger = logging.getLogger(__name__)
LONGEST_WAIT = 3600.0
MOST_OF_A_LANE = 16


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
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._rested = threading.Condition(lock)  # nothing is due
        self._stopping = False
        self._busy = False  # an event is happening,
        self._offloaded = 0  # and so much work that parts gave away is not finished.
        self._thread: threading.Thread | None = None
        self._lanes = _Lanes(name)
        self._pool = (
            ThreadPoolExecutor(workers, thread_name_prefix=f"{name}-offload") if workers else None
        )

    def now(self) -> int:
        """Return the time of the clock."""
        return self.clock.now()

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

    def offload(
        self, work: Callable[[], T], done: Callable[[T | Exception], None], *, lane: str = ""
    ) -> None:
        """Run `work` on a worker's thread, then `done` as an event of this engine.

        A `lane` has threads of its own for as long as it has work, 16 at most: who never answers
        there keeps no other client waiting.
        """

        def attempt() -> None:
            try:
                result: T | Exception = work()
            except Exception as error:  # noqa: BLE001 - handed to the caller of the work
                result = error
            self.soon(lambda: done(result))
            with self._changed:
                self._offloaded -= 1
                self._rested.notify_all()

        with self._changed:
            if self._stopping:
                return  # nothing happens any more, and the threads are gone
            self._offloaded += 1
            if self._pool is not None and not lane:
                self._pool.submit(attempt)
                return
        if self._pool is None:
            self.soon(attempt)
        else:
            self._lanes.submit(lane, attempt)

    def start(self) -> None:
        """Begin, in its own thread."""
        if isinstance(self.clock, ClusterClock):
            self.clock.attach(self)
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Let events happen until `stop`, in the caller's thread."""
        while (call := self._await()) is not None:
            try:
                call()
            except Exception:
                # A defect in one component must not stop the others on this engine.
                logger.exception("an event failed")

    def stop(self, timeout: float = 10.0) -> None:
        """Stop after the event that is happening; `timeout` in seconds."""
        if isinstance(self.clock, ClusterClock):
            self.clock.detach(self)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            self._rested.notify_all()
        self._lanes.stop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def put_in(self) -> int:
        """The number of events scheduled so far."""
        with self._changed:
            return self._events.put_in

    def wake(self) -> None:
        """Look at the clock again, which was moved."""
        with self._changed:
            self._changed.notify_all()

    def wait_idle(self, patience: float) -> int | None:
        """Return when the next event happens, once none is due; None if there is none.

        TimeoutError after `patience` real seconds.
        """
        with self._changed:
            if not self._rested.wait_for(self._is_idle, patience):
                raise TimeoutError(
                    f"{self.name} is still busy after {patience:g} s, at its clock's time "
                    f"{rfc3339(self.clock.now())}"
                )
            return None if self._stopping else self._events.next_time()

    def _is_idle(self) -> bool:
        if self._stopping:
            return True
        when = self._events.next_time()
        due = when is not None and when <= self.clock.now()
        return not (due or self._busy or self._offloaded)

    def _await(self) -> Call | None:
        """Wait for the next event; None when stopped."""
        with self._changed:
            self._busy = False
            while not self._stopping:
                when = self._events.next_time()
                if when is None:
                    self._rested.notify_all()
                    self._changed.wait(LONGEST_WAIT)
                    continue
                wait = when - self.clock.now()
                if wait <= 0:
                    self._busy = True
                    return self._events.take_event()
                self._rested.notify_all()
                self._changed.wait(min(wait / SECOND, LONGEST_WAIT))
            self._rested.notify_all()
            return None


class _Lanes:
    """Work by lane, each in its own threads, which end when the lane is empty."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Action]] = {}
        self._threads: Counter[str] = Counter()

    def submit(self, lane: str, work: Action) -> None:
        """Run work soon."""
        with self._lock:
            self._waiting.setdefault(lane, deque()).append(work)
            if self._threads[lane] >= MOST_OF_A_LANE:
                return
            self._threads[lane] += 1
        threading.Thread(
            target=self._run, args=(lane,), name=f"{self._name}-{lane}", daemon=True
        ).start()

    def stop(self) -> None:
        """Refuse new work."""
        with self._lock:
            for waiting in self._waiting.values():
                waiting.clear()

    def _run(self, lane: str) -> None:
        while True:
            with self._lock:
                waiting = self._waiting.get(lane)
                if not waiting:
                    self._threads[lane] -= 1
                    if not self._threads[lane]:
                        del self._threads[lane]
                        self._waiting.pop(lane, None)
                    return
                work = waiting.popleft()
            work()
