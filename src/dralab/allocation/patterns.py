"""What a node, or a part of one, can serve of several kinds of claims at once.

A pattern is a vector with the number of pods of each kind. Only maximal patterns are listed,
because a part that can serve more can serve less. Equal parts have equal lists, which makes a whole
fleet a small problem (see `optimum`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dralab.allocation.inventory.plans import ClaimKind, Planner
from dralab.allocation.policy.ranking import NodeState
from dralab.allocation.search.backtracking import Effort
from dralab.allocation.search.counter_groups import (
    CounterGroupKey,
    GroupMember,
    Vector,
    maximal,
    served,
)
from dralab.allocation.search.node_devices import Consumption, bits

MOST_PATTERNS: Final = 2_000
MOST_STATES: Final = 50_000

Feasible = Callable[[Vector], bool | None]


class NodePart(NamedTuple):
    """Parts of a node that serve the same patterns, each on its own: their devices.

    None stands for the whole node.
    """

    patterns: tuple[Vector, ...]
    devices: tuple[int | None, ...]


def parts_of(
    state: NodeState,
    kinds: Sequence[ClaimKind],
    demand: Sequence[int],
    feasible: Feasible,
    effort: Effort,
) -> list[NodePart] | None:
    """Return the parts of a node and their patterns, None if they are too many to list.

    `demand` bounds how many of each kind are worth serving; `feasible` says whether the node can
    serve a vector, for kinds that are not of the usual form.
    """
    planners = [state.shape.planner(kind, effort.budget) for kind in kinds]
    if all(_usual(planner) for planner in planners):
        if all(planner.count <= 1 and not planner.kind.match for planner in planners):
            return cells(state, planners, demand, effort)
        if not any(planner.wanted & state.shape.node_devices.consuming for planner in planners):
            whole = _groups(state, planners, demand)
            if whole is not None:
                return [NodePart(whole, (None,))]
    found = _explored(demand, feasible)
    return None if found is None else [NodePart(found, (None,))]


def _usual(planner: Planner) -> bool:
    """Return whether a kind is one request for whole devices, or cannot be met here at all."""
    return planner.known is not None and (planner.single is not None or planner.impossible)


def cells(
    state: NodeState, planners: Sequence[Planner], demand: Sequence[int], effort: Effort
) -> list[NodePart] | None:
    """Return counter groups and single devices: they alone serve pods of one device each."""
    node_devices = state.shape.node_devices
    start = state.shape.state(state.pools)
    free = state.shape.visible & node_devices.fitting(start) & ~start.used
    masks = [0 if planner.impossible else planner.wanted for planner in planners]
    parts: dict[tuple[Vector, ...], list[int]] = {}
    for counter_group, remaining in enumerate(start.remaining):
        members = []
        for number in bits(free & node_devices.members[counter_group]):
            serves = tuple(kind for kind, mask in enumerate(masks) if mask >> number & 1)
            consumption = node_devices.consumptions[number]
            if serves and consumption is not None:
                members.append(
                    GroupMember(Consumption(0, consumption.amounts, consumption.groups), serves)
                )
        if members:
            caps = tuple(min(wanted, len(members)) for wanted in demand)
            table = served(
                CounterGroupKey(tuple(members), remaining, caps), effort.spend, MOST_STATES
            )
            if table is None:
                return None
            parts.setdefault(table, []).append(free & node_devices.members[counter_group])
    for number in bits(free & ~node_devices.consuming):
        serves = tuple(kind for kind, mask in enumerate(masks) if mask >> number & 1)
        if serves:
            table = tuple(_one(kind, len(planners)) for kind in serves)
            parts.setdefault(table, []).append(1 << number)
    return [NodePart(table, tuple(devices)) for table, devices in parts.items()]


def _groups(
    state: NodeState, planners: Sequence[Planner], demand: Sequence[int]
) -> tuple[Vector, ...] | None:
    """Return what plain devices can serve that differ only in one attribute's value.

    None if kinds want different devices, or common values of different attributes: then every
    vector is tried.
    """
    node_devices = state.shape.node_devices
    start = state.shape.state(state.pools)
    free = state.shape.visible & node_devices.fitting(start) & ~start.used
    able = [planner for planner in planners if not planner.impossible]
    if len({planner.wanted for planner in able}) > 1:
        return None
    groupings = {tuple(planner.groups) for planner in able if planner.kind.match}
    if len(groupings) > 1:
        return None
    union = able[0].wanted if able else 0
    groups = list(next(iter(groupings))) if groupings else [union]
    covered = 0
    for group in groups:
        if covered & group:
            # A device that belongs to two groups (a list of values) counts for either.
            return None
        covered |= group
    sizes = sorted((free & group).bit_count() for group in groups)
    apart = (free & union & ~covered).bit_count()
    matching = [kind for kind, planner in enumerate(planners) if planner.kind.match]
    others = [kind for kind in range(len(planners)) if kind not in matching]
    counts = [0 if planner.impossible else planner.count for planner in planners]
    # State: what the groups serve so far, and how many devices they leave for the others.
    reached: dict[Vector, int] = {(0,) * len(planners): apart}
    for size in sizes:
        following: dict[Vector, int] = {}
        for vector, spare in reached.items():
            for more, rest in _fillings(size, matching, counts, vector, demand):
                following[more] = max(following.get(more, -1), spare + rest)
        reached = following
        if len(reached) > MOST_PATTERNS:
            return None
    found: set[Vector] = set()
    for vector, spare in reached.items():
        found.update(more for more, _ in _fillings(spare, others, counts, vector, demand))
    return maximal(found)


def _fillings(
    size: int, kinds: Sequence[int], counts: Sequence[int], start: Vector, demand: Sequence[int]
) -> Iterator[tuple[Vector, int]]:
    """Yield what `size` devices can serve of some kinds on top of a vector, and what is left."""
    if not kinds:
        yield start, size
        return
    kind, *rest = kinds
    count = counts[kind]
    most = min(size // count, demand[kind] - start[kind]) if count else 0
    for number in range(most + 1):
        vector = (*start[:kind], start[kind] + number, *start[kind + 1 :])
        yield from _fillings(size - number * count, rest, counts, vector, demand)


def _explored(demand: Sequence[int], feasible: Feasible) -> tuple[Vector, ...] | None:
    """Return the maximal feasible vectors, by trying ever larger ones."""
    zero = (0,) * len(demand)
    reached, edge = {zero}, [zero]
    while edge:
        following = []
        for vector in edge:
            for kind, most in enumerate(demand):
                if vector[kind] >= most:
                    continue
                more = (*vector[:kind], vector[kind] + 1, *vector[kind + 1 :])
                if more in reached:
                    continue
                answer = feasible(more)
                if answer is None:
                    return None
                if answer:
                    reached.add(more)
                    following.append(more)
        if len(reached) > MOST_PATTERNS:
            return None
        edge = following
    return maximal(reached)


def _one(kind: int, kinds: int) -> Vector:
    return tuple(int(each == kind) for each in range(kinds))
