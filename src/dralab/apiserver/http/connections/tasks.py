"""Requests that wait without a thread: each runs in a stack of its own, in the thread of the loop.

With a thread for each, the interpreter changes between threads several times a write, which takes
as long as the write. Needs the extra `etcd`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import Any, Final

from greenlet import getcurrent, greenlet

from dralab.apiserver.signals import Signal, running

HELD: Final = 0.005  # seconds after which tasks that could go on let the loop have a turn


class Tasks:
    """An executor in the loop's thread; to be made there. `lock` is that of the store."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.main = getcurrent()
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ready: deque[Callable[[], None]] = deque()
        self._told = False

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Begin with some work in a further turn of the loop; it may wait for a `Signal`."""
        self.call(_Task(self, partial(work, *arguments)).go_on)

    def shutdown(self, *, wait: bool = True) -> None:
        """Leave what waits aside: the loop is over."""

    def seconds(self) -> float:
        """Return the CPU time that the running task has used."""
        task = running.task
        return task.spent + thread_time() - task.since if isinstance(task, _Task) else 0.0

    def call(self, ready: Callable[[], None]) -> None:
        """Call something in a further turn of the loop; any thread may ask for it."""
        self._ready.append(ready)
        if not self._told:
            self._told = True
            here = threading.get_ident() == self._thread
            with suppress(RuntimeError):  # the loop is closed
                (self.loop.call_soon if here else self.loop.call_soon_threadsafe)(self._turn)

    def _turn(self) -> None:
        # First: who appends from here on tells again.
        self._told = False
        until = self.loop.time() + HELD
        while self._ready:
            self._ready.popleft()()
            if self._ready and self.loop.time() > until:
                if not self._told:
                    self._told = True
                    self.loop.call_soon(self._turn)
                break


class _Task(greenlet):  # type: ignore[misc]
    """One piece of work."""

    def __init__(self, tasks: Tasks, work: Callable[[], None]) -> None:
        super().__init__(work, tasks.main)
        self.lock = tasks.lock
        self._tasks = tasks
        self._awaited: Signal | None = None
        self.spent, self.since = 0.0, 0.0

    def go_on(self) -> None:
        """Run until it waits or ends."""
        running.task, self.since = self, thread_time()
        try:
            self.switch()
        finally:
            running.task = None

    def wait(self, signal: Signal, timeout: float | None) -> None:
        """Let the loop go on until a signal is given, or the seconds are over."""
        tasks, self._awaited = self._tasks, signal
        timer = None if timeout is None else tasks.loop.call_later(timeout, self._resumed, signal)
        self.spent += thread_time() - self.since
        tasks.main.switch()
        if timer is not None:
            timer.cancel()

    def after_others(self, call: Callable[[], None]) -> None:
        """Call something once all tasks that could go on now have done so."""
        self._tasks.call(call)

    def resume(self, signal: Signal) -> None:
        """Go on with it in the loop if it waits for this signal; any thread may call it."""
        self._tasks.call(partial(self._resumed, signal))

    def _resumed(self, signal: Signal) -> None:
        if self._awaited is signal:
            self._awaited = None
            self.go_on()
