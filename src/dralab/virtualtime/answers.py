"""Answers system calls that do not wait: clock reads, network peers."""

import errno
import os
import struct
from collections.abc import Callable
from typing import Final

from dralab.virtualtime import peers
from dralab.virtualtime.seccomp_filter import FUTEX_COMMAND
from dralab.virtualtime.threads import TracedThread
from dralab.virtualtime.timed_calls import SECOND, TIMED_CALLS, VirtualTime

CLOCK_READS: Final = frozenset({"clock_gettime", "gettimeofday", "time"})
REALTIME_CLOCKS: Final = frozenset({0, 5, 8, 11})


# Calls that nobody else notices.
PRIVATE: Final = frozenset(
    {"getpid", "getrusage", "gettid", "madvise", "rt_sigprocmask", "sched_yield", *CLOCK_READS}
)
UNLOCK_PI: Final = 7  # of futex: it does not say whether it has woken somebody


def acts(thread: TracedThread, name: str, *, enters: bool) -> bool:
    """Whether a call that a thread enters, or has left, may wake other threads."""
    registers = thread.registers
    if not enters:
        if name == "openat":
            thread.looks_up = registers.result
        return name == "futex" and registers.result > 0
    first, second, third, *_ = registers.arguments
    if name == "futex":
        return second & FUTEX_COMMAND == UNLOCK_PI
    if name == "openat":
        return third & os.O_ACCMODE != os.O_RDONLY or thread.process.read(second, 6) != b"/proc/"
    if name in {"read", "close"}:
        return first & 0xFFFFFFFF != thread.looks_up
    return name not in PRIVATE and name not in TIMED_CALLS


def read_clock(time: VirtualTime, thread: TracedThread, name: str) -> int:
    """Write what the clock shows; return the call's result."""
    arguments, process = thread.registers.arguments, thread.process
    process.reads[thread.registers.call_site] += 1
    now, offset = time.monotonic, time.offset + process.skew
    if name == "clock_gettime":
        if arguments[0] in REALTIME_CLOCKS:
            now += offset
        good = process.write(arguments[1], struct.pack("<qq", *divmod(now, SECOND)))
        return 0 if good else -errno.EFAULT
    seconds, part = divmod(now + offset, SECOND)
    if name == "time":
        if arguments[0]:
            process.write(arguments[0], struct.pack("<q", seconds))
        return seconds
    if arguments[0]:
        process.write(arguments[0], struct.pack("<qq", seconds, part // 1000))
    if arguments[1]:
        process.write(arguments[1], bytes(8))
    return 0


class NetworkUse:
    """The use of the network by programs.

    `local_peers_known`: the owner of the clock knows when other processes of this machine that take
    part are idle. `connected`: some program has a peer that is not known; `served`: some program
    has a known one. `named`: a program has listened, or named a peer, since this was last unset.
    """

    def __init__(self, *, outside: bool, note: Callable[[str], None]) -> None:
        self.connected = False
        self.served = False
        self.named = False
        self.local_peers_known = False
        self._outside = outside
        self._note = note

    def listens(self) -> None:
        """Record that a program listens."""
        self._meets(local=True)

    def _meets(self, *, local: bool) -> None:
        self.named = True
        if local and self.local_peers_known:
            self.served = True
        else:
            self.connected = True

    def answer(self, thread: TracedThread, name: str) -> int | None:
        """Return an error if a peer must not be reached; None to let the kernel do it."""
        for peer in peers.named(name, thread.registers.arguments, thread.process):
            if not peer.network:
                continue
            self._meets(local=peer.local)
            if not (peer.local or self._outside):
                process = thread.process
                self._note(f"{process.name()} was refused a connection to {peer.address}")
                return -errno.ENETUNREACH
        return None
