"""Programs under a clock that the caller owns: start them, wait until they are idle, move on.

    with Supervisor(start=0) as supervisor:
        program = supervisor.start(["sleep", "3600"])
        supervisor.wait_idle()
        supervisor.advance(supervisor.next_deadline())

Times are nanoseconds since the Unix epoch, as programs read them from CLOCK_REALTIME.
"""

import contextlib
import os
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from dralab.virtualtime.busy_reading import BUSY, BusyClockReader
from dralab.virtualtime.errors import ClockError, ClockUnavailableError
from dralab.virtualtime.idleness import Idleness
from dralab.virtualtime.launching import StartedProgram, with_defaults
from dralab.virtualtime.machine import Architecture, this_machine
from dralab.virtualtime.processors import OneProcessor
from dralab.virtualtime.programs import TracedProcess
from dralab.virtualtime.threads import ThreadState
from dralab.virtualtime.timed_calls import NEVER, SECOND, VirtualTime
from dralab.virtualtime.tracer import Tracer

# Programs find themselves on a machine that was booted an hour ago.
BOOTED: Final = 3600 * SECOND
WORD: Final = struct.Struct("<Q")

# Real seconds.
FIRST_DOZE: Final = 50e-6
SHORTEST_DOZE: Final = 20e-6
LONGEST_DOZE: Final = 1e-3
RAREST_LOOK: Final = 20e-3
SIGNAL_CHECK: Final = 0.02
SIGNAL_CHECK_SHARE: Final = 50  # times as long as such a look takes, at least
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
    programs get from the kernel are the same each time, and so are the addresses of their memory,
    the numbers of their processes and the processor's counter: keys that they make are not secret.
    With `gates`, a thread that waits for another thread
    (futex) or for descriptors (epoll: Go, Node.js, asyncio, Java) goes on only when all others
    wait, and all programs share one processor: what they do then depends neither on when bytes
    arrive, nor on which thread is faster.
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
        self._unblock = signal.SIGCHLD not in signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGCHLD}
        )
        self._tracer = Tracer(
            machine,
            self._time,
            outside=outside,
            seed=seed,
            gates=gates,
            unblock=self._unblock,
            note=self._note_once,
        )
        self._table = self._tracer.table
        self._processor = OneProcessor() if gates else None
        self._busy = busy
        self._idleness = Idleness(self._tracer, tuple(peers))
        self._signal_check_due = 0.0

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
        self._idleness.close()
        if self._processor is not None:
            self._processor.close()
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
        words = os.environ if environment is None else environment
        return self._tracer.start(
            arguments,
            environment=words if self._processor is None else with_defaults(words),
            directory=directory or os.getcwd(),  # noqa: PTH109  # a word for another process
            streams=(stdin, stdout, stderr),
            new_session=new_session,
        )

    def trust_local_peers(self) -> None:
        """Declare that the caller tracks the idleness of other local peers.

        As long as programs have no other peers, there is no need to look at connections.
        """
        self._tracer.network.local_peers_known = True

    def freeze(self, group: int) -> None:
        """Suspend the programs of a process group: expired waits end when they resume.

        Between `wait_idle` and the next move of the clock. What arrives for them has to be held
        back by its sender.
        """
        for process in self._of_group(group):
            process.frozen = True

    def thaw(self, group: int) -> None:
        """Resume the programs of a process group, and end expired waits."""
        for process in self._of_group(group):
            process.frozen = False
        self._table.moves += 1

    def skew(self, group: int, ahead: int) -> None:
        """Put the real time of the programs of a process group `ahead` of the others', from now."""
        for process in self._of_group(group):
            process.skew = ahead
            if process.patch is not None:
                process.patch.write_offset(self._time.offset + ahead)

    def _of_group(self, group: int) -> list[TracedProcess]:
        found = []
        for pid, process in self._tracer.processes.items():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(pid) == group:
                    found.append(process)
        return found

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
        """Return the earliest instant that a program waits for, or None; exact when all is idle."""
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
        self.jumps += to > self.now
        self._move(to - self._time.offset)

    def step(self, until: int | None = None) -> bool:
        """Move to the next instant that a program waits for; False if none comes up to `until`."""
        deadline = self._next()
        if deadline is None or (until is not None and deadline > until - self._time.offset):
            return False
        self.jumps += deadline > self._time.monotonic
        self._move(max(deadline, self._time.monotonic))
        return True

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until every thread is blocked; return False after `timeout` real seconds.

        A program that waits by reading the clock again and again finds it creeping on.
        """
        began = progress = time.perf_counter()
        watch = BusyClockReader(self._busy)
        tracer, table = self._tracer, self._table
        self._patience = PATIENCE
        while table.all:
            if tracer.events():
                progress = time.perf_counter()
            awake = None
            if table.loose or table.killed:
                if table.resumed:
                    table.resumed = False
                    first = FIRST_DOZE if table.any_blocks() else LONGEST_DOZE
                    if signal.sigtimedwait(_STOPS, first) is not None:
                        continue
                awake = self._idleness.awake()
                if awake is None and tracer.events():
                    progress = time.perf_counter()
                    continue
            if awake is None:
                if tracer.adopt() or self._enter_signalled() or tracer.refill():
                    continue
                if self._idleness.nothing_on_its_way():
                    if not tracer.waits.next_turn():
                        self._idleness.note()
                        break
                    continue
            now = time.perf_counter()
            spent = now - began
            if timeout is not None and spent > timeout:
                watch.close()
                return False
            doze = self._doze(now - progress)
            if watch.close_look:
                doze = min(doze, LONGEST_DOZE)
            if (
                signal.sigtimedwait(_STOPS, doze) is None
                and spent > self._patience
                and tracer.waits.next_turn()
            ):
                # A thread may wait for another one without a system call.
                self._patience += PATIENCE
            if awake is not None and spent >= LONGEST_DOZE:
                self._creep(watch.look(awake))
        watch.close()
        return True

    def _doze(self, spent: float) -> float:
        """Return how long to wait for a notification, if there was none for so many seconds.

        There is none when a thread begins a wait that does not stop it. Then look soon, and less
        often the longer a program has computed already.
        """
        if not self._table.any_blocks():
            return min(max(spent, LONGEST_DOZE), RAREST_LOOK)
        doze = min(max(spent / 4, SHORTEST_DOZE), LONGEST_DOZE)
        return max(doze, min(spent / 20, RAREST_LOOK))

    def look_again(self) -> None:
        """Note that programs may have new data in their connections, where they have `gates`."""
        self._table.moves += 1

    def connected_outside(self) -> bool:
        """Whether, when all was idle last, a program had a connection to a foreign process."""
        return self._idleness.traffic.outside

    def doze(self, seconds: float) -> None:
        """Let real time pass until something happens, `seconds` at most; signals reach sleepers."""
        if not self._tracer.events():
            signal.sigtimedwait(_STOPS, seconds)
            self._tracer.events()
        self._enter_signalled()

    def _next(self) -> int | None:
        found = self._tracer.timers.deadline()
        for thread in self._table.all.values():
            wait = thread.wait
            if wait is None or thread.process.frozen:
                continue
            if found is None or wait.deadline < found:
                found = wait.deadline
        return found if found != NEVER else None

    def _move(self, monotonic: int) -> None:
        if self._processor is not None:
            self._processor.review(self._table.all)
        self._time.monotonic = monotonic
        word = WORD.pack(monotonic)
        for process in self._tracer.processes.values():
            if process.patch is not None:
                process.patch.write(word)
        self._tracer.expire()
        due = [
            (thread.wait.deadline, thread.wait.order, thread)
            for thread in self._table.all.values()
            if thread.wait is not None
            and thread.wait.deadline <= monotonic
            and not thread.process.frozen
        ]
        if len(due) > 1:
            due.sort(key=lambda entry: entry[:2])
        watch = self._idleness.costs_more_than_a_watch
        for _, _, thread in due:
            self._tracer.waits.end(thread, watch=watch)

    def _creep(self, elapsed: int) -> None:
        if elapsed:
            deadline = self._next()
            to = self._time.monotonic + elapsed
            if deadline is not None:
                to = max(min(to, deadline), self._time.monotonic)
            self.crept += to - self._time.monotonic
            self._note_once("a program polls the clock: the clock advances with its CPU time")
            self._move(to)

    def _enter_signalled(self) -> bool:
        """Let threads begin the sleep that a signal is to end; return whether there were any."""
        table, now = self._table, time.perf_counter()
        if not table.signalled and now < self._signal_check_due:
            return False  # no program under the clock has sent one
        table.signalled = False
        asleep = (ThreadState.HELD, ThreadState.GATED)
        found = [t for t in table.all.values() if t.state in asleep and t.has_signal()]
        taken = time.perf_counter() - now
        self._signal_check_due = now + max(SIGNAL_CHECK, SIGNAL_CHECK_SHARE * taken)
        for thread in found:
            with contextlib.suppress(ProcessLookupError):  # the signal has killed it
                self._tracer.waits.enter(thread)
        return bool(found)

    def _note_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._note(line)


def unavailable() -> str | None:
    """Return the reason that rules out a virtual clock on this machine, or None."""
    try:
        with Supervisor(start=0) as supervisor:
            supervisor.start(["/bin/true"])
    except ClockError as error:
        return str(error)
    return None
