"""Threads under the clock: what each does, whether it can run, and how it goes on.

Why it goes on, and when, is decided elsewhere (`waits`, `turns`).
"""

import os
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from dralab.virtualtime import ptrace
from dralab.virtualtime.programs import TracedProcess, read_file
from dralab.virtualtime.timed_calls import Arguments, TimedCall

# Very short sleeps of a thread at one instant take no time. So many: then they do.
NAPS: Final = 100
MOST_ACTS: Final = 6  # a thread that always acts is watched once in 2 ** this


class ThreadState(Enum):
    """What a thread does."""

    STARTING = auto()  # known, but it has not stopped for the first time
    LOOSE = auto()  # it runs, or it waits for something without a timeout
    HELD = auto()  # it sleeps: stopped before the call that would do that
    GATED = auto()  # stopped before it looks whether others have done what it waits for
    WAITING = auto()  # it is in a wait that was made endless
    PAUSED = auto()  # a signal such as SIGSTOP stopped it


@dataclass(slots=True, kw_only=True, eq=False)
class ThreadWait:
    """A wait with a timeout that a thread is in, or was in when a signal came."""

    call: TimedCall
    number: int
    arguments: Arguments
    place: tuple[int, int]
    deadline: int  # of the virtual monotonic clock
    order: int  # which began first, of equal deadlines
    expired: bool = False


@dataclass(slots=True)
class ThreadTable:
    """The threads under one clock.

    `loose` are those that are not stopped: what they do, only the kernel knows. `resumed`: one has
    just been let go, and will stop again before long, most often. `signalled`: a signal may have
    been sent. `killed`: SIGKILL may have been sent, which ends even a stopped thread. `acted`: a
    thread may have woken another one since all were idle. `went`: those that were let go since
    then. `woken`: a wait has ended by itself since this was last unset. `moves` counts what may
    have changed something for others: a thread went on, or a descriptor may have become ready.
    """

    all: dict[int, "TracedThread"] = field(default_factory=dict)
    loose: dict[int, "TracedThread"] = field(default_factory=dict)
    resumed: bool = False
    signalled: bool = False
    killed: bool = False
    acted: bool = True
    woken: bool = True
    went: dict[int, "TracedThread"] = field(default_factory=dict)
    moves: int = 0

    def add(self, thread: "TracedThread") -> None:
        """Add a new thread."""
        self.all[thread.tid] = self.loose[thread.tid] = thread
        self.acted = True

    def any_blocks(self) -> bool:
        """Whether a thread that runs may begin to wait in a call that does not stop it."""
        return any(thread.process.blocks for thread in self.loose.values())

    def remove(self, thread: "TracedThread") -> None:
        """Forget a thread that has ended."""
        self.all.pop(thread.tid, None)
        self.loose.pop(thread.tid, None)
        thread.state = ThreadState.LOOSE
        self.acted = True

    def has_run(self, process: TracedProcess) -> None:
        """Note that a thread of the program runs."""
        self.moves += 1
        process.moved = self.moves


@dataclass(slots=True, kw_only=True, eq=False)
class TracedThread:
    """A thread under the clock."""

    tid: int
    process: TracedProcess
    registers: ptrace.Registers
    table: ThreadTable
    state: ThreadState = ThreadState.STARTING
    wait: ThreadWait | None = None  # while HELD or WAITING
    interrupted: ThreadWait | None = None  # a signal came; the kernel may make the call again
    runs_when_idle: bytes = b""  # what `runs` was when all were idle
    lends_memory: bool = False  # it did vfork, and the kernel shows its wait as one for a disk
    timer: tuple[int, ...] = ()  # the arguments of a timer_create that it is in
    # While GATED: up to this one of the table's moves there was nothing for it to see.
    looked: int = -1
    # While it is watched, each of its calls stops it: does it wake others between two waits?
    watched: bool = False
    rests: int = 0  # so many wakes are not watched, since it did act
    acts: int = 0  # how often in a row it did
    looks_up: int = -1  # its descriptor of a file in /proc, while it is watched
    housekeeping: bool | None = None  # whether it does that for a JVM; None before its first wait
    naps: int = 0  # at the instant of the last one
    napped: int = -1
    _stat: int = field(default=-1)
    _runs: int = field(default=-1)
    _call: int = field(default=-1)

    @property
    def stopped(self) -> bool:
        """Whether it is stopped until we, or a signal, let it go on."""
        return self.tid not in self.table.loose

    def stop(self, state: ThreadState) -> None:
        """Keep it where it has stopped."""
        self.state = state
        self.watched = False
        self.table.loose.pop(self.tid, None)

    def watch(self) -> None:
        """Watch what it does until its next wait, unless that was in vain lately."""
        self.watched = not self.rests
        self.rests -= self.rests > 0

    def acts_now(self) -> None:
        """Let it make a call that may wake others; it is not watched for a while."""
        self.acts = min(self.acts + 1, MOST_ACTS)
        self.rests = (1 << self.acts) - 1
        self.watched = False
        self.resume()

    def resume(self, number: int = 0) -> None:
        """Resume it, with a signal unless `number` is 0."""
        self._go(ThreadState.LOOSE, ptrace.CONT, number)

    def enter_call(self, state: ThreadState) -> None:
        """Let it make its system call; it stops again when that returns."""
        self._go(state, ptrace.SYSCALL, 0)

    def finish_call(self, arguments: Arguments) -> int:
        """Let it make a call that does not wait; put its arguments back; return its status."""
        self.enter_call(ThreadState.LOOSE)
        _, status = os.waitpid(self.tid, ptrace.WALL)
        if os.WIFSTOPPED(status):
            self.registers.load()
            self.registers.restore_arguments(arguments)
            self.registers.store()
        return status

    def blocked_call(self) -> tuple[int, Arguments]:
        """Return the call that it is blocked in, -1 if it runs."""
        words = read_file(f"/proc/{self.process.pid}/task/{self.tid}/syscall").split()
        if len(words) < 7:
            return -1, ()
        return int(words[0]), tuple(int(word, 16) for word in words[1:7])

    def interrupt(self) -> None:
        """End the wait that it is in; it stops where its call returns."""
        self.table.resumed = True
        ptrace.ptrace(ptrace.INTERRUPT, self.tid)

    def answer(self, result: int | None) -> None:
        """Let its system call return `result`; if that is None, the kernel answers it."""
        if result is not None:
            self.registers.skip(result)
        self.resume()

    def _go(self, state: ThreadState, how: int, number: int) -> None:
        table = self.table
        self.state = state
        if not self.watched or number:
            self.watched, table.acted = False, True
        elif state is ThreadState.WAITING:
            self.watched, self.acts = False, 0
        else:
            how = ptrace.SYSCALL
        table.loose[self.tid] = table.went[self.tid] = self
        table.resumed = True
        table.has_run(self.process)
        ptrace.ptrace(how, self.tid, 0, number)

    def nap(self, now: int, most: int = NAPS) -> bool:
        """Count a very short sleep; return whether it takes no time: `most` at one instant do."""
        self.naps = self.naps + 1 if self.napped == now else 1
        self.napped = now
        return self.naps <= most

    def rest(self) -> bytes | None:
        """Return how often it has run, if the kernel says that it cannot run now; else None.

        The letter in stat says "sleeping" even of a thread that is about to, and may find a reason
        not to; /proc/TID/syscall names the call even of one that is just being woken. Together they
        are right, if it has not run in between.
        """
        if self.state is ThreadState.STARTING:
            return None
        try:
            letter = self._letter()
            if self.tid not in self.table.loose:
                return b"" if letter in {b"t", b"T"} else None
            if letter != b"S" and not self._blocked(letter):
                return None
            runs = self.runs()
            if runs == self.runs_when_idle:
                return runs  # it was asleep then, and still is
            if self._call < 0:
                self._call = self._open("syscall")
            if os.pread(self._call, 8, 0).startswith(b"running"):
                return None
            if not self._blocked(self._letter()):
                return None
            return runs if self.runs() == runs else None
        except OSError:
            return None  # it has just ended: that is an event to be seen first

    def _blocked(self, letter: bytes) -> bool:
        if letter == b"D":  # a disk will answer
            return self.lends_memory
        if letter == b"Z":  # the first thread has ended; others may be about to
            return len(self.process.threads) > 1 and all(
                other.rest() is not None
                for tid in self.process.threads - {self.tid}
                if (other := self.table.all[tid]).stopped
            )
        return letter == b"S"

    def _letter(self) -> bytes:
        if self._stat < 0:
            self._stat = self._open("stat")
        line = os.pread(self._stat, 64, 0)
        at = line.rindex(b")") + 2
        return line[at : at + 1]

    def runs(self) -> bytes:
        """Return how long and how often it has run so far: if equal, it has not run in between."""
        if self._runs < 0:
            self._runs = self._open("schedstat")
        return os.pread(self._runs, 80, 0)

    def _open(self, name: str) -> int:
        path = f"/proc/{self.process.pid}/task/{self.tid}/{name}"
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def name(self) -> str:
        """Return the name that it has given itself."""
        return read_file(f"/proc/{self.tid}/comm").decode("utf-8", "replace").strip()

    def has_signal(self) -> bool:
        """Whether a signal waits for it that it does not block."""
        status = read_file(f"/proc/{self.tid}/status")
        pending = _mask(status, b"\nSigPnd:") | _mask(status, b"\nShdPnd:")
        return bool(pending and pending & ~_mask(status, b"\nSigBlk:"))

    def catches(self, signal: int) -> bool:
        """Whether its program has a handler for the signal."""
        caught = _mask(read_file(f"/proc/{self.tid}/status"), b"\nSigCgt:")
        return bool(caught >> (signal - 1) & 1)

    def processor_time(self) -> int:
        """Return the nanoseconds of a processor that it has used."""
        try:
            return int(self.runs().split(b" ", 1)[0])
        except OSError:
            return 0

    def close(self) -> None:
        """Close its files in /proc."""
        for descriptor in (self._stat, self._runs, self._call):
            if descriptor >= 0:
                os.close(descriptor)
        self._stat = self._runs = self._call = -1


def _mask(status: bytes, name: bytes) -> int:
    at = status.find(name) + len(name)
    return int(status[at : at + 17], 16) if at >= len(name) else 0
