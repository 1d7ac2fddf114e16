"""Instructions by which a program gets what differs from run to run: rdtsc, rdtscp, cpuid.

A seeded program faults at them (PR_SET_TSC, ARCH_SET_CPUID), and the supervisor answers. cpuid then
denies rdrand and rdseed: a program that asks before it uses them, as libraries do, takes the
kernel's random bytes. A program that does not ask cannot be kept from them.
"""

import contextlib
import ctypes
import mmap
import os
import signal
from functools import cache
from typing import Final

from dralab.virtualtime import ptrace
from dralab.virtualtime.threads import TracedThread
from dralab.virtualtime.timed_calls import VirtualTime
from dralab.virtualtime.vdso import VdsoPatch

RDTSC, RDTSCP, CPUID = b"\x0f\x31", b"\x0f\x01\xf9", b"\x0f\xa2"
ARCH_PRCTL, ARCH_SET_CPUID = 158, 0x1012
RAX, RBX, RCX, RDX, COUNTER = 10, 5, 11, 12, 16  # in user_regs_struct
RDRAND, RDSEED = 1 << 30, 1 << 18  # in leaf 1 (ecx), and in leaf 7 (ebx)
# void read(int leaf, int part, int found[4]): cpuid, and what it leaves in eax, ebx, ecx, edx
_READ_CPUID: Final = bytes.fromhex(
    "53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3"
)


def answered(thread: TracedThread, time: VirtualTime) -> bool:
    """Whether the thread has faulted at one of them, and can go on behind it now."""
    registers = thread.registers
    if not registers.machine.has_counter:
        return False
    registers.load()
    words = registers.words
    code = thread.process.read(words[COUNTER], 3)
    if code.startswith(CPUID):
        size = len(CPUID)
        found = _cpuid(words[RAX] & 0xFFFFFFFF, words[RCX] & 0xFFFFFFFF)
        words[RAX], words[RBX], words[RCX], words[RDX] = found
    elif code == RDTSCP or code.startswith(RDTSC):
        thread.process.reads[registers.call_site] += 1
        size = len(RDTSC)
        words[RDX], words[RAX] = divmod(time.monotonic, 1 << 32)  # a processor of 1 GHz
        if code == RDTSCP:
            size, words[RCX] = len(RDTSCP), 0
    else:
        return False
    words[COUNTER] += size
    registers.store()
    return True


def let_cpuid_fault(thread: TracedThread, patch: VdsoPatch) -> int | None:
    """Let a thread that has just done exec call arch_prctl; return a status that came meanwhile.

    Exec has undone it: it cannot be set before.
    """
    registers = thread.registers
    if not (registers.machine.has_counter and _hides_rdrand()):
        return None
    came = None

    def next_stop() -> None:
        nonlocal came
        status = -1
        while status >> 8 != signal.SIGTRAP | 0x80:
            came = came if status < 0 else status  # a signal, to be delivered afterwards
            ptrace.ptrace(ptrace.SYSCALL, thread.tid)
            _, status = os.waitpid(thread.tid, ptrace.WALL)
            if not os.WIFSTOPPED(status):
                came = status
                raise ProcessLookupError

    with contextlib.suppress(ProcessLookupError):
        next_stop()  # the return of execve
        registers.load()
        before = bytes(registers.words)
        registers.words[RAX] = ARCH_PRCTL
        registers.set_argument(0, ARCH_SET_CPUID)
        registers.set_argument(1, 0)
        registers.words[COUNTER] = patch.system_call
        registers.store()
        next_stop()
        next_stop()
        ctypes.memmove(registers.words, before, len(before))
        registers.store()
    return came


@cache
def _cpuid(leaf: int, part: int) -> tuple[int, int, int, int]:
    """Return what cpuid says of this machine, without rdrand and the number of the processor."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_READ_CPUID)
    found = (ctypes.c_uint32 * 4)()
    place = ctypes.c_char.from_buffer(code)
    read = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    read(ctypes.addressof(place))(leaf, part, ctypes.addressof(found))
    del place
    code.close()
    a, b, c, d = found
    if leaf == 1:
        return a, b & 0x00FFFFFF, c & ~RDRAND, d
    if leaf == 7 and not part:
        return a, b & ~RDSEED, c, d
    return (a, b, c, 0) if leaf in {0xB, 0x1F} else (a, b, c, d)


@cache
def _hides_rdrand() -> bool:
    """Whether this processor can let cpuid fault, and we may answer it."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            faults = any("cpuid_fault" in line.split() for line in file)
        return faults and _cpuid(0, 0)[0] > 0
    except OSError:
        return False  # a kernel that forbids memory with code in it
