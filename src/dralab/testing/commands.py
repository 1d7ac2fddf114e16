"""Trials of programs that are processes: any language, over HTTP, under the virtual clock.

The server serves from its own thread, in turns with the programs; the clock moves when all of them
are idle. Faults happen where requests arrive. What only a client in this process can be made to
suffer (a slow request, a watch that lags, a pause, another clock) is left out: `COMMAND_FAULTS`.
One program is all there is, since requests do not say whose they are.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode

from dralab.api.status import ApiError
from dralab.apiserver.authorization.attributes import Attributes
from dralab.apiserver.http.access import attributes_of
from dralab.apiserver.http.messages import Answer, HttpRequest
from dralab.apiserver.http.trying import refusal
from dralab.apiserver.server import ApiServer
from dralab.apiserver.users import User
from dralab.cluster import Cluster, Options
from dralab.kernel.clock import SECOND
from dralab.runtime.client import Resource
from dralab.simulation.engines.external.clocked_processes import ClockedLauncher, ClockedProcess
from dralab.simulation.engines.external.server_turns import ServerTurns
from dralab.testing import history as kinds
from dralab.testing.client import ProgramRequest, touch
from dralab.testing.faults import PlannedFault
from dralab.testing.process import RESTART_AFTER_CRASH, ProgramSpec
from dralab.testing.refusals import refused_with
from dralab.testing.trial_scenario import TrialScenario
from dralab.testing.world import TrialWorld
from dralab.virtualtime import Supervisor

COMMAND_FAULTS: Final = (
    "kill", "conflict", "lose-answer", "late-write", "refuse", "stale-list", "restart",
    "delete-pod",
)  # fmt: skip
# Nanoseconds of a processor; real seconds between looks at the limits.
BUSY: Final = 3 * SECOND
LOOK: Final = 0.05
TICK: Final = 60 * SECOND
LAST_OUTPUT: Final = 300
Handler = Callable[[HttpRequest], Answer]


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
            Cluster(Options(timers=False), clock=self.engine.clock, seed=self.seed)
        )
        self.supervisor.trust_local_peers()
        return self.cluster.server

    def _new_processes(self) -> list["ClockedProgram"]:  # type: ignore[override]  # the same members
        self.process = ClockedProgram(self, self.scenario.programs[0])
        return [self.process]

    def run(self) -> None:
        """Run the trial to its end, then end the program and the server."""
        server = self.server
        gate = FaultyGate(self, self.process, server.handle_apart)
        # Instances have methods of their own from here on: this server is the trial's alone.
        server.handle = gate.handle  # type: ignore[method-assign]
        server.handle_apart = gate.handle  # type: ignore[method-assign]
        self._turns = ServerTurns(self.cluster)
        self._ticked: int = self.engine.clock.now()
        try:
            super().run()
        finally:
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
            self.process.look()
            # A batch is announced when all of it is answered: what changes now is the program's.
            before, self.acting = self.acting, self.process
            try:
                if not self._turns.take():
                    return
            finally:
                self.acting = before
            self.supervisor.look_again()


class ClockedProgram:
    """The program under test, as a process that is started again when it ends."""

    def __init__(self, world: CommandWorld, spec: ProgramSpec) -> None:
        self.world = world
        self.spec = spec
        self.program = self.name = spec.name
        self.incarnation = 0
        self.alive = False
        self.skew = 0
        self.listed: set[str] = set()
        self.lags: dict[str, int] = {}  # until when watches of a collection are refused
        self._process: ClockedProcess | None = None
        self._log = world.folder / "program.log"

    def start(self) -> None:
        """Start it."""
        if self.alive:
            return
        world = self.world
        self.incarnation += 1
        self.alive = True
        self.listed, self.lags = set(), {}
        world.history.add(self.name, kinds.LIFE, f"starts (incarnation {self.incarnation})")
        world.note_start()
        kubeconfig = str(world.cluster.kubeconfig)
        values = {"kubeconfig": kubeconfig, "server": world.cluster.url}
        words = [
            word.replace("{kubeconfig}", kubeconfig).replace("{server}", world.cluster.url)
            for word in self.spec.command
        ]
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "DRALAB_SERVER": values["server"]}
        with self._log.open("ab") as log:
            self._process = ClockedLauncher(world.supervisor).start(
                words, environment, self.spec.folder, log.fileno()
            )

    def die(self, down: int) -> None:
        """Kill it; the next one starts in `down` nanoseconds."""
        if not self.alive or self._process is None:
            return
        self.alive = False
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.world.engine.after(down, self.start)

    def look(self) -> None:
        """Report that it has ended by itself, if it has."""
        if not self.alive or self._process is None or (code := self._process.poll()) is None:
            return
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        output = self._log.read_text(encoding="utf-8", errors="replace").strip()
        last = output[-LAST_OUTPUT:].replace("\n", " | ")
        self.alive = False
        self.world.violated("crash", f"{self.name} ends {how}; last output: {last}")
        self.world.engine.after(RESTART_AFTER_CRASH, self.start)

    def pause(self, duration: int) -> None:
        """Do nothing: a process under the clock is not stopped (`COMMAND_FAULTS`)."""

    def wait(self, duration: int) -> None:
        """Do nothing: requests are not slow here (`COMMAND_FAULTS`)."""

    def check_alive(self, incarnation: int) -> None:
        """Do nothing: a process that is killed sends nothing more."""


class FaultyGate:
    """Where requests arrive: counts them, and does to them what the plan says."""

    def __init__(self, world: CommandWorld, process: ClockedProgram, handle: Handler) -> None:
        self._world = world
        self._process = process
        self._handle = handle

    def handle(self, request: HttpRequest) -> Answer:
        """Answer a request."""
        request.brief = False
        asked = attributes_of(request, self._world.server.resources.kinds, request.user or User())
        if not asked.resource:
            return self._handle(request)
        world, plan = self._world, self._world.plan
        told = _named(asked)
        fault = plan.at_request(self._process.program, told.verb, told.plural)
        if told.verb == "list":
            self._make_old(request, told)
        if told.verb == "watch" and self._process.lags.get(told.plural, 0) > self._now():
            # The old view lasts: clients wait and ask for the same watch again.
            return self._refused(told, refused_with(429))
        if fault is None:
            return self._do(request, told)
        world.history.add(self._process.name, kinds.FAULT, fault.text)
        match fault.fault:
            case "refuse":
                return self._refused(told, refused_with(fault.code))
            case "conflict":
                touch(world, told)
                return self._do(request, told)
            case "late-write":
                self._later(request, told, fault.duration)
            case "kill" if fault.moment == "during":
                self._later(request, told, fault.duration)
            case "kill" if fault.moment == "before":
                pass
            case _:
                self._do(request, told)
        if fault.fault == "kill":
            text = f"is killed {fault.moment} {told}"
            world.history.add(self._process.name, kinds.LIFE, text)
            self._process.die(fault.duration)
        # A server that answers so has perhaps done what was asked.
        return self._refused(told, refused_with(504))

    def _do(self, request: HttpRequest, told: ProgramRequest) -> Answer:
        world = self._world
        before = world.server.store.revision
        answer = self._handle(request)
        after = world.server.store.revision
        status = getattr(answer, "status", 200)
        what = kinds.WRITE if told.writes else kinds.REQUEST
        text = f"{told} -> {status}" if status >= 400 else str(told)
        if status >= 400:
            world.refused(self._process.program)
        world.history.add(self._process.name, what, text, after if after > before else 0)
        return answer

    def _now(self) -> int:
        return self._world.engine.clock.now()

    def _later(self, request: HttpRequest, told: ProgramRequest, delay: int) -> None:
        def arrive() -> None:
            self._do(request, told)

        self._world.engine.after(delay, arrive)

    def _refused(self, told: ProgramRequest, error: ApiError) -> Answer:
        what = kinds.WRITE if told.writes else kinds.REQUEST
        text = f"{told} -> {error.code} {error.reason}"
        self._world.history.add(self._process.name, what, text)
        return refusal(error)

    def _make_old(self, request: HttpRequest, told: ProgramRequest) -> None:
        """Let the first list with resourceVersion=0 be one from a cache that lags behind."""
        query = parse_qs(request.query)
        if query.get("resourceVersion") != ["0"] or told.plural in self._process.listed:
            return
        self._process.listed.add(told.plural)
        old = self._world.plan.at_first_list(self._process.program, told.plural)
        revision = self._world.revision_before(told.resource, old.behind) if old else 0
        if old is None or revision < 1:
            return
        query |= {"resourceVersion": [str(revision)], "resourceVersionMatch": ["Exact"]}
        query.pop("limit", None)
        request.query = urlencode(query, doseq=True)
        self._process.lags[told.plural] = self._now() + old.duration
        self._world.history.add(self._process.name, kinds.FAULT, old.text, revision)


def _named(asked: Attributes) -> ProgramRequest:
    verb = f"{asked.verb}/{asked.subresource}" if asked.subresource else asked.verb
    resource = Resource(asked.group, asked.version, asked.resource, bool(asked.namespace))
    return ProgramRequest(verb, resource, asked.namespace, asked.name)
