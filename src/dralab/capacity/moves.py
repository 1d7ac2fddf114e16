"""The cheapest moves after which a waiting pod fits, in an order in which each step has room.

A move evicts a pod and lets it run elsewhere at once, with the devices that the allocator chooses
there. For a pod that ends up on node n, let V be the pods of n that a plan moves. As it never hurts
that pods leave, the pod fits on n without V: no plan is cheaper than the cheapest such V of any
node. Sets V are tried from the cheapest on. Where the pods of V find places, the plan is as cheap
as any. Where they do not, others make way for them (a chain), and in small clusters every
sequence of moves is tried. Sets that could not be excluded lower the bound; `bound` is proved in
any case.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import combinations, count
from typing import Final

from dralab.capacity.departures import Departure, Departures, Tries
from dralab.capacity.need import PodToPlace
from dralab.capacity.relocation import Move, Relocation
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement

# Sets of pods looked at, and places tried, for one waiting pod; and the longest chain.
SETS: Final = 3_000_000
TRIES: Final = 20_000
LONGEST_CHAIN: Final = 2
# Moves that are tried in every order where nothing else was found.
LONGEST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """Moves after which a pod fits, and its place; no plan at all costs less than `bound`.

    Without `placement` no moves were found; `impossible` says that there are none, `why` why the
    pod could not be tried.
    """

    pod: PodInfo
    moves: Sequence[Move] = ()
    placement: PodPlacement | None = None
    bound: int = 0
    impossible: bool = False
    why: str = ""

    @property
    def cost(self) -> int:
        """The cost of all moves."""
        return sum(move.cost for move in self.moves)

    @property
    def is_proved(self) -> bool:
        """Whether no plan is cheaper; if none was found, whether none exists."""
        return self.impossible if self.placement is None else self.bound >= self.cost


def clear_for(
    departures: Departures,
    pod: PodInfo,
    *,
    most: int | None = None,
    sets: int = SETS,
    tries: int = TRIES,
) -> Clearing:
    """Return the cheapest moves for a waiting pod, of at most so many; none if it fits already.

    The model is left as it was. `sets` and `tries` bound the effort; beyond it the result is the
    best that was found, and `bound` tells how good that is.
    """
    model = departures.model
    found = model.find_place(pod)
    if found is not None:
        return Clearing(pod=pod, placement=found)
    demand = model.state.demands.demand_of(pod)
    held = model.held_back(pod)
    if held is not None or isinstance(demand, BlockedPod):
        blocked = demand.reason if isinstance(demand, BlockedPod) else held
        return Clearing(pod=pod, impossible=True, why=str(blocked))
    need = PodToPlace(model, pod, demand)
    cleared = _MoveSearch(departures, need, most, Tries(sets), Tries(tries)).run()
    if cleared.is_proved:
        return cleared
    return _settled(Relocation(departures, need, Tries(tries)), cleared, most)


def _settled(relocation: Relocation, cleared: Clearing, most: int | None) -> Clearing:
    """Return the result after trying everything that would be cheaper, if that can be done."""
    least = relocation.costs.least
    limit = cleared.cost
    if cleared.placement is None:
        limit = ((LONGEST if most is None else most) + 1) * least
    better, bound = cheaper(relocation, max(cleared.bound, least), limit)
    if better is None:
        return replace(cleared, bound=max(cleared.bound, bound))
    moves, placement = better
    cost = sum(move.cost for move in moves)
    return Clearing(pod=cleared.pod, moves=moves, placement=placement, bound=min(bound, cost))


@dataclass(order=True, slots=True)
class _Candidate:
    """Something to try on a node, and what it costs at least.

    Without a departure its sets were not looked at yet; in a chain others move as well.
    """

    cost: int
    tie: tuple[int, int]
    number: int
    row: int = field(compare=False)
    departure: Departure | None = field(compare=False, default=None)
    chain: bool = field(compare=False, default=False)


class _MoveSearch:
    """The search for one pod."""

    def __init__(
        self, departures: Departures, need: PodToPlace, most: int | None, sets: Tries, tries: Tries
    ) -> None:
        self.departures = departures
        self.model = departures.model
        self.costs = departures.costs
        self.need = need
        self.most = most
        self.sets = sets
        self.tries = tries
        self.relocation = Relocation(departures, need, tries)
        # With little effort the likeliest sets come first, else those of the least important pods.
        self.in_haste = sets.left < SETS
        self._heap: list[_Candidate] = []
        self._numbers = count()
        self._sets: dict[int, Iterator[Departure]] = {}
        self._useful: set[int] = set()
        self.skipped = False

    def run(self) -> Clearing:
        """Try what is cheapest until something works."""
        for row in self.need.rows():
            self._start(row)
        unsettled: int | None = None  # the least cost of what could not be excluded
        while self._heap:
            each = heappop(self._heap)
            if self.sets.exhausted:
                return self._nothing(each.cost if unsettled is None else unsettled)
            if each.departure is None:
                self._push_next(each.row)
                continue
            cost, _, pods = each.departure
            if each.chain:
                moves = self.relocation.chained(each.row, pods, each.cost - cost)
            elif self.need.met_without(each.row, pods) is False:
                if self._is_useful(each.row):
                    self._push_next(each.row)
                continue
            else:
                self._useful.add(each.row)
                self._push_next(each.row)
                moves = self._direct(each.row, pods)
            if moves is not None:
                return self._found(each.row, moves, unsettled)
            if unsettled is None and (each.chain or self.tries.exhausted or self.skipped):
                unsettled = each.cost
            self._lengthen(each, each.departure)
        if not (self._useful or self.need.by_pods or self.sets.exhausted or self.most == 0):
            return Clearing(pod=self.need.pod, impossible=True)
        return self._nothing(unsettled)

    def _direct(self, row: int, pods: Sequence[PodPlacement]) -> list[Move] | None:
        if not self.in_haste:
            return self.relocation.direct(row, pods)
        kinds = [self.relocation.kind_of(each) for each in pods]
        if not self.departures.stuck.isdisjoint(kinds):
            self.skipped = True
            return None
        moves = self.relocation.direct(row, pods)
        if moves is None and len(pods) == 1:
            self.departures.stuck.update(kinds)
        return moves

    def _nothing(self, unsettled: int | None) -> Clearing:
        least = self.costs.least
        if self.need.by_pods:
            return Clearing(pod=self.need.pod, bound=least)
        # All plans within the allowed number of moves were excluded, except unsettled ones.
        excluded = least if self.most is None else (self.most + 1) * least
        return Clearing(pod=self.need.pod, bound=excluded if unsettled is None else unsettled)

    def _found(self, row: int, moves: list[Move], unsettled: int | None) -> Clearing:
        cost = sum(move.cost for move in moves)
        with self.model.tentatively():
            for move in moves:
                self.model.take_away(move.pod.uid)
                self.model.place(move.placement)
            placement = self.need.placement_on(row)
        bound = cost if unsettled is None else min(unsettled, cost)
        if self.need.by_pods:
            bound = min(bound, self.costs.least)
        return Clearing(pod=self.need.pod, moves=moves, placement=placement, bound=bound)

    def _start(self, row: int) -> None:
        least = self.departures.least(self.need, row)
        if least is None:
            return
        if self.most is not None and least > self.most:
            self._useful.add(row)  # with more moves it might do
            return
        self._sets[row] = self.departures.sets(self.need, row, self.most, least, self.sets)
        cost = least * self.costs.least
        tie = (0, 0) if not self.in_haste else (self.need.lacking(row), 0)
        heappush(self._heap, _Candidate(cost, tie, next(self._numbers), row))

    def _push_next(self, row: int) -> None:
        """Queue the next set of a node."""
        departure = next(self._sets[row], None)
        if departure is None:
            return
        importance = departure.importance
        tie = (self.need.lacking(row), importance) if self.in_haste else (importance, 0)
        number = next(self._numbers)
        heappush(self._heap, _Candidate(departure.cost, tie, number, row, departure))

    def _is_useful(self, row: int) -> bool:
        """Return whether the pod would fit on a node without all pods that may leave it."""
        if row not in self._useful:
            if self.need.met_without(row, self.departures.pods(row)) is False:
                return False
            self._useful.add(row)
        return True

    def _lengthen(self, each: _Candidate, departure: Departure) -> None:
        """Queue a set again, with moves of other pods allowed."""
        cost = each.cost + self.costs.least
        longer = (cost - departure.cost) // self.costs.least
        room = self.most is None or len(departure.pods) + longer <= self.most
        if longer <= LONGEST_CHAIN and room and not self.tries.exhausted:
            number = next(self._numbers)
            heappush(self._heap, replace(each, cost=cost, number=number, chain=True))


# --- every sequence of moves, depth first by rising cost, in clusters that are small enough

# Beyond so many pods times nodes nothing is tried.
SMALL: Final = 3_000
Plan = tuple[list[Move], PodPlacement]


def cheaper(relocation: Relocation, start: int, below: int) -> tuple[Plan | None, int]:
    """Return the cheapest plan that costs at least `start` and less than `below`, and the bound.

    The bound is the least cost that was not excluded; `below` if there is no cheaper plan.
    """
    model = relocation.model
    if len(model.running) * model.state.table.count > SMALL:
        return None, start
    for cost in range(start, below):
        found = _Exhaustion(relocation).within(cost, "")
        if found is not None:
            return found, cost
        if relocation.tries.exhausted:
            return None, cost
    return None, below


class _Exhaustion:
    def __init__(self, relocation: Relocation) -> None:
        self.relocation = relocation
        self.model = relocation.model
        self.costs = relocation.costs
        self.need: PodToPlace = relocation.need

    def within(self, left: int, last: str) -> Plan | None:
        """Return moves that cost at most what is left; `last` moved just before."""
        found = self.model.find_place(self.need.pod)
        if found is not None:
            return [], found
        if left < self.costs.least or not self._is_possible(left):
            return None
        for each in self.model.in_order(self.model.running.values()):
            uid = each.pod.uid
            if uid == last or uid in self.costs.refused or self.costs.of(each.pod) > left:
                continue
            for placement in self.relocation.targets(each):
                with self.model.tentatively():
                    move = self.relocation.do(each, placement, self.need.pod.key)
                    rest = self.within(left - move.cost, uid)
                if rest is not None:
                    return [move, *rest[0]], rest[1]
                if self.relocation.tries.exhausted:
                    return None
        return None

    def _is_possible(self, left: int) -> bool:
        """Return whether the pod fits somewhere once pods of that cost have left."""
        if self.need.by_pods:
            return True
        for row in self.need.rows():
            pods = self.relocation.departures.pods(row)
            for size in range(1, min(len(pods), left // self.costs.least) + 1):
                for leaving in combinations(pods, size):
                    cost = sum(self.costs.of(each.pod) for each in leaving)
                    if cost <= left and self.need.met_without(row, leaving) is not False:
                        return True
        return False
