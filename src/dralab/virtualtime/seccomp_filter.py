"""The seccomp filter: which system calls stop a thread, by their numbers and arguments.

A filter sees arguments, but not memory. Waits without a timeout pass untouched and cost nothing.
"""

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dralab.virtualtime.machine import Architecture

TRACE: Final = 0x7FF00000
ALLOW: Final = 0x7FFF0000
ERRNO: Final = 0x00050000

# What the stop's message says of the call.
TIMED: Final = 1  # it waits, sets a timer or reads a clock
ADDRESS: Final = 2  # it names a peer
REAL: Final = 3  # its time cannot be made virtual
FOREIGN: Final = 4  # it was made in another calling convention, such as that of 32-bit programs

REAL_CLOCKS: Final = (0, 1, 4, 5, 6, 7, 8, 9, 11)  # those that are not a processor's time
FUTEX_WAITS: Final = (0, 6, 9, 11, 13)  # WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
FUTEX_COMMAND: Final = 0x7F  # without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
SOCKET_TIMEOUTS: Final = (20, 21, 66, 67)  # SO_RCVTIMEO and SO_SNDTIMEO, old and new
SOL_SOCKET: Final = 1
ATTACHING: Final = (16, 0x4206)  # PTRACE_ATTACH, PTRACE_SEIZE

# What sends a signal: the number is the second argument, or the third.
SIGNALS: Final = frozenset(
    {"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"}
)

_LOAD, _JEQ, _JA_RET, _AND = 0x20, 0x15, 0x06, 0x54
_NUMBER, _ARCH, _ARGS = 0, 4, 16
_LENGTH: Final = struct.Struct("<HBBI")


@dataclass(frozen=True, slots=True)
class ArgumentAmong:
    """The argument is one of these numbers, compared as 32 bits after a mask."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negate: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentNotNull:
    """The argument, a pointer, is not null."""

    argument: int


Condition = ArgumentAmong | ArgumentNotNull


@dataclass(frozen=True, slots=True)
class FilterRule:
    """A rule for a call: its action if all conditions hold."""

    call: str
    action: int
    conditions: Sequence[Condition] = ()


def rules(*, addresses: bool, random: bool = False, gates: bool = False) -> Sequence[FilterRule]:
    """Return the rules; with `addresses`, calls that name a peer stop, too.

    With `random`, those stop that ask for random bytes, or open a file, which may hold some; with
    `gates`, every wait of epoll, and for another thread's futex.
    """
    timed = TRACE | TIMED
    found = [
        *(
            FilterRule(
                name,
                timed,
                (ArgumentAmong(2 if name == "poll" else 3, (0, 0xFFFFFFFF), negate=True),),
            )
            for name in ("poll", "epoll_wait", "epoll_pwait")
        ),
        *(
            FilterRule(name, timed, (ArgumentNotNull(index),))
            for name, index in (
                ("ppoll", 2),
                ("rt_sigtimedwait", 2),
                ("epoll_pwait2", 3),
                ("semtimedop", 3),
                ("futex_waitv", 3),
                ("select", 4),
                ("pselect6", 4),
                ("futex_wait", 4),
                ("mq_timedsend", 4),
                ("mq_timedreceive", 4),
            )
        ),
        FilterRule(
            "futex", timed, (ArgumentAmong(1, FUTEX_WAITS, mask=FUTEX_COMMAND), ArgumentNotNull(3))
        ),
        FilterRule("nanosleep", timed),
        FilterRule("clock_nanosleep", timed, (ArgumentAmong(0, REAL_CLOCKS),)),
        FilterRule("clock_gettime", timed, (ArgumentAmong(0, REAL_CLOCKS),)),
        *(
            FilterRule(name, timed, (ArgumentAmong(0, (0,)),))
            for name in ("setitimer", "getitimer")
        ),
        *(
            FilterRule(name, timed)
            for name in (
                "gettimeofday",
                "time",
                "alarm",
                "timer_create",
                "timer_settime",
                "timer_gettime",
                "timer_delete",
                "timerfd_settime",
                "timerfd_gettime",
            )
        ),
        *(
            FilterRule(
                name,
                timed,
                (ArgumentAmong(1, (SOL_SOCKET,)), ArgumentAmong(2, SOCKET_TIMEOUTS)),
            )
            for name in ("setsockopt", "getsockopt")
        ),
        *(
            FilterRule(name, TRACE | REAL, (ArgumentNotNull(4),))
            for name in ("recvmmsg", "io_getevents", "io_pgetevents")
        ),
        *(FilterRule(name, timed) for name in sorted(SIGNALS)),
        # Its timeouts are in memory that the kernel reads by itself. Programs fall back to epoll.
        FilterRule("io_uring_setup", ERRNO | errno.ENOSYS),
        # Programs under the clock have a tracer already. As root, one could stop that tracer, which
        # would wait for it in turn.
        FilterRule("ptrace", ERRNO | errno.EPERM, (ArgumentAmong(0, ATTACHING),)),
        # As root, this would set the machine's clock, not the virtual one.
        *(
            FilterRule(name, ERRNO | errno.EPERM)
            for name in ("settimeofday", "clock_settime", "adjtimex", "clock_adjtime")
        ),
    ]
    if addresses:
        found += [
            FilterRule("connect", TRACE | ADDRESS),
            FilterRule("sendto", TRACE | ADDRESS, (ArgumentNotNull(4),)),
            FilterRule("listen", TRACE | ADDRESS),
            FilterRule("sendmsg", TRACE | ADDRESS),
            FilterRule("sendmmsg", TRACE | ADDRESS),
        ]
    if gates:
        gated = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "futex"}
        found = [rule for rule in found if rule.call not in gated]
        found.append(
            FilterRule("futex", timed, (ArgumentAmong(1, FUTEX_WAITS, mask=FUTEX_COMMAND),))
        )
        found += [
            FilterRule(name, timed, (ArgumentAmong(3, (0,), negate=True),))
            for name in ("epoll_wait", "epoll_pwait")
        ]
        found.append(FilterRule("epoll_pwait2", timed))
    if random:
        names = ("getrandom", "open", "openat", "openat2")
        found += [FilterRule(name, TRACE | TIMED) for name in names]
    return found


def assemble(machine: Architecture, rules: Sequence[FilterRule]) -> bytes:
    """Return the filter as an array of struct sock_filter.

    >>> from dralab.virtualtime.machine import X86_64
    >>> len(assemble(X86_64, [FilterRule("alarm", TRACE | TIMED)])) // 8
    8
    """
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, machine.audit_arch),
        (_JA_RET, 0, 0, TRACE | FOREIGN),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for rule in rules:
        if rule.call not in machine.calls:
            continue
        body = _conditions(rule)
        code.append((_JEQ, 0, len(body), machine.calls[rule.call]))
        code += body
    code.append((_JA_RET, 0, 0, ALLOW))
    return b"".join(_LENGTH.pack(operation, yes, no, k) for operation, yes, no, k in code)


def _conditions(rule: FilterRule) -> list[tuple[int, int, int, int]]:
    """Return the instructions for one call: its action if all conditions hold, else ALLOW."""
    tests: list[list[tuple[int, int, int, int]]] = []
    for condition in rule.conditions:
        low = _ARGS + 8 * condition.argument
        if isinstance(condition, ArgumentNotNull):
            # Either half is not zero: (low == 0 → look at high; else hold), (high == 0 → fail).
            tests.append(
                [(_LOAD, 0, 0, low), (_JEQ, 0, 2, 0), (_LOAD, 0, 0, low + 4), (_JEQ, FAIL, 0, 0)]
            )
            continue
        test = [(_LOAD, 0, 0, low)]
        if condition.mask != 0xFFFFFFFF:
            test.append((_AND, 0, 0, condition.mask))
        for index, value in enumerate(condition.values):
            last = len(condition.values) - index - 1
            if condition.negate:
                test.append((_JEQ, FAIL, 0, value))
            else:
                test.append((_JEQ, last, FAIL if last == 0 else 0, value))
        tests.append(test)
    flat = [instruction for test in tests for instruction in test]
    flat.append((_JA_RET, 0, 0, rule.action))
    flat.append((_JA_RET, 0, 0, ALLOW))
    end = len(flat) - 1
    return [
        (op, end - at - 1 if yes == FAIL else yes, end - at - 1 if no == FAIL else no, k)
        for at, (op, yes, no, k) in enumerate(flat)
    ]


FAIL: Final = 0xFF  # a jump to the call's ALLOW, resolved when the length is known
