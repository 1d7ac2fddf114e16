"""The cheapest node for a policy, kept up to date state by state.

Nodes in equal states cost the same, so each distinct state is evaluated once per kind of claims,
and a kind keeps its states sorted by cost. An allocation creates at most one new state.
"""

from bisect import insort
from typing import NamedTuple, Protocol

from dralab.allocation.inventory.plan_results import ERROR, UNKNOWN, Plan, Planned
from dralab.allocation.inventory.plans import ClaimKind, NodeShape, Planner
from dralab.allocation.inventory.pool_states import PoolState
from dralab.allocation.policy.choosing import LikelyRequests, chosen_by, worth_on
from dralab.allocation.policy.policies import Policy
from dralab.allocation.policy.scoring import ServableDemand
from dralab.allocation.search.alternatives import RefusedError
from dralab.allocation.search.backtracking import BudgetError, Effort
from dralab.allocation.search.eligibility import SearchError
from dralab.allocation.search.setup import fixed_devices


class NodeState(NamedTuple):
    """Everything about a node on which a choice there depends."""

    shape: NodeShape
    pools: tuple[PoolState, ...]


class NodeStates(Protocol):
    """Where the state of a node is looked up; None: look at the node itself."""

    def node_state(self, number: int) -> NodeState | None:
        """Return the state of a node."""
        ...


class RankedState(NamedTuple):
    """A state that can serve a kind, and its cost; `order` breaks ties."""

    cost: float
    order: int
    state: NodeState
    plan: Plan


class _Ranks:
    """What is known of one kind of claims."""

    __slots__ = ("at", "known", "ranked", "trouble")

    def __init__(self) -> None:
        self.at = 0
        self.known: set[NodeState] = set()
        self.ranked: list[RankedState] = []
        self.trouble: dict[NodeState, Planned] = {}


class Ranking:
    """The nodes of a fleet as one policy ranks them."""

    def __init__(self, policy: Policy, demand: LikelyRequests, budget: int, nodes: int) -> None:
        self.policy = policy
        self.demand = demand
        self.budget = budget
        self.changed = (1 << nodes) - 1
        # Nodes that are in no fit state to be ranked: they are asked one by one.
        self.apart = 0
        self._state_of: dict[int, NodeState] = {}
        self._nodes_of: dict[NodeState, int] = {}
        self._live: list[NodeState] = []
        self._ranks: dict[ClaimKind, _Ranks] = {}
        self._worth: dict[Planner, ServableDemand] = {}

    def catch_up(self, states: NodeStates) -> None:
        """Note the nodes that changed."""
        changed, self.changed = self.changed, 0
        while changed:
            low = changed & -changed
            changed ^= low
            number = low.bit_length() - 1
            state = states.node_state(number)
            old = self._state_of.get(number)
            if state == old and old is not None:
                continue
            if old is not None:
                self._nodes_of[old] &= ~low
            if state is None:
                self.apart |= low
                self._state_of.pop(number, None)
                continue
            self.apart &= ~low
            self._state_of[number] = state
            nodes = self._nodes_of.get(state, 0)
            if not nodes:
                self._live.append(state)
            self._nodes_of[state] = nodes | low

    def best(self, kind: ClaimKind, candidates: int) -> tuple[int, Plan] | Planned:
        """Return the cheapest candidate node and its plan, a failure, or None."""
        ranks = self._ranks.setdefault(kind, _Ranks())
        self._judge(kind, ranks)
        index = 0
        best: tuple[float, int, Plan] | None = None
        while index < len(ranks.ranked):
            each = ranks.ranked[index]
            if best is not None and each.cost > best[0]:
                break
            nodes = self._nodes_of.get(each.state, 0)
            if not nodes:
                del ranks.ranked[index]
                ranks.known.discard(each.state)
                continue
            index += 1
            nodes &= candidates
            if nodes:
                number = (nodes & -nodes).bit_length() - 1
                if best is None or number < best[1]:
                    best = each.cost, number, each.plan
        if best is not None:
            return best[1], best[2]
        for state, trouble in ranks.trouble.items():
            if self._nodes_of.get(state, 0) & candidates:
                return trouble
        return None

    def _judge(self, kind: ClaimKind, ranks: _Ranks) -> None:
        while ranks.at < len(self._live):
            state = self._live[ranks.at]
            ranks.at += 1
            if state in ranks.known or not self._nodes_of.get(state):
                continue
            found = self._plan(state, kind)
            if isinstance(found, tuple):
                ranks.known.add(state)
                insort(ranks.ranked, RankedState(found[1], ranks.at, state, found[0]))
            elif found is not None:
                ranks.trouble[state] = found

    def _plan(self, state: NodeState, kind: ClaimKind) -> tuple[Plan, float] | Planned:
        planner = state.shape.planner(kind, self.budget)
        if planner.known is None:
            return ERROR
        if planner.impossible:
            return None
        start = state.shape.state(state.pools)
        try:
            fixed = (
                fixed_devices(planner.eligibility, start, kind.claims, kind.alternatives)
                if kind.some_all
                else {}
            )
            setup = planner.setup(start, fixed)
            worth = self._worth.get(planner)
            if worth is None:
                worth = self._worth[planner] = worth_on(
                    planner.node_devices, planner.eligibility, self.demand, setup.requests
                )
            found = chosen_by(self.policy, setup, Effort(self.budget), worth)
        except (SearchError, RefusedError):
            return ERROR
        except BudgetError:
            return UNKNOWN
        if found is None:
            return None
        return planner.planned(found[0]), found[1]
