"""Handles the stops of all threads, one by one: what a thread requests, and how it continues.

All calls must come from the thread that made the tracer: the kernel knows it as the tracer.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dralab.virtualtime import answers, instructions, peers, ptrace
from dralab.virtualtime import seccomp_filter as rules
from dralab.virtualtime.chance import PATHS, SeededChance
from dralab.virtualtime.errors import ClockUnavailableError
from dralab.virtualtime.launching import (
    LaunchOptions,
    ProcessNumbers,
    ProgramLaunch,
    StartedProgram,
)
from dralab.virtualtime.machine import Architecture
from dralab.virtualtime.programs import (
    TracedProcess,
    is_go,
    mapping_size,
    process_of,
    read_file,
    traced_by_this_thread,
)
from dralab.virtualtime.socket_timeouts import SocketTimeouts
from dralab.virtualtime.threads import ThreadState, ThreadTable, TracedThread
from dralab.virtualtime.timed_calls import TIMED_CALLS, VirtualTime
from dralab.virtualtime.timers import ProgramTimers
from dralab.virtualtime.turns import ThreadTurns
from dralab.virtualtime.vdso import (
    LARGEST,
    VdsoImage,
    VdsoPatch,
    image_address,
    read_image,
)
from dralab.virtualtime.waits import ThreadWaits

STOPPING: Final = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
WAIT_FOR_OURS: Final = ptrace.WALL | 0x20000000  # __WNOTHREAD: leave other threads their children


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
        unblock: bool,
        note: Callable[[str], None],
    ) -> None:
        self.table = ThreadTable()
        self.processes: dict[int, TracedProcess] = {}
        self.timers = ProgramTimers(machine, time.words)
        self.network = answers.NetworkUse(outside=outside, note=note)
        self.turns = ThreadTurns(self.table) if gates else None
        self.waits = ThreadWaits(time, self.turns)
        self.sockets = SocketTimeouts(time, self.waits.orders)
        self._machine = machine
        self._time = time
        self._note = note
        self._image: VdsoImage | None = None
        self._programs: dict[int, StartedProgram] = {}
        self._launchers: set[int] = set()  # that are their parents
        self._early: dict[int, list[int]] = {}  # stops of threads whose birth was not yet told
        self.chance = None if seed is None else SeededChance(seed)
        self._numbers = None if seed is None else ProcessNumbers()
        stopping = rules.rules(addresses=True, random=seed is not None, gates=gates)
        self._launch = LaunchOptions(
            code=rules.assemble(machine, stopping), unblock=unblock, numbers=self._numbers
        )

    # --- start and end --------------------------------------------------------------------------

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        streams: Sequence[int | None],
        new_session: bool,
    ) -> StartedProgram:
        """Start a program; it has just been loaded when this returns."""
        launcher = ProgramLaunch(
            self._launch,
            arguments,
            environment=environment,
            directory=directory,
            streams=streams,
            new_session=new_session,
        )
        try:
            launcher.seize()
            pid = launcher.pid
            if pid != launcher.launcher:
                self._launchers.add(launcher.launcher)
            elif self._numbers is not None:
                told = os.strerror(self._numbers.refused)
                self._note(f"process IDs differ from run to run: no namespace for them ({told})")
            program = self._programs[pid] = StartedProgram(pid, tuple(arguments))
            process = self.processes[pid] = TracedProcess(pid)
            self._add_thread(pid, process, ThreadState.LOOSE)
            while process.patch is None and pid in self.processes:
                tid, status = os.waitpid(pid, ptrace.WALL)
                self.event(tid, status)
            if pid not in self.processes:
                raise launcher.failed()
        finally:
            launcher.close()
        return program

    def kill(self) -> None:
        """End everything at once, and wait for it; children of other processes keep running."""
        while traced := traced_by_this_thread():
            for pid in traced:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                tid, status = os.waitpid(-1, WAIT_FOR_OURS)
            except ChildProcessError:
                break
            self.event(tid, status)
        self.timers.close()
        if self.chance is not None:
            self.chance.close()
        if self._numbers is not None:
            self._numbers.close()
        for launcher in self._launchers:
            os.waitpid(launcher, 0)

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
        thread = self.table.all.get(tid)
        if thread is None:
            if tid in self._launchers:
                self._launchers.discard(tid)
            else:
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
            if thread.watched and thread.state is ThreadState.LOOSE:
                self._watched(thread)
            else:
                self._returned(thread)
        elif event == ptrace.EVENT_EXEC:
            self._exec(thread)
        elif event in {ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE}:
            child = ptrace.event_message(thread.tid)
            thread.lends_memory = event == ptrace.EVENT_VFORK
            thread.resume()
            shared = event == ptrace.EVENT_CLONE and process_of(child) == thread.process.pid
            self._born(thread.process, child, shared=shared)
        elif event == ptrace.EVENT_VFORK_DONE:
            thread.lends_memory = False
            thread.resume()
        elif event == ptrace.EVENT_STOP and number in STOPPING:
            thread.stop(ThreadState.PAUSED)
            self.table.signalled = True  # its parent gets one
            ptrace.ptrace(ptrace.LISTEN, thread.tid)
        elif event == ptrace.EVENT_STOP:
            if self.turns and thread.state is ThreadState.STARTING:
                self.turns.queue(thread)
            else:
                self.sockets.expire(thread)
                thread.resume()
        else:
            self._signalled(thread, number)

    def _born(self, parent: TracedProcess, tid: int, *, shared: bool) -> None:
        process = parent
        if not shared:
            process = self.processes[tid] = TracedProcess(tid)
            if parent.patch is not None:
                with contextlib.suppress(OSError):
                    process.patch = parent.patch.copied_to(process.memory)
            process.skew, process.frozen = parent.skew, parent.frozen
            process.random = parent.random  # as the copies of a user-space generator are equal
        elif not process.second:
            process.second = tid
        self._add_thread(tid, process, ThreadState.STARTING)
        for status in self._early.pop(tid, ()):
            self.event(tid, status)

    def adopt(self) -> bool:
        """Adopt children whose parents were killed before; return if there were any."""
        found = list(self._early)
        for tid in found:
            process = self.processes.get(process_of(tid))
            parent = process or TracedProcess(tid)
            base = image_address(read_file(f"/proc/{tid}/auxv"))
            if process is None and base is not None and self._image is not None:
                with contextlib.suppress(OSError):
                    parent.patch = VdsoPatch(parent.memory, base, self._image, self._machine)
            self._born(parent, tid, shared=process is not None)
            if process is None:
                parent.close()
        return bool(found)

    def refill(self) -> bool:
        """Provide more random bytes; return whether a program may have waited for that."""
        return self.chance is not None and self.chance.refill()

    def _add_thread(self, tid: int, process: TracedProcess, state: ThreadState) -> None:
        process.threads.add(tid)
        registers = ptrace.Registers(self._machine, tid)
        self.table.add(
            TracedThread(
                tid=tid, process=process, registers=registers, table=self.table, state=state
            )
        )

    def _ended(self, thread: TracedThread, status: int) -> None:
        self._forget_thread(thread)
        process = thread.process
        if process.threads:
            self.table.killed = (
                True  # exit_group ends the others, too, which are stopped until then
            )
        else:
            self.table.signalled = True  # its parent gets one
            process.close()
            self.timers.program_ended(process.pid)
            self.processes.pop(process.pid, None)
        if program := self._programs.pop(thread.tid, None):
            program.returncode = os.waitstatus_to_exitcode(status)

    def _forget_thread(self, thread: TracedThread) -> None:
        thread.close()
        self.table.remove(thread)
        thread.process.threads.discard(thread.tid)

    def _exec(self, thread: TracedThread) -> None:
        # Whichever thread called it is now the only one, under the number of the first.
        process = thread.process
        for tid in process.threads - {thread.tid}:
            self._forget_thread(self.table.all[tid])
        thread.close()
        thread.wait = thread.interrupted = None
        thread.timer = ()
        thread.housekeeping = None
        thread.lends_memory = False
        process.forget_memory()
        self.timers.program_replaced(process.pid)
        self._install(process)
        if self.chance is not None and process.patch is not None:
            self._finished(thread, instructions.let_cpuid_fault(thread, process.patch))
        else:
            thread.resume()

    def _install(self, process: TracedProcess) -> None:
        """Give a program that has just been loaded its clock."""
        auxv = read_file(f"/proc/{process.pid}/auxv")
        base = image_address(auxv)
        if base is not None and self._image is None:
            data = process.read(base, mapping_size(process.pid, base, LARGEST))
            if data[:5] == b"\x7fELF\x02":
                self._image = read_image(data, self._machine)
        if base is None or self._image is None:
            raise ClockUnavailableError("the kernel provides no vDSO that can be rewritten")
        process.is_go = is_go(process.pid)
        process.patch = VdsoPatch(process.memory, base, self._image, self._machine)
        # A 32-bit program has another image; its first system call tells.
        with contextlib.suppress(OSError, OverflowError):
            now, offset = self._time.words()
            process.patch.install(now, offset + process.skew, seeded=self.chance is not None)
        if self.chance is not None:
            self.chance.loaded(process, auxv)

    # --- signals --------------------------------------------------------------------------------

    def _signalled(self, thread: TracedThread, number: int) -> None:
        if thread.interrupted is not None and thread.catches(number):
            thread.interrupted = None  # the wait ends with EINTR; the next one is a new one
        if (
            number == signal.SIGSEGV
            and self.chance is not None
            and instructions.answered(thread, self._time)
        ):
            number = 0
        if number == signal.SIGALRM:
            ptrace.mark_as_kernel_signal(thread.tid)
        thread.resume(number)

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
            self.waits.begin(thread, call)
        elif name in answers.CLOCK_READS:
            thread.answer(answers.read_clock(self._time, thread, name))
        elif name == "timer_create":
            thread.timer = registers.arguments
            thread.enter_call(ThreadState.LOOSE)
        elif name in self.timers.calls:
            thread.answer(self.timers.answer(process, name, registers.arguments))
            self.expire()
        elif self.chance is not None and name == "getrandom":
            thread.answer(self.chance.answer(process, *registers.arguments[:2]))
        elif self.chance is not None and name in PATHS:
            self._finished(thread, self.chance.open(thread, name))
        elif name == "setsockopt":
            self._finished(thread, self.sockets.set(thread))
        elif name == "getsockopt":
            thread.answer(self.sockets.get(thread))
        elif name == "listen":
            self.network.listens()
            thread.resume()
        elif name in peers.CALLS:
            thread.answer(self.network.answer(thread, name))
        elif name in rules.SIGNALS:
            self.table.signalled = True
            self.table.killed |= signal.SIGKILL in registers.arguments[1:3]
            thread.resume()
        else:
            self._note(f"{process.name()} uses {name} with a timeout, which runs in real time")
            thread.resume()

    def _finished(self, thread: TracedThread, status: int | None) -> None:
        """Let a thread go on with what came while it was waited for, if there was anything."""
        if status is None:
            thread.resume()
        else:
            self.event(thread.tid, status)

    def _watched(self, thread: TracedThread) -> None:
        """Watch a thread: it goes on, unobserved if its call may wake others."""
        registers = thread.registers
        registers.load()
        name = self._machine.names.get(registers.number, "")
        if answers.acts(thread, name, enters=ptrace.enters_call(thread.tid)):
            thread.acts_now()
        else:
            thread.resume()

    def _returned(self, thread: TracedThread) -> None:
        thread.registers.load()
        if thread.timer:
            if thread.registers.result == 0:
                self.timers.created(thread.process, thread.timer)
            thread.timer = ()
        self.waits.ended(thread)

    def expire(self) -> None:
        """Fire the timers that are due."""
        if self.timers.expire(self._time.monotonic, self.processes.values()):
            self.table.signalled = True
            self.table.moves += 1
