"""Handles the stops of all threads, one by one: what a thread requests, and how it continues.

All calls must come from the thread that made the tracer: the kernel knows it as the tracer.
"""

import contextlib
import errno
import os
import select
import signal
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.kernel.randomness import Randomness
from dralab.virtualtime import peers, ptrace
from dralab.virtualtime import seccomp_filter as rules
from dralab.virtualtime.errors import ClockUnavailableError, ProgramStartError
from dralab.virtualtime.machine import FOREVER, ZERO, Architecture
from dralab.virtualtime.programs import (
    ThreadState,
    ThreadWait,
    TracedProcess,
    TracedThread,
    read_file,
)
from dralab.virtualtime.timed_calls import (
    LONGEST,
    SECOND,
    TIMED_CALLS,
    TimedCall,
    TimeoutBase,
    TimeoutFormat,
)
from dralab.virtualtime.timers import ProgramTimers
from dralab.virtualtime.vdso import (
    LARGEST,
    VdsoImage,
    VdsoPatch,
    image_address,
    random_address,
    read_image,
)

LAUNCH: Final = Path(__file__).with_name("launch.py")
CLOCK_READS: Final = frozenset({"clock_gettime", "gettimeofday", "time"})
TIMER_CALLS: Final = frozenset(
    {
        "alarm",
        "setitimer",
        "getitimer",
        "timer_settime",
        "timer_gettime",
        "timer_delete",
        "timerfd_settime",
        "timerfd_gettime",
    }
)
# The kernel's own ERESTART codes (include/linux/errno.h), which a tracer sees; epoll says EINTR.
INTERRUPTED: Final = frozenset({-512, -513, -514, -516, -errno.EINTR})
ERESTARTSYS: Final = -512
ERESTARTNOHAND: Final = -514
STOPPING: Final = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
# Nanoseconds. So short a sleep is for other threads to go on; it ends when they have, at the same
# instant. The clock moves for one who sleeps so again and again.
NAP: Final = 50_000
NEVER: Final = LONGEST  # a deadline that does not come
MOST_RANDOM: Final = 1 << 16  # bytes of one getrandom
SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
WAIT_FOR_OURS: Final = ptrace.WALL | 0x20000000  # __WNOTHREAD: leave other threads their children


@dataclass(slots=True)
class VirtualTime:
    """The virtual clock: nanoseconds of CLOCK_MONOTONIC, and what real time is ahead of it."""

    monotonic: int
    offset: int

    def words(self) -> tuple[int, int]:
        """Return both."""
        return self.monotonic, self.offset


@dataclass(slots=True, eq=False)
class StartedProgram:
    """A program that was started under the clock."""

    pid: int
    arguments: tuple[str, ...]
    returncode: int | None = None  # as subprocess has it: -15 after SIGTERM


class Tracer:
    """Every thread of every program under one clock."""

    def __init__(
        self,
        machine: Architecture,
        time: VirtualTime,
        *,
        outside: bool,
        seed: int | None,
        gates: bool,
        note: Callable[[str], None],
    ) -> None:
        self.threads: dict[int, TracedThread] = {}
        self.processes: dict[int, TracedProcess] = {}
        self.timers = ProgramTimers(machine, time.words)
        self.let_go = False  # a thread, which will stop again before long, most often
        self.fired = False  # a timer, which may have sent a signal
        self.connected = False  # some program has named a peer on the network, or listens
        self.trusted: set[str] = set()  # addresses of servers that need no look at connections
        self.served = False  # some program has named one of these
        self._machine = machine
        self._time = time
        self._outside = outside
        self._note = note
        self._image: VdsoImage | None = None
        self._programs: dict[int, StartedProgram] = {}
        self._early: dict[int, list[int]] = {}  # stops of threads whose birth was not yet told
        self._orders = 0
        self._seeds = None if seed is None else Randomness(seed)
        self._loads: Counter[str] = Counter()  # of programs, by name
        self._gates = gates
        stopping = rules.rules(addresses=True, random=seed is not None, gates=gates)
        self._filter = rules.assemble(machine, stopping)

    # --- start and end --------------------------------------------------------------------------

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        streams: Sequence[int | None],
        unblock: bool,
        new_session: bool,
    ) -> StartedProgram:
        """Start a program; it has just been loaded when this returns."""
        ready, go = os.pipe()
        told, report = os.pipe()
        actions: list[tuple[int, int, int]] = [
            (os.POSIX_SPAWN_DUP2, ours, theirs)
            for theirs, ours in enumerate(streams)
            if ours is not None and ours != theirs
        ]
        command = [sys.executable, "-I", "-S", str(LAUNCH), str(ready), str(report)]
        command += [self._filter.hex(), str(int(unblock)), str(int(self._seeds is not None))]
        command += [directory, *arguments]
        try:
            os.set_inheritable(ready, True)  # noqa: FBT003  # os has it so
            os.set_inheritable(report, True)  # noqa: FBT003  # the same
            pid = os.posix_spawn(
                sys.executable, command, environment, file_actions=actions, setsid=new_session
            )
        finally:
            os.close(ready)
            os.close(report)
        program = StartedProgram(pid, tuple(arguments))
        try:
            os.read(told, 1)
            self._seize(pid)
            os.write(go, b"+")
            self._programs[pid] = program
            process = self.processes[pid] = TracedProcess(pid)
            process.threads.add(pid)
            self.threads[pid] = self._thread(pid, process, ThreadState.LOOSE)
            while process.patch is None and pid in self.processes:
                tid, status = os.waitpid(pid, ptrace.WALL)
                self.event(tid, status)
            if pid not in self.processes:
                self._not_started(arguments[0], os.read(told, 64).decode())
        finally:
            os.close(go)
            os.close(told)
        return program

    def _seize(self, pid: int) -> None:
        try:
            ptrace.ptrace(ptrace.SEIZE, pid, 0, ptrace.OPTIONS)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise ClockUnavailableError(
                f"ptrace is refused ({error.strerror}); a container needs the capability SYS_PTRACE"
                " or a seccomp profile that allows it, and kernel.yama.ptrace_scope must be below 3"
            ) from None

    @staticmethod
    def _not_started(name: str, report: str) -> None:
        what, _, number = report.partition(" ")
        if what == "seccomp":
            raise ClockUnavailableError(
                f"cannot install a seccomp filter ({os.strerror(int(number))})"
            )
        if what == "exec":
            raise ProgramStartError(name, os.strerror(int(number)), int(number))
        raise ProgramStartError(name, "the program ended before it was loaded", errno.ECHILD)

    def kill(self) -> None:
        """End everything at once, and wait for it; children of other processes keep running."""
        while traced := _traced_by_this_thread():
            for pid in traced:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                tid, status = os.waitpid(-1, WAIT_FOR_OURS)
            except ChildProcessError:
                break
            self.event(tid, status)
        self.timers.close()

    # --- events ---------------------------------------------------------------------------------

    def events(self) -> bool:
        """Handle what has happened; return whether anything had."""
        handled = False
        while True:
            try:
                tid, status = os.waitpid(-1, os.WNOHANG | WAIT_FOR_OURS)
            except ChildProcessError:
                return handled
            if not tid:
                return handled
            handled = True
            self.event(tid, status)

    def event(self, tid: int, status: int) -> None:
        """Handle one event."""
        thread = self.threads.get(tid)
        if thread is None:
            self._early.setdefault(tid, []).append(status)
            return
        if not os.WIFSTOPPED(status):
            self._ended(thread, status)
            return
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile: its end comes next
            self._stopped(thread, os.WSTOPSIG(status), status >> 16)

    def _stopped(self, thread: TracedThread, number: int, event: int) -> None:
        if event == ptrace.EVENT_SECCOMP:
            self._called(thread)
        elif number == SYSCALL_STOP:
            self._returned(thread)
        elif event == ptrace.EVENT_EXEC:
            self._exec(thread)
        elif event in {ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE}:
            child = ptrace.event_message(thread.tid)
            thread.lends_memory = event == ptrace.EVENT_VFORK
            self._go(thread)
            shared = event == ptrace.EVENT_CLONE and _process_of(child) == thread.process.pid
            self._born(thread.process, child, shared=shared)
        elif event == ptrace.EVENT_STOP and number in STOPPING:
            thread.state = ThreadState.PAUSED
            ptrace.ptrace(ptrace.LISTEN, thread.tid)
        elif event == ptrace.EVENT_STOP:
            if self._gates and thread.state is ThreadState.STARTING:
                self._gate(thread)
            else:
                self._go(thread)
        else:
            self._signalled(thread, number)

    def _go(self, thread: TracedThread, number: int = 0) -> None:
        thread.state = ThreadState.LOOSE
        self.let_go = True
        ptrace.ptrace(ptrace.CONT, thread.tid, 0, number)

    def _born(self, parent: TracedProcess, tid: int, *, shared: bool) -> None:
        process = parent
        if not shared:
            process = self.processes[tid] = TracedProcess(tid)
            if parent.patch is not None:
                with contextlib.suppress(OSError):
                    process.patch = parent.patch.copied_to(process.memory)
            process.random = parent.random  # as the copies of a user-space generator are equal
        process.threads.add(tid)
        self.threads[tid] = self._thread(tid, process, ThreadState.STARTING)
        for status in self._early.pop(tid, ()):
            self.event(tid, status)

    def adopt(self) -> bool:
        """Take in children whose parents were killed before they told; say if there were any."""
        found = list(self._early)
        for tid in found:
            process = self.processes.get(_process_of(tid))
            parent = process or TracedProcess(tid)
            base = image_address(read_file(f"/proc/{tid}/auxv"))
            if process is None and base is not None and self._image is not None:
                with contextlib.suppress(OSError):
                    parent.patch = VdsoPatch(parent.memory, base, self._image, self._machine)
            self._born(parent, tid, shared=process is not None)
            if process is None:
                parent.close()
        return bool(found)

    def _thread(self, tid: int, process: TracedProcess, state: ThreadState) -> TracedThread:
        return TracedThread(
            tid=tid, process=process, state=state, registers=ptrace.Registers(self._machine, tid)
        )

    def _ended(self, thread: TracedThread, status: int) -> None:
        self._forget_thread(thread)
        process = thread.process
        if not process.threads:
            process.close()
            self.timers.program_ended(process.pid)
            self.processes.pop(process.pid, None)
        if program := self._programs.pop(thread.tid, None):
            program.returncode = os.waitstatus_to_exitcode(status)

    def _forget_thread(self, thread: TracedThread) -> None:
        thread.close()
        self.threads.pop(thread.tid, None)
        thread.process.threads.discard(thread.tid)

    def _exec(self, thread: TracedThread) -> None:
        # Whichever thread called it is now the only one, under the number of the first.
        process = thread.process
        for tid in process.threads - {thread.tid}:
            self._forget_thread(self.threads[tid])
        thread.close()
        thread.wait = thread.interrupted = None
        thread.timer = ()
        thread.lends_memory = False
        process.forget_memory()
        self.timers.program_replaced(process.pid)
        self._install(process)
        self._go(thread)

    def _install(self, process: TracedProcess) -> None:
        """Give a program that has just been loaded its clock."""
        auxv = read_file(f"/proc/{process.pid}/auxv")
        base = image_address(auxv)
        if base is not None and self._image is None:
            data = process.read(base, _image_size(process.pid, base))
            if data[:5] == b"\x7fELF\x02":
                self._image = read_image(data, self._machine)
        if base is None or self._image is None:
            raise ClockUnavailableError("the kernel provides no vDSO that can be rewritten")
        process.patch = VdsoPatch(process.memory, base, self._image, self._machine)
        # A 32-bit program has another image; its first system call tells.
        with contextlib.suppress(OSError, OverflowError):
            process.patch.install(*self._time.words(), seeded=self._seeds is not None)
        if self._seeds is not None:
            name = process.name()
            self._loads[name] += 1
            process.random = self._seeds.stream(f"{name}/{self._loads[name]}")
            if (place := random_address(auxv)) is not None:
                process.write(place, process.random.randbytes(16))

    # --- signals --------------------------------------------------------------------------------

    def _signalled(self, thread: TracedThread, number: int) -> None:
        if thread.interrupted is not None and thread.catches(number):
            thread.interrupted = None  # the wait ends with EINTR; the next one is a new one
        if number == signal.SIGALRM:
            ptrace.mark_as_kernel_signal(thread.tid)
        self._go(thread, number)

    # --- system calls ---------------------------------------------------------------------------

    def _called(self, thread: TracedThread) -> None:
        registers = thread.registers
        registers.load()
        name = self._machine.names.get(registers.number)
        process = thread.process
        if name is None or registers.foreign:
            self._note(f"{process.name()} ({process.pid}) is a 32-bit program: it was killed")
            os.kill(process.pid, signal.SIGKILL)
            return
        call = TIMED_CALLS.get(name)
        if call is not None:
            self._waits(thread, call)
        elif name in CLOCK_READS:
            self._reads(thread, name)
        elif name == "timer_create":
            thread.timer = registers.arguments
            thread.state = ThreadState.LOOSE
            ptrace.ptrace(ptrace.SYSCALL, thread.tid)
        elif name in TIMER_CALLS:
            self._answer(thread, self.timers.answer(process, name, registers.arguments))
            self.expire()
        elif name == "getrandom":
            self._answer(thread, self._random_bytes(process, *registers.arguments[:2]))
        elif name == "listen":
            self.connected = True
            self._go(thread)
        elif name in peers.CALLS:
            self._connects(thread, name)
        else:
            self._note(f"{process.name()} uses {name} with a timeout, which runs in real time")
            self._go(thread)

    def _answer(self, thread: TracedThread, result: int | None) -> None:
        """Let a call return `result`, or let the kernel answer."""
        if result is not None:
            thread.registers.skip(result)
        self._go(thread)

    def _reads(self, thread: TracedThread, name: str) -> None:
        arguments, process = thread.registers.arguments, thread.process
        process.reads[thread.registers.call_site] += 1
        now, offset = self._time.words()
        if name == "clock_gettime":
            if arguments[0] in {0, 5, 8, 11}:
                now += offset
            data = struct.pack("<qq", *divmod(now, SECOND))
            good = process.write(arguments[1], data)
            self._answer(thread, 0 if good else -errno.EFAULT)
            return
        seconds, part = divmod(now + offset, SECOND)
        if name == "time":
            if arguments[0]:
                process.write(arguments[0], struct.pack("<q", seconds))
            self._answer(thread, seconds)
            return
        if arguments[0]:
            process.write(arguments[0], struct.pack("<qq", seconds, part // 1000))
        if arguments[1]:
            process.write(arguments[1], bytes(8))
        self._answer(thread, 0)

    def _random_bytes(self, process: TracedProcess, address: int, size: int) -> int | None:
        """Return how many seeded bytes were written; None if the kernel should answer."""
        if process.random is None:
            return None
        count = min(size, MOST_RANDOM)
        data = process.random.randbytes(count)
        return count if process.write(address, data) else -errno.EFAULT

    def _connects(self, thread: TracedThread, name: str) -> None:
        for peer in peers.named(name, thread.registers.arguments, thread.process):
            if not peer.network:
                continue
            if name == "connect" and peer.local and peer.address in self.trusted:
                self.served = True
                continue
            self.connected = True
            if not (peer.local or self._outside):
                process = thread.process
                self._note(f"{process.name()} was refused a connection to {peer.address}")
                self._answer(thread, -errno.ENETUNREACH)
                return
        self._go(thread)

    # --- waits ----------------------------------------------------------------------------------

    def _waits(self, thread: TracedThread, call: TimedCall) -> None:
        registers, now = thread.registers, self._time.monotonic
        arguments = registers.arguments
        timeout = call.timeout(arguments, thread.process)
        base = call.base(arguments)
        before, thread.interrupted = thread.interrupted, None
        nap = False
        gated = self._gates and call.has_gate(arguments)
        if gated and (call.form is TimeoutFormat.MILLISECONDS or not arguments[call.argument]):
            timeout = NEVER if timeout is None else timeout
        if timeout is None or (timeout == 0 and base is TimeoutBase.NOW):
            self._go(thread)
            return
        if before and (before.number, before.place) == (registers.number, registers.call_site):
            deadline = before.deadline  # the kernel makes the call again
        elif base is TimeoutBase.NOW:
            nap = call.sleeps and timeout <= NAP and thread.nap(now)
            deadline = now if nap else min(now + timeout, NEVER)
        else:
            deadline = timeout - (self._time.offset if base is TimeoutBase.REALTIME else 0)
        self._orders += 1
        thread.wait = ThreadWait(
            call=call,
            number=registers.number,
            arguments=arguments,
            place=registers.call_site,
            deadline=deadline,
            order=self._orders,
        )
        if gated:
            self._gate(thread)
        elif not call.sleeps:
            self.enter(thread)
        elif deadline > now or nap:
            thread.state = ThreadState.HELD
        else:
            thread.wait = None
            self._answer(thread, 0)

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
        thread.state = ThreadState.WAITING
        self.let_go = True
        ptrace.ptrace(ptrace.SYSCALL, thread.tid)

    def end_wait(self, thread: TracedThread) -> None:
        """End the wait of a thread whose deadline has come."""
        wait = thread.wait
        if wait is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._gates and thread.stopped:
                self._gate(thread)
            elif thread.state is ThreadState.HELD:
                thread.wait, thread.state = None, ThreadState.LOOSE
                self._answer(thread, wait.call.expired)
            elif not wait.expired:
                wait.expired = True
                self.let_go = True
                ptrace.ptrace(ptrace.INTERRUPT, thread.tid)

    # --- gates ----------------------------------------------------------------------------------

    def _gate(self, thread: TracedThread) -> None:
        """Keep a thread, about to wait or to begin, until all others wait."""
        self._orders += 1
        thread.state, thread.gate, thread.empty = ThreadState.GATED, self._orders, False

    def open_gate(self) -> bool:
        """Let one thread go on that has something to see; return whether there is one."""
        gated = [t for t in self.threads.values() if t.state is ThreadState.GATED and not t.empty]
        for thread in sorted(gated, key=lambda t: t.gate):
            if self._sees_something(thread):
                self.look_again()
                with contextlib.suppress(ProcessLookupError):  # killed meanwhile
                    if thread.wait is None:
                        self._go(thread)  # it has just been made
                    else:
                        self.enter(thread)
                return True
            thread.empty = True
        return False

    def look_again(self) -> None:
        """Something has happened that threads at their gates may see."""
        for thread in self.threads.values():
            thread.empty = False

    def _sees_something(self, thread: TracedThread) -> bool:
        """Whether a thread would not wait, if it went on."""
        if thread.wait is None or thread.wait.deadline <= self._time.monotonic:
            return True
        arguments = thread.wait.arguments
        if thread.wait.call.name == "futex":
            word = thread.process.read(arguments[0], 4)
            return word != (arguments[2] & 0xFFFFFFFF).to_bytes(4, "little")
        descriptor = thread.process.duplicate(arguments[0] & 0xFFFFFFFF)
        if descriptor < 0:
            return True  # the kernel will tell it
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        try:
            return bool(poll.poll(0))
        finally:
            os.close(descriptor)

    def expire(self) -> None:
        """Fire the timers that are due."""
        if self.timers.expire(self._time.monotonic, self.processes.values()):
            self.fired = True
            self.look_again()

    def _returned(self, thread: TracedThread) -> None:
        registers, process = thread.registers, thread.process
        registers.load()
        result = registers.result
        if thread.timer:
            if result == 0:
                self.timers.created(process, thread.timer)
            thread.timer = ()
        wait, thread.wait = thread.wait, None
        if wait is None:
            self._go(thread)
            return
        call, arguments = wait.call, wait.arguments
        left = wait.deadline - self._time.monotonic
        if result not in INTERRUPTED:
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
        self._go(thread)


def _process_of(tid: int) -> int:
    """Return the process of a thread; the thread itself where it has ended."""
    status = read_file(f"/proc/{tid}/status")
    at = status.find(b"\nTgid:")
    return tid if at < 0 else int(status[at + 6 :].split(None, 1)[0])


def _traced_by_this_thread() -> list[int]:
    tracer = b"\nTracerPid:\t%d\n" % threading.get_native_id()
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if tracer in read_file(f"/proc/{pid}/status")]


def _image_size(pid: int, base: int) -> int:
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        begin, _, rest = line.partition("-")
        if int(begin, 16) == base:
            return min(int(rest.split(" ", 1)[0], 16) - base, LARGEST)
    return LARGEST
