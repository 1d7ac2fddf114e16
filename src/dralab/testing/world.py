"""One trial: a server, what runs beside the programs, the programs, the user, and time for all."""

import gc
import logging
import resource as machine
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NoReturn

from dralab.api.kinds import Kinds
from dralab.api.resource.features import of_simulations, off_in
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Change, Key, MemoryStore
from dralab.kernel.clock import SECOND, Clock, from_rfc3339
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.queue import LONGEST_DELAY
from dralab.runtime.simulated import SimulatedEngine
from dralab.testing import history as kinds
from dralab.testing.faults import DELETION, OF_CLUSTER, PlannedFault
from dralab.testing.final_state import effective
from dralab.testing.history import TrialHistory, TrialViolation
from dralab.testing.misfortunes import ClusterMisfortunes
from dralab.testing.oracles import Watchdog
from dralab.testing.places import ObservedChange, RequestPlace, collection
from dralab.testing.plan import FaultPlan
from dralab.testing.process import ProgramProcess, ProgramSpec, described
from dralab.testing.program_globals import RealClock
from dralab.testing.script import PATIENCE, ScriptRunner
from dralab.testing.surroundings import RequestingProcess, TrialEnded
from dralab.testing.trial_scenario import TrialScenario

if TYPE_CHECKING:
    from dralab.testing.asyncio_programs import AsyncioProgram
    from dralab.testing.memory_server import MemoryServer

LATENCY: Final = SECOND // 1000
BEGINNING: Final = "2026-01-01T00:00:00Z"
# Faults may still happen for so long after the last step of the script.
AFTER_SCRIPT: Final = 30 * SECOND
# So many events at one instant: a program answers itself without end.
AT_ONE_INSTANT: Final = 20_000
# So many requests of one program are refused at one instant: it tries again without back-off.
REFUSED_AT_ONCE: Final = 300
# What is sent again later though nothing has changed: no right, a webhook, too many requests.
SENT_AGAIN: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
)
DEEPEST: Final = 12
CHECK_LIMITS_EVERY: Final = 16
# So much longer than `limits.wall` a trial may take on a machine that is busy with others.
MOST_WAITING: Final = 10

EndJudge = Callable[["TrialWorld"], Iterable[TrialViolation]]


class TrialWorld:
    """Everything of one trial. Same scenario, same faults, same seed: the same history.

    `judge` says what is wrong when all is quiet, beside what must never be.
    """

    def __init__(
        self,
        scenario: TrialScenario,
        faults: Sequence[PlannedFault] = (),
        *,
        seed: int = 0,
        latency: int = LATENCY,
        wall: Clock | None = None,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.latency = latency
        self.engine = SimulatedEngine()
        self.engine.clock.advance_to(from_rfc3339(BEGINNING))
        self.plan = FaultPlan()
        self._faults = faults
        self.begin = self.engine.clock.now()
        self.history = TrialHistory(lambda: self.engine.clock.now() - self.begin)
        self.server = self._new_server()
        self.user = self.client_for(kinds.USER)
        self.acting: RequestingProcess | None = None
        self.user_acts = False
        self.violations: list[TrialViolation] = []
        self.steps = 0
        self.last_change = self.begin
        self._wall = wall or RealClock()
        self._wall_begin = self._wall.now()
        self._computed_before = self._computed()
        self._same_instant = 0
        self._refused: Counter[str] = Counter()
        self._due: set[tuple[str, str]] = set()
        self._depth = 0
        self.quiet_requests: Counter[str] = Counter()
        self.judge: EndJudge = lambda _: ()
        self.starts_again = False
        """Whether the user's programs start once more in quiet, and the end is judged again."""
        self.watchdog = Watchdog(scenario, self.server, self.violated)
        self._asyncio: dict[str, AsyncioProgram] = {}
        self.processes = self._new_processes()
        self.misfortunes = ClusterMisfortunes(self)

    def _new_server(self) -> ApiServer:
        randomness, release = Randomness(self.seed), self.scenario.cluster.version
        return ApiServer(
            MemoryStore(),
            clock=self.engine.clock,
            randomness=randomness,
            kinds=Kinds.standard(release=release),
            features=of_simulations(release),
        )

    def _new_processes(self) -> list[ProgramProcess]:
        return [
            self._new_process(spec, replica)
            for spec in self.scenario.programs
            for replica in range(spec.replicas)
        ]

    def _new_process(self, spec: ProgramSpec, replica: int) -> ProgramProcess:
        if spec.file is None:
            return ProgramProcess(self, spec, replica)
        from dralab.testing.asyncio_programs import AsyncioProgram

        made = AsyncioProgram(self, spec, replica)
        self._asyncio[made.name] = made
        return made

    @cached_property
    def memory_server(self) -> "MemoryServer":
        """What serves programs on asyncio in this process."""
        from dralab.testing.memory_server import MemoryServer

        return MemoryServer(self, self._asyncio, self._serving)

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Attribute present changes to the programs."""
        before, self.acting = self.acting, next(iter(self._asyncio.values()))
        try:
            yield
        finally:
            self.acting = before

    def soon_in_server(self, call: Callable[[], object]) -> None:
        """Call something in a turn of the server that has programs on asyncio."""
        self.memory_server.loop.call_soon(call)

    def client_for(self, agent: str) -> LocalClient:
        """Return a client of the server, without faults."""
        return LocalClient(self.server.resources, self.server.hub, agent=agent)

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the trial to its end; `violations` has the result."""
        log = _CrashLog(self)
        logger = logging.getLogger("dralab")
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(log)
        # What programs log where nothing takes logs would be on the terminal, for each trial.
        last_resort, collects = logging.lastResort, gc.isenabled()
        if self._asyncio:
            logging.lastResort = logging.NullHandler()
            # What it deletes may close connections; when it does must not be chance.
            gc.disable()
        try:
            self._run_to_end()
        except TrialEnded:
            pass
        finally:
            logger.removeHandler(log)
            logger.propagate = propagates
            logging.lastResort = last_resort
            for process in self._asyncio.values():
                process.bury()
            if self._asyncio:
                self.memory_server.close()
            if collects:
                gc.enable()

    def _run_to_end(self) -> None:
        # Under faults, what a step needs may come after a controller's longest back-off.
        script = ScriptRunner(self, LONGEST_DELAY if self._faults else PATIENCE)
        script.create(self.scenario.manifests)
        self._start_cluster()
        self.pass_time(2 * SECOND)
        self.begin = self.engine.clock.now()
        self.plan = FaultPlan(self._faults, now=lambda: self.engine.clock.now() - self.begin)
        store = self.server.store
        for resource in store.resources():
            self.plan.traffic.earlier[collection(resource)] = len(store.changes(0, resource))
        store.subscribe(self._changed)
        for process in self.processes:
            process.start()
        for fault in self.plan.timed:
            self.engine.at(self.begin + fault.at, partial(self._happen, fault))
        end = script.plan(self.scenario.script)
        self._run_until(end)
        while not script.is_done():
            self._run_until(self.engine.clock.now() + SECOND)
        script.check()
        self.plan.traffic.duration = self.engine.clock.now() - self.begin
        self._run_until(self.engine.clock.now() + AFTER_SCRIPT)
        self.plan.end()
        self._run_until(self.misfortunes.ends_at)
        self._settle()
        self._judge()
        if self.starts_again:
            for process in self.processes:
                if not process.spec.own:
                    process.die(SECOND)
            self._settle()
            self._judge()

    def _start_cluster(self) -> None:
        parts = self.scenario.cluster
        manager = Manager(self.engine, self.client_for("cluster"), Randomness(self.seed))
        assemble_cluster(manager, self.scenario, self.server)
        if parts.nodes or parts.drivers:
            from dralab.components.nodes import NodeOptions, assemble

            nodes = NodeOptions(nodes=parts.nodes or 1, drivers=parts.drivers)
            self.misfortunes.kubelets = assemble(manager, nodes)
        manager.start()

    def _settle(self) -> None:
        """Run until nothing has changed for long enough, or too much time has passed."""
        self.quiet_requests.clear()
        limits = self.scenario.limits
        self.last_change = ended = self.engine.clock.now()
        counted = self._requested()
        at = self.last_change
        while True:
            quiet_at = max(self.last_change, ended) + limits.quiet
            if at != self.last_change:
                at, counted = self.last_change, self._requested()
            now = self.engine.clock.now()
            if now >= quiet_at and all(process.alive for process in self.processes):
                break
            if now - ended > limits.settle:
                most = self.watchdog.busiest(ended)
                since = "faults" if self.plan.faults else "script"
                self.violated("never-quiet", f"it does not come to rest after the {since}: {most}")
            self._run_until(min(quiet_at, now + 5 * SECOND) if quiet_at > now else now + SECOND)
        for place, count in (self._requested() - counted).items():
            # One of a kind is no loop: after an outage each collection is listed again.
            self.quiet_requests[place[0]] += count - 1

    def _judge(self) -> None:
        """Judge the end; again after the longest back-off where a refused request is still due."""
        found = self._verdicts()
        if found and self._due:
            self._run_until(self.engine.clock.now() + LONGEST_DELAY)
            self._settle()
            found = self._verdicts()
        for violation in found:
            self.violated(violation.oracle, violation.text)

    def _verdicts(self) -> list[TrialViolation]:
        return self.watchdog.at_end(self.history) or list(self.judge(self))

    def _requested(self) -> Counter[RequestPlace]:
        """Return the number of requests of each program to each place, without watches."""
        return Counter(
            {
                place: count
                for place, count in self.plan.traffic.requests.items()
                if place[1] != "watch" and not place[2].startswith(("leases", "events"))
            }
        )

    def pass_time(self, duration: int) -> None:
        """Run all events of the next `duration` nanoseconds. TrialEnded."""
        if self._depth >= DEEPEST:
            return
        self._depth += 1
        before, self.acting = self.acting, None
        try:
            self._run_until(self.engine.clock.now() + duration)
        finally:
            self._depth -= 1
            self.acting = before

    def _run_until(self, until: int) -> None:
        events = self.engine.events
        while (when := events.next_time()) is not None and when <= until:
            self._step()
        if until > self.engine.clock.now():
            self.engine.clock.advance_to(until)

    def _step(self) -> None:
        if self.violations:
            self._end()
        now = self.engine.clock.now()
        self.engine.step()
        self.steps += 1
        if self.engine.clock.now() == now:
            self._same_instant += 1
        else:
            self.begin_instant()
        if self._same_instant > AT_ONE_INSTANT:
            sent: Counter[str] = Counter()
            for place, count in self._requested().items():
                sent[place[0]] += count
            busy = ", ".join(f"{n} by {p}" for p, n in sent.most_common(3))
            text = f"{AT_ONE_INSTANT:,} events at one instant: a loop without back-off ({busy})"
            self.violated("hot-loop", text)
        if self.steps % CHECK_LIMITS_EVERY == 0:
            self._check_limits()

    def begin_instant(self) -> None:
        """Reset the counts of one instant, after the clock has moved."""
        self._same_instant = 0
        self._refused.clear()

    def _end(self) -> NoReturn:
        raise TrialEnded

    def _check_limits(self) -> None:
        limits = self.scenario.limits
        if self.steps > limits.steps:
            self.violated("limit", f"more than {limits.steps:,} events (limits.steps)")
        if self.took_too_long():
            self.violated("limit", f"more than {limits.wall:g} seconds (limits.wall)")
        if machine.getrusage(machine.RUSAGE_SELF).ru_maxrss * 1024 > limits.memory:
            self.violated("limit", f"more than {limits.memory:,} bytes (limits.memory)")

    def took_too_long(self) -> bool:
        """Return whether the trial has used its real time (`limits.wall`).

        A machine that is busy with something else does not fail a program: what counts is the
        processors' time, or, for one that waits for something real, ten times as long.
        """
        limit = self.scenario.limits.wall * SECOND
        passed = self._wall.now() - self._wall_begin
        if passed <= limit:
            return False
        return passed > MOST_WAITING * limit or self._computed() - self._computed_before > limit

    def _computed(self) -> int:
        """Return the CPU time of the trial's programs, in nanoseconds."""
        return time.process_time_ns()

    def note_start(self) -> None:
        """Record a program's start: its lists then are not a hot loop."""
        self.last_change = self.engine.clock.now()

    def answered(self, program: str, request: str) -> None:
        """Note that a request was carried out: it is not due any more."""
        self._due.discard((program, request))

    def refused(self, program: str, request: str, code: int) -> None:
        """Count a request of a program that was refused; a client sends some of them again."""
        if code in SENT_AGAIN or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._due.add((program, request))
        self._refused[program] += 1
        if self._refused[program] == REFUSED_AT_ONCE:
            text = f"{REFUSED_AT_ONCE} requests of {program} are refused at one instant: it tries"
            self.violated("hot-loop", f"{text} again without back-off")

    # --- what happens -----------------------------------------------------------------------------

    def has_to_itself(self, key: Key) -> bool:
        """Return whether a program made an object, and no other program wrote to it."""
        return len(self.watchdog.writers.get(key, ())) == 1

    def violated(self, oracle: str, text: str) -> None:
        """Note that something is wrong; the trial ends before its next event."""
        self.violations.append(TrialViolation(oracle, text))
        self.history.add("trial", kinds.VERDICT, f"{oracle}: {text}")

    def _changed(self, changes: Sequence[Change]) -> None:
        traffic, now = self.plan.traffic, self.engine.clock.now() - self.begin
        author = self.acting.program if self.acting is not None else ""
        for change in changes:
            self.watchdog.changed(change)
            if self.plan.active:
                who = kinds.USER if self.user_acts else author
                traffic.changes.append(ObservedChange(now, change, who))
            if effective(change):
                self.last_change = self.engine.clock.now()
                self.watchdog.count(change, self.last_change)
                if self.user_acts:
                    continue
                if self.acting is None:
                    self._note_other(change)
                else:
                    self.watchdog.note_write(change, self.acting.program)

    def _note_other(self, change: Change) -> None:
        verb = "create" if change.before is None else "delete" if change.after is None else "change"
        place = f"{change.key.namespace}/{change.key.name}".strip("/")
        text = f"{verb} {change.key.resource} {place}"
        self.history.add("cluster", kinds.WRITE, text, change.revision)

    def _happen(self, fault: PlannedFault) -> None:
        """Inject a timed fault."""
        if not self.plan.fire(fault):
            return
        self.history.add(fault.program or "other", kinds.FAULT, fault.text)
        self.plan.disturb(self.engine.clock.now() + fault.duration)
        if fault.fault in OF_CLUSTER:
            self.misfortunes.happen(fault)
            return
        for process in self.processes:
            if process.program != fault.program:
                continue
            if fault.fault == "restart":
                process.die(fault.duration)
            elif fault.fault == "pause":
                process.pause(fault.duration)
            elif fault.fault == "skew":
                process.skew = fault.duration
            else:
                # Watches that are open go on: who asks is decided when a request begins.
                self.plan.begin(fault, self.engine.clock.now())
            return  # of several replicas the first

    def revision_of(self, resource: Resource, old: PlannedFault) -> int:
        """Return the revision that an old list of a collection has; 0: it had none."""
        resources = self.server.resources
        kind = resources.kind(resource.group, resource.version, resource.plural)
        found = self.server.store.changes(0, kind.hub)
        if old.moment == DELETION:
            gone = [change.revision for change in found if change.after is None]
            if gone:
                return gone[-1] - 1
        return found[max(len(found) - old.behind, 0)].revision - 1 if found else 0


class _CrashLog(logging.Handler):
    """Catches what a queue logs about unhandled errors of reconcilers."""

    def __init__(self, world: TrialWorld) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            acting = self._world.acting
            who = acting.program if acting is not None else "cluster"
            self._world.violated("crash", f"{who} crashes: {described(error)}")


def assemble_cluster(manager: Manager, scenario: TrialScenario, server: ApiServer) -> None:
    """Put the controllers and the scheduler beside the programs on a manager."""
    from dralab.controllers import registry
    from dralab.controllers.certificates import CertificateSigner
    from dralab.testing.authority import TrialAuthority

    parts = scenario.cluster
    tested = {program.name for program in scenario.programs}
    known = set(registry.CONTROLLERS)
    wanted = known if parts.controllers is None else set(parts.controllers)
    registry.assemble(manager, without=known - (wanted - tested), kinds=server.resources.kinds)
    if registry.SIGNING in wanted - tested:
        CertificateSigner(manager, TrialAuthority())
    if parts.scheduler and "scheduler" not in tested:
        from dralab.allocation.selectors import CelSelectorCompiler
        from dralab.scheduler.scheduler import Scheduler, briefly

        off = off_in(server.resources.kinds.release, server.features)
        Scheduler(manager, CelSelectorCompiler(), explain=briefly, off=off)
