"""`explain`: a proof that claims get no devices, on all nodes together.

Nodes that look the same (equal devices, equally used) are one group: they are asked once and told
as "12 nodes". The question whether less would be feasible goes to the allocator itself, within a
number of questions; what could not be settled within it is left open, never guessed. What a person
reads first, the cause and what helps, is `diagnose`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.facts import Excluded, Fact, RequestFacts
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Node, Problem
from dralab.explanation.conditions import Condition, conditions_of, remedies, with_each
from dralab.explanation.findings import findings
from dralab.explanation.likeness import Likeness, Uses
from dralab.explanation.questions import MOST_GROUPS, MOST_QUESTIONS, AlikeNodes, FleetQuestions


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
    """

    claims: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    conflict: tuple[Condition, ...] = ()
    weighed: tuple[str, ...] = ()
    remedies: tuple[tuple[Condition, ...], ...] = ()
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
    asking = FleetQuestions(problem, nodes, catalog=catalog, budget=budget, questions=questions)
    places = asking.places
    first = asking.everywhere()
    if first is True:
        return None
    claims = tuple(str(claim) for claim in problem.claims)
    groups = node_groups(asking)
    if first is None:
        return Explanation(claims=claims, groups=groups, settled=False)
    core, weighed = asking.conflict()
    conditions = conditions_of(problem, [place.view for place in places[:MOST_GROUPS]])
    found = remedies(conditions, lambda dropped: asking.among(dropped, places[:MOST_GROUPS]))
    return Explanation(
        claims=claims,
        groups=groups,
        conflict=core or (),
        weighed=tuple(place.view.node.name for place in weighed),
        remedies=found,
        error=asking.error,
        settled=bool(core) and bool(found) and not asking.unsettled,
    )


def node_groups(asking: FleetQuestions, *, empty: bool = False) -> tuple[NodeGroup, ...]:
    """Return what speaks against the claims on every group of nodes, the largest group first.

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
