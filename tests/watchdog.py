"""How long one thing keeps all others waiting, in CPU time: a busy machine changes nothing.

Two things can: a callback of an event loop, and a thread beside it that holds a lock which the
loop needs. The loop's thread waits then and uses no time itself, so the holder's is measured.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from dralab.apiserver.storage import MemoryStore

BUDGET = 0.25
"""Seconds that one request may hold the loop."""


@dataclass
class Watchdog:
    """The longest hold so far, and whose it was."""

    longest: float = 0.0
    by: str = ""

    def saw(self, held: float, by: str) -> None:
        """Take note of a hold."""
        if held > self.longest:
            self.longest, self.by = held, by

    def check(self, budget: float = BUDGET) -> None:
        """Fail where something held the loop for too long."""
        assert self.longest <= budget, f"held the loop for {self.longest:.3f} s: {self.by}"


class WatchedLock:
    """A store's lock whose holders are measured, from the first entry to the last exit."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.lock = threading.RLock()
        self.depth = 0
        self.began = 0.0

    def __enter__(self) -> None:
        self.lock.acquire()
        self.depth += 1
        if self.depth == 1:
            self.began = time.thread_time()

    def __exit__(self, *raised: object) -> None:
        self.depth -= 1
        if not self.depth:
            held = time.thread_time() - self.began
            self.watchdog.saw(held, f"the store's lock in {threading.current_thread().name}")
        self.lock.release()


@contextmanager
def watched(*stores: MemoryStore) -> Iterator[Watchdog]:
    """Measure every callback of every loop inside, and who holds the lock of new `stores`.

    At the end, nothing may have taken too long.
    """
    watchdog = Watchdog()
    run = asyncio.Handle._run
    for store in stores:
        store.lock = WatchedLock(watchdog)  # type: ignore[assignment]  # as good a lock

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        watchdog.saw(time.thread_time() - began, repr(handle))

    gc.freeze()  # the garbage collector has nothing to do with what other tests have left
    try:
        # Timers run as other handles do; only loops in Python call this.
        with patch.object(asyncio.Handle, "_run", measured):
            yield watchdog
    finally:
        gc.unfreeze()
    watchdog.check()
