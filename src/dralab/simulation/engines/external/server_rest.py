"""Whether the server has nothing to do: quickly where it has not run since it was idle."""

import os
import select
import threading
from typing import Final

from dralab.cluster import Cluster

# Yields of the processor to a thread that is about to wait.
YIELDS: Final = 20


class ServerRest:
    """The idleness of a server that serves from its own thread in this process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stat = self._runs = -1
        self._idle: bytes | None = None  # how often its thread had run when it was idle last
        self._poll: select.poll | None = None
        if (waits := cluster.waits_on) is not None and hasattr(select, "poll"):
            thread, descriptor = waits
            place = f"/proc/self/task/{thread}"
            try:
                self._stat = os.open(f"{place}/stat", os.O_RDONLY | os.O_CLOEXEC)
                self._runs = os.open(f"{place}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)

    def wait(self) -> bool:
        """Wait until it has read and answered everything; return whether it had nothing to do."""
        if self._has_not_run():
            return True
        idle = threading.Event()
        self._cluster.when_idle(idle.set, events=True)
        idle.wait()
        if self._poll is not None:
            for _ in range(YIELDS):
                if self._sleeps():
                    break
                os.sched_yield()
            self._idle = os.pread(self._runs, 80, 0)
        return False

    def close(self) -> None:
        """Let go of the files in /proc."""
        for descriptor in (self._stat, self._runs):
            if descriptor >= 0:
                os.close(descriptor)
        self._stat = self._runs = -1
        self._poll = None

    def _has_not_run(self) -> bool:
        """Whether its thread sleeps as it did when it was idle, and nothing has come to wake it."""
        if self._poll is None or self._idle is None:
            return False
        return not self._poll.poll(0) and os.pread(self._runs, 80, 0) == self._idle

    def _sleeps(self) -> bool:
        line = os.pread(self._stat, 64, 0)
        at = line.rindex(b")") + 2
        return line[at : at + 1] == b"S"
