"""Timeouts of sockets (SO_RCVTIMEO, SO_SNDTIMEO) on the virtual clock.

The kernel keeps them, longer by centuries: so accept passes them on to new sockets, as it does, and
no read or write has to stop. Which threads wait with one is seen when all are idle; the clock stood
still since they began.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

from dralab.virtualtime.machine import SCRATCH
from dralab.virtualtime.threads import ThreadState, ThreadWait, TracedThread
from dralab.virtualtime.timed_calls import (
    PAIR,
    SECOND,
    TimedCall,
    TimeoutBase,
    TimeoutFormat,
    VirtualTime,
)

OPTIONS: Final = {20: 20, 21: 21, 66: 20, 67: 21}  # SO_RCVTIMEO and SO_SNDTIMEO, new and old
LONGER: Final = 1 << 33  # seconds, by which the kernel's timeouts are longer
RECEIVING, SENDING = 20, 21
EXPIRED: Final = {"connect": -errno.EINPROGRESS}
WAITING: Final = {
    **dict.fromkeys(("read", "readv", "recvfrom", "recvmsg", "recvmmsg"), RECEIVING),
    **dict.fromkeys(("accept", "accept4"), RECEIVING),
    **dict.fromkeys(("write", "writev", "sendto", "sendmsg", "sendmmsg", "connect"), SENDING),
}
CALLS: Final = {
    name: TimedCall(
        name, 0, TimeoutFormat.TIMEVAL, lambda _: TimeoutBase.NOW, EXPIRED.get(name, -errno.EAGAIN)
    )
    for name in WAITING
}


class SocketTimeouts:
    """The timeouts of all sockets of the programs under a clock."""

    def __init__(self, time: VirtualTime, orders: Iterator[int]) -> None:
        self.used = False  # whether a program has set one
        self._time = time
        self._orders = orders

    def set(self, thread: TracedThread) -> int | None:
        """Let a thread set a longer one; return its status after that, None if it is no timeout."""
        process, registers = thread.process, thread.registers
        arguments = registers.arguments
        data = process.read(arguments[3], PAIR.size)
        if len(data) < PAIR.size or process.patch is None or arguments[4] & 0xFFFFFFFF < PAIR.size:
            return None
        seconds, part = PAIR.unpack(data)
        if seconds < 0 or seconds >= LONGER or not (seconds or part):
            return None  # refused, or without end
        self.used = True
        place = process.patch.constant(SCRATCH)
        process.write(place, PAIR.pack(seconds + LONGER, part))
        registers.set_argument(3, place)
        registers.store()
        return thread.finish_call(arguments)

    def get(self, thread: TracedThread) -> int | None:
        """Answer getsockopt; None if the kernel should do it."""
        process, arguments = thread.process, thread.registers.arguments
        if not self.used:
            return None
        timeout = self._of(thread, arguments[0], OPTIONS[arguments[2] & 0xFFFFFFFF])
        if timeout is None:
            return None
        (room,) = struct.unpack("<i", process.read(arguments[4], 4).ljust(4, b"\0"))
        data = PAIR.pack(timeout // SECOND, timeout % SECOND // 1000)[: max(room, 0)]
        written = process.write(arguments[3], data)
        written = written and process.write(arguments[4], struct.pack("<i", len(data)))
        return 0 if written else -errno.EFAULT

    def look(self, thread: TracedThread) -> None:
        """Note whether a thread that has just become idle waits for a socket, and how long."""
        if not self.used or thread.state is not ThreadState.LOOSE:
            return
        thread.wait = None
        number, arguments = thread.blocked_call()
        name = thread.registers.machine.names.get(number)
        if name not in WAITING:
            return
        timeout = self._of(thread, arguments[0], WAITING[name])
        if timeout is not None:
            thread.wait = ThreadWait(
                call=CALLS[name],
                number=number,
                arguments=arguments,
                place=(0, 0),
                deadline=self._time.monotonic + timeout,
                order=next(self._orders),
            )

    @staticmethod
    def expire(thread: TracedThread) -> None:
        """End the wait of a thread that was stopped in it, if it is still the same."""
        wait, thread.wait = thread.wait, None
        if wait is None or not wait.expired or thread.state is not ThreadState.LOOSE:
            return
        registers = thread.registers
        registers.load()
        same = registers.number == wait.number and registers.arguments[0] == wait.arguments[0]
        if same and registers.result == -errno.EINTR:  # with a timeout, no signal restarts it
            registers.result = wait.call.expired
            registers.store()

    @staticmethod
    def _of(thread: TracedThread, descriptor: int, option: int) -> int | None:
        """Return a socket's timeout in nanoseconds; None if it has none, or is no socket."""
        ours = thread.process.duplicate(descriptor & 0xFFFFFFFF)
        if ours < 0:
            return None
        try:
            with contextlib.closing(socket.socket(fileno=ours)) as end:
                seconds, part = PAIR.unpack(end.getsockopt(socket.SOL_SOCKET, option, PAIR.size))
        except OSError:
            os.close(ours)
            return None
        if seconds < LONGER:
            return None
        return int((seconds - LONGER) * SECOND + part * 1000)
