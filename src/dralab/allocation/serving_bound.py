"""How many pods of a batch any allocation can serve at most, for large fleets.

A relaxation, solved by OR-Tools CP-SAT (the extra `optimal`). Each physical card serves devices by
its patterns, as in `optimum`; but the devices of one pod may come from anywhere, apart from two
rules that keep the bound close: a node hosts no more pods of a kind than its devices allow, and
pods that want more than half of a node's devices never share one. Constraints between devices, and
kinds that are not one request for whole devices, are left out: that makes the bound larger, never
wrong.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.plans import ClaimKind, Planner
from dralab.allocation.patterns import cells
from dralab.allocation.policy.ranking import NodeState
from dralab.allocation.search.backtracking import BudgetError, Effort
from dralab.allocation.search.counter_groups import Vector
from dralab.kernel.extras import require
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

EFFORT: Final = 10.0


def most_served(fleet: Fleet, pods: Sequence[Sequence[JsonObject]], kept: int) -> int | None:
    """Return how many pods can be served at most if the first `kept` of them are.

    `pods` are the claims of each. None: pools of some node are in transition or belong to several
    nodes, or its cards have too many patterns. MissingExtraError without OR-Tools.
    """
    numbers: dict[ClaimKind, int] = {}
    kind_of = [numbers.setdefault(fleet.kind(claims), len(numbers)) for claims in pods]
    wanted = Counter(kind_of)
    kinds = list(numbers)
    states: Counter[NodeState] = Counter()
    for number in range(len(fleet.nodes)):
        if not fleet.nodes[number].name:
            continue
        state = fleet.node_state(number)
        if state is None or not fleet.alone(number):
            return None
        states[state] += 1
    supply = Supply(kinds, [wanted[kind] for kind in range(len(kinds))])
    for state, nodes in states.items():
        if not supply.add(state, nodes, fleet.budget):
            return None
    return _solved(supply, Counter(kind_of[:kept]))


@dataclass(slots=True)
class Supply:
    """What all nodes together can serve; `loose` are kinds about which nothing is known."""

    kinds: Sequence[ClaimKind]
    wanted: Sequence[int]
    parts: Counter[tuple[Vector, ...]] = field(default_factory=Counter)
    hosts: Counter[int] = field(default_factory=Counter)
    loose: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)
    # Kinds that want more than half of every node that could host them.
    small: set[int] = field(default_factory=set)
    unions: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)

    def add(self, state: NodeState, nodes: int, budget: int) -> bool:
        """Count some nodes of one state; False if their cards have too many patterns."""
        planners = [state.shape.planner(kind, budget) for kind in self.kinds]
        for number, planner in enumerate(planners):
            if not _is_plain(planner):
                self.loose.add(number)
            elif not planner.impossible:
                self.counts[number] = planner.count
        start = state.shape.state(state.pools)
        free = state.shape.visible & state.shape.node_devices.fitting(start) & ~start.used
        able = [
            number
            for number, planner in enumerate(planners)
            if number not in self.loose and not planner.impossible
        ]
        for number in able:
            planner = planners[number]
            here = (planner.wanted & free).bit_count() // planner.count
            self.hosts[number] += nodes * here
        self._note_small(planners, able, free, nodes)
        demand = [
            self.wanted[number] * planner.count if number in able else 0
            for number, planner in enumerate(planners)
        ]
        try:
            found = cells(state, planners, demand, Effort(budget))
        except BudgetError:
            return False
        for part in found or ():
            self.parts[part.patterns] += nodes * len(part.devices)
        return found is not None

    def _note_small(
        self, planners: Sequence[Planner], able: Sequence[int], free: int, nodes: int
    ) -> None:
        several = [number for number in able if planners[number].count > 1]
        union = 0
        for number in several:
            union |= planners[number].wanted & free
        size = union.bit_count()
        large = [number for number in several if 2 * planners[number].count > size]
        self.small.update(number for number in several if number not in large)
        if any(
            (planners[number].wanted & free).bit_count() >= planners[number].count
            for number in large
        ):
            self.unions.append((size, nodes, tuple(large)))

    def constrain(self, model: Any, served: Sequence[Any], times: Any, label: str = "") -> None:
        """Add what so many of these nodes can serve to a CP-SAT model.

        `served` are the numbers of pods of each kind, `times` a number or a variable.
        """
        devices: list[list[Any]] = [[] for _ in served]
        highest = sum(self.parts.values()) * sum(self.wanted)
        for number, (patterns, parts) in enumerate(self.parts.items()):
            used = [
                model.new_int_var(0, highest, f"part {label} {number} pattern {place}")
                for place in range(len(patterns))
            ]
            model.add(sum(used) <= parts * times)
            for pattern, often in zip(patterns, used, strict=True):
                for kind, most in enumerate(pattern):
                    if most:
                        devices[kind].append(most * often)
        firm = [kind for kind in range(len(served)) if kind not in self.loose]
        for kind in firm:
            model.add(served[kind] * self.counts.get(kind, 1) <= sum(devices[kind]))
            model.add(served[kind] <= self.hosts[kind] * times)
        large = [kind for kind in firm if self.counts.get(kind, 1) > 1 and kind not in self.small]
        if large:
            nodes = sum(count for _, count, able in self.unions if set(able) & set(large))
            model.add(sum(served[kind] for kind in large) <= nodes * times)


def _is_plain(planner: Planner) -> bool:
    return planner.known is not None and (planner.single is not None or planner.impossible)


def _solved(supply: Supply, least: Counter[int]) -> int:
    require("optimal", "a bound")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    served = [
        model.new_int_var(least[kind], most, f"served {kind}")
        for kind, most in enumerate(supply.wanted)
    ]
    supply.constrain(model, served, 1)
    model.maximize(sum(served))
    solver = solved(model, EFFORT)
    return sum(supply.wanted) if solver is None else int(solver.best_objective_bound + 1e-6)


def solved(model: Any, effort: float) -> Any:
    """Return the solver of a model, the same for each run; None where it finds no solution."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = effort
    return solver if solver.solve(model) in {cp_model.OPTIMAL, cp_model.FEASIBLE} else None
