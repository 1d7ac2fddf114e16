"""ptrace(2) through ctypes: registers, continuing, and the meaning of stops."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence
from typing import Final

from dralab.virtualtime.machine import Architecture

CONT: Final = 7
SYSCALL: Final = 24
GETSIGINFO: Final = 0x4202
SETSIGINFO: Final = 0x4203
GETEVENTMSG: Final = 0x4201
GETREGSET: Final = 0x4204
SETREGSET: Final = 0x4205
SEIZE: Final = 0x4206
INTERRUPT: Final = 0x4207
LISTEN: Final = 0x4208
GET_SYSCALL_INFO: Final = 0x420E
NT_PRSTATUS: Final = 1

# TRACESYSGOOD, FORK, VFORK, CLONE, EXEC, VFORK_DONE, SECCOMP, EXITKILL
OPTIONS: Final = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 20

EVENT_FORK: Final = 1
EVENT_VFORK: Final = 2
EVENT_CLONE: Final = 3
EVENT_EXEC: Final = 4
EVENT_VFORK_DONE: Final = 5
EVENT_SECCOMP: Final = 7
EVENT_STOP: Final = 128

WALL: Final = 0x40000000

Words = ctypes.Array[ctypes.c_uint64]


class IoVec(ctypes.Structure):
    """struct iovec, as the register sets take it."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
# pidfd_open, pidfd_getfd and kcmp have no wrapper in older C libraries.
raw_syscall = _libc.syscall
raw_syscall.restype = ctypes.c_long


def ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    """Make one request; OSError if the kernel refuses (ESRCH: it was killed meanwhile)."""
    if _ptrace(request, tid, address, data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def event_message(tid: int) -> int:
    """Return what came with the event: the new thread, or the thread that execs."""
    value = ctypes.c_ulong()
    ptrace(GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value


def enters_call(tid: int) -> bool:
    """Whether a thread that is stopped at a system call is about to make it."""
    kind = ctypes.c_uint8()
    with contextlib.suppress(OSError):  # kernels before 5.3 do not say
        ptrace(GET_SYSCALL_INFO, tid, 1, ctypes.addressof(kind))
    return kind.value == 1


def mark_as_kernel_signal(tid: int) -> None:
    """Make our SIGALRM look like the kernel's: SI_KERNEL, no sender."""
    info = ctypes.create_string_buffer(128)
    ptrace(GETSIGINFO, tid, 0, ctypes.addressof(info))
    number, error, code, _, sender = struct.unpack_from("<iiiii", info)
    if code == 0 and sender in {os.getpid(), 0}:  # 0 from outside its namespace of processes
        struct.pack_into("<iiiiii", info, 0, number, error, 0x80, 0, 0, 0)
        ptrace(SETSIGINFO, tid, 0, ctypes.addressof(info))


class Registers:
    """The registers of a stopped thread, as system calls use them."""

    __slots__ = ("_at", "_iov", "machine", "tid", "words")

    def __init__(self, machine: Architecture, tid: int) -> None:
        self.machine = machine
        self.tid = tid
        self.words: Words = (ctypes.c_uint64 * machine.registers)()
        self._iov = IoVec(ctypes.addressof(self.words), ctypes.sizeof(self.words))
        self._at = ctypes.addressof(self._iov)

    def load(self) -> None:
        """Read them; the thread has stopped."""
        ptrace(GETREGSET, self.tid, NT_PRSTATUS, self._at)

    def store(self) -> None:
        """Write them; the thread has stopped."""
        ptrace(SETREGSET, self.tid, NT_PRSTATUS, self._at)

    @property
    def number(self) -> int:
        """The number of the system call."""
        return int(self.words[self.machine.number])

    @property
    def arguments(self) -> tuple[int, ...]:
        """The six arguments, as unsigned words."""
        words = self.words
        a, b, c, d, e, f = self.machine.arguments
        return words[a], words[b], words[c], words[d], words[e], words[f]

    @property
    def result(self) -> int:
        """What the system call returned; negative numbers are errors."""
        value = int(self.words[self.machine.result])
        return value - (1 << 64) if value >> 63 else value

    @result.setter
    def result(self, value: int) -> None:
        self.words[self.machine.result] = value & 0xFFFFFFFFFFFFFFFF

    @property
    def call_site(self) -> tuple[int, int]:
        """Where the call was made: program counter and stack pointer."""
        return self.words[self.machine.counter], self.words[self.machine.stack]

    @property
    def foreign(self) -> bool:
        """Whether the call was made by a 32-bit program."""
        if self.machine.number_regset is None:
            return self.words[17] != 0x33  # the code segment of 64-bit programs
        return bool(self.words[33] & 0x10)  # pstate: an AArch32 mode

    def restore_arguments(self, values: Sequence[int]) -> None:
        """Put the arguments back after a call; where one holds the result, that stays."""
        for index, value in zip(self.machine.arguments, values, strict=True):
            if index != self.machine.result:
                self.words[index] = value

    def set_argument(self, index: int, value: int) -> None:
        """Change one argument."""
        self.words[self.machine.arguments[index]] = value & 0xFFFFFFFFFFFFFFFF

    def skip(self, result: int) -> None:
        """Skip the pending call, and return `result`."""
        self.result = result
        if self.machine.number_regset is None:
            self.words[self.machine.number] = 0xFFFFFFFFFFFFFFFF
        else:
            number = ctypes.c_int(-1)
            iov = IoVec(ctypes.addressof(number), ctypes.sizeof(number))
            ptrace(SETREGSET, self.tid, self.machine.number_regset, ctypes.addressof(iov))
        self.store()
