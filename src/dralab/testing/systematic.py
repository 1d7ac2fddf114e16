"""Every single fault at every place of the run without faults, the most promising first.

A seed may miss the one event that matters. Here each write, request, event, change and step of the
run without faults has its trials: one fault each, or a restart with an old list. Places that are
alike (the same change of another object, while the same step of the user is under way) come last.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Final, NamedTuple

from dralab.kernel.clock import SECOND
from dralab.testing.faults import (
    DENIALS,
    DOWN,
    FAULTS,
    NODES,
    READS,
    PlannedFault,
    edits,
)
from dralab.testing.final_state import likeness
from dralab.testing.places import BACKGROUND, ObservedChange, ObservedTraffic, Occurrence

Schedule = tuple[PlannedFault, ...]
# So long before a step of the user, and after it: what follows a step has happened, or begins.
MARGIN: Final = SECOND // 10
AT_ONCE: Final = SECOND
SHORT, USUAL, LONG, LONGEST = (n * SECOND for n in (2, 5, 15, 40))
# Steps of the user that are further apart have little to do with each other.
TOGETHER: Final = 120 * SECOND
# A list is at most as old as what was before the last three steps.
STAGES: Final = 3
ALL: Final = "all"
# Which of the owned pods is deleted, which of the containers is killed.
VICTIMS: Final = (1, 2)


class _RankedSchedule(NamedTuple):
    """A schedule, with what decides when it is tried.

    `variant` 0 is the most promising form, `stage` the number of the user's steps before it, and
    `like` the same at places of a stage that are alike.
    """

    name: str
    variant: int
    stage: int
    like: Hashable
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class SystematicSchedules:
    """Schedules in the order of their trials; the places of the first `unlike` are not alike."""

    schedules: Sequence[Schedule]
    unlike: int


def single_faults(
    traffic: ObservedTraffic,
    *,
    allowed: Collection[str] = tuple(FAULTS),
    cached_lists: Collection[str] = (),
    nodes: int = 0,
) -> SystematicSchedules:
    """Return the schedules with one fault each, for the places of the run without faults.

    `cached_lists` are the programs whose first lists may be old, `nodes` those of the cluster.
    """
    places = _Places(traffic, cached_lists, nodes)
    found = list(
        chain(places.requests(), places.events(), places.times(), places.old_lists())
    )  # fmt: skip
    return _ordered([each for each in found if {f.fault for f in each.schedule} <= {*allowed}])


def _ordered(found: Sequence[_RankedSchedule]) -> SystematicSchedules:
    """Sort schedules: unlike places first, then variants; faults and stages take turns."""
    alike: dict[Hashable, list[_RankedSchedule]] = defaultdict(list)
    for each in dict.fromkeys(found):
        alike[each[:-1]].append(each)
    turns: Counter[tuple[str, int, int]] = Counter()
    ranked: list[tuple[tuple[bool, int, float], Schedule]] = []
    for group in alike.values():
        # After the first of a group the last one differs most from it.
        for nth, each in enumerate([group[0], *group[:0:-1]]):
            level = nth + each.variant
            turns[each.name, level, each.stage] += 1
            turn = turns[each.name, level, each.stage]
            weight = max(FAULTS[fault.fault].weight for fault in each.schedule)
            # Before the user's first step the programs have little to do.
            rank = (turn if each.stage else 2 * turn) / weight
            ranked.append(((nth > 0, level, rank), each.schedule))
    ranked.sort(key=lambda one: one[0])
    schedules = list(dict.fromkeys(schedule for _, schedule in ranked))
    unlike = {schedule for (is_like, _, _), schedule in ranked if not is_like}
    return SystematicSchedules(schedules, len(unlike))


class _Places:
    """The places of one run without faults, and the faults that fit there."""

    def __init__(self, traffic: ObservedTraffic, cached_lists: Collection[str], nodes: int) -> None:
        self.traffic = traffic
        self.nodes = nodes
        self.cached = sorted(place for place in traffic.lists if place[0] in cached_lists)
        self.likeness: Mapping[int, frozenset[str]] = {
            each.revision: likeness(each.change) for each in traffic.changes
        }
        self._times = [each.at for each in traffic.changes]
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for number, each in enumerate(traffic.changes):
            self._numbers[each.resource].append(number)
        self.stages = range(len(traffic.steps) + 1)

    def _place_of(self, place: Occurrence | ObservedChange) -> tuple[int, Hashable]:
        """Return the stage of a place, and what places that are alike have in common."""
        if place.resource.startswith(BACKGROUND):
            return 0, place.resource
        return self.traffic.stage(place.at), (place.resource, self.likeness.get(place.revision))

    # --- counted ----------------------------------------------------------------------------------

    def requests(self) -> Iterator[_RankedSchedule]:
        """Yield what happens to one request: most of it to writes."""
        written: dict[str, tuple[str, str]] = {}
        for each in self.traffic.occurrences:
            if each.is_event:
                continue
            place = (each.program, each.verb, each.resource)
            stage, what = self._place_of(each)
            like = (place, written.get(each.program), what)
            if each.verb in READS:
                faults = _at_read(each)
            else:
                faults = _at_write(each)
                written[each.program] = place[1:]
            for variant, fault in faults:
                yield _RankedSchedule(fault.fault, variant, stage, (like, fault.moment), (fault,))

    def events(self) -> Iterator[_RankedSchedule]:
        """Yield what happens to the watch of a program at one event."""
        for each in self.traffic.occurrences:
            if not each.is_event:
                continue
            stage, like = self._place_of(each)
            fault = partial(_at, each)
            found = (
                (0, fault("hold-watch", duration=LONGEST)),
                (1, fault("hold-watch", duration=USUAL)),
                (0, fault("expire-watch", duration=self._until_next_step(each.at))),
                (1, fault("expire-watch", duration=SHORT)),
                (0, fault("end-watch")),
            )
            for variant, one in found:
                yield _RankedSchedule(one.fault, variant, stage, (each.program, like), (one,))

    def _until_next_step(self, at: int) -> int:
        """Return how long it takes until the user's next step is over."""
        stage = self.traffic.stage(at)
        if stage == len(self.traffic.steps) or self.traffic.steps[stage] - at > TOGETHER:
            return LONG
        return self.traffic.steps[stage] + MARGIN - at

    # --- timed ------------------------------------------------------------------------------------

    def times(self) -> Iterator[_RankedSchedule]:
        """Yield what happens at a time: when something changes, between steps, at rest."""
        for program in self.traffic.programs:
            yield _RankedSchedule("skew", 0, 0, program, (_timed("skew", program, 0, LONGEST),))
            for number, step in enumerate(self.traffic.steps):
                expired = _timed("expire-credentials", program, max(step - MARGIN, 0), LONG)
                yield _RankedSchedule("expire-credentials", 1, number, program, (expired,))
            yield from self._absences("restart", program, SHORT)
            yield from self._absences("pause", program, LONG)
        yield from self._absences("outage", "", LONG)
        for stage in self.stages:
            rest = self.traffic.settled(stage, MARGIN)
            for name, victims, durations in self._of_cluster():
                for variant, duration in enumerate(durations):
                    for nth in victims:
                        fault = replace(_timed(name, "", rest, duration), nth=nth)
                        yield _RankedSchedule(name, variant, stage, nth, (fault,))

    def _absences(self, name: str, program: str, duration: int) -> Iterator[_RankedSchedule]:
        """Yield times at which a program sees nothing: for two steps of the user, at changes."""
        for number, (one, other) in enumerate(pairwise(self.traffic.steps)):
            if other - one <= TOGETHER:
                begin = max(one - MARGIN, 0)
                fault = _timed(name, program, begin, other + MARGIN - begin)
                yield _RankedSchedule(name, 0, number, program, (fault,))
        for each in self.traffic.changes:
            if each.author != program:
                stage, like = self._place_of(each)
                fault = _timed(name, program, each.at, duration)
                yield _RankedSchedule(name, 1, stage, (program, like), (fault,))

    def _of_cluster(self) -> Iterator[tuple[str, Sequence[int], Sequence[int]]]:
        """Yield (fault, which of its victims, durations)."""
        if any(each.resource == "pods" for each in self.traffic.changes):
            yield "delete-pod", VICTIMS, (0,)
        for name, kind in FAULTS.items():
            if kind.target == NODES:
                down = DOWN if name == "node-down" else (LONG,)
                yield name, VICTIMS[: self.nodes], down

    # --- old lists --------------------------------------------------------------------------------

    def old_lists(self) -> Iterator[_RankedSchedule]:
        """Yield restarts whose first lists do not have a change yet, or nothing at all."""
        for program, resource in self.cached:
            if earlier := self.traffic.earlier[resource]:
                empty = replace(_old(program, resource, earlier), nth=1)
                yield _RankedSchedule("stale-list", 1, 0, (program, resource), (empty,))
        for number, each in enumerate(self.traffic.changes):
            for program, resource in self.cached:
                if resource == each.resource:
                    yield from self._behind(program, number, each)

    def _behind(
        self, program: str, number: int, change: ObservedChange
    ) -> Iterator[_RankedSchedule]:
        """Yield restarts of a program that does not see a change: of its kind alone, of all."""
        stage, what = self._place_of(change)
        for variant, when, at in self._restarts(change.at):
            kill = _timed("restart", program, at, AT_ONCE)
            old = {
                resource: replace(
                    _old(program, resource, behind), nth=self.traffic.lists[who, resource] + 1
                )
                for who, resource in self.cached
                if who == program and (behind := self._changes_of(resource, number, at))
            }
            like, alone = (program, what, when), (kill, old[change.resource])
            yield _RankedSchedule("stale-list", variant, stage, like, alone)
            if len(old) > 1:
                whole = (kill, *old.values())
                yield _RankedSchedule("stale-list", variant + 1, stage, (like, ALL), whole)

    def _restarts(self, at: int) -> Iterator[tuple[int, str, int]]:
        """Yield when a program restarts after a change: variant, which restart it is, time."""
        stage = self.traffic.stage(at)
        yield 1, "soon", at + AT_ONCE
        for later in self.stages[stage : stage + STAGES]:
            rest = max(self.traffic.settled(later, 2 * AT_ONCE), at + 2 * AT_ONCE)
            yield later - stage, str(later), rest

    def _changes_of(self, resource: str, first: int, until: int) -> int:
        """Return how many changes of a collection there are from one on until a time."""
        numbers = self._numbers[resource]
        end = bisect_left(self._times, until)
        return bisect_left(numbers, end) - bisect_left(numbers, first)


def _at_write(each: Occurrence) -> Iterator[tuple[int, PlannedFault]]:
    """Yield the faults of a write, with their variants."""
    fault = partial(_at, each)
    yield 0, fault("kill", moment="after", duration=SHORT)
    yield 1, fault("kill", moment="during", duration=SHORT)
    # As a kill after the write before it, unless something else has happened meanwhile.
    yield 2, fault("kill", moment="before", duration=SHORT)
    yield 0, fault("lose-answer")
    yield 0, fault("late-write", duration=SHORT)
    if edits(each.verb):
        yield 0, fault("conflict")
    for variant, code in enumerate(DENIALS):
        yield variant, fault("deny", code=code, duration=USUAL)
    yield from _at_read(each)


def _at_read(each: Occurrence) -> Iterator[tuple[int, PlannedFault]]:
    """Yield the faults of a request that does not write."""
    fault = partial(_at, each)
    yield 0, fault("refuse", code=500)
    yield 1, fault("refuse", code=504)
    yield 0, fault("slow", duration=LONG)
    yield 1, fault("throttle", duration=LONG)


def _at(
    each: Occurrence, fault: str, *, duration: int = 0, code: int = 0, moment: str = ""
) -> PlannedFault:
    """Return a fault at an occurrence."""
    return PlannedFault(
        fault=fault, program=each.program, verb=each.verb, resource=each.resource, nth=each.nth,
        duration=duration, code=code, moment=moment,
    )  # fmt: skip


def _timed(fault: str, program: str, at: int, duration: int) -> PlannedFault:
    return PlannedFault(fault=fault, program=program, at=at, duration=duration)


def _old(program: str, resource: str, behind: int) -> PlannedFault:
    return PlannedFault(
        fault="stale-list", program=program, verb="list", resource=resource, behind=behind,
        duration=LONGEST,
    )  # fmt: skip
