"""One trial and its judgement: run a scenario with a schedule, compare with the run without faults.

The expected end comes from several runs without faults, on faster and slower watches. What differs
between them is not compared. A scenario that fails without faults cannot be used.
"""

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.testing.faults import OF_CLUSTER, OF_NODES, PlannedFault, draw
from dralab.testing.final_state import FinalState, final_state, refreshed, varying
from dralab.testing.history import STEP, TrialHistory, TrialViolation
from dralab.testing.places import ObservedTraffic
from dralab.testing.surroundings import TrialEnded
from dralab.testing.systematic import SystematicSchedules, single_faults
from dralab.testing.trial_scenario import TrialScenario
from dralab.testing.world import LATENCY, TrialWorld

LATENCIES: Final = (SECOND // 1000, SECOND // 25, SECOND // 4)
# How a program finds the server of a trial: a class, one that speaks HTTP.
THEIR_SERVER: Final = (
    "the client or the caches of its manager",
    "the server of {kubeconfig}, {server} or the variable KUBECONFIG",
)
REASONS: Final = OF_CLUSTER - {"outage"}
MOST_DIFFERENCES: Final = 3
# The mistake is in the run without faults, or in what a start does.
ALSO_WITHOUT: Final = (
    "the run without faults ends like this trial if its programs start once more at rest"
)
# Requests of one quiet minute that are nothing unusual, beyond those of the run without faults.
QUIET_REQUESTS: Final = 30


class ScenarioFails(Exception):  # noqa: N818 - the outcome of a scenario, not a defect of the code
    """The scenario fails without any fault."""

    def __init__(self, violations: Sequence[TrialViolation], history: TrialHistory) -> None:
        super().__init__(f"the run without faults fails: {violations[0]}")
        self.violations = tuple(violations)
        self.history = history


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEnd:
    """The results of runs without faults: final states, and where faults can be triggered.

    `again` is the state after the user's programs have started once more at rest, None without.
    """

    state: FinalState
    varying: frozenset[str]
    traffic: ObservedTraffic
    quiet_requests: Counter[str]
    losses: Counter[str] = field(default_factory=Counter)
    deletions: Counter[str] = field(default_factory=Counter)
    recreations: Counter[str] = field(default_factory=Counter)
    again: FinalState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """The result of one trial; it failed if there are violations."""

    seed: int
    faults: Sequence[PlannedFault]
    fired: Sequence[PlannedFault]
    violations: Sequence[TrialViolation]
    history: TrialHistory
    steps: int
    duration: int

    @property
    def failed(self) -> bool:
        """Whether there are violations."""
        return bool(self.violations)


def expected_end(scenario: TrialScenario) -> ExpectedEnd:
    """Run a scenario without faults. ScenarioFails: it fails even so."""
    worlds = []
    for seed, latency in enumerate(LATENCIES):
        world = _world(scenario, (), seed, latency)
        with _bounded(scenario.limits.wall, world):
            world.run()
        if not world.violations:
            world.violations += _silent(scenario, world)
        if world.violations:
            raise ScenarioFails(world.violations, world.history)
        worlds.append(world)
    rests = _rests(scenario)
    states = [final_state(world.server.store, scenario.ignore) for world in worlds]
    quiet: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    deletions: Counter[str] = Counter()
    recreations: Counter[str] = Counter()
    for world in worlds:
        quiet |= world.quiet_requests
        losses |= world.watchdog.losses
        deletions |= world.watchdog.deletions
        recreations |= world.watchdog.recreations
    traffic = worlds[0].plan.traffic
    traffic.steps = [entry.at for entry in worlds[0].history.of(STEP)]
    return ExpectedEnd(
        state=states[0],
        varying=varying(states) | (refreshed(*rests) if rests else frozenset()),
        traffic=traffic,
        quiet_requests=quiet,
        losses=losses,
        deletions=deletions,
        recreations=recreations,
        again=rests[1] if rests else None,
    )


def _rests(scenario: TrialScenario) -> tuple[FinalState, FinalState] | None:
    """Return the states before and after the user's programs are restarted at rest."""
    if all(program.own for program in scenario.programs):
        return None
    found: list[FinalState] = []

    def look(world: TrialWorld) -> Sequence[TrialViolation]:
        found.append(final_state(world.server.store, scenario.ignore))
        return ()

    world = _world(scenario, (), 0, LATENCIES[0])
    world.judge, world.starts_again = look, True
    with _bounded(scenario.limits.wall, world):
        world.run()
    return (found[0], found[1]) if len(found) == 2 else None


def _silent(scenario: TrialScenario, world: TrialWorld) -> list[TrialViolation]:
    """Return the processes that never asked the server for anything."""
    asked = {place[0] for place in world.plan.traffic.requests}
    return [
        TrialViolation(
            "no-requests",
            f"{program.name} sends no request: it must use {THEIR_SERVER[program.speaks_http]}",
        )
        for program in scenario.programs
        if program.name not in asked
    ]


def schedule(scenario: TrialScenario, expected: ExpectedEnd, seed: int) -> list[PlannedFault]:
    """Return the faults of a seed."""
    return draw(
        seed,
        expected.traffic,
        allowed=_possible(scenario),
        most=scenario.most,
        cached_lists=scenario.cached_lists,
    )


def systematic_schedules(scenario: TrialScenario, expected: ExpectedEnd) -> SystematicSchedules:
    """Return the schedules of one fault each, for every place of the run without faults."""
    return single_faults(
        expected.traffic,
        allowed=_possible(scenario),
        cached_lists=scenario.cached_lists,
        nodes=scenario.cluster.nodes,
    )


def run_trial(
    scenario: TrialScenario, expected: ExpectedEnd, faults: Sequence[PlannedFault], seed: int
) -> TrialResult:
    """Run a scenario with a schedule of faults, and judge it."""
    world = _world(scenario, faults, seed, LATENCY)
    world.judge = partial(_judged, scenario=scenario, expected=expected)
    with _bounded(scenario.limits.wall, world):
        world.run()
    return TrialResult(
        seed=seed,
        faults=tuple(faults),
        fired=tuple(world.plan.fired),
        violations=tuple(world.violations),
        history=world.history,
        steps=world.steps,
        duration=world.engine.clock.now() - world.begin,
    )


def _world(
    scenario: TrialScenario, faults: Sequence[PlannedFault], seed: int, latency: int
) -> TrialWorld:
    if not scenario.commands:
        return TrialWorld(scenario, faults, seed=seed, latency=latency)
    from dralab.testing.commands import CommandWorld

    # Without a latency, the clock moves less often: a process costs time at each instant.
    return CommandWorld(scenario, faults, seed=seed, latency=0 if latency == LATENCY else latency)


def _possible(scenario: TrialScenario) -> list[str]:
    parts = scenario.cluster
    return [
        name
        for name in scenario.allowed
        if name not in OF_NODES or (parts.drivers if name == "driver-down" else parts.nodes)
    ]


def _judged(
    world: TrialWorld, scenario: TrialScenario, expected: ExpectedEnd
) -> Iterator[TrialViolation]:
    for program in sorted(world.quiet_requests):
        count, usual = world.quiet_requests[program], expected.quiet_requests[program]
        if count > 3 * usual + QUIET_REQUESTS:
            quiet = f"{scenario.limits.quiet / SECOND:g}s in which nothing changes"
            text = f"{program} repeats {count} requests in {quiet} ({usual} without faults)"
            yield TrialViolation("hot-loop", text)
    dog = world.watchdog
    for place, count in (dog.losses - expected.losses).items():
        usual = expected.losses[place]
        times = f"{usual + count} times, {usual} without faults"
        yield TrialViolation("data-loss", f"programs delete {place} {times}")
    # What is made anew for a pod or a node that failed is made for a reason.
    if REASONS.isdisjoint(fault.fault for fault in world.plan.fired):
        for place, count in (dog.recreations - expected.recreations).items():
            usual = expected.recreations[place]
            if dog.deletions[place] <= expected.deletions[place]:
                continue  # deleted for a reason, and made anew for an old view of it
            times = f"{usual + count} times, {usual} without faults"
            text = f"programs delete {place} and create it again with the same content {times}"
            yield TrialViolation("recreation", text)
    state = final_state(world.server.store, scenario.ignore)
    found = list(state.differences(expected.state, expected.varying))
    again = expected.again
    unlike = {each.subject for each in state.differences(again, expected.varying)} if again else ()
    for difference in found[:MOST_DIFFERENCES]:
        text = str(difference)
        if again and difference.subject not in unlike:
            text += f"; {ALSO_WITHOUT}"
        yield TrialViolation("final-state", text)


@contextmanager
def _bounded(seconds: float, world: TrialWorld) -> Iterator[None]:
    """Stop a program in an endless loop, by a signal in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        if not world.took_too_long():
            return
        world.violated("limit", f"one step takes more than {seconds:g} seconds (limits.wall)")
        raise TrialEnded

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1, 1)
    try:
        yield
    except TrialEnded:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
