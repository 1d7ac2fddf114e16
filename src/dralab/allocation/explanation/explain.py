"""`explain`: why claims get no devices, on all nodes together.

Nodes that look the same (equal devices, equally used) are one group: they are asked once and told
as "12 nodes". The question whether less would be feasible goes to the allocator itself, within a
number of questions; what could not be settled within it is left open, never guessed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from dralab.allocation.allocator import DEFAULT_BUDGET, allocate_on, numbered_shares
from dralab.allocation.explanation.conditions import (
    Condition,
    conditions_of,
    released,
    without,
)
from dralab.allocation.explanation.findings import findings
from dralab.allocation.explanation.minimal_conflict import conflict, remedies
from dralab.allocation.facts import Excluded, Fact, RequestFacts
from dralab.allocation.outcome import Allocated, Unknown
from dralab.allocation.pools import Offer, PoolView, SliceCatalog
from dralab.allocation.problem import DeviceId, InUse, Node, Problem

MOST_QUESTIONS: Final = 20_000
MOST_GROUPS: Final = 16
"""Groups of nodes that a remedy is looked for on; a conflict holds for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that are alike for these claims, and what speaks against them there."""

    nodes: tuple[str, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why claims cannot be allocated.

    `conflict` are conditions that alone are infeasible on every node, and without any one of
    which they are feasible on some node. Each of `remedies` is a set of conditions without which
    all of the claims are feasible, and which cannot be smaller. Both are empty where they could
    not be settled within the number of questions (`settled` is False then). What is in use or
    tainted is a condition on the nodes `weighed`; on the others it is taken as given.
    `fits` tells, for a remedy of one count, how many devices there are.
    """

    claims: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    conflict: tuple[Condition, ...] = ()
    weighed: tuple[str, ...] = ()
    remedies: tuple[tuple[Condition, ...], ...] = ()
    fits: Mapping[Condition, int]
    error: str = ""
    settled: bool = True

    @property
    def nodes(self) -> int:
        """How many nodes were asked."""
        return sum(len(group.nodes) for group in self.groups)


def explain(
    problem: Problem,
    nodes: Sequence[Node],
    *,
    budget: int = DEFAULT_BUDGET,
    questions: int = MOST_QUESTIONS,
    catalog: SliceCatalog | None = None,
) -> Explanation | None:
    """Return why no node can serve the claims of a problem, None where one can.

    `budget` limits the steps of each question to the allocator, `questions` their number.
    """
    catalog = catalog or SliceCatalog(problem.slices)
    uses = _Uses(problem.in_use)
    alike: dict[object, list[PoolView]] = {}
    for node in nodes:
        view = catalog.view(node, problem.features)
        alike.setdefault(_looks(view, uses), []).append(view)
    # Nodes with more to offer first: a "yes" is found sooner.
    places = sorted(
        (_AlikeNodes(views, uses.on(views[0])) for views in alike.values()),
        key=lambda place: -place.free,
    )
    asking = _FeasibilityQuestions(problem, places, budget, questions)
    first = asking.everywhere(())
    if first is True:
        return None
    claims = tuple(str(claim) for claim in problem.claims)
    groups = tuple(
        sorted(
            (_group(problem, place) for place in places),
            key=lambda group: (-len(group.nodes), group.nodes),
        )
    )
    if first is None:
        return Explanation(claims=claims, groups=groups, fits={}, settled=False)
    core, weighed = asking.conflict()
    conditions = conditions_of(problem, [place.view for place in places[:MOST_GROUPS]])
    found = remedies(conditions, lambda dropped: asking.among(dropped, places[:MOST_GROUPS]))
    return Explanation(
        claims=claims,
        groups=groups,
        conflict=core or (),
        weighed=tuple(place.view.node.name for place in weighed),
        remedies=found,
        fits=_fits(problem, found, asking),
        error=asking.error,
        settled=bool(core) and bool(found) and not asking.unsettled,
    )


class _AlikeNodes:
    """Nodes that are alike, one of which is asked for all; `in_use` is what matters on that one."""

    def __init__(self, views: list[PoolView], in_use: InUse) -> None:
        self.views = views
        self.view = views[0]
        self.in_use = in_use
        self.free = sum(
            offer.here and offer.id not in in_use.exclusive for offer in self.view.offers()
        )


class _FeasibilityQuestions:
    """Asks the allocator about the problem without some conditions, and remembers the answers."""

    def __init__(
        self, problem: Problem, places: Sequence[_AlikeNodes], budget: int, questions: int
    ) -> None:
        self.problem = problem
        self.places = places
        self.budget = budget
        self.questions = questions
        self.known: dict[tuple[int, frozenset[Condition]], bool | None] = {}
        self.unsettled = False
        self.error = ""

    def everywhere(self, dropped: Collection[Condition]) -> bool | None:
        """Return whether some node can serve the problem without these conditions."""
        return self.among(dropped, self.places)

    def among(self, dropped: Collection[Condition], places: Sequence[_AlikeNodes]) -> bool | None:
        """Return the same for some of the nodes."""
        gone = frozenset(dropped)
        relaxed = without(replace(self.problem, in_use=InUse()), gone)
        freed = {device for condition in gone for device in condition.devices}
        answer: bool | None = False
        for place in places:
            key = (id(place), gone)
            if key not in self.known:
                self.known[key] = self._ask(relaxed, place, freed)
            found = self.known[key]
            if found is True:
                return True
            answer = None if found is None else answer
        self.unsettled = self.unsettled or answer is None
        return answer

    def conflict(self) -> tuple[tuple[Condition, ...] | None, list[_AlikeNodes]]:
        """Return a minimal conflict of all nodes, and the nodes whose conditions were weighed.

        It is looked for on a few nodes and then put to all others; one that could serve what is
        in conflict joins the few. What can be left out on the few can be left out on all.
        """
        few = list(self.places[:MOST_GROUPS])
        while True:
            conditions = conditions_of(self.problem, [place.view for place in few])
            core = conflict(conditions, partial(self.among, places=tuple(few)))
            if core is None:
                return None, few
            kept = set(core)
            dropped = [item for item in conditions if item not in kept]
            answers = (
                (place, self.among(dropped, [place])) for place in self.places if place not in few
            )
            others = list(islice((each for each in answers if each[1] is not False), MOST_GROUPS))
            if not others:
                return core, few
            if any(answer is None for _, answer in others):
                return None, few
            few += [place for place, _ in others]

    def serves(self, problem: Problem) -> bool:
        """Return whether some node can serve another form of the problem, in use as it is."""
        return any(self._ask(problem, place, set()) is True for place in self.places)

    def _ask(self, relaxed: Problem, place: _AlikeNodes, freed: set[DeviceId]) -> bool | None:
        if self.questions <= 0:
            return None
        self.questions -= 1
        asked = replace(relaxed, in_use=released(place.in_use, freed))
        outcome = allocate_on(asked, place.view, budget=self.budget, share_ids=numbered_shares())
        if isinstance(outcome, Allocated):
            return True
        if isinstance(outcome, Unknown):
            return None
        if not freed and relaxed.claims == self.problem.claims:
            self.error = self.error or outcome.error
        return False


def _group(problem: Problem, place: _AlikeNodes) -> NodeGroup:
    local = replace(problem, in_use=place.in_use)
    return NodeGroup(
        nodes=tuple(view.node.name for view in place.views),
        facts=tuple(
            _held_anywhere(fact, place.views, problem.in_use)
            for fact in findings(local, place.view).facts
        ),
    )


def _held_anywhere(fact: Fact, views: Sequence[PoolView], in_use: InUse) -> Fact:
    """Add who holds the same devices on the other nodes of a group."""
    if len(views) == 1 or not isinstance(fact, RequestFacts):
        return fact
    offers = [view.offers() for view in views]
    return replace(
        fact,
        excluded=tuple(
            replace(item, holders=_holders(item, offers, in_use)) if item.holders else item
            for item in fact.excluded
        ),
    )


def _holders(item: Excluded, offers: Sequence[Sequence[Offer]], in_use: InUse) -> tuple[str, ...]:
    names = set(item.holders)
    for number, offer in enumerate(offers[0]):
        if names.intersection(in_use.holders.get(offer.id, ())):
            for other in offers[1:]:
                names.update(in_use.holders.get(other[number].id, ()))
    return tuple(sorted(names))


def _fits(
    problem: Problem, found: Sequence[Sequence[Condition]], asking: _FeasibilityQuestions
) -> dict[Condition, int]:
    """Find, for each remedy that is one count, the largest number that there is."""
    fits: dict[Condition, int] = {}
    for remedy in found:
        if len(remedy) != 1 or remedy[0].kind != "count":
            continue
        condition = remedy[0]
        low, high = 1, condition.number
        while high - low > 1:
            middle = (low + high) // 2
            if asking.serves(_counting(problem, condition, middle)):
                low = middle
            else:
                high = middle
        fits[condition] = low
    return fits


def _counting(problem: Problem, condition: Condition, count: int) -> Problem:
    return replace(
        problem,
        claims=tuple(
            replace(
                claim,
                requests=tuple(
                    replace(
                        request,
                        subrequests=tuple(
                            replace(each, count=count)
                            if (str(claim), each.name) == (condition.claim, condition.request)
                            else each
                            for each in request.subrequests
                        ),
                    )
                    for request in claim.requests
                ),
            )
            for claim in problem.claims
        ),
    )


def _looks(view: PoolView, uses: "_Uses") -> object:
    """Return what a node looks like to any claim: equal looks, equal answers.

    Pools that repeat share their `Device` objects, so identities compare contents. A pool that
    several nodes see is itself part of the look.
    """
    return tuple(
        (
            pool.driver,
            pool.unusable,
            tuple((id(offer.device), offer.here, uses.use_of(offer.id)) for offer in pool.offers),
            tuple(
                (name, tuple(sorted(counters.items())))
                for name, counters in sorted(pool.counter_sets.items())
            ),
            # Devices elsewhere draw on the same counters: such a pool is like no other.
            pool.id if len(pool.consuming) != len(pool.offers) else None,
        )
        for pool in view.pools
    ) + tuple((item.driver, item.why) for item in view.unusable)


class _Uses:
    """What is in use, found by pool: a node needs a few of thousands."""

    def __init__(self, in_use: InUse) -> None:
        self.in_use = in_use
        self.held = in_use.devices()
        self.by_pool: dict[tuple[str, str], set[DeviceId]] = {}
        for device in self.held:
            self.by_pool.setdefault((device.driver, device.pool), set()).add(device)

    def use_of(self, device: DeviceId) -> object:
        """Return how a device is used, whoever uses it."""
        if device not in self.held:
            return None
        if device in self.in_use.exclusive:
            return True
        return tuple(sorted(self.in_use.consumed.get(device, {}).items()))

    def on(self, view: PoolView) -> InUse:
        """Return what is in use of the pools of a node."""
        mine = {device for pool in view.pools for device in self.by_pool.get(pool.id, ())}
        return InUse(
            exclusive=frozenset(mine & self.in_use.exclusive),
            shares=frozenset(share for share in self.in_use.shares if share.device in mine),
            consumed={
                device: self.in_use.consumed[device]
                for device in mine
                if device in self.in_use.consumed
            },
            holders={
                device: self.in_use.holders[device]
                for device in mine
                if device in self.in_use.holders
            },
        )
