"""Waits with a timeout: where it is, what it counts on, and how the wait ends when it has passed.

The table says of each system call what Linux does; times are nanoseconds of the virtual monotonic
clock. A wait is made endless (a null pointer, or -1) and ended by the supervisor.
"""

import errno
import struct
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Final, Protocol

SECOND: Final = 1_000_000_000
# Kernel time is 63 bits of nanoseconds; a longer timeout is cut there (ktime_set, KTIME_SEC_MAX).
LONGEST: Final = (1 << 63) - 1
NEVER: Final = LONGEST  # a deadline that does not come
PAIR: Final = struct.Struct("<qq")

Arguments = tuple[int, ...]


@dataclass(slots=True)
class VirtualTime:
    """The virtual clock: nanoseconds of CLOCK_MONOTONIC, and what real time is ahead of it."""

    monotonic: int
    offset: int

    def words(self) -> tuple[int, int]:
        """Return both."""
        return self.monotonic, self.offset


class TimeoutFormat(Enum):
    """How a timeout is written."""

    MILLISECONDS = 0  # in the argument itself, an int
    TIMESPEC = 1
    TIMEVAL = 2


class TimeoutBase(Enum):
    """What a timeout counts on."""

    NOW = 0  # it is relative
    MONOTONIC = 1
    REALTIME = 2


class ProgramMemory(Protocol):
    """The memory of a program."""

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes, or fewer where it ends."""
        ...

    def write(self, address: int, data: bytes) -> bool:
        """Write `data`; return whether that could be done."""
        ...


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A system call that waits with a timeout."""

    name: str
    argument: int
    form: TimeoutFormat
    base: Callable[[Arguments], TimeoutBase]
    expired: int = 0  # what it returns when the time is over
    _: KW_ONLY
    sleeps: bool = False  # it waits for nothing else: its thread can be held where it is
    left: int | None = None  # the argument with the room for the remaining time, always written
    left_if_interrupted: int | None = None  # the same, written only when a signal ends the wait
    sets: bool = False  # select: three sets of descriptors, emptied when the time is over

    def has_gate(self, arguments: Arguments) -> bool:
        """Whether it can be said from outside if the call would wait, before it is made."""
        if self.name == "futex":  # FUTEX_WAIT and FUTEX_WAIT_BITSET compare a word
            return arguments[1] & 0x7F in {0, 9}
        return self.name in {"epoll_wait", "epoll_pwait", "epoll_pwait2"}

    def timeout(self, arguments: Arguments, memory: ProgramMemory) -> int | None:
        """Return the timeout in nanoseconds; None if the kernel should refuse it itself."""
        value = arguments[self.argument]
        if self.form is TimeoutFormat.MILLISECONDS:
            milliseconds = value & 0xFFFFFFFF
            return None if milliseconds >> 31 else milliseconds * 1_000_000
        data = memory.read(value, PAIR.size)
        if len(data) < PAIR.size:
            return None
        seconds, part = _pair(data)
        unit = 1 if self.form is TimeoutFormat.TIMESPEC else 1000
        # select alone takes more than a second of microseconds (poll_select_set_timeout).
        if (
            seconds < 0
            or part < 0
            or (part * unit >= SECOND and self.form is TimeoutFormat.TIMESPEC)
        ):
            return None
        return min(seconds * SECOND + part * unit, LONGEST)

    def write_left(
        self, arguments: Arguments, memory: ProgramMemory, left: int, *, interrupted: bool
    ) -> None:
        """Write the remaining time back, where the call does that."""
        at = self.left
        if at is None and interrupted and self.base(arguments) is TimeoutBase.NOW:
            at = self.left_if_interrupted
        if at is None or not arguments[at]:
            return
        unit = 1 if self.form is TimeoutFormat.TIMESPEC else 1000
        seconds, part = divmod(max(left, 0), SECOND)
        memory.write(arguments[at], PAIR.pack(seconds, part // unit))

    def finish(self, arguments: Arguments, memory: ProgramMemory) -> None:
        """Write what the call writes when its time is over."""
        if self.sets:
            size = (min(arguments[0] & 0x7FFFFFFF, 1 << 20) + 63) // 64 * 8
            for address in arguments[1:4]:
                if address:
                    memory.write(address, bytes(size))


def _pair(data: bytes) -> tuple[int, int]:
    seconds, part = PAIR.unpack(data)
    return seconds, part


def _relative(_: Arguments) -> TimeoutBase:
    return TimeoutBase.NOW


def _realtime(_: Arguments) -> TimeoutBase:
    return TimeoutBase.REALTIME


def _by_clock(index: int) -> Callable[[Arguments], TimeoutBase]:
    return lambda arguments: _of_clock(arguments[index])


def _of_clock(clock: int) -> TimeoutBase:
    # CLOCK_REALTIME, _COARSE, _ALARM and TAI; everything else counts since the boot.
    return TimeoutBase.REALTIME if clock & 0xFFFFFFFF in {0, 5, 8, 11} else TimeoutBase.MONOTONIC


def _clock_nanosleep(arguments: Arguments) -> TimeoutBase:
    return _of_clock(arguments[0]) if arguments[1] & 1 else TimeoutBase.NOW  # TIMER_ABSTIME


def _futex(arguments: Arguments) -> TimeoutBase:
    # FUTEX_WAIT is relative; LOCK_PI counts on real time; the others ask FUTEX_CLOCK_REALTIME.
    command = arguments[1] & 0x7F
    if command == 0:
        return TimeoutBase.NOW
    return TimeoutBase.REALTIME if command == 6 or arguments[1] & 0x100 else TimeoutBase.MONOTONIC


_NS: Final = TimeoutFormat.TIMESPEC
_TABLE: Final = (
    TimedCall("poll", 2, TimeoutFormat.MILLISECONDS, _relative),
    TimedCall("epoll_wait", 3, TimeoutFormat.MILLISECONDS, _relative),
    TimedCall("epoll_pwait", 3, TimeoutFormat.MILLISECONDS, _relative),
    TimedCall("epoll_pwait2", 3, _NS, _relative),
    TimedCall("ppoll", 2, _NS, _relative, left=2),
    TimedCall("select", 4, TimeoutFormat.TIMEVAL, _relative, left=4, sets=True),
    TimedCall("pselect6", 4, _NS, _relative, left=4, sets=True),
    TimedCall("nanosleep", 0, _NS, _relative, sleeps=True, left_if_interrupted=1),
    TimedCall("clock_nanosleep", 2, _NS, _clock_nanosleep, sleeps=True, left_if_interrupted=3),
    TimedCall("futex", 3, _NS, _futex, -errno.ETIMEDOUT),
    TimedCall("futex_waitv", 3, _NS, _by_clock(4), -errno.ETIMEDOUT),
    TimedCall("futex_wait", 4, _NS, _by_clock(5), -errno.ETIMEDOUT),
    TimedCall("rt_sigtimedwait", 2, _NS, _relative, -errno.EAGAIN),
    TimedCall("semtimedop", 3, _NS, _relative, -errno.EAGAIN),
    TimedCall("mq_timedsend", 4, _NS, _realtime, -errno.ETIMEDOUT),
    TimedCall("mq_timedreceive", 4, _NS, _realtime, -errno.ETIMEDOUT),
)
TIMED_CALLS: Final[Mapping[str, TimedCall]] = {call.name: call for call in _TABLE}
