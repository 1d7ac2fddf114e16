"""Timers of programs: timerfd, timer_create, setitimer and alarm.

The kernel's own timers stay disarmed. Their deadlines are kept here, on the virtual clock; at a
deadline the program gets what the kernel would give it: ticks to read, or a signal.
"""

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Final

from dralab.virtualtime.machine import Architecture
from dralab.virtualtime.programs import TracedProcess
from dralab.virtualtime.ptrace import raw_syscall
from dralab.virtualtime.seccomp_filter import REAL_CLOCKS
from dralab.virtualtime.timed_calls import PAIR, SECOND, Arguments, TimeoutBase

KCMP: Final = {0xC000003E: 312, 0xC00000B7: 272}
SIGQUEUE: Final = {0xC000003E: (129, 297), 0xC00000B7: (138, 240)}  # to a process, to a thread
TFD_IOC_SET_TICKS: Final = 0x40085400
ABSTIME: Final = 1
SIGEV_NONE: Final = 1
SIGEV_THREAD_ID: Final = 4
SI_TIMER: Final = -2
VALUE: Final = struct.Struct("<qqqq")  # itimerspec and itimerval: interval, then value
SIGEVENT: Final = struct.Struct("<Qiii")
SIGINFO: Final = struct.Struct("<iiiiiiQ96x")  # signo errno code pad, timer overrun value

Key = tuple[str, int, int]


@dataclass(slots=True, kw_only=True)
class ProgramTimer:
    """A timer of any kind. `deadline` is None while it is disarmed."""

    key: Key  # kind, process, number
    base: TimeoutBase = TimeoutBase.MONOTONIC
    deadline: int | None = None
    interval: int = 0
    descriptor: int = -1  # ours, of a timerfd
    signal: int = signal.SIGALRM
    thread: int = 0  # that gets the signal; 0 for any of the process
    value: int = 0
    silent: bool = False  # SIGEV_NONE


class ProgramTimers:
    """All timers of all programs under one clock."""

    def __init__(self, machine: Architecture, now: Callable[[], tuple[int, int]]) -> None:
        self._machine = machine
        self._now = now  # the monotonic clock, and what real time is ahead of it
        self._timers: dict[Key, ProgramTimer] = {}
        self.calls: Mapping[str, Callable[[TracedProcess, Arguments], int | None]] = {
            "alarm": self._alarm,
            "setitimer": self._setitimer,
            "getitimer": self._getitimer,
            "timer_settime": self._timer_settime,
            "timer_gettime": self._timer_gettime,
            "timer_delete": self._timer_delete,
            "timerfd_settime": self._timerfd_settime,
            "timerfd_gettime": self._timerfd_gettime,
        }

    def answer(self, process: TracedProcess, name: str, arguments: Arguments) -> int | None:
        """Return what the call returns; None if the kernel should answer it."""
        return self.calls[name](process, arguments)

    def created(self, process: TracedProcess, arguments: Arguments) -> None:
        """Note a timer that timer_create has made."""
        clock, event, where = arguments[:3]
        if clock & 0xFFFFFFFF not in REAL_CLOCKS:
            return
        (number,) = struct.unpack("<i", process.read(where, 4).ljust(4, b"\0"))
        timer = ProgramTimer(key=("posix", process.pid, number), value=number)
        if clock in {0, 8, 11}:
            timer.base = TimeoutBase.REALTIME
        data = process.read(event, SIGEVENT.size) if event else b""
        if len(data) == SIGEVENT.size:
            timer.value, timer.signal, notify, thread = SIGEVENT.unpack(data)
            timer.silent = notify == SIGEV_NONE
            timer.thread = process.thread(thread) if notify & SIGEV_THREAD_ID else 0
        self._timers[timer.key] = timer

    def deadline(self) -> int | None:
        """Return the earliest deadline, or None."""
        if not self._timers:
            return None
        return min(
            (t.deadline for t in self._timers.values() if t.deadline is not None), default=None
        )

    def expire(self, now: int, processes: Iterable[TracedProcess]) -> bool:
        """Fire what is due; return whether anything was."""
        if not self._timers:
            return False
        due = [t for t in self._timers.values() if t.deadline is not None and t.deadline <= now]
        due.sort(key=lambda timer: (timer.deadline, timer.key))
        for timer in due:
            self._fire(timer, now, processes)
        return bool(due)

    def program_replaced(self, pid: int) -> None:
        """Forget what exec deletes."""
        for key in [key for key in self._timers if key[0] == "posix" and key[1] == pid]:
            del self._timers[key]

    def program_ended(self, pid: int) -> None:
        """Forget the timers of a process; a timerfd may live on in another."""
        self.program_replaced(pid)
        self._timers.pop(("real", pid, 0), None)

    def close(self) -> None:
        """Close the programs' timerfds."""
        for timer in self._timers.values():
            if timer.descriptor >= 0:
                os.close(timer.descriptor)
        self._timers.clear()

    # --- firing ---------------------------------------------------------------------------------

    def _fire(self, timer: ProgramTimer, now: int, processes: Iterable[TracedProcess]) -> None:
        missed = 0
        if timer.interval and timer.deadline is not None:
            missed = (now - timer.deadline) // timer.interval
            timer.deadline += (missed + 1) * timer.interval
        else:
            timer.deadline = None
        kind, pid, _ = timer.key
        if kind == "fd":
            if self._holder(timer, processes):
                self._tick(timer, missed + 1)
            else:
                os.close(timer.descriptor)
                self._timers.pop(timer.key, None)
        elif not timer.silent:
            with contextlib.suppress(ProcessLookupError):
                if kind == "real":
                    os.kill(pid, signal.SIGALRM)
                else:
                    self._queue(pid, timer, missed)

    def _queue(self, pid: int, timer: ProgramTimer, missed: int) -> None:
        code = SI_TIMER & 0xFFFFFFFF
        info = SIGINFO.pack(
            timer.signal, 0, code - (1 << 32), 0, timer.key[2], min(missed, 1 << 30), timer.value
        )
        buffer = ctypes.create_string_buffer(info, len(info))
        to_process, to_thread = SIGQUEUE[self._machine.audit_arch]
        if timer.thread:
            raw_syscall(to_thread, pid, timer.thread, timer.signal, buffer)
        else:
            raw_syscall(to_process, pid, timer.signal, buffer)

    def _tick(self, timer: ProgramTimer, ticks: int) -> None:
        """Add ticks that the program has not read yet, and wake the threads that wait for them."""
        text = Path(f"/proc/self/fdinfo/{timer.descriptor}").read_text(encoding="ascii")
        unread = int(_field(text, "ticks:") or 0)
        try:
            ioctl(timer.descriptor, TFD_IOC_SET_TICKS, struct.pack("<Q", unread + ticks))
        except OSError:  # a kernel without CONFIG_CHECKPOINT_RESTORE: one real nanosecond
            _settime(timer.descriptor, 1)
            while _gettime(timer.descriptor):
                os.sched_yield()

    def _holder(self, timer: ProgramTimer, processes: Iterable[TracedProcess]) -> bool:
        """Whether a program still has the timerfd; it may have passed to another one."""
        _, owner, number = timer.key
        if self._same(owner, number, timer.descriptor) is not False:
            return True
        for process in processes:
            with contextlib.suppress(OSError):
                for link in Path(f"/proc/{process.pid}/fd").iterdir():
                    if str(link.readlink()) == "anon_inode:[timerfd]" and self._same(
                        process.pid, int(link.name), timer.descriptor
                    ):
                        return True
        return False

    def _same(self, pid: int, number: int, ours: int) -> bool | None:
        """Whether two descriptors are one open file; None if the kernel can't tell."""
        answer = raw_syscall(
            KCMP[self._machine.audit_arch], pid, os.getpid(), 0, number, ctypes.c_ulong(ours)
        )
        if answer == -1:
            return None if ctypes.get_errno() not in {3, 9} else False  # ESRCH, EBADF
        return bool(answer == 0)

    # --- what programs ask ----------------------------------------------------------------------

    def _arm(self, timer: ProgramTimer, value: int, interval: int, *, absolute: bool) -> None:
        now, offset = self._now()
        timer.interval = interval if value else 0
        if not value:
            timer.deadline = None
        elif absolute:
            timer.deadline = value - (offset if timer.base is TimeoutBase.REALTIME else 0)
        else:
            timer.deadline = now + value

    def _state(self, timer: ProgramTimer | None, unit: int) -> bytes:
        if timer is None or timer.deadline is None:
            return bytes(VALUE.size)
        # Never zero while it is armed (__itimer_get_remtime, timerfd_get_remaining).
        left = max(timer.deadline - self._now()[0], unit)
        (seconds, part), (s, p) = divmod(left, SECOND), divmod(timer.interval, SECOND)
        return VALUE.pack(s, p // unit, seconds, part // unit)

    def _alarm(self, process: TracedProcess, arguments: Arguments) -> int:
        timer = self._real(process)
        left = 0 if timer.deadline is None else timer.deadline - self._now()[0]
        seconds, part = divmod(left, SECOND)
        self._arm(timer, (arguments[0] & 0xFFFFFFFF) * SECOND, 0, absolute=False)
        # Rounded, but a pending alarm is never "0 seconds" (alarm_setitimer).
        return seconds + (part >= SECOND // 2 or (seconds == 0 and part > 0))

    def _real(self, process: TracedProcess) -> ProgramTimer:
        key = ("real", process.pid, 0)
        return self._timers.setdefault(key, ProgramTimer(key=key))

    def _setitimer(self, process: TracedProcess, arguments: Arguments) -> int | None:
        new = _value(process.read(arguments[1], VALUE.size), 1000)
        if new is None:
            return None
        timer = self._real(process)
        if arguments[2]:
            process.write(arguments[2], self._state(timer, 1000))
        self._arm(timer, new[1], new[0], absolute=False)
        return 0

    def _getitimer(self, process: TracedProcess, arguments: Arguments) -> int:
        process.write(arguments[1], self._state(self._timers.get(("real", process.pid, 0)), 1000))
        return 0

    def _posix(self, process: TracedProcess, arguments: Arguments) -> ProgramTimer | None:
        number = struct.unpack("<i", struct.pack("<I", arguments[0] & 0xFFFFFFFF))[0]
        return self._timers.get(("posix", process.pid, number))

    def _timer_settime(self, process: TracedProcess, arguments: Arguments) -> int | None:
        timer = self._posix(process, arguments)
        new = _value(process.read(arguments[2], VALUE.size), 1)
        if timer is None or new is None:
            return None
        if arguments[3]:
            process.write(arguments[3], self._state(timer, 1))
        self._arm(timer, new[1], new[0], absolute=bool(arguments[1] & ABSTIME))
        return 0

    def _timer_gettime(self, process: TracedProcess, arguments: Arguments) -> int | None:
        timer = self._posix(process, arguments)
        if timer is None:
            return None
        process.write(arguments[1], self._state(timer, 1))
        return 0

    def _timer_delete(self, process: TracedProcess, arguments: Arguments) -> None:
        timer = self._posix(process, arguments)
        if timer is not None:
            del self._timers[timer.key]

    def _timerfd(self, process: TracedProcess, number: int) -> ProgramTimer | None:
        """Return the timer behind a descriptor, or a new one; None if it is not a timerfd."""
        ours = process.duplicate(number)
        if ours < 0:
            return None
        text = Path(f"/proc/self/fdinfo/{ours}").read_text(encoding="ascii")
        clock = _field(text, "clockid:")
        if clock is None:
            os.close(ours)
            return None
        key = ("fd", process.pid, number)
        for timer in self._timers.values():
            if timer.descriptor >= 0:
                same = self._same(os.getpid(), timer.descriptor, ours)
                if same or (same is None and timer.key == key):
                    os.close(ours)
                    return timer
        if key in self._timers:  # closed meanwhile, and its number used again
            os.close(self._timers.pop(key).descriptor)
        base = TimeoutBase.REALTIME if int(clock) in {0, 8, 11} else TimeoutBase.MONOTONIC
        timer = self._timers[key] = ProgramTimer(key=key, base=base, descriptor=ours)
        return timer

    def _timerfd_settime(self, process: TracedProcess, arguments: Arguments) -> int | None:
        new = _value(process.read(arguments[2], VALUE.size), 1)
        if new is None or arguments[1] & ~3:
            return None
        timer = self._timerfd(process, arguments[0] & 0xFFFFFFFF)
        if timer is None:
            return None
        if arguments[3]:
            process.write(arguments[3], self._state(timer, 1))
        _settime(timer.descriptor, 0)  # forgets ticks that were not read, as every settime does
        self._arm(timer, new[1], new[0], absolute=bool(arguments[1] & ABSTIME))
        return 0

    def _timerfd_gettime(self, process: TracedProcess, arguments: Arguments) -> int | None:
        timer = self._timerfd(process, arguments[0] & 0xFFFFFFFF)
        if timer is None:
            return None
        process.write(arguments[1], self._state(timer, 1))
        return 0


def _value(data: bytes, unit: int) -> tuple[int, int] | None:
    """Return interval and value in nanoseconds; None if the kernel should refuse them."""
    if len(data) < VALUE.size:
        return None
    found = []
    for at in (0, PAIR.size):
        seconds, part = PAIR.unpack_from(data, at)
        if seconds < 0 or not 0 <= part * unit < SECOND:
            return None
        found.append(seconds * SECOND + part * unit)
    return found[0], found[1]


def _field(text: str, name: str) -> str | None:
    for line in text.splitlines():
        if line.startswith(name):
            return line[len(name) :].strip()
    return None


_libc = ctypes.CDLL(None, use_errno=True)


def _settime(descriptor: int, nanoseconds: int) -> None:
    _libc.timerfd_settime(descriptor, 0, VALUE.pack(0, 0, 0, nanoseconds), None)


def _gettime(descriptor: int) -> int:
    buffer = ctypes.create_string_buffer(VALUE.size)
    _libc.timerfd_gettime(descriptor, buffer)
    _, _, seconds, part = VALUE.unpack(buffer.raw)
    return int(seconds * SECOND + part)
