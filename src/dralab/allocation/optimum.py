"""The optimal allocation of a batch of pods on a fleet, and a bound that proves it.

Nodes in equal states are interchangeable, and so are pods with equal requests. The unknowns are
therefore how many parts of each kind serve which pattern: a few hundred integers, solved by
OR-Tools CP-SAT (the extra `optimal`), instead of millions of variables for pairs of
pods and nodes. Pods are assigned to patterns afterwards. Effort is CP-SAT's deterministic time, so
results are reproducible.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.inventory.plans import ClaimKind
from dralab.allocation.patterns import NodePart, parts_of
from dralab.allocation.policy.ranking import NodeState
from dralab.allocation.search.backtracking import BudgetError, Effort
from dralab.allocation.search.counter_groups import Vector
from dralab.allocation.search.reduction import solve
from dralab.allocation.serving_bound import solved
from dralab.kernel.extras import require
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

EFFORT: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """What became of a batch: per pod its placement, or None.

    `value` is the worth of the pods that were served; no allocation of the batch is worth more
    than `bound`. `apart` are nodes that could not take part, because pools there are in
    transition, belong to several nodes, or have too many patterns: the bound leaves them out.
    """

    placements: tuple[DevicePlacement | None, ...]
    value: float
    bound: float
    apart: int = 0

    @property
    def served(self) -> int:
        """How many pods have a placement."""
        return sum(each is not None for each in self.placements)


def allocate_batch(
    fleet: Fleet,
    pods: Sequence[Sequence[JsonObject]],
    *,
    worth: Sequence[int] | None = None,
) -> Optimum:
    """Serve as much of a batch as possible, and mark it as in use in the fleet.

    `pods` are the claims of each pod, `worth` what serving each is worth (1 by default, equal for
    pods that ask alike). MissingExtraError without OR-Tools.
    """
    batch = _Batch(fleet, pods, worth)
    classes, apart = batch.classes()
    chosen, bound = _solved(batch, classes)
    placements = batch.handed_out(classes, chosen)
    value = sum(
        batch.worth[batch.kind_of[number]]
        for number, placed in enumerate(placements)
        if placed is not None
    )
    return Optimum(placements=tuple(placements), value=value, bound=bound, apart=apart)


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """Equal parts of nodes: what each can serve, and where they are (node, devices)."""

    patterns: tuple[Vector, ...]
    parts: list[tuple[int, int | None]]
    fresh: bool


class _Batch:
    def __init__(
        self, fleet: Fleet, pods: Sequence[Sequence[JsonObject]], worth: Sequence[int] | None
    ) -> None:
        self.fleet = fleet
        self.pods = pods
        numbers: dict[ClaimKind, int] = {}
        self.kind_of: list[int] = []
        self.worth: list[int] = []
        self.waiting: list[list[int]] = []
        for number, claims in enumerate(pods):
            kind = fleet.kind(claims)
            place = numbers.setdefault(kind, len(numbers))
            if place == len(self.waiting):
                self.waiting.append([])
                self.worth.append(1 if worth is None else worth[number])
            self.waiting[place].append(number)
            self.kind_of.append(place)
        self.kinds = list(numbers)
        self.demand = [
            0 if kind.refused else len(waiting)
            for kind, waiting in zip(self.kinds, self.waiting, strict=True)
        ]
        self.sizes = [
            sum(request[0].count for claim in kind.alternatives for request in claim)
            for kind in self.kinds
        ]

    def classes(self) -> tuple[list[_Class], int]:
        """Sort all parts of all nodes into classes; count the nodes that cannot take part."""
        fleet = self.fleet
        states: dict[NodeState, list[int]] = {}
        apart = 0
        for number in range(len(fleet.nodes)):
            state = fleet.node_state(number)
            if state is None or not fleet.alone(number):
                apart += 1
            else:
                states.setdefault(state, []).append(number)
        classes: dict[tuple[tuple[Vector, ...], bool], _Class] = {}
        for state, nodes in states.items():
            effort = Effort(fleet.budget)
            try:
                feasible = partial(self.feasible, state)
                parts = parts_of(state, self.kinds, self.demand, feasible, effort)
            except BudgetError:
                parts = None
            if parts is None:
                apart += len(nodes)
                continue
            fresh = all(pool is pool.shape.empty for pool in state.pools)
            for part in parts:
                self._add(classes, part, nodes, fresh=fresh)
        return list(classes.values()), apart

    @staticmethod
    def _add(
        classes: dict[tuple[tuple[Vector, ...], bool], _Class],
        part: NodePart,
        nodes: Sequence[int],
        *,
        fresh: bool,
    ) -> None:
        patterns = tuple(each for each in part.patterns if any(each))
        if not patterns:
            return
        key = patterns, fresh
        found = classes.get(key)
        if found is None:
            found = classes[key] = _Class(patterns, [], fresh)
        found.parts.extend((node, devices) for node in nodes for devices in part.devices)

    def feasible(self, state: NodeState, vector: Vector) -> bool | None:
        """Return whether a node can serve so many pods of each kind at once."""
        claims = [
            claim
            for kind, count in zip(self.kinds, vector, strict=True)
            for claim in kind.claims * count
        ]
        kind = ClaimKind(claims, self.fleet.classes, self.fleet.features)
        planner = state.shape.planner(kind, self.fleet.budget)
        if kind.refused or planner.impossible or kind.some_all:
            return False
        setup = planner.setup(state.shape.state(state.pools), {})
        del state.shape.planners[kind]
        try:
            return solve(setup, Effort(self.fleet.budget)) is not None
        except BudgetError:
            return None

    def handed_out(
        self, classes: Sequence[_Class], chosen: Sequence[Sequence[int]]
    ) -> list[DevicePlacement | None]:
        """Give pods to the nodes whose parts serve their patterns."""
        rest = [list(reversed(waiting)) for waiting in self.waiting]
        placements: list[DevicePlacement | None] = [None] * len(self.pods)
        for each, counts in zip(classes, chosen, strict=True):
            parts = iter(each.parts)
            for pattern, count in zip(each.patterns, counts, strict=True):
                for _ in range(count):
                    node, devices = next(parts)
                    pods = [
                        rest[kind].pop()
                        for kind, most in enumerate(pattern)
                        for _ in range(min(most, len(rest[kind])))
                    ]
                    if pods:
                        self._serve(node, devices, pods, placements)
        return placements

    def _serve(
        self,
        node: int,
        devices: int | None,
        numbers: list[int],
        placements: list[DevicePlacement | None],
    ) -> None:
        """Allocate all pods of one part together, so that none takes what another one needs."""
        # Those that want most come first: then going straight ahead nearly always works.
        numbers.sort(key=self._order)
        claims = [claim for number in numbers for claim in self.pods[number]]
        placed = self.fleet.allocate_within(node, claims, devices)
        if placed is None:
            return
        at = 0
        for number in numbers:
            count = len(self.pods[number])
            placements[number] = DevicePlacement(placed.node, placed.allocations[at : at + count])
            at += count

    def _order(self, number: int) -> tuple[int, int, int, int]:
        kind = self.kind_of[number]
        return -self.worth[kind], -self.sizes[kind], kind, number


def _solved(batch: _Batch, classes: Sequence[_Class]) -> tuple[list[list[int]], float]:
    """Return how many parts of each class serve each of its patterns, and the bound."""
    require("optimal", "an optimum")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    served = [
        model.new_int_var(0, most, f"served {kind}") for kind, most in enumerate(batch.demand)
    ]
    supply: list[list[Any]] = [[] for _ in served]
    counts: list[list[Any]] = []
    opened: list[Any] = []
    for number, each in enumerate(classes):
        mine = [
            model.new_int_var(0, len(each.parts), f"class {number} pattern {place}")
            for place in range(len(each.patterns))
        ]
        model.add(sum(mine) <= len(each.parts))
        for pattern, count in zip(each.patterns, mine, strict=True):
            for kind, most in enumerate(pattern):
                if most:
                    supply[kind].append(most * count)
        if each.fresh:
            opened += mine
        counts.append(mine)
    for kind, alternatives in enumerate(supply):
        model.add(served[kind] <= sum(alternatives))
    # Serving more always outweighs leaving parts untouched.
    scale = 1 + sum(len(each.parts) for each in classes)
    value = sum(worth * count for worth, count in zip(batch.worth, served, strict=True))
    model.maximize(scale * value - sum(opened))
    solver = solved(model, EFFORT)
    if solver is None:
        everything = sum(
            worth * most for worth, most in zip(batch.worth, batch.demand, strict=True)
        )
        return [[0] * len(mine) for mine in counts], float(everything)
    # The objective is whole apart from what opening costs, which is less than one unit of value.
    bound = float(int((solver.best_objective_bound + scale - 1) // scale))
    chosen = [[int(solver.value(count)) for count in mine] for mine in counts]
    return chosen, bound
