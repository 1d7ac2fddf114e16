"""Programs and their threads, as the supervisor knows them, and what /proc says of them."""

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Final

from dralab.virtualtime.ptrace import Registers, raw_syscall
from dralab.virtualtime.timed_calls import Arguments, TimedCall
from dralab.virtualtime.vdso import VdsoPatch

PIDFD_OPEN: Final = 434
PIDFD_GETFD: Final = 438
NAPS: Final = 100  # very short sleeps of a thread at one instant that take no time


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


class TracedProcess:
    """A program with its memory: what threads share, and what exec replaces."""

    __slots__ = ("_memory", "_pidfd", "patch", "pid", "random", "reads", "threads")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.threads: set[int] = set()
        self.patch: VdsoPatch | None = None
        self.random: Random | None = None  # where its random bytes come from, if they are seeded
        self.reads: Counter[tuple[int, int]] = Counter()  # of the clock, that stopped: from where
        self._memory: int | None = None
        self._pidfd = -1

    @property
    def memory(self) -> int:
        """The descriptor of its memory, as it is since the last exec."""
        if self._memory is None:
            self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        return self._memory

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes of its memory, or fewer where it ends."""
        try:
            return os.pread(self.memory, size, address)
        except (OSError, OverflowError):
            return b""

    def write(self, address: int, data: bytes) -> bool:
        """Write its memory; return whether that could be done."""
        try:
            return os.pwrite(self.memory, data, address) == len(data)
        except (OSError, OverflowError):
            return False

    def trap(self, *, on: bool) -> None:
        """Let each read of the clock stop, or not."""
        if self.patch is not None:
            with contextlib.suppress(OSError):
                self.patch.trap(on=on)

    def forget_memory(self) -> None:
        """Let go of the memory: after exec it has another, after its end none."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
        self.patch = None

    def duplicate(self, descriptor: int) -> int:
        """Return a descriptor of ours for one of its, or a negative number: there is none."""
        if self._pidfd < 0:
            self._pidfd = raw_syscall(PIDFD_OPEN, self.pid, 0)
        return int(raw_syscall(PIDFD_GETFD, self._pidfd, descriptor, 0))

    def close(self) -> None:
        """Let go of it: it has ended."""
        self.forget_memory()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def name(self) -> str:
        """Return the name that `ps` shows."""
        return read_file(f"/proc/{self.pid}/comm").decode("utf-8", "replace").strip() or "?"


@dataclass(slots=True, kw_only=True, eq=False)
class TracedThread:
    """A thread under the clock."""

    tid: int
    process: TracedProcess
    registers: Registers
    state: ThreadState = ThreadState.STARTING
    wait: ThreadWait | None = None  # while HELD or WAITING
    interrupted: ThreadWait | None = None  # a signal came; the kernel may make the call again
    runs_when_idle: bytes = b""  # what `runs` was when all were idle
    lends_memory: bool = False  # it did vfork, and the kernel shows its wait as one for a disk
    timer: tuple[int, ...] = ()  # the arguments of a timer_create that it is in
    gate: int = 0  # of those that are GATED, who came first
    empty: bool = False  # while GATED: there is nothing for it to see
    naps: int = 0  # at the instant of the last one
    napped: int = -1
    _stat: int = field(default=-1)
    _runs: int = field(default=-1)
    _call: int = field(default=-1)

    @property
    def stopped(self) -> bool:
        """Whether it is stopped until we, or a signal, let it go on."""
        state = self.state
        return (
            state is ThreadState.HELD or state is ThreadState.GATED or state is ThreadState.PAUSED
        )

    def nap(self, now: int) -> bool:
        """Count a very short sleep; return whether it may take no time at all."""
        self.naps = self.naps + 1 if self.napped == now else 1
        self.napped = now
        return self.naps <= NAPS

    def rest(self) -> bytes | None:
        """Return how often it has run, if it can't run now by the kernel's word; else None.

        The letter in stat says "sleeping" even of a thread that is about to, and may find a reason
        not to; /proc/TID/syscall names the call even of one that is just being woken. Together they
        are right, if it has not run in between.
        """
        if self.state is ThreadState.STARTING:
            return None
        try:
            if self.stopped:
                # The end of its program ends it, too, and exec by another thread.
                alone = len(self.process.threads) == 1
                return b"" if alone or self._letter() in {b"t", b"T"} else None
            if not self._blocked():
                return None
            runs = self.runs()
            if runs == self.runs_when_idle:
                return runs  # it was asleep then, and still is
            if self._call < 0:
                self._call = self._open("syscall")
            if os.pread(self._call, 8, 0).startswith(b"running") or not self._blocked():
                return None
            return runs if self.runs() == runs else None
        except OSError:
            return None  # it has just ended: that is an event to be seen first

    def _blocked(self) -> bool:
        letter = self._letter()
        if letter == b"D":  # a disk will answer
            return self.lends_memory
        if letter == b"Z":  # the first thread has ended, others have not
            return len(self.process.threads) > 1
        self.lends_memory = False
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
        """Let go of its files in /proc."""
        for descriptor in (self._stat, self._runs, self._call):
            if descriptor >= 0:
                os.close(descriptor)
        self._stat = self._runs = self._call = -1


def read_file(path: str) -> bytes:
    """Return the start of a file in /proc; nothing where its process has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _mask(status: bytes, name: bytes) -> int:
    at = status.find(name) + len(name)
    return int(status[at : at + 17], 16) if at >= len(name) else 0
