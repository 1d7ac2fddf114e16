"""Tells whether all programs are idle: no thread can run, and no byte is on its way to one."""

import time
from collections.abc import Sequence
from typing import Final

from dralab.virtualtime.sockets import Connections, Loopback, Traffic
from dralab.virtualtime.threads import TracedThread
from dralab.virtualtime.tracer import Tracer

QUIET: Final = 0.02  # of our processor, from a look at everything to the next, if all is quiet
CONNECTIONS_SHARE: Final = 50  # times as long as a look at connections takes, at least
FEW: Final = 16  # threads that a look costs less than to watch what one of them does
# So many turns long a program in which a thread was seen to wait without a stop is looked at often.
BLOCKS: Final = 50


class Idleness:
    """Looks at the threads of a tracer, and at the connections of its programs.

    Connections to the processes `peers` do not count as outside.
    """

    def __init__(self, tracer: Tracer, peers: Sequence[int]) -> None:
        self.traffic = Traffic(in_flight=False, outside=False, apart=False)
        self._tracer = tracer
        self._peers = peers
        self._connections = Connections()
        self._loopback = Loopback()
        self._connections_due = 0.0
        self._whole_look_due = 0.0
        self._active: list[TracedThread] = []  # those that ran before all were idle the last time

    def close(self) -> None:
        """Close its files and sockets."""
        self._connections.close()
        self._loopback.close()

    @property
    def costs_more_than_a_watch(self) -> bool:
        """Whether a look is dearer than to stop a thread at each of its calls after its wait."""
        return len(self._tracer.table.loose) > FEW or (
            self._tracer.network.connected and not self.traffic.apart
        )

    def note(self) -> None:
        """Note that all is idle, and the clock may move on."""
        now = time.thread_time()
        if self._tracer.table.acted or now >= self._whole_look_due:
            self._whole_look_due = now + QUIET
        self._tracer.table.acted = False
        self._tracer.table.went.clear()

    def awake(self) -> TracedThread | None:
        """Return a runnable thread, or None if none is at one instant.

        One that is seen asleep may be woken by one that is looked at later. So those that have run
        since the last time come first, twice: if all are asleep and none has run in between, all
        were asleep at the instant in between. Then the others: a thread that is asleep now, and
        has not run since the last time, was asleep at that instant, too; that is known without a
        look where nothing could have woken it.
        """
        table = self._tracer.table
        # A stopped thread stays stopped, unless it was killed.
        threads = table.all if table.killed else table.loose
        ran = dict.fromkeys([*self._active, *table.went.values()])
        active = [t for t in ran if threads.get(t.tid) is t]
        others = [] if self._is_quiet() else threads.values()
        while True:
            runs = []
            for thread in active:
                before = thread.rest()
                if before is None:
                    return thread
                runs.append(before)
            if len(active) > 1:
                for thread, before in zip(active, runs, strict=True):
                    if thread.rest() != before:
                        return thread
            for thread in others:
                if thread not in active:
                    now = thread.rest()
                    if now is None:
                        return thread
                    if not thread.stopped and now != thread.runs_when_idle:
                        active.append(thread)
                        break
            else:
                break
        self._active = [t for t, r in zip(active, runs, strict=True) if r != t.runs_when_idle]
        for thread in self._active:
            self._tracer.sockets.look(thread)
            table.woken = table.woken or thread.tid not in table.went
            table.has_run(thread.process)
            thread.process.blocks = BLOCKS
        for thread, before in zip(active, runs, strict=True):
            thread.runs_when_idle = before
        table.killed = False
        return None

    def nothing_on_its_way(self) -> bool:
        """Whether no bytes are in transit, and no thread has run since all were idle."""
        network = self._tracer.network
        if not (network.connected or network.served) or self._is_quiet() or self._is_apart():
            return True
        in_transit = None if network.connected else self._loopback.in_transit()
        if in_transit is None:
            network.named = self._tracer.table.woken = False
            began = time.thread_time()
            self.traffic = self._connections.traffic(self._tracer.processes, self._peers)
            ended = time.thread_time()
            self._connections_due = ended + max(QUIET, CONNECTIONS_SHARE * (ended - began))
            in_transit = self.traffic.in_flight
        return not in_transit and all(
            thread.rest() == thread.runs_when_idle for thread in self._tracer.table.loose.values()
        )

    def _is_apart(self) -> bool:
        """Whether no program has a peer: none had one, named one, or was woken by one since.

        A program that finds a new connection without waiting for it is noticed at the next look.
        """
        network = self._tracer.network
        if not self.traffic.apart or network.named or network.served or self._tracer.table.woken:
            return False
        return time.thread_time() < self._connections_due

    def _is_quiet(self) -> bool:
        """Whether only watched threads have run since all were idle, and none woke another one.

        Then nobody else has to be looked at. What outsiders do is not seen before the next look at
        all, which comes soon.
        """
        table, network = self._tracer.table, self._tracer.network
        if table.acted or table.killed or network.served or self.traffic.outside:
            return False
        return time.thread_time() < self._whole_look_due
