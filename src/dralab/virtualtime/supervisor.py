"""Programs under a clock that the caller owns: start them, wait until they are idle, move on.

    with Supervisor(start=0) as supervisor:
        program = supervisor.start(["sleep", "3600"])
        supervisor.wait_idle()
        supervisor.advance(supervisor.next_deadline())

Times are nanoseconds since the Unix epoch, as programs read them from CLOCK_REALTIME.
"""

import os
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from dralab.virtualtime.busy_reading import BUSY, BusyClockReader
from dralab.virtualtime.errors import ClockError, ClockUnavailableError
from dralab.virtualtime.machine import Architecture, this_machine
from dralab.virtualtime.programs import ThreadState, TracedThread
from dralab.virtualtime.sockets import Connections, Traffic, packets_in_transit
from dralab.virtualtime.timed_calls import SECOND
from dralab.virtualtime.tracer import NEVER, StartedProgram, Tracer, VirtualTime

# Programs find themselves on a machine that was booted an hour ago.
BOOTED: Final = 3600 * SECOND
WORD: Final = struct.Struct("<Q")

# Real seconds.
FIRST_DOZE: Final = 50e-6
SHORTEST_DOZE: Final = 20e-6
LONGEST_DOZE: Final = 1e-3
RAREST_LOOK: Final = 20e-3
SIGNAL_CHECK: Final = 0.02
PATIENCE: Final = 10.0  # that one thread may run while others are at their gates
_STOPS: Final = (signal.SIGCHLD,)


class Supervisor:
    """Programs, their threads and children, under one clock.

    It is used from the thread that made it: the kernel knows that one as the tracer. Until it is
    closed SIGCHLD is blocked there, and that thread starts no other children: their ends would be
    taken for the programs'. Threads that are started later should inherit that: one that does not
    block SIGCHLD takes it away, and this one notices later what has happened.

    `peers` are processes that are not under the clock but whose owner knows when they are idle:
    connections to them do not count as outside. A thread that has run on for `busy` nanoseconds of
    a processor is suspected to wait by reading the clock. With a `seed`, the random bytes that
    programs get from the kernel are the same each time, and so are the addresses of their memory:
    keys that they make are not secret. With `gates`, a thread that waits for another thread
    (futex) or for descriptors (epoll: Go, Node.js, asyncio, Java) goes on only when all others
    wait: what programs do then depends neither on when bytes arrive, nor on which thread is faster.
    """

    def __init__(
        self,
        *,
        start: int,
        outside: bool = False,
        peers: Sequence[int] = (),
        busy: int = BUSY,
        seed: int | None = None,
        gates: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        machine = this_machine()
        if machine is None:
            raise ClockUnavailableError("it needs Linux on x86-64 or aarch64")
        self.crept = 0  # nanoseconds that passed because a program waited by reading the clock
        self.jumps = 0
        self._time = VirtualTime(BOOTED, start - BOOTED)
        self._machine: Architecture = machine
        self._told: set[str] = set()
        self._note = note
        self._tracer = Tracer(
            machine, self._time, outside=outside, seed=seed, gates=gates, note=self._note_once
        )
        self._unblock = signal.SIGCHLD not in signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGCHLD}
        )
        self._peers = tuple(peers)
        self._busy = busy
        self._connections = Connections()
        self._traffic = Traffic(in_flight=False, outside=False)
        self._looked_for_signals = 0.0
        self._active: list[TracedThread] = []  # those that ran before all were idle the last time

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every program at once."""
        self._tracer.kill()
        self._connections.close()
        if self._unblock:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    # --- programs -------------------------------------------------------------------------------

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        new_session: bool = False,
    ) -> StartedProgram:
        """Start a program; ProgramStartError if that can't be done, as execve says it.

        With `new_session` the terminal's signals (Ctrl-C) do not reach it.
        """
        return self._tracer.start(
            arguments,
            environment=os.environ if environment is None else environment,
            directory=directory or os.getcwd(),  # noqa: PTH109  # a word for another process
            streams=(stdin, stdout, stderr),
            unblock=self._unblock,
            new_session=new_session,
        )

    def trust(self, address: str) -> None:
        """Take a server, `host:port` on this machine, for one whose idleness the caller knows.

        As long as programs are connected to nobody else, there is no need to look at connections.
        """
        self._tracer.trusted.add(address)

    @property
    def running(self) -> Mapping[int, str]:
        """The processes that run, with the names that `ps` shows."""
        return {pid: process.name() for pid, process in self._tracer.processes.items()}

    # --- time -----------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """What the programs' clock shows."""
        return self._time.monotonic + self._time.offset

    def next_deadline(self) -> int | None:
        """Return the earliest instant that anybody waits for, or None; exact when all is idle."""
        found = self._next()
        return None if found is None else found + self._time.offset

    def advance(self, to: int, *, late: bool = False) -> None:
        """Move the clock, and end the waits that are over then.

        ValueError if time would go back, or, unless waits may end `late`, pass an instant that a
        program waits for.
        """
        if to < self.now:
            raise ValueError(f"time cannot go backwards from {self.now} to {to}")
        deadline = None if late else self.next_deadline()
        if deadline is not None and max(deadline, self.now) < to:
            raise ValueError(f"cannot advance to {to}: a program waits until {deadline}")
        self.jumps += 1
        self._move(to - self._time.offset)

    def step(self, until: int | None = None) -> bool:
        """Move to the next instant that anybody waits for; False if there is none up to `until`."""
        deadline = self._next()
        if deadline is None or (until is not None and deadline > until - self._time.offset):
            return False
        self.jumps += 1
        self._move(max(deadline, self._time.monotonic))
        return True

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until every thread is blocked; return False after `timeout` real seconds.

        A program that waits by reading the clock again and again finds it creeping on.
        """
        doze, began = SHORTEST_DOZE, time.perf_counter()
        watch = BusyClockReader(self._busy)
        tracer = self._tracer
        self._patience = PATIENCE
        while self._tracer.threads:
            self._tracer.events()
            if self._tracer.let_go:
                self._tracer.let_go = False
                if signal.sigtimedwait(_STOPS, FIRST_DOZE) is not None:
                    continue
            awake = self._awake()
            if awake is None:
                if tracer.events() or tracer.adopt() or self._enter_signalled():
                    doze = SHORTEST_DOZE
                    continue
                if not (tracer.connected or tracer.served) or self._nothing_on_its_way():
                    if not tracer.open_gate():
                        break
                    doze = SHORTEST_DOZE
                    continue
            spent = time.perf_counter() - began
            if timeout is not None and spent > timeout:
                watch.close()
                return False
            if signal.sigtimedwait(_STOPS, doze) is None:
                # There is no notification when a thread begins to wait: look soon, and less often
                # the longer somebody has computed already.
                if spent > self._patience and tracer.open_gate():
                    self._patience += (
                        PATIENCE  # somebody may wait for another without a system call
                    )
                doze = min(max(spent / 4, SHORTEST_DOZE), LONGEST_DOZE)
                if not watch.close_look:
                    doze = max(doze, min(spent / 20, RAREST_LOOK))
            if awake is not None and spent >= LONGEST_DOZE:
                self._creep(watch.look(awake))
        watch.close()
        return True

    def look_again(self) -> None:
        """Say that programs may find new bytes in their connections, where they have `gates`."""
        self._tracer.look_again()

    def is_undisturbed(self) -> bool:
        """Whether nothing has run, and no byte was sent, since `wait_idle` returned True."""
        tracer = self._tracer
        if tracer.events() or tracer.adopt():
            return False
        return self._nothing_on_its_way()

    def connected_outside(self) -> bool:
        """Whether, when all was idle last, a program had a connection to somebody else's."""
        return self._traffic.outside

    def doze(self, seconds: float) -> None:
        """Let real time pass until something happens, `seconds` at most; signals reach sleepers."""
        if not self._tracer.events():
            signal.sigtimedwait(_STOPS, seconds)
            self._tracer.events()
        self._enter_signalled()

    def _next(self) -> int | None:
        found = self._tracer.timers.deadline()
        for thread in self._tracer.threads.values():
            wait = thread.wait
            if wait is not None and (found is None or wait.deadline < found):
                found = wait.deadline
        return found if found != NEVER else None

    def _move(self, monotonic: int) -> None:
        self._time.monotonic = monotonic
        word = WORD.pack(monotonic)
        for process in self._tracer.processes.values():
            if process.patch is not None:
                process.patch.write(word)
        self._tracer.expire()
        due = [
            (thread.wait.deadline, thread.wait.order, thread)
            for thread in self._tracer.threads.values()
            if thread.wait is not None and thread.wait.deadline <= monotonic
        ]
        if len(due) > 1:
            due.sort(key=lambda entry: entry[:2])
        for _, _, thread in due:
            self._tracer.end_wait(thread)
        if due:
            self._tracer.look_again()

    def _creep(self, elapsed: int) -> None:
        if elapsed:
            deadline = self._next()
            to = self._time.monotonic + elapsed
            if deadline is not None:
                to = max(min(to, deadline), self._time.monotonic)
            self.crept += to - self._time.monotonic
            self._note_once("a program polls the clock: the clock advances with its CPU time")
            self._move(to)

    # --- idleness -------------------------------------------------------------------------------

    def _awake(self) -> TracedThread | None:
        """Return a thread that can run, or None if there is none at one and the same instant.

        One that is seen asleep may be woken by one that is looked at later. So those that have run
        since the last time come first, twice: if all are asleep and none has run in between, all
        were asleep at the instant in between. Then the others: whoever is asleep now, and has not
        run since the last time, was asleep at that instant, too.
        """
        threads = self._tracer.threads
        active = [t for t in self._active if threads.get(t.tid) is t and not t.stopped]
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
            for thread in threads.values():
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
        for thread, before in zip(active, runs, strict=True):
            thread.runs_when_idle = before
        return None

    def _nothing_on_its_way(self) -> bool:
        """Whether no bytes are in transit, and no thread has run since all were seen idle."""
        in_transit = None if self._tracer.connected else packets_in_transit()
        if in_transit is None:
            self._traffic = self._connections.traffic(self._tracer.processes, self._peers)
            in_transit = self._traffic.in_flight
        return not in_transit and all(
            thread.stopped or thread.rest() == thread.runs_when_idle
            for thread in self._tracer.threads.values()
        )

    def _enter_signalled(self) -> bool:
        """Let those begin their sleep whom a signal is to wake; return whether there were any."""
        threads = self._tracer.threads
        now = time.perf_counter()
        if self._tracer.fired:
            self._tracer.fired = False
        elif len(threads) == 1 and now - self._looked_for_signals < SIGNAL_CHECK:
            return False  # no other program under the clock could have sent one
        self._looked_for_signals = now
        asleep = (ThreadState.HELD, ThreadState.GATED)
        found = [t for t in threads.values() if t.state in asleep and t.has_signal()]
        for thread in found:
            self._tracer.enter(thread)
        return bool(found)

    def _note_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._note(line)


def unavailable() -> str | None:
    """Return why there is no virtual clock on this machine, or None if there is one."""
    try:
        with Supervisor(start=0) as supervisor:
            supervisor.start(["/bin/true"])
    except ClockError as error:
        return str(error)
    return None
