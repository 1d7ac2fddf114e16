"""`explain`: why claims get no devices, on all nodes together.

Nodes that look the same (equal devices, equally used) are one group: they are asked once and told
as "12 nodes". The question whether less would be feasible goes to the allocator itself, within a
number of questions; what could not be settled within it is left open, never guessed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dralab.allocation.allocator import DEFAULT_BUDGET, allocate_on, numbered_shares
from dralab.allocation.explanation.conditions import Condition, conditions_of, without
from dralab.allocation.explanation.findings import findings
from dralab.allocation.explanation.reduction import conflict, remedies
from dralab.allocation.facts import Excluded, Fact, RequestFacts
from dralab.allocation.outcome import Allocated, Unknown
from dralab.allocation.pools import Catalog, Offer, View
from dralab.allocation.problem import DeviceId, InUse, Node, Problem

MOST_QUESTIONS: Final = 3000
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
    not be settled within the number of questions (`settled` is False then).
    `fits` tells, for a remedy of one count, how many devices there are.
    """

    claims: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    conflict: tuple[Condition, ...] = ()
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
    catalog: Catalog | None = None,
) -> Explanation | None:
    """Return why no node can serve the claims of a problem, None where one can.

    `budget` limits the steps of each question to the allocator, `questions` their number.
    """
    catalog = catalog or Catalog(problem.slices)
    alike: dict[object, list[View]] = {}
    for node in nodes:
        view = catalog.view(node, problem.features)
        alike.setdefault(_looks(view, problem.in_use), []).append(view)
    asking = _Asking(problem, [views[0] for views in alike.values()], budget, questions)
    first = asking.feasible(())
    if first is True:
        return None
    groups = [
        NodeGroup(
            nodes=tuple(view.node.name for view in views),
            facts=tuple(
                _held_anywhere(fact, views, problem.in_use)
                for fact in findings(problem, views[0]).facts
            ),
        )
        for views in alike.values()
    ]
    groups.sort(key=lambda group: (-len(group.nodes), group.nodes))
    claims = tuple(str(claim) for claim in problem.claims)
    if first is None:
        return Explanation(claims=claims, groups=tuple(groups), fits={}, settled=False)
    conditions = conditions_of(problem, asking.views[:MOST_GROUPS])
    core = conflict(conditions, asking.feasible)
    found = remedies(conditions, asking.feasible_on_some)
    return Explanation(
        claims=claims,
        groups=tuple(groups),
        conflict=core or (),
        remedies=found,
        fits=_fits(problem, found, asking),
        error=asking.error,
        settled=bool(core) and bool(found) and not asking.unsettled,
    )


def _held_anywhere(fact: Fact, views: Sequence[View], in_use: InUse) -> Fact:
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


class _Asking:
    """Asks the allocator about the problem without some conditions, and remembers the answers."""

    def __init__(self, problem: Problem, views: list[View], budget: int, questions: int) -> None:
        self.problem = problem
        # Nodes with more to offer first: a "yes" is found sooner.
        self.views = sorted(views, key=lambda view: -len(view.offers()))
        self.budget = budget
        self.questions = questions
        self.known: dict[frozenset[Condition], bool | None] = {}
        self.unsettled = False
        self.error = ""

    def feasible(self, dropped: Collection[Condition]) -> bool | None:
        """Return whether some node can serve the problem without these conditions."""
        return self._ask(dropped, self.views)

    def feasible_on_some(self, dropped: Collection[Condition]) -> bool | None:
        """Return the same, looking only at the nodes with most to offer."""
        return self._ask(dropped, self.views[:MOST_GROUPS])

    def _ask(self, dropped: Collection[Condition], views: Sequence[View]) -> bool | None:
        key = frozenset(dropped)
        if key in self.known:
            return self.known[key]
        relaxed = without(self.problem, key)
        answer = self._first_yes(relaxed, views)
        if len(views) == len(self.views) or answer is not False:
            self.known[key] = answer
        self.unsettled = self.unsettled or answer is None
        return answer

    def _first_yes(self, relaxed: Problem, views: Sequence[View]) -> bool | None:
        answer: bool | None = False
        for view in views:
            if self.questions <= 0:
                return None
            self.questions -= 1
            outcome = allocate_on(relaxed, view, budget=self.budget, share_ids=numbered_shares())
            if isinstance(outcome, Allocated):
                return True
            if isinstance(outcome, Unknown):
                answer = None
            elif relaxed is self.problem:
                self.error = self.error or outcome.error
        return answer


def _fits(
    problem: Problem, found: Sequence[Sequence[Condition]], asking: _Asking
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
            if asking._first_yes(_counting(problem, condition, middle), asking.views) is True:  # noqa: SLF001 - the same module
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
                        alternatives=tuple(
                            replace(each, count=count)
                            if (str(claim), each.name) == (condition.claim, condition.request)
                            else each
                            for each in request.alternatives
                        ),
                    )
                    for request in claim.requests
                ),
            )
            for claim in problem.claims
        ),
    )


def _looks(view: View, in_use: InUse) -> object:
    """Return what a node looks like to any claim: equal looks, equal answers.

    Pools that repeat share their `Device` objects, so identities compare contents. A pool that
    several nodes see is itself part of the look.
    """
    used: Callable[[DeviceId], object] = _Uses(in_use).of
    return tuple(
        (
            pool.driver,
            pool.unusable,
            tuple((id(offer.device), offer.here, used(offer.id)) for offer in pool.offers),
            tuple(
                (name, tuple(sorted(counters.items())))
                for name, counters in sorted(pool.counter_sets.items())
            ),
            # Devices elsewhere draw on the same counters: such a pool is like no other.
            pool.id if len(pool.drawing) != len(pool.offers) else None,
        )
        for pool in view.pools
    ) + tuple((item.driver, item.why) for item in view.unusable)


class _Uses:
    def __init__(self, in_use: InUse) -> None:
        self.in_use = in_use
        self.held = in_use.devices()

    def of(self, device: DeviceId) -> object:
        """Return how a device is used, whoever uses it."""
        if device not in self.held:
            return None
        if device in self.in_use.exclusive:
            return True
        return tuple(sorted(self.in_use.consumed.get(device, {}).items()))
