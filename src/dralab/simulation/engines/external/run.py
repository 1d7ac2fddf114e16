"""A whole run with an external scheduler: serve, start it, drive it, stop it."""

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from dralab.cluster import Cluster, Options
from dralab.controllers import registry
from dralab.kernel.clock import SECOND, ManualClock, rfc3339
from dralab.kernel.events import Events
from dralab.kernel.randomness import Randomness
from dralab.runtime.garbage import rare_collections
from dralab.runtime.manager import Manager
from dralab.runtime.simulated import SimulatedEngine
from dralab.scenarios.errors import InputError
from dralab.simulation.engines.external import checkpoint, options
from dralab.simulation.engines.external.clocked_processes import ClockedLauncher
from dralab.simulation.engines.external.conductor import Conductor, ConductorOptions
from dralab.simulation.engines.external.driver import ClockedRun, DriverReport
from dralab.simulation.engines.external.pacing import Pacer, PacingOptions
from dralab.simulation.engines.external.schedulers import Launcher, RealTimeLauncher, started
from dralab.simulation.engines.external.served_cluster import ServedCluster, ServedTask
from dralab.simulation.engines.external.strides import TimerMattered
from dralab.simulation.engines.external.submission import PodOptions
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.results.result import Result, Task
from dralab.simulation.scenario import external
from dralab.simulation.scenario.scenario import Scenario, digest
from dralab.simulation.workloads.openb import WHOLE_GPU
from dralab.virtualtime import Supervisor, unavailable


def result_of(driver: ClockedRun, *, name: str, seed: int, complete: bool) -> Result:
    """Return the results of the pods; times count from the beginning of the run."""
    served = driver.served
    nodes = served.capacity.nodes
    place = {lane: index for index, lane in enumerate(nodes)}
    capacity = {"cpu": sum(node.cpu for node in nodes.values())}
    gpus = sum(node.gpus for node in nodes.values())
    if gpus:
        capacity["gpu"] = WHOLE_GPU * gpus
    return Result(
        name=name,
        scheduler="external",
        seed=seed,
        tasks=[_task(item, served, place) for item in served.pods.values()],
        samples=served.samples,
        lanes=list(nodes),
        capacity=capacity,
        end=served.agenda.now() - served.begin,
        notes=notes_on(driver.report, served),
        complete=complete,
    )


def notes_on(report: DriverReport, served: ServedCluster) -> list[str]:
    """Return notes about the result, late binds first."""
    found = [
        f"late binds: {report.late_binds}",
        *_how_time_was_kept(report),
        f"the clock showed {rfc3339(served.begin)} when the run began",
    ]
    if report.ended:
        found.append(
            f"stopped early at {(served.agenda.now() - served.begin) / 1e9:g} s: {report.ended}"
        )
    if report.polls:
        found.append("the scheduler polls: each step that needed it waited for its next list calls")
    if report.terse:
        found.append("the scheduler did not answer about pods that fit nowhere")
    if report.restarts:
        found.append(f"the scheduler exited and was restarted {report.restarts} times")
    if served.resumed:
        found.append(f"resumed from a checkpoint {served.resumed} times")
    if served.deleted:
        found.append(f"{served.deleted} running pods were deleted (preempted) and created again")
    pending = sorted(key for key in served.pods if served.waits(key))
    for text, keys in (
        ("never bound", pending),
        ("got no answer in time", report.unanswered),
        (
            "had room but were not bound in time: in back-off (real seconds), or for the "
            "scheduler's own reasons",
            report.passed_over,
        ),
        ("name a scheduler that is not part of the run", report.nobodys),
        ("bound where there was no room", served.over_capacity),
    ):
        if keys:
            shown = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
            found.append(f"{len(keys)} pods {text}: {shown}")
    if any(item.pod.gang for item in served.pods.values()):
        found.append("the scheduler does not see gangs: their pods were submitted one by one")
    return found


def _how_time_was_kept(report: DriverReport) -> list[str]:
    requests = (
        f"{report.requests} requests ({report.event_writes} of them writes of events, "
        f"{report.renewals} of leases)"
    )
    if not report.clock:
        return [
            f"{report.steps} steps, {requests}, quiet period {report.quiet_period:g} s",
            f"no virtual clock ({report.why_no_clock}): silence counts as an answer",
            "an external scheduler breaks ties at random and in real time: totals repeat, the "
            "times of individual pods may not",
        ]
    found = [
        "virtual clock: it stands still until all programs and the server are idle, so binds "
        "cannot be late",
        f"{report.steps} steps, {report.jumps} jumps of the clock, {requests}",
    ]
    if report.crept:
        found.append(
            f"{report.crept / 1e9:g} s passed because a program waited by reading the clock"
        )
    return found + [f"clock: {line}" for line in report.clock_notes]


def _task(item: ServedTask, served: ServedCluster, place: dict[str, int]) -> Task:
    lanes = [place[item.node]] if item.node in place else []
    refusal = served.refusal(item) if item.state == "Pending" else ""
    now, life = served.agenda.now(), served.lives.how.life
    return item.task(lanes, now, life, begin=served.begin, reason=refusal)


def start_controllers(cluster: Cluster, events: Events, names: Collection[str], seed: int) -> None:
    """Start these controllers at the present instant; they act with the events.

    Only where no other thread writes while events happen.
    """
    manager = Manager(
        SimulatedEngine(events), cluster.client, Randomness(seed), client_of=cluster.client_of
    )
    registry.assemble(
        manager,
        without=set(registry.CONTROLLERS) - set(names),
        kinds=cluster.server.resources.kinds,
        ca=cluster.ca,
        signing_files=cluster.signing_files,
    )
    manager.start()


# Nanoseconds of a processor. Schedulers compute, and read the clock while they do: only one that
# goes on for so long may be waiting for the clock itself.
BUSY: Final = 3 * SECOND


class ExternalRun:
    """One run with external schedulers; a checkpoint is the objects of the server and the agenda.

    `command` replaces the scenario's; `say` hears where the API is served.
    """

    def __init__(
        self,
        scenario: Scenario,
        resume: Path | None = None,
        *,
        command: str | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.scenario = scenario
        self.pacing = options.of_kind(PacingOptions, scenario)
        self.conducting = options.of_kind(ConductorOptions, scenario)
        self.time = options.time_of(scenario)
        self.controllers = options.controllers_of(scenario)
        self.commands = options.commands_of(scenario, command)
        self.say = say
        _refuse(scenario)
        self._digest = digest(scenario)
        self._resumed = None if resume is None else checkpoint.load(resume, self._digest)
        self._left_off: bytes | None = None
        self._clock_notes: list[str] = []  # what the programs' clock had to say

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Serve, start the schedulers, drive them; DecisionError if they fail."""
        how = self.conducting
        if how.skip_idle_timers and (self.controllers or how.timer_slack):
            raise InputError(
                self.scenario.file,
                "must be false with controllers or timer_slack",
                where="external.skip_idle_timers",
            )
        try:
            return self._go(progress, stop, strides=True)
        except TimerMattered:
            self._clock_notes.clear()
            self._note("a program acted on a timer that was skipped: repeated with all timers")
            return self._go(progress, stop, strides=False)

    def _go(self, progress: Progress | None, stop: Stop | None, *, strides: bool) -> Result:
        why_not = self._why_no_clock()
        if why_not is not None and self.controllers:
            raise InputError(
                self.scenario.file,
                f"controllers need the virtual clock: {why_not}",
                where="external.controllers",
            )
        for key in external.without_effect(self.scenario.external, virtual=why_not is None):
            self.say(f"warning: external.{key} has no effect: {_clock_used(why_not)}")
        saved = self._resumed
        begin = self.time.start if saved is None else saved["begin"]
        now = begin if saved is None else saved["now"]
        with ExitStack() as stack:
            stack.enter_context(rare_collections())
            supervisor = None
            if why_not is None:
                # Before the server: its threads have to leave SIGCHLD to this one.
                if saved is None:  # else there may be pods to decide about, from the first instant
                    now -= int(self.conducting.warm_up * SECOND)
                supervisor = stack.enter_context(
                    Supervisor(
                        start=now,
                        peers=(os.getpid(),),
                        busy=BUSY,
                        seed=self.scenario.seed,
                        gates=True,
                        note=self._note,
                    )
                )
            clock = ManualClock(now)
            serving = Options(
                port=self.commands.port, tls=self.commands.tls, timers=supervisor is None
            )
            # The ids of new objects must not be those of objects from before the checkpoint.
            seed = 1 + (saved["resumed"] if saved is not None else 0)
            cluster = stack.enter_context(Cluster(serving, clock=clock, seed=seed))
            driver, launcher = self._driver(self._served(cluster, clock, begin), supervisor)
            if isinstance(driver, Conductor) and not strides:
                driver.strides = None
            stack.callback(driver.release)
            driver.report.why_no_clock = why_not or ""
            driver.report.clock_notes = self._clock_notes
            if self.commands.commands:
                driver.names = {command.name for command in self.commands.commands}
            if saved is None:
                with driver.served.together():
                    driver.served.prepare()
            else:
                checkpoint.restore(saved, cluster, driver.served, driver.report)
            self.say(f"serving {cluster.url}; KUBECONFIG={cluster.kubeconfig}")
            complete = self._drive(driver, launcher, progress, stop)
            if not complete:
                self._left_off = checkpoint.content(self._digest, driver.served, driver.report)
            return result_of(
                driver, name=self.scenario.name, seed=self.scenario.seed, complete=complete
            )

    def _why_no_clock(self) -> str | None:
        """Return the reason for running schedulers in real time; None with a virtual clock."""
        if not self.time.virtual:
            return "external.clock is real"
        if not self.commands.commands:
            return "schedulers that someone else starts have their own clock"
        return unavailable()

    def _note(self, line: str) -> None:
        self._clock_notes.append(line)
        self.say(f"clock: {line}")

    def _driver(
        self, served: ServedCluster, supervisor: Supervisor | None
    ) -> tuple[ClockedRun, Launcher]:
        count = max(1, len(self.commands.commands))
        if supervisor is None:
            return Pacer(served, self.pacing, schedulers=count), RealTimeLauncher()
        conductor = Conductor(
            served,
            self.conducting,
            supervisor,
            schedulers=count,
        )
        if self.controllers:
            conductor.creates_pods = True
            conductor.start_controllers = partial(
                start_controllers,
                served.cluster,
                served.agenda.events,
                self.controllers.own,
                self.scenario.seed,
            )
        return conductor, ClockedLauncher(supervisor)

    def save(self, path: Path) -> None:
        """Write a checkpoint of a stopped run."""
        if self._left_off is None:
            raise InputError(path, "the run was complete: there is nothing to resume")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._left_off)

    def _served(self, cluster: Cluster, clock: ManualClock, begin: int) -> ServedCluster:
        scenario, options = self.scenario, self.pacing
        return ServedCluster(
            cluster,
            clock,
            begin=begin,
            nodes=scenario.fleet.as_nodes(),
            pods=scenario.pods(),
            conditions=scenario.conditions,
            pod_options=PodOptions(
                scheduler_name=options.scheduler_name,
                claims=options.claims,
                overcommit=options.overcommit,
                jobs=self.controllers.jobs,
            ),
            heartbeats=int(self.controllers.heartbeats * SECOND),
            fleet_objects=scenario.fleet.objects,
            arrivals=scenario.work.objects,
        )

    def _drive(
        self, driver: ClockedRun, launcher: Launcher, progress: Progress | None, stop: Stop | None
    ) -> bool:
        """Run the schedulers and the clock; False if the run was stopped."""
        total = len(driver.served.pods)

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, total)

        commands, cluster = self.commands, driver.served.cluster
        with started(commands.commands, commands.folder, cluster, launcher) as schedulers:
            driver.trouble, driver.revive = schedulers.trouble, schedulers.revive
            if isinstance(driver, Pacer):
                driver.at_work = schedulers.at_work
            complete = driver.run(tell, stop)
        driver.finish()
        return complete


def _clock_used(why_not: str | None) -> str:
    return "the clock is virtual" if why_not is None else f"the clock is real ({why_not})"


def _refuse(scenario: Scenario) -> None:
    """Raise InputError for what cannot be simulated where an external scheduler decides."""
    how = scenario.conditions
    if how.quotas:
        raise InputError(
            scenario.file, "an external scheduler does not see a scenario's quotas", where="queues"
        )
    for fault in how.faults:
        if not fault.is_outage:
            problem = "an external scheduler supports only outages of whole nodes"
            raise InputError(scenario.file, problem, where="faults")
