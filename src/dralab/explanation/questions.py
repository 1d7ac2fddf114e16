"""Questions to the allocator about a problem, or a changed form of it, on all nodes.

Nodes that are alike are asked once: a fleet of forty equal nodes has a serial number on every GPU,
no selector reads it, so all of them are one kind of device. The number of questions is limited:
what could not be settled is `None`, never a guess.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Final

from dralab.allocation.allocator import DEFAULT_BUDGET, allocate_on, numbered_shares
from dralab.allocation.facts import Excluded, Fact, RequestFacts
from dralab.allocation.outcome import Allocated, Unknown
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import DeviceId, InUse, Node, Problem
from dralab.explanation.alike_nodes import AlikeNodes, DeviceKind, groups_of, kinds_of
from dralab.explanation.conditions import (
    Condition,
    conditions_of,
    conflict,
    released,
    with_each,
    without,
)
from dralab.explanation.findings import findings
from dralab.explanation.likeness import Likeness, NodeClass, NodeViews, Uses
from dralab.values.records import dataclass

MOST_QUESTIONS: Final = 20_000
MOST_GROUPS: Final = 16
"""Groups of nodes that a remedy is looked for on; a conflict holds for all of them."""


class Allowance:
    """The budget of questions, shared by changed forms of a problem."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> bool:
        """Take one question; False where none is left."""
        self.left -= 1
        return self.left >= 0


class FleetQuestions:
    """Asks whether some node can serve a problem, and remembers the answers on its conditions."""

    def __init__(
        self,
        problem: Problem,
        nodes: Sequence[Node],
        *,
        catalog: SliceCatalog | None = None,
        budget: int = DEFAULT_BUDGET,
        questions: int = MOST_QUESTIONS,
        fleet: NodeViews | None = None,
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.allowance = Allowance(questions)
        self.likeness = Likeness(problem)
        self.uses = Uses(problem.in_use)
        self.fleet = fleet or NodeViews(
            nodes, catalog or SliceCatalog(problem.slices), problem.features
        )
        self.places = groups_of(self.fleet, self.likeness, self.uses)
        self.known: dict[tuple[int, frozenset[Condition]], bool | None] = {}
        self.unsettled = False
        self.error = ""

    def about(self, problem: Problem, questions: int | None = None) -> "FleetQuestions":
        """Return questions about a changed form of the problem on the same nodes.

        A form that reads more of the devices groups them anew. With `questions` it is another
        problem, which may ask so many.
        """
        found = self._about(problem)
        if questions is not None:
            found.allowance, found.unsettled = Allowance(questions), False
        return found

    def _about(self, problem: Problem) -> "FleetQuestions":
        if Likeness(problem).asks == self.likeness.asks:
            found = copy(self)
            found.problem, found.known, found.error = problem, {}, ""
            return found
        found = FleetQuestions(problem, (), budget=self.budget, fleet=self.fleet)
        found.allowance = self.allowance
        return found

    @cached_property
    def kinds(self) -> list[DeviceKind]:
        """All devices that the nodes can use, by what the claims read of them."""
        held = self.problem.in_use.holders.keys() | self.uses.held
        return kinds_of(self.fleet, self.likeness, held)

    @cached_property
    def node_of_held(self) -> dict[DeviceId, str]:
        """The held devices, each with a node that reaches it."""
        found: dict[DeviceId, str] = {}
        for place in self.places:
            for each in place.classes:
                for node, pools in zip(each.nodes, each.pools, strict=True):
                    for pool in pools:
                        for device in self.uses.holders_by_pool.get(pool, ()):
                            found.setdefault(device, node)
        return found

    @cached_property
    def emptied(self) -> list[AlikeNodes]:
        """The nodes as if every device were released: far more of them are alike."""
        return groups_of(self.fleet, self.likeness, Uses(InUse()))

    @cached_property
    def fails(self) -> bool:
        """Whether a selector has no answer for some device."""
        return self.likeness.has_errors()

    # --- the problem without some conditions

    def everywhere(self, dropped: Collection[Condition] = ()) -> bool | None:
        """Return whether some node can serve the problem without these conditions."""
        return self.among(dropped, self.places)

    def among(self, dropped: Collection[Condition], places: Sequence[AlikeNodes]) -> bool | None:
        """Return the same for some of the nodes."""
        gone = frozenset(dropped)
        relaxed = without(replace(self.problem, in_use=InUse()), gone)
        freed = {device for condition in gone for device in condition.devices}

        def answer(place: AlikeNodes) -> bool | None:
            key = (id(place), gone)
            if key not in self.known:
                self.known[key] = self._ask(relaxed, place, freed)
            return self.known[key]

        found = _first_yes(map(answer, places))
        self.unsettled = self.unsettled or found is None
        return found

    def conflict(self) -> tuple[tuple[Condition, ...] | None, list[AlikeNodes]]:
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

    # --- another form of the problem

    def serves(
        self,
        problem: Problem | None = None,
        *,
        empty: bool = False,
        freed: AbstractSet[DeviceId] = frozenset(),
        nodes: AbstractSet[str] = frozenset(),
    ) -> bool | None:
        """Return whether some node can serve a problem.

        `empty`: with every device released; `freed`: with these; `nodes`: only these are asked,
        each for itself.
        """
        asked, places = problem or self.problem, self.emptied if empty else self._near(nodes)
        return _first_yes(self._ask(asked, place, freed) for place in places)

    def servers(self, *, empty: bool = False) -> list[AlikeNodes]:
        """Return the nodes that can serve the problem; `empty`: with every device released."""
        places = self.emptied if empty else self.places
        return [place for place in places if self._ask(self.problem, place, frozenset())]

    def _near(self, nodes: AbstractSet[str]) -> Iterator[AlikeNodes]:
        if not nodes:
            yield from self.places
            return
        for name in sorted(nodes & self.fleet.order.keys()):
            view = self.fleet.view(name)
            yield AlikeNodes(
                [NodeClass(partial(self.fleet.view, name))], self.uses.on(view), [name]
            )

    def _ask(self, asked: Problem, place: AlikeNodes, freed: AbstractSet[DeviceId]) -> bool | None:
        if not freed and not place.shares and place.free < _least(asked) and not self.fails:
            return False  # without a question: it has not as many devices free
        if not self.allowance.take():
            return None
        here = replace(asked, in_use=released(place.in_use, freed))
        outcome = allocate_on(here, place.view, budget=self.budget, share_ids=numbered_shares())
        if isinstance(outcome, Allocated):
            return True
        if isinstance(outcome, Unknown):
            return None
        if not freed and asked.claims == self.problem.claims:
            self.error = self.error or outcome.error
        return False


def _first_yes(answers: Iterable[bool | None]) -> bool | None:
    """Return True at the first that is true; else None if one is unknown, else False."""
    found: bool | None = False
    for each in answers:
        if each is True:
            return True
        found = None if each is None else found
    return found


def _least(problem: Problem) -> int:
    """Return how many devices claims take at least; with admin access they take none."""
    counts = (
        [0 if each.admin or each.mode != "ExactCount" else each.count for each in r.subrequests]
        for claim in problem.claims
        for r in claim.requests
    )
    return sum(min(each, default=0) for each in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equivalent nodes for these claims, and the reasons against the claims there."""

    nodes: tuple[str, ...]
    facts: tuple[Fact, ...]


def node_groups(asking: FleetQuestions, *, empty: bool = False) -> tuple[NodeGroup, ...]:
    """Return the reasons against the claims on every group of nodes, the largest group first.

    `empty`: as if every device were released.
    """
    return tuple(
        sorted(
            (_group(asking, place) for place in (asking.emptied if empty else asking.places)),
            key=lambda group: (-len(group.nodes), group.nodes),
        )
    )


def _group(asking: FleetQuestions, place: AlikeNodes) -> NodeGroup:
    local = replace(asking.problem, in_use=place.in_use)
    return NodeGroup(
        nodes=tuple(place.names),
        facts=tuple(
            held_anywhere(fact, place, asking.likeness, asking.uses)
            for fact in findings(local, place.view).facts
        ),
    )


def held_anywhere(fact: Fact, place: AlikeNodes, likeness: Likeness, uses: Uses) -> Fact:
    """Return a fact of a node with the holders of its whole group."""
    if place.size == 1 or not isinstance(fact, RequestFacts):
        return fact
    return replace(
        fact,
        excluded=tuple(
            replace(item, holders=_holders(item, place, likeness, uses)) if item.holders else item
            for item in fact.excluded
        ),
    )


def _holders(item: Excluded, place: AlikeNodes, likeness: Likeness, uses: Uses) -> tuple[str, ...]:
    names = set(item.holders)
    held = place.held(likeness, uses)
    kinds = {kind for kind, holders in held[0] if names.intersection(holders)}
    for view in held[1:]:
        for kind, holders in view:
            if kind in kinds:
                names.update(holders)
    return tuple(sorted(names))


def largest_count(
    asking: FleetQuestions,
    problem: Problem,
    claim: str,
    request: str,
    below: int,
    *,
    empty: bool = False,
) -> int | None:
    """Return the largest count of a request, below one that is infeasible, that some node serves.

    0: not even one device is served; None: that could not be settled. `empty`: as if every device
    were released.
    """

    def counting(count: int) -> Problem:
        return with_each(
            problem,
            lambda of, each: (
                replace(each, count=count) if (str(of), each.name) == (claim, request) else each
            ),
        )

    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        served = asking.serves(counting(middle), empty=empty)
        if served is None:
            return None
        if served:
            low = middle
        else:
            high = middle
    return low
