"""Long computations of requests: one thread at a time; the user with the least CPU time is first.

Threads that compute share the interpreter's lock with the loop: each further one makes every small
request of others wait for it as often as the loop has given the lock away.
"""

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from time import thread_time

from dralab.apiserver.cpu_use import CpuUse
from dralab.kernel.clock import SECOND, WallClock


class WaitedTooLong(Exception):  # noqa: N818 - a fact, which becomes a Status
    """The request timed out before its turn came."""


class LongWork:
    """Gives turns to threads; all of it may be called from any thread.

    >>> work = LongWork()
    >>> with work.turn("jane", timeout=1):
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._use = CpuUse(lambda: WallClock().now() / SECOND)
        self._busy = False
        # Who waits, in the order of their coming, and what tells them that it is their turn.
        self._waiting: list[tuple[Hashable, threading.Event]] = []

    @contextmanager
    def turn(self, user: Hashable, timeout: float) -> Iterator[None]:
        """Wait for a turn of `user`, and keep it inside. WaitedTooLong."""
        self._begin(user, timeout)
        began = thread_time()
        try:
            yield
        finally:
            self._end(user, thread_time() - began)

    def _begin(self, user: Hashable, timeout: float) -> None:
        with self._lock:
            if timeout <= 0:
                raise WaitedTooLong
            if not self._busy:
                self._busy = True
                return
            ours = user, threading.Event()
            self._waiting.append(ours)
        if ours[1].wait(timeout):
            return
        with self._lock:
            if not ours[1].is_set():
                self._waiting.remove(ours)
                raise WaitedTooLong
        # It was given the turn in the same instant.

    def _end(self, user: Hashable, seconds: float) -> None:
        with self._lock:
            self._use.charge(user, seconds)
            if not self._waiting:
                self._busy = False
                return
            first = min(
                range(len(self._waiting)), key=lambda at: self._use.of(self._waiting[at][0])
            )
            self._waiting.pop(first)[1].set()
