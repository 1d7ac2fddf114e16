"""Waits for what happens in another thread or process, however busy the machine is."""

import threading
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = 150.0  # seconds: it ends a test that waits in vain, and decides nothing else
PAUSE = 0.01


def until(condition: Callable[[], Found]) -> Found:
    """Wait for a condition; return its value."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / PAUSE)):
        if found := condition():
            return found
        pause.wait(PAUSE)
    raise AssertionError("it never came to be")
