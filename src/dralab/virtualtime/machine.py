"""Differences between processors: system call numbers, registers, code that reads a clock.

x86-64 is tested. The tables for aarch64 come from the kernel's headers and have not been run.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# The block that takes the place of the vDSO's clock: words, two constants, then code.
MONOTONIC: Final = 0  # nanoseconds of CLOCK_MONOTONIC
OFFSET: Final = 8  # what CLOCK_REALTIME is ahead of it
ZERO: Final = 16  # a timespec that is over at once
FOREVER: Final = 48  # a timespec of 136 years
SCRATCH: Final = 0x180  # room for a path, behind the code
BLOCK: Final = 0x200  # bytes of all


@dataclass(frozen=True, slots=True, kw_only=True)
class VdsoFunction:
    """A function of the block: where it begins, and the bytes there for each way to read."""

    at: int
    fast: bytes  # compute it from the words
    slow: bytes  # make the system call, which the supervisor answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One processor architecture."""

    audit_arch: int
    calls: Mapping[str, int]
    registers: int  # 64-bit words in NT_PRSTATUS
    arguments: tuple[int, ...]
    number: int
    result: int
    counter: int
    stack: int
    number_regset: int | None  # where the number has to be changed, if not in the registers
    block: bytes
    functions: Mapping[str, VdsoFunction]  # by the vDSO's symbols
    absent: bytes  # the code of a function that says ENOSYS
    system_call: int  # where the block makes one
    has_counter: bool  # rdtsc and cpuid are instructions that can fault
    names: Mapping[int, str] = field(init=False)

    def __post_init__(self) -> None:
        names = {number: name for name, number in self.calls.items()}
        object.__setattr__(self, "names", names)

    def jump(self, source: int, target: int) -> bytes:
        """Return an instruction that jumps from `source` to `target`."""
        if self.number_regset is None:
            return b"\xe9" + (target - source - 5).to_bytes(4, "little", signed=True)
        return (0x14000000 | ((target - source) // 4 & 0x3FFFFFF)).to_bytes(4, "little")


# What they do: clocks 0, 1, 4 to 9 and 11 (bits 0xbf3) are the words at the start, divided by 10⁹;
# of these 0, 5, 8 and 11 (bits 0x921) are real time; every other clock is the kernel's.
X86_64_BLOCK: Final = bytes.fromhex(
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000010000000000000000000000"
    # clock_gettime at 0x40, its system call at 0x7d
    "eb0083ff0b7736b8f30b00000fa3f8732c488b05a8ffffffb9210900000fa3f9"
    "73074803059fffffff31d2b900ca9a3b48f7f14889064889560831c0c3b8e400"
    "00000f05c366662e0f1f84000000000066662e0f1f84000000000066662e0f1f"
    "84000000000066662e0f1f84000000000066662e0f1f8400000000000f1f4000"
    # gettimeofday at 0xc0, its system call at 0x100
    "eb004885ff742a488b0532ffffff48030533ffffff31d2b900ca9a3b48f7f148"
    "890789d031d2b9e8030000f7f1488947084885f6740748c7060000000031c0c3"
    "b8600000000f05c366662e0f1f84000000000066662e0f1f8400000000006666"
    "2e0f1f84000000000066662e0f1f84000000000066662e0f1f84000000000090"
    # time at 0x140, its system call at 0x163
    "eb00488b05b7feffff480305b8feffff31d2b900ca9a3b48f7f14885ff740348"
    "8907c3b8c90000000f05c3"
)
AARCH64_BLOCK: Final = bytes.fromhex(
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000010000000000000000000000"
    # clock_gettime at 0x40, its system call at 0x8c
    "010000141f2c007128020054627e81524224c01ac201003643fdff5822248152"
    "4224c01a6200003604fdff586300048b044099524473a7726508c49aa68c049b"
    "251800a900008052c0035fd6280e8052010000d4c0035fd61f2003d51f2003d5"
    "1f2003d51f2003d51f2003d51f2003d51f2003d51f2003d51f2003d51f2003d5"
    # gettimeofday at 0xc0, its system call at 0x100
    "01000014600100b4c3f9ff58e4f9ff586300048b044099524473a7726508c49a"
    "a68c049b047d8052c608c49a051800a9410000b43f0000f900008052c0035fd6"
    "28158052010000d4c0035fd6"
)

X86_64_CALLS: Final[Mapping[str, int]] = {
    "read": 0, "write": 1, "open": 2, "close": 3, "poll": 7, "rt_sigprocmask": 14, "readv": 19,
    "writev": 20, "select": 23, "sched_yield": 24, "madvise": 28, "nanosleep": 35,
    "getitimer": 36, "alarm": 37, "setitimer": 38, "getpid": 39, "connect": 42, "accept": 43,
    "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "listen": 50, "setsockopt": 54,
    "getsockopt": 55, "kill": 62, "gettimeofday": 96, "getrusage": 98, "ptrace": 101,
    "rt_sigtimedwait": 128, "rt_sigqueueinfo": 129, "adjtimex": 159, "settimeofday": 164,
    "gettid": 186, "tkill": 200, "time": 201, "futex": 202, "io_getevents": 208,
    "semtimedop": 220, "timer_create": 222, "timer_settime": 223, "timer_gettime": 224,
    "timer_delete": 226, "clock_settime": 227, "clock_gettime": 228, "clock_nanosleep": 230,
    "epoll_wait": 232, "tgkill": 234, "mq_timedsend": 242, "mq_timedreceive": 243,
    "openat": 257, "pselect6": 270, "ppoll": 271, "epoll_pwait": 281, "timerfd_settime": 286,
    "timerfd_gettime": 287, "accept4": 288, "rt_tgsigqueueinfo": 297, "recvmmsg": 299,
    "clock_adjtime": 305, "sendmmsg": 307, "getrandom": 318, "io_pgetevents": 333,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "openat2": 437, "epoll_pwait2": 441,
    "futex_waitv": 449, "futex_wait": 455,
}  # fmt: skip
AARCH64_CALLS: Final[Mapping[str, int]] = {
    "io_getevents": 4, "epoll_pwait": 22, "openat": 56, "close": 57, "read": 63, "write": 64,
    "readv": 65, "writev": 66, "pselect6": 72, "ppoll": 73, "timerfd_settime": 86,
    "timerfd_gettime": 87, "futex": 98, "nanosleep": 101, "getitimer": 102, "setitimer": 103,
    "timer_create": 107, "timer_gettime": 108, "timer_settime": 110, "timer_delete": 111,
    "clock_settime": 112, "clock_gettime": 113, "clock_nanosleep": 115, "ptrace": 117,
    "sched_yield": 124, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigprocmask": 135,
    "rt_sigtimedwait": 137, "rt_sigqueueinfo": 138, "getrusage": 165, "gettimeofday": 169,
    "settimeofday": 170, "adjtimex": 171, "getpid": 172, "gettid": 178, "mq_timedsend": 182,
    "mq_timedreceive": 183, "semtimedop": 192, "listen": 201, "accept": 202, "connect": 203,
    "sendto": 206, "recvfrom": 207, "setsockopt": 208, "getsockopt": 209, "sendmsg": 211,
    "recvmsg": 212, "madvise": 233, "rt_tgsigqueueinfo": 240, "accept4": 242, "recvmmsg": 243,
    "clock_adjtime": 266, "sendmmsg": 269, "getrandom": 278, "io_pgetevents": 292,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "openat2": 437, "epoll_pwait2": 441,
    "futex_waitv": 449, "futex_wait": 455,
}  # fmt: skip

X86_64: Final = Architecture(
    audit_arch=0xC000003E,
    calls=X86_64_CALLS,
    registers=27,
    arguments=(14, 13, 12, 7, 9, 8),  # rdi rsi rdx r10 r8 r9 of user_regs_struct
    number=15,
    result=10,
    counter=16,
    stack=19,
    number_regset=None,
    block=X86_64_BLOCK,
    functions={
        "__vdso_clock_gettime": VdsoFunction(at=0x40, fast=b"\xeb\x00", slow=b"\xeb\x3b"),
        "__vdso_gettimeofday": VdsoFunction(at=0xC0, fast=b"\xeb\x00", slow=b"\xeb\x3e"),
        "__vdso_time": VdsoFunction(at=0x140, fast=b"\xeb\x00", slow=b"\xeb\x21"),
    },
    absent=bytes.fromhex("b8daffffffc3"),  # mov $-38,%eax; ret
    system_call=0x82,
    has_counter=True,
)
AARCH64: Final = Architecture(
    audit_arch=0xC00000B7,
    calls=AARCH64_CALLS,
    registers=34,
    arguments=(0, 1, 2, 3, 4, 5),
    number=8,
    result=0,
    counter=32,
    stack=31,
    number_regset=0x404,  # NT_ARM_SYSTEM_CALL
    block=AARCH64_BLOCK,
    functions={
        "__kernel_clock_gettime": VdsoFunction(
            at=0x40, fast=b"\x01\x00\x00\x14", slow=b"\x13\x00\x00\x14"
        ),
        "__kernel_gettimeofday": VdsoFunction(
            at=0xC0, fast=b"\x01\x00\x00\x14", slow=b"\x10\x00\x00\x14"
        ),
    },
    absent=bytes.fromhex("a0048092c0035fd6"),  # mov x0,#-38; ret
    system_call=0x90,
    has_counter=False,
)
MACHINES: Final[Mapping[str, Architecture]] = {"x86_64": X86_64, "aarch64": AARCH64}


def this_machine() -> Architecture | None:
    """Return the machine we run on, or None if there is no table for it."""
    if platform.system() != "Linux":
        return None
    return MACHINES.get(platform.machine())
