"""`allocate`: devices for the claims of one pod on one node, as a function of a snapshot."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dralab.allocation.outcome import Allocated, Outcome, Unknown, Unsatisfiable
from dralab.allocation.policy.choosing import LikelyRequests, chosen_by, likely_requests, worth_on
from dralab.allocation.policy.policies import Policy
from dralab.allocation.pools import PoolView, SliceCatalog
from dralab.allocation.problem import Node, Problem
from dralab.allocation.results import ShareIds, allocations
from dralab.allocation.search.alternatives import RefusedError
from dralab.allocation.search.backtracking import BudgetError, Effort
from dralab.allocation.search.eligibility import SearchError
from dralab.allocation.search.node_devices import NodeDevices
from dralab.allocation.search.reduction import solve
from dralab.allocation.search.setup import SearchSetup, prepare
from dralab.values.labels import SelectorError

DEFAULT_BUDGET = 1_000_000


def numbered_shares() -> ShareIds:
    """Return a source of share ids that is the same every time: for tests and dry runs.

    A server passes the UUIDs of a named random stream instead.
    """

    def ids() -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"00000000-0000-4000-8000-{number:012x}"

    return ids().__next__


def allocate(
    problem: Problem,
    node: Node,
    *,
    budget: int = DEFAULT_BUDGET,
    share_ids: Callable[[], str] | None = None,
    catalog: SliceCatalog | None = None,
) -> Outcome:
    """Return the devices of every claim on a node, as Kubernetes would choose them.

    `catalog` saves indexing the slices again when many nodes or pods are asked about.
    """
    try:
        view = (catalog or SliceCatalog(problem.slices)).view(node, problem.features)
    except SelectorError as error:
        return _unreadable(error)
    ids = share_ids or numbered_shares()
    return _judged(problem, view, budget, ids, None)[0]


def _unreadable(error: SelectorError) -> Unsatisfiable:
    return Unsatisfiable(error=f"gather pool information: {error}", fatal=True)


def allocate_on(
    problem: Problem,
    view: PoolView,
    *,
    budget: int,
    share_ids: ShareIds,
    policy: Policy | None = None,
) -> Outcome:
    """Return the devices of every claim among the pools of a view."""
    by = _by(problem, policy)
    return _judged(problem, view, budget, share_ids, by)[0]


def place(
    problem: Problem,
    nodes: Iterable[Node],
    *,
    policy: Policy | None = None,
    budget: int = DEFAULT_BUDGET,
    share_ids: Callable[[], str] | None = None,
    catalog: SliceCatalog | None = None,
) -> tuple[Node | None, Outcome]:
    """Return the node for the claims, and their devices there; None if no node will do.

    Without a policy it is the first node on which they fit; with one, the node whose choice costs
    least. A fatal error ends the search at once, as on Kubernetes.
    """
    catalog = catalog or SliceCatalog(problem.slices)
    share_ids = share_ids or numbered_shares()
    by = _by(problem, policy)
    best: tuple[float, Node, Outcome] | None = None
    last: Outcome = Unsatisfiable()
    for node in nodes:
        try:
            view = catalog.view(node, problem.features)
        except SelectorError as error:
            return None, _unreadable(error)
        outcome, cost = _judged(problem, view, budget, share_ids, by)
        if isinstance(outcome, Allocated):
            if policy is None:
                return node, outcome
            if best is None or cost < best[0]:
                best = cost, node, outcome
        elif isinstance(outcome, Unsatisfiable) and outcome.fatal:
            return None, outcome
        elif not isinstance(last, Unknown):
            last = outcome
    return (best[1], best[2]) if best is not None else (None, last)


class _RankingKey(NamedTuple):
    """A policy, and the requests that it expects."""

    policy: Policy
    demand: LikelyRequests


def _by(problem: Problem, policy: Policy | None) -> _RankingKey | None:
    if policy is None:
        return None
    return _RankingKey(policy, likely_requests(policy, problem.classes, problem.features))


def _judged(
    problem: Problem,
    view: PoolView,
    budget: int,
    share_ids: ShareIds,
    by: _RankingKey | None,
) -> tuple[Outcome, float]:
    if not problem.claims:
        return Allocated(claims=()), 0.0
    effort = Effort(budget)
    cost = 0.0
    try:
        setup = prepare(
            NodeDevices(view, problem.features),
            problem.claims,
            problem.classes,
            problem.features,
            problem.in_use,
        )
        if by is None:
            picked = solve(setup, effort)
        else:
            worth = worth_on(setup.node_devices, setup.eligibility, by.demand, setup.requests)
            found = chosen_by(by.policy, setup, effort, worth)
            picked, cost = found if found is not None else (None, 0.0)
    except RefusedError as error:
        return Unsatisfiable(error=str(error), fatal=True, facts=(error.fact,)), cost
    except SearchError as error:
        return Unsatisfiable(error=str(error), fatal=True, steps=effort.steps), cost
    except BudgetError:
        return Unknown(budget=budget, steps=effort.steps), cost
    if picked is None:
        return _unsatisfiable(setup, effort), cost
    claims = allocations(setup, picked, share_ids)
    return Allocated(claims=claims, steps=effort.steps), cost


def _unsatisfiable(setup: SearchSetup, effort: Effort) -> Unsatisfiable:
    view = setup.node_devices.view
    invalid = any(pool.unusable == "invalid" for pool in view.pools)
    return Unsatisfiable(
        error="invalid resource pools were encountered" if invalid else "",
        facts=view.unusable,
        steps=effort.steps,
    )
