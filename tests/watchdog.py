"""How long one callback of an event loop holds it, in CPU time: a busy machine changes nothing."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

BUDGET = 0.25
"""Seconds that one request may hold the loop."""


@dataclass
class Watchdog:
    """The longest hold so far, and whose it was."""

    longest: float = 0.0
    by: str = ""

    def check(self, budget: float = BUDGET) -> None:
        """Fail where a callback held the loop for too long."""
        assert self.longest <= budget, f"held the loop for {self.longest:.3f} s: {self.by}"


@contextmanager
def watched() -> Iterator[Watchdog]:
    """Measure every callback of every loop inside; at the end, none may have been too long."""
    watchdog = Watchdog()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        held = time.thread_time() - began
        if held > watchdog.longest:
            watchdog.longest, watchdog.by = held, repr(handle)

    # Timers run as other handles do; only loops in Python call this.
    with patch.object(asyncio.Handle, "_run", measured):
        yield watchdog
    watchdog.check()
