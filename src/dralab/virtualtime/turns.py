"""Resumes threads one after another, so that programs are deterministic.

A thread that waits for another one (futex) or for its descriptors (epoll) is stopped before it
makes the call, and goes on when all others wait and it would find something. Nothing then depends
on which thread is faster, nor on when bytes arrive. How its call ends is left to `waits`.
"""

from collections.abc import Callable
from typing import Final

from dralab.virtualtime.threads import ThreadState, ThreadTable, TracedThread

FUTEX_PRIVATE: Final = 0x80
FUTEX_WAIT_PRIVATE: Final = 0x80
# Go's runtime waits for the network with epoll_pwait, for so many events (runtime.netpoll).
NETPOLL_EVENTS: Final = 128


class ThreadTurns:
    """The queue of threads that are stopped before they look whether they have to wait."""

    def __init__(self, table: ThreadTable) -> None:
        self._table = table
        self._queue: dict[int, TracedThread] = {}

    def queue(self, thread: TracedThread) -> None:
        """Queue a thread that is about to wait or begin until all others wait."""
        self._queue.pop(thread.tid, None)
        self._queue[thread.tid] = thread
        thread.stop(ThreadState.GATED)
        thread.looked = -1

    def next(self, goes_on: Callable[[TracedThread], bool]) -> TracedThread | None:
        """Resume and return the first thread of the queue that can run; None if none can.

        Whatever has run may have done what others wait for; a word of memory that is a program's
        own only its own threads change. Those for which nothing can have changed are not asked.
        """
        moves, gone, found = self._table.moves, [], None
        for tid, thread in self._queue.items():
            if thread.state is not ThreadState.GATED:
                gone.append(tid)
                continue
            if thread.process.frozen:
                continue
            looked = thread.looked
            if looked == moves or (thread.process.moved <= looked and _is_private(thread)):
                continue
            thread.looked = moves
            try:
                if goes_on(thread):
                    found = thread
                    break
            except ProcessLookupError:  # killed meanwhile: its end comes next
                continue
        for tid in gone:
            del self._queue[tid]
        return found

    def needs_monitor(self, monitor: TracedThread) -> bool:
        """Whether Go's monitor may have something to do: some thread waits in a call of its own.

        Such a thread keeps a processor (in Go's sense) from the others until the monitor takes it
        back. Those that wait for other threads, or for the network, have given it away.
        """
        process = monitor.process
        for tid in process.threads:
            thread = self._table.all[tid]
            wait = thread.wait
            if thread is monitor:
                continue
            if thread.state is not ThreadState.GATED or wait is None or wait.call.sleeps:
                return True
            if wait.call.name == "futex":
                if wait.arguments[1] != FUTEX_WAIT_PRIVATE:  # C's condition variables
                    return True
                continue
            if wait.call.name != "epoll_pwait" or wait.arguments[2] != NETPOLL_EVENTS:
                return True
            descriptor = wait.arguments[0] & 0xFFFFFFFF
            if process.netpoll is None:
                process.netpoll = descriptor
            if descriptor != process.netpoll:
                return True
        return False


def finds_something(thread: TracedThread) -> bool:
    """Whether a thread's pending call would return at once."""
    wait = thread.wait
    if wait is None:
        return True
    arguments = wait.arguments
    if wait.call.name == "futex":
        word = thread.process.read(arguments[0], 4)
        return word != (arguments[2] & 0xFFFFFFFF).to_bytes(4, "little")
    if wait.call.sleeps:
        return False
    return thread.process.is_readable(arguments[0] & 0xFFFFFFFF)


def _is_private(thread: TracedThread) -> bool:
    wait = thread.wait
    if wait is None or wait.call.name != "futex":
        return False
    return bool(wait.arguments[1] & FUTEX_PRIVATE)
