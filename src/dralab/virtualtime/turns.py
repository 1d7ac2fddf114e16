"""Lets threads go on one after another, so that programs do the same each time.

A thread that waits for another one (futex) or for its descriptors (epoll) is stopped before it
makes the call, and goes on when all others wait and it would find something. Nothing then depends
on which thread is faster, nor on when bytes arrive. How its call ends is left to `waits`.
"""

import os
import select
from collections.abc import Sequence

from dralab.virtualtime.threads import ThreadState, ThreadTable, TracedThread


class ThreadTurns:
    """The queue of threads that are stopped before they look whether they have to wait."""

    def __init__(self, table: ThreadTable) -> None:
        self._table = table
        self._queue: dict[int, TracedThread] = {}

    def queue(self, thread: TracedThread) -> None:
        """Keep a thread, about to wait or to begin, until all others wait: it comes last."""
        self._queue.pop(thread.tid, None)
        self._queue[thread.tid] = thread
        thread.stop(ThreadState.GATED)
        thread.empty = False

    def waiting(self) -> Sequence[TracedThread]:
        """Return the threads that may find something, in the order of their turns."""
        gone = [
            tid
            for tid, thread in self._queue.items()
            if thread.state is not ThreadState.GATED or self._table.all.get(tid) is not thread
        ]
        for tid in gone:
            del self._queue[tid]
        if self._table.moved:  # what has run may have done what others wait for
            self._table.moved = False
            return list(self._queue.values())
        return [thread for thread in self._queue.values() if not thread.empty]


def finds_something(thread: TracedThread) -> bool:
    """Whether the call before which a thread has stopped would return at once."""
    wait = thread.wait
    if wait is None:
        return True
    arguments = wait.arguments
    if wait.call.name == "futex":
        word = thread.process.read(arguments[0], 4)
        return word != (arguments[2] & 0xFFFFFFFF).to_bytes(4, "little")
    if wait.call.sleeps:
        return False
    descriptor = thread.process.duplicate(arguments[0] & 0xFFFFFFFF)
    if descriptor < 0:
        return True  # the kernel will tell it
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        return bool(poll.poll(0))
    finally:
        os.close(descriptor)
