"""Trials of programs that are processes: any language, over HTTP, under the virtual clock.

The server serves from its own thread, in turns with the programs; the clock moves when all of them
are idle. What happens to requests is in `gate`, to watches in `streams`. Other programs of the
scenario may be in this process.
"""

import logging
import os
import resource as machine
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from dralab.apiserver.server import ApiServer
from dralab.cluster import Cluster, Options
from dralab.files.reading import read_end
from dralab.kernel.clock import SECOND
from dralab.runtime.new_kubeconfig import kubeconfig
from dralab.simulation.engines.external.clocked_processes import (
    ClockedLauncher,
    ClockedProcess,
    ServerTurns,
)
from dralab.testing import history as kinds
from dralab.testing.faults import PlannedFault
from dralab.testing.gate import PLACE, FaultyGate, ProgramEdge
from dralab.testing.process import RESTART_AFTER_CRASH, ProgramProcess, ProgramSpec, ServedProgram
from dralab.testing.trial_scenario import TrialScenario
from dralab.testing.world import TrialWorld
from dralab.virtualtime import Supervisor
from dralab.virtualtime.errors import ProgramStartError

# Nanoseconds of a processor; real seconds between looks at the limits.
BUSY: Final = 3 * SECOND
LOOK: Final = 0.05
# Of /proc/PID/stat in a second.
TICKS: Final = os.sysconf("SC_CLK_TCK")
TICK: Final = 60 * SECOND
# Turns of the server until a connection that it closes is closed.
CLOSING: Final = 3
LAST_OUTPUT: Final = 300
MOST_OUTPUT: Final = 16 << 20  # of what is searched for a panic
# What programs write that end for an error of their own, whatever the server did.
PANICS: Final = ("panic:", "fatal error:", "SIGSEGV")


class CommandWorld(TrialWorld):
    """A trial whose program is a process. Use it in the thread that makes it, and run it once."""

    def __init__(
        self,
        scenario: TrialScenario,
        faults: Sequence[PlannedFault] = (),
        *,
        seed: int = 0,
        latency: int = 0,
    ) -> None:
        self._stack = ExitStack()
        super().__init__(scenario, faults, seed=seed, latency=latency)

    def _new_server(self) -> ApiServer:
        """Serve over HTTP; the clock of the programs begins at that of the trial."""
        stack = self._stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dralab-dst-")))
        # Before the server: its threads have to leave SIGCHLD to this one.
        self.supervisor = stack.enter_context(
            Supervisor(
                start=self.engine.clock.now(),
                peers=(os.getpid(),),
                busy=BUSY,
                seed=self.seed,
                gates=True,
            )
        )
        self.cluster = stack.enter_context(
            Cluster(
                Options(timers=False), clock=self.engine.clock, seed=self.seed, edge=self._edge_for
            )
        )
        self.supervisor.trust_local_peers()
        return self.cluster.server

    def _computed(self) -> int:
        """Return the CPU time of the programs, ended ones included, and of the server."""
        ended = machine.getrusage(machine.RUSAGE_CHILDREN)
        seconds = ended.ru_utime + ended.ru_stime
        for pid in self.supervisor.running:
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
                user, system = fields.split()[11:13]
                seconds += (int(user) + int(system)) / TICKS
        return super()._computed() + int(seconds * SECOND)

    def _edge_for(self, server: ApiServer) -> ProgramEdge:
        from dralab.apiserver.http.connections.asgi_base import AsgiLimits

        self._edge = ProgramEdge(server, AsgiLimits(timers=False))
        return self._edge

    def closing(self) -> None:
        """Give the server turns to close connections."""
        self._closing = CLOSING

    def soon_in_server(self, call: Callable[[], object]) -> None:
        """Call something in the server's thread."""
        self._edge.soon(call)

    def _new_processes(self) -> list[ProgramProcess]:
        self.clocked: list[ClockedProgram] = []
        found: list[ProgramProcess] = []
        for spec in self.scenario.programs:
            for replica in range(spec.replicas):
                if not spec.command:
                    found.append(ProgramProcess(self, spec, replica))
                    continue
                made = ClockedProgram(self, spec, replica)
                self.clocked.append(made)
                found.append(made)
        return found

    def run(self) -> None:
        """Run the trial to its end, then end the program and the server."""
        server = self.server
        named = {process.name: process for process in self.clocked}
        gate = FaultyGate(self, named, server.handle_apart)
        # Instances have methods of their own from here on: this server is the trial's alone.
        server.handle = gate.handle  # type: ignore[method-assign]
        server.handle_apart = gate.handle  # type: ignore[method-assign]
        self._turns = ServerTurns(self.cluster)
        self._ticked: int = self.engine.clock.now()
        self._closing = 0
        # It would tell of each connection that a fault breaks.
        log = logging.getLogger("dralab.apiserver.http.connections")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            super().run()
        finally:
            log.setLevel(level)
            for process in self.clocked:
                process.end_streams()
            self._turns.close()
            self._stack.close()

    def _run_until(self, until: int) -> None:
        """Let events and programs happen up to a time."""
        events, clock = self.engine.events, self.engine.clock
        while True:
            self._settle_program()
            found = (events.next_time(), self.supervisor.next_deadline())
            when = min((each for each in found if each is not None), default=None)
            if when is None or when > until:
                break
            self._move_to(max(when, clock.now()))
            while events.next_time() == clock.now():
                self._step()
        if until > clock.now():
            self._move_to(until)
            self._settle_program()

    def _move_to(self, when: int) -> None:
        if when > self.engine.clock.now():
            self.begin_instant()
        with self.server.store.lock:
            self.supervisor.advance(when)
            self.engine.clock.advance_to(when)
            if when - self._ticked >= TICK:
                self._ticked = when
                self.server.tick()
        self.steps += 1
        if self.steps % 64 == 0:
            self._check_limits()

    def _settle_program(self) -> None:
        """Let program and server finish what can be done at this instant. TrialEnded."""
        while True:
            if self.violations:
                self._end()
            self._check_limits()
            if not self.supervisor.wait_idle(LOOK):
                continue
            for process in self.clocked:
                process.look()
            # A batch is announced when all of it is answered: what changes now is the programs'.
            before, self.acting = self.acting, self.clocked[0]
            try:
                if not self._turns.take(always=self._closing > 0):
                    return
                self._closing = max(self._closing - 1, 0)
            finally:
                self.acting = before
            self.supervisor.look_again()


class ClockedProgram(ServedProgram):
    """One replica of a program, as a process that is started again when it ends."""

    def __init__(self, world: CommandWorld, spec: ProgramSpec, replica: int = 0) -> None:
        self._process: ClockedProcess | None = None
        super().__init__(world, spec, replica)
        self.world = world
        self._log = world.folder / f"{self.name}.log"
        self._kubeconfig = world.folder / f"{self.name}.kubeconfig"

    @property
    def skew(self) -> int:
        """How far its clock is ahead, in nanoseconds; kept when it starts again."""
        return self._skew

    @skew.setter
    def skew(self, ahead: int) -> None:
        self._skew = ahead
        if self.alive and self._process is not None:
            self.world.supervisor.skew(self._process.pid, ahead)

    def start(self) -> None:
        """Start it."""
        if self.alive:
            return
        world = self.world
        self.note_start()
        self.paused_until = 0
        url = f"{world.cluster.url}{PLACE}{self.name}"
        self._kubeconfig.write_text(kubeconfig(url), encoding="utf-8")
        values = {"{kubeconfig}": str(self._kubeconfig), "{server}": url}
        words = list(self.spec.command)
        for given, value in values.items():
            words = [word.replace(given, value) for word in words]
        environment = {
            **os.environ, "KUBECONFIG": str(self._kubeconfig), "DRALAB_SERVER": url,
            "HOSTNAME": self.name,
        }  # fmt: skip
        with self._log.open("ab") as log:
            try:
                self._process = ClockedLauncher(world.supervisor).start(
                    words, environment, self.spec.folder, log.fileno()
                )
            except ProgramStartError as error:
                self.alive = False
                world.violated("start", f"{self.name}: {error}")
                return
        if self._skew:
            world.supervisor.skew(self._process.pid, self._skew)

    def die(self, down: int) -> None:
        """Kill it; the next one starts in `down` nanoseconds."""
        if not self.alive or self._process is None:
            return
        self.alive = False
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.forget_streams()
        self.world.engine.after(down, self.start)

    def look(self) -> None:
        """Check whether it has ended by itself."""
        if not self.alive or self._process is None or (code := self._process.poll()) is None:
            return
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        output = read_end(self._log, MOST_OUTPUT).decode(errors="replace").strip()
        last = output[-LAST_OUTPUT:].replace("\n", " | ")
        self.alive = False
        self.forget_streams()
        excused = code > 0 and not any(panic in output for panic in PANICS)
        told = f"last output: {last}" if last else "it wrote nothing"
        self.note_end(f"ends {how}", f"; {told}", excused=excused)
        self.world.engine.after(RESTART_AFTER_CRASH, self.start)

    def pause(self, duration: int) -> None:
        """Suspend it: its threads stop, and data sent to it is buffered."""
        if not self.alive or self._process is None or self.paused_until:
            return
        world, pid, incarnation = self.world, self._process.pid, self.incarnation
        self.paused_until = world.engine.clock.now() + duration
        world.history.add(self.name, kinds.LIFE, f"stands still for {duration / SECOND:g}s")
        world.supervisor.freeze(pid)

        def resume() -> None:
            world.supervisor.thaw(pid)
            if self.incarnation == incarnation and self.alive:
                self.paused_until = 0
                world.history.add(self.name, kinds.LIFE, "goes on")

        world.engine.after(duration, resume)

    def cut(self) -> None:
        """Break the connections of its watches."""
        super().cut()
        self.world.closing()

    def end_streams(self) -> None:
        """End its watches: the trial is over."""
        for stream in self.streams:
            stream.end()

    def wait(self, duration: int) -> None:
        """Do nothing: a slow request of a process waits in the server."""

    def check_alive(self, incarnation: int) -> None:
        """Do nothing: a process that is killed sends nothing more."""
