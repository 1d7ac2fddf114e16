"""Programs under the clock: their memory, descriptors and names, from /proc and pidfds."""

import contextlib
import os
import select
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from dralab.virtualtime.ptrace import raw_syscall
from dralab.virtualtime.vdso import VdsoPatch

PAGE: Final = 4096
PT_NOTE: Final = 4
PIDFD_OPEN: Final = 434
PIDFD_GETFD: Final = 438
KCMP: Final = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine, -1)
KCMP_FILE: Final = 0


class TracedProcess:
    """A program with its memory: what threads share, and what exec replaces."""

    __slots__ = (
        "_code",
        "_copies",
        "_memory",
        "_pidfd",
        "blocks",
        "frozen",
        "is_go",
        "moved",
        "netpoll",
        "patch",
        "pid",
        "random",
        "reads",
        "second",
        "skew",
        "threads",
    )

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.threads: set[int] = set()
        self.patch: VdsoPatch | None = None
        self.random: Random | None = None  # where its random bytes come from, if they are seeded
        self.reads: Counter[tuple[int, int]] = Counter()  # of the clock, that stopped: from where
        self.frozen = False  # whether it stands still, while the clock goes on
        self.skew = 0  # how far its real time is ahead of the others'
        self.is_go = False  # whether Go's runtime runs it
        self.second = 0  # its second thread: the one of Go's runtime that looks after the others
        self.netpoll: int | None = None  # the descriptor by which that runtime waits for others
        self.moved = 0  # when a thread of it went on last, in moves of the table
        # For so many turns its threads are taken to wait in calls that do not stop them.
        self.blocks = 1
        self._code: tuple[int, int] | None = None  # where the program's own code is
        self._copies: dict[int, tuple[int, select.poll]] = {}  # descriptors of ours for its
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
        """Trap each read of the clock, or not."""
        if self.patch is not None:
            with contextlib.suppress(OSError):
                self.patch.trap(on=on)

    def forget_memory(self) -> None:
        """Close the memory: it is replaced by exec."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None
        self.patch = None
        self.blocks = 1
        self.second = 0
        self.netpoll = None
        self._code = None

    def has_code_at(self, address: int) -> bool:
        """Whether the program's own code is there, rather than that of a library."""
        if self._code is None:
            own = list(_code_mappings(self.pid))
            self._code = (own[0][0], own[-1][1]) if own else (0, 0)
        return self._code[0] <= address < self._code[1]

    def is_jvm(self) -> bool:
        """Whether a Java virtual machine runs in it."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/maps", "rb") as file:  # noqa: PTH123
            return b"/libjvm.so" in file.read()
        return False

    def duplicate(self, descriptor: int) -> int:
        """Return our duplicate of one of its descriptors; negative if that fails."""
        if self._pidfd < 0:
            self._pidfd = raw_syscall(PIDFD_OPEN, self.pid, 0)
        return int(raw_syscall(PIDFD_GETFD, self._pidfd, descriptor, 0))

    def is_readable(self, descriptor: int) -> bool:
        """Whether a wait for one of its descriptors would end at once, if only with an error.

        A copy is kept for the next time, if the kernel can say that both are still the same file.
        """
        copy, poll = self._copies.get(descriptor, (-1, None))
        if poll is None or raw_syscall(KCMP, os.getpid(), self.pid, KCMP_FILE, copy, descriptor):
            self._forget_copy(descriptor)
            copy = self.duplicate(descriptor)
            if copy < 0:
                return True  # the kernel will tell it
            poll = select.poll()
            poll.register(copy, select.POLLIN)
            self._copies[descriptor] = copy, poll
        return bool(poll.poll(0))

    def _forget_copy(self, descriptor: int) -> None:
        if descriptor in self._copies:
            os.close(self._copies.pop(descriptor)[0])

    def close(self) -> None:
        """Close it: it has ended."""
        self.forget_memory()
        for descriptor in list(self._copies):
            self._forget_copy(descriptor)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def thread(self, number: int) -> int:
        """Return our number of a thread of it that has this one in its own namespace."""
        for tid in self.threads:
            status = read_file(f"/proc/{tid}/status")
            at = status.find(b"\nNSpid:")
            if at >= 0 and int(status[at + 7 :].split(b"\n", 1)[0].split()[-1]) == number:
                return tid
        return number

    def name(self) -> str:
        """Return the name that `ps` shows."""
        return read_file(f"/proc/{self.pid}/comm").decode("utf-8", "replace").strip() or "?"


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


def process_of(tid: int) -> int:
    """Return the process of a thread; the thread itself where it has ended."""
    status = read_file(f"/proc/{tid}/status")
    at = status.find(b"\nTgid:")
    return tid if at < 0 else int(status[at + 6 :].split(None, 1)[0])


def traced_by_this_thread() -> list[int]:
    """Return the processes whose tracer this thread is."""
    tracer = b"\nTracerPid:\t%d\n" % threading.get_native_id()
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if tracer in read_file(f"/proc/{pid}/status")]


def mapping_size(pid: int, base: int, most: int) -> int:
    """Return the size of a mapping of a process, by its address; `most` if there is none."""
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        begin, _, rest = line.partition("-")
        if int(begin, 16) == base:
            return min(int(rest.split(" ", 1)[0], 16) - base, most)
    return most


def _code_mappings(pid: int) -> Iterator[tuple[int, int]]:
    """Yield where the code of the file is that a process runs."""
    try:
        path = os.readlink(f"/proc/{pid}/exe").encode()  # noqa: PTH115  # of another process
        with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        span, rights, _, _, _, *name = line.rstrip(b"\n").split(None, 5)
        if b"x" in rights and name == [path]:
            begin, _, end = span.partition(b"-")
            yield int(begin, 16), int(end, 16)


def is_go(pid: int) -> bool:
    """Whether a process runs a program that Go has linked: its notes hold Go's build ID."""
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:  # noqa: PTH123  # of another process
            head = file.read(PAGE)
            if head[:5] != b"\x7fELF\x02":
                return False
            for offset, size in _notes(head):
                file.seek(offset)
                if b"Go\0\0" in file.read(min(size, PAGE)):
                    return True
    except OSError:
        pass
    return False


def _notes(head: bytes) -> Iterator[tuple[int, int]]:
    (table,) = struct.unpack_from("<Q", head, 0x20)
    size, count = struct.unpack_from("<HH", head, 0x36)
    for at in range(table, min(table + size * count, len(head) - 39), max(size, 1)):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", head, at)
        if kind == PT_NOTE:
            yield offset, length
