"""Waits with a timeout: how a thread begins one, and how it ends as the kernel would end it."""

import contextlib
import errno
import itertools
from typing import Final

from dralab.virtualtime.machine import FOREVER, ZERO
from dralab.virtualtime.threads import NAPS, ThreadState, ThreadWait, TracedThread
from dralab.virtualtime.timed_calls import (
    NEVER,
    Arguments,
    TimedCall,
    TimeoutBase,
    TimeoutFormat,
    VirtualTime,
)
from dralab.virtualtime.turns import FUTEX_WAIT_PRIVATE, ThreadTurns, finds_something

# The kernel's own ERESTART codes (include/linux/errno.h), which a tracer sees; epoll says EINTR.
INTERRUPTED: Final = frozenset({-512, -513, -514, -516, -errno.EINTR})
ERESTARTSYS: Final = -512
ERESTARTNOHAND: Final = -514
MASKED: Final = frozenset({"epoll_pwait", "epoll_pwait2"})  # the fifth argument masks signals
# Nanoseconds. So short a sleep is for other threads to go on; it ends when they have, at the same
# instant. The clock moves for a thread that sleeps so again and again.
NAP: Final = 50_000
# Go's runtime sleeps up to 10 ms between looks at its own threads (runtime.usleep, of sysmon most
# often). No program sees how long: time.Sleep waits for a timer instead.
GO_NAP: Final = 10_000_000
GO_NAPS: Final = 10  # of more than NAP, at one instant
# While nothing runs, the same thread waits for the next timer (runtime.notetsleep), beside the one
# that fires it, and is woken when a goroutine enters a system call. Apart from that it only forces
# garbage collections: let it sleep as long as where there is no timer (half of forcegcperiod).
REST: Final = 60_000_000_000
SHORTEST_GO_REST: Final = 1_000_000
# Threads of a JVM that look every 50 ms to 5 s whether there is something to do for it: counters,
# monitors, safepoints, a queue of methods to compile. They are woken when there is; nothing of the
# program waits for them. Linux cuts names at 15 characters.
JVM_THREADS: Final = frozenset(
    {
        "VM Periodic Tas",
        "VM Thread",
        "Monitor Deflati",
        "G1 Service",
        "C1 CompilerThre",
        "C2 CompilerThre",
    }
)


class ThreadWaits:
    """The waits with a timeout of all threads; with `turns`, threads go on one after another."""

    def __init__(self, time: VirtualTime, turns: ThreadTurns | None) -> None:
        self._time = time
        self._turns = turns
        self.orders = itertools.count()

    def begin(self, thread: TracedThread, call: TimedCall) -> None:
        """Handle a thread that has stopped before a waiting call."""
        registers, now = thread.registers, self._time.monotonic
        arguments = registers.arguments
        timeout = call.timeout(arguments, thread.process)
        base = call.base(arguments)
        before, thread.interrupted = thread.interrupted, None
        nap = False
        turns = self._turns if call.has_gate(arguments) else None
        if turns and (call.form is TimeoutFormat.MILLISECONDS or not arguments[call.argument]):
            timeout = NEVER if timeout is None else timeout
        if timeout is None or (timeout == 0 and base is TimeoutBase.NOW):
            thread.resume()
            return
        if before and (before.number, before.place) == (registers.number, registers.call_site):
            deadline = before.deadline  # the kernel makes the call again
        elif _is_housekeeping(thread, call, arguments, timeout, now):
            deadline = now + REST
        elif timeout == NEVER:
            deadline = NEVER
        elif base is TimeoutBase.NOW:
            nap = call.sleeps and _is_nap(thread, call, timeout, now)
            deadline = now if nap else min(now + timeout, NEVER)
            if nap and self._turns and _is_go_monitor(thread):
                deadline = NEVER  # until there is something to look after
        else:
            ahead = self._time.offset + thread.process.skew
            deadline = timeout - (ahead if base is TimeoutBase.REALTIME else 0)
        thread.wait = ThreadWait(
            call=call,
            number=registers.number,
            arguments=arguments,
            place=registers.call_site,
            deadline=deadline,
            order=next(self.orders),
        )
        if turns:
            turns.queue(thread)
        elif not call.sleeps:
            self.enter(thread)
        elif nap and self._turns:
            self._turns.queue(thread)
        elif deadline > now or nap:
            thread.stop(ThreadState.HELD)
        else:
            thread.wait = None
            thread.answer(0)

    def next_turn(self) -> bool:
        """Let one of the queued threads go on; return whether one had something to see."""
        if self._turns is None:
            return False
        thread = self._turns.next(self._goes_on)
        if thread is None:
            return False
        thread.process.blocks -= thread.process.blocks > 0
        return True

    def _goes_on(self, thread: TracedThread) -> bool:
        wait = thread.wait
        if wait is None:  # it has just been made
            thread.resume()
            return True
        over = wait.deadline <= self._time.monotonic
        if over and wait.call.name in MASKED and wait.arguments[4]:
            self.enter(thread)  # the call lets signals in, which the kernel alone can tell
            return True
        if finds_something(thread):
            thread.wait = None
            thread.resume()  # the kernel does not let it wait
            return True
        if wait.call.sleeps and not over:  # a nap of Go's monitor
            over = self._turns is not None and self._turns.needs_monitor(thread)
        if over:
            thread.wait = None
            thread.answer(wait.call.expired)
        return over

    def enter(self, thread: TracedThread) -> None:
        """Let a thread begin its wait: a held one, so that a signal can end its sleep."""
        wait, patch, registers = thread.wait, thread.process.patch, thread.registers
        if wait is None or patch is None:
            return
        call = wait.call
        over = wait.deadline <= self._time.monotonic
        if call.form is TimeoutFormat.MILLISECONDS:
            registers.set_argument(call.argument, 0 if over else -1)
        elif call.sleeps:
            registers.set_argument(call.argument, patch.constant(ZERO if over else FOREVER))
            if call.left_if_interrupted is not None:
                registers.set_argument(call.left_if_interrupted, 0)
            if call.name == "clock_nanosleep":
                registers.set_argument(1, 0)  # relative
        else:
            registers.set_argument(call.argument, patch.constant(ZERO) if over else 0)
        registers.store()
        thread.enter_call(ThreadState.WAITING)

    def end(self, thread: TracedThread, *, watch: bool = False) -> None:
        """End the wait of a thread whose deadline has come; `watch` what it does then."""
        wait = thread.wait
        if wait is None:
            return
        if watch:
            thread.watch()
        with contextlib.suppress(ProcessLookupError):
            if self._turns and thread.stopped:
                self._turns.queue(thread)
            elif thread.state is ThreadState.HELD:
                thread.wait = None
                thread.answer(wait.call.expired)
            elif not wait.expired:
                wait.expired = True
                thread.interrupt()

    def ended(self, thread: TracedThread) -> None:
        """Handle a thread that has stopped at the return of its call."""
        registers, process = thread.registers, thread.process
        result = registers.result
        wait, thread.wait = thread.wait, None
        if wait is None:
            thread.resume()
            return
        call, arguments = wait.call, wait.arguments
        left = wait.deadline - self._time.monotonic
        if result not in INTERRUPTED:
            thread.table.woken = True
            call.write_left(arguments, process, left, interrupted=False)
        elif wait.expired:
            result = call.expired
            call.finish(arguments, process)
            call.write_left(arguments, process, 0, interrupted=False)
        else:
            call.write_left(arguments, process, left, interrupted=True)
            # A message queue's wait begins again after a handler, if it asks for that (SA_RESTART).
            if not (result == ERESTARTSYS and call.name.startswith("mq_")):
                result = ERESTARTNOHAND
            thread.interrupted = wait
        registers.restore_arguments(arguments)
        registers.result = result
        registers.store()
        thread.resume()


def _is_nap(thread: TracedThread, call: TimedCall, timeout: int, now: int) -> bool:
    """Whether a sleep takes no time."""
    if timeout <= NAP:
        return thread.nap(now, NAPS)
    go = call.name == "nanosleep" and thread.process.is_go
    return go and timeout <= GO_NAP and thread.nap(now, GO_NAPS)


def _is_go_monitor(thread: TracedThread) -> bool:
    """Whether the thread that sleeps is the one of Go's runtime that looks after the others.

    That is the first one that the runtime makes (sysmon); it sleeps in the runtime's own code.
    """
    process = thread.process
    if not process.is_go or thread.tid != process.second:
        return False
    return process.has_code_at(thread.registers.call_site[0])


def _is_housekeeping(
    thread: TracedThread, call: TimedCall, arguments: Arguments, timeout: int, now: int
) -> bool:
    """Whether a thread of a runtime waits for something to do, and looks from time to time."""
    if call.name != "futex":
        return False
    if thread.process.is_go:  # its monitor: futex(word, FUTEX_WAIT_PRIVATE, …)
        return arguments[1] == FUTEX_WAIT_PRIVATE and SHORTEST_GO_REST <= timeout < REST
    left = timeout if call.base(arguments) is TimeoutBase.NOW else timeout - now
    if left < REST and thread.housekeeping is None:
        thread.housekeeping = thread.name() in JVM_THREADS and thread.process.is_jvm()
    return left < REST and bool(thread.housekeeping)
