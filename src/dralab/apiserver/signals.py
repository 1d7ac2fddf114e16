"""Waiting for what another thread does: a thread sleeps, a task lets other tasks go on.

A task runs in the thread of the event loop, in a stack of its own (`http/connections/tasks`). One
that holds the store's lock sleeps as a thread does: the lock is the thread's, not the task's.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dralab.apiserver.guarded import is_held


class LoopTask(Protocol):
    """What the thread of a loop runs in a stack of its own."""

    lock: Any  # of the store; a task that holds it may not be put aside

    def wait(self, signal: "Signal", timeout: float | None) -> None:
        """Let the loop go on until a signal is given, or the seconds are over."""
        ...

    def after_others(self, call: Callable[[], None]) -> None:
        """Call something once all tasks that could go on now have done so."""
        ...

    def resume(self, signal: "Signal") -> None:
        """Go on with the task in the loop, if it waits for this signal; any thread may call it."""
        ...


class _Running(threading.local):
    """The task that each thread runs."""

    task: LoopTask | None = None


running = _Running()


def current() -> LoopTask | None:
    """Return the task that this thread runs and may put aside; None if it can only sleep."""
    task = running.task
    return None if task is None or is_held(task.lock) else task


class Signal:
    """Something that the thread or task which made it waits for; any thread may give it, once."""

    __slots__ = ("_lock", "given", "task")

    def __init__(self) -> None:
        self.given = False
        self.task = current()
        if self.task is None:
            self._lock = threading.Lock()
            self._lock.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is given, or some seconds; return whether it is given."""
        if self.given:
            return True
        if self.task is not None:
            self.task.wait(self, timeout)
        elif self._lock.acquire(timeout=-1 if timeout is None else timeout):
            self._lock.release()
        return self.given

    def give(self) -> None:
        """End the wait."""
        if not self.given:
            self.given = True
            if self.task is not None:
                self.task.resume(self)
            else:
                self._lock.release()


class ObjectTurns:
    """Lets one thread or task at a time do something with an object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Signal]] = {}

    @contextmanager
    def of(self, thing: Hashable) -> Iterator[None]:
        """Wait until all others that came before are done with a thing."""
        with self._lock:
            turn = Signal() if thing in self._waiting else None
            waiting = self._waiting.setdefault(thing, deque())
            if turn is not None:
                waiting.append(turn)
        if turn is not None:
            turn.wait()
        try:
            yield
        finally:
            with self._lock:
                if waiting:
                    waiting.popleft().give()
                else:
                    del self._waiting[thing]
