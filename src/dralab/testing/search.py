"""Many trials of one scenario, the failures told apart, each with its shortest schedule."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from dralab.testing.faults import DURATIONS, PlannedFault
from dralab.testing.plan import FaultCoverage
from dralab.testing.scenario import load
from dralab.testing.systematic import SystematicSchedules
from dralab.testing.trial import ExpectedEnd, TrialResult, expected_end, run_trial, schedule
from dralab.testing.trial_scenario import TrialScenario

DEFAULT_BUDGET: Final = 150
Fails = Callable[[Sequence[PlannedFault]], bool]


class Shrinker:
    """Makes a failing schedule shorter, with at most `budget` trials."""

    def __init__(self, fails: Fails, budget: int = DEFAULT_BUDGET) -> None:
        self._fails = fails
        self.left = budget

    def shortest(self, faults: Sequence[PlannedFault]) -> list[PlannedFault]:
        """Return a minimal part of a schedule that still fails.

        Then durations become as short as they can be. With the budget spent it is the shortest so
        far.
        """
        found = list(faults)
        parts = 2
        while len(found) >= 2 and self.left > 0:
            size = max(1, len(found) // parts)
            chunks = [found[at : at + size] for at in range(0, len(found), size)]
            for number in range(len(chunks)):
                rest = [each for k, chunk in enumerate(chunks) if k != number for each in chunk]
                if rest and self._try(rest):
                    found, parts = rest, max(parts - 1, 2)
                    break
            else:
                if size == 1:
                    break
                parts = min(len(found), parts * 2)
        if len(found) == 1 and self._try([]):
            found = []
        return self._simplest(found)

    def _simplest(self, faults: list[PlannedFault]) -> list[PlannedFault]:
        for number, fault in enumerate(faults):
            for duration in DURATIONS:
                if duration >= fault.duration:
                    break
                simpler = [*faults]
                simpler[number] = replace(fault, duration=duration)
                if self._try(simpler):
                    faults = simpler
                    break
        return faults

    def _try(self, faults: Sequence[PlannedFault]) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(faults)


# Names of generated objects, numbers: two failures that differ in them are alike.
VARIABLE: Final = re.compile(r"-[a-z0-9]{5}\b|\d+(\.\d+)?|<uid>")
# So many different failures get a shortest schedule.
MOST_EXPLAINED: Final = 5
CHUNK: Final = 8
USUAL: Final = 100
# Of fewer trials most say little.
FEW: Final = 4
# What a trial is called by: the seed that draws its faults, or its number in a systematic search.
SEED: Final = "seed"
TRIAL: Final = "trial"

Told = Callable[[int, "TrialSummary"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """A trial to run: its number, the seed of the programs' chance, the schedule of faults."""

    number: int
    seed: int
    faults: Sequence[PlannedFault]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSummary:
    """The summary of a trial: violations, and the faults that happened of those planned."""

    planned: PlannedTrial
    violations: Sequence[str] = ()
    signature: str = ""
    fired: Sequence[PlannedFault] = ()
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFailure:
    """One failure with the shortest schedule that shows it; `seeds` show it, of `tried`.

    Where the search is systematic these are numbers of trials, called by `noun`.
    """

    summary: TrialSummary
    schedule: Sequence[PlannedFault]
    result: TrialResult
    seeds: Sequence[int]
    tried: int = 0
    noun: str = SEED

    @property
    def planned(self) -> int:
        """How many faults the trial had."""
        return len(self.summary.planned.faults)

    @property
    def usual(self) -> bool:
        """Whether most trials end so: the run without faults is then the exception."""
        shown = self.result.violations
        ends_so = bool(shown) and shown[0].oracle == "final-state"
        return ends_so and 2 * len(self.seeds) > self.tried >= FEW


@dataclass(slots=True)
class SearchResult:
    """The outcome of many trials, of which each has a seed unless they are `systematic`."""

    scenario: TrialScenario
    systematic: SystematicSchedules | None = None
    seeds: int = 0
    steps: int = 0
    failures: dict[str, list[TrialSummary]] = field(default_factory=dict)
    explained: list[ExplainedFailure] = field(default_factory=list)
    coverage: FaultCoverage = field(default_factory=FaultCoverage)
    corpus: list[int] = field(default_factory=list)

    @property
    def noun(self) -> str:
        """What its trials are called by."""
        return SEED if self.systematic is None else TRIAL

    @property
    def failed(self) -> int:
        """How many trials failed."""
        return sum(len(found) for found in self.failures.values())

    def count(self, summary: TrialSummary) -> None:
        """Add a trial; one that showed a new pair of place and fault belongs to the corpus."""
        self.seeds += 1
        self.steps += summary.steps
        known = len(self.coverage.counts)
        self.coverage.count(summary.fired)
        if len(self.coverage.counts) > known or (
            summary.signature and summary.signature not in self.failures
        ):
            self.corpus.append(summary.planned.number)
        if summary.signature:
            self.failures.setdefault(summary.signature, []).append(summary)


def signature(result: TrialResult) -> str:
    """Return the key of similar failures: the oracle and its words."""
    first = result.violations[0]
    return f"{first.oracle}: {VARIABLE.sub('#', first.text)}"[:200]


def summarized(planned: PlannedTrial, result: TrialResult) -> TrialSummary:
    """Return the summary of a trial."""
    return TrialSummary(
        planned=planned,
        violations=[str(each) for each in result.violations],
        signature=signature(result) if result.failed else "",
        fired=result.fired,
        steps=result.steps,
    )


def search(
    scenario: TrialScenario,
    expected: ExpectedEnd,
    seeds: Iterable[int],
    *,
    systematic: SystematicSchedules | None = None,
    file: Path | None = None,
    jobs: int = 1,
    fail_fast: bool = False,
    told: Told = lambda _number, _summary: None,
    stop: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """Run the trials of some seeds, and explain their failures.

    With `systematic` schedules `seeds` are numbers of these. With `jobs` above 1 other processes
    load `file` and run a part of the trials; the result does not depend on how many there are.
    """

    def planned(number: int) -> PlannedTrial:
        if systematic is not None:
            return PlannedTrial(number=number, seed=0, faults=systematic.schedules[number])
        drawn = schedule(scenario, expected, number)
        return PlannedTrial(number=number, seed=number, faults=drawn)

    found = SearchResult(scenario, systematic)
    trials = map(planned, seeds)
    summaries = (
        _apart(file, list(trials), jobs)
        if jobs > 1 and file is not None
        else _here(scenario, expected, trials)
    )
    for summary in summaries:
        found.count(summary)
        told(found.seeds, summary)
        if stop() or (fail_fast and summary.signature):
            break
    for name in list(found.failures)[:MOST_EXPLAINED]:
        failure = explain(scenario, expected, found.failures[name])
        found.explained.append(replace(failure, tried=found.seeds, noun=found.noun))
    return found


def trial_numbers(
    first: int, count: int | None, systematic: SystematicSchedules | None = None
) -> range:
    """Return the numbers of `count` trials; by default 100 seeds, or all places that are unlike."""
    if systematic is None:
        return range(first, first + (USUAL if count is None else count))
    end = systematic.unlike if count is None else first + count
    return range(first, max(first, min(end, len(systematic.schedules))))


def explain(
    scenario: TrialScenario, expected: ExpectedEnd, alike: Sequence[TrialSummary]
) -> ExplainedFailure:
    """Return the shortest schedule of a failure: of the trial in which fewest faults happened."""
    summary = min(alike, key=lambda each: (len(each.fired), each.planned.number))
    planned, oracle = summary.planned, summary.signature.partition(":")[0]

    def fails(faults: Sequence[PlannedFault]) -> bool:
        result = run_trial(scenario, expected, faults, planned.seed)
        return result.failed and result.violations[0].oracle == oracle

    # What did not happen changes nothing.
    shortest = Shrinker(fails).shortest([each for each in planned.faults if each in summary.fired])
    return ExplainedFailure(
        summary=summary,
        schedule=shortest,
        result=run_trial(scenario, expected, shortest, planned.seed),
        seeds=[each.planned.number for each in alike],
    )


def _here(
    scenario: TrialScenario, expected: ExpectedEnd, trials: Iterable[PlannedTrial]
) -> Iterator[TrialSummary]:
    for each in trials:
        yield summarized(each, run_trial(scenario, expected, each.faults, each.seed))


def _apart(file: Path, trials: Sequence[PlannedTrial], jobs: int) -> Iterator[TrialSummary]:
    """Yield trials that other processes ran, in their order."""
    chunks = [trials[at : at + CHUNK] for at in range(0, len(trials), CHUNK)]
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_load, initargs=(file,)
    )
    try:
        for summaries in pool.map(_run, chunks):
            yield from summaries
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_LOADED: list[tuple[TrialScenario, ExpectedEnd]] = []


def _load(file: Path) -> None:
    scenario = load(file)
    _LOADED[:] = [(scenario, expected_end(scenario))]


def _run(trials: Sequence[PlannedTrial]) -> list[TrialSummary]:
    scenario, expected = _LOADED[0]
    return list(_here(scenario, expected, trials))
