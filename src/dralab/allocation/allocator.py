"""`allocate`: devices for the claims of one pod on one node, as a function of a snapshot."""

from collections.abc import Callable, Iterator

from dralab.allocation.outcome import Allocated, Outcome, Unknown, Unsatisfiable
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
        return Unsatisfiable(error=f"gather pool information: {error}", fatal=True)
    ids = share_ids or numbered_shares()
    return allocate_on(problem, view, budget=budget, share_ids=ids)


def allocate_on(problem: Problem, view: PoolView, *, budget: int, share_ids: ShareIds) -> Outcome:
    """Return the devices of every claim among the pools of a view."""
    if not problem.claims:
        return Allocated(claims=())
    effort = Effort(budget)
    try:
        setup = prepare(
            NodeDevices(view, problem.features),
            problem.claims,
            problem.classes,
            problem.features,
            problem.in_use,
        )
        picked = solve(setup, effort)
    except RefusedError as error:
        return Unsatisfiable(error=str(error), fatal=True, facts=(error.fact,))
    except SearchError as error:
        return Unsatisfiable(error=str(error), fatal=True, steps=effort.steps)
    except BudgetError:
        return Unknown(budget=budget, steps=effort.steps)
    if picked is None:
        return _unsatisfiable(setup, effort)
    return Allocated(claims=allocations(setup, picked, share_ids), steps=effort.steps)


def _unsatisfiable(setup: SearchSetup, effort: Effort) -> Unsatisfiable:
    view = setup.node_devices.view
    invalid = any(pool.unusable == "invalid" for pool in view.pools)
    return Unsatisfiable(
        error="invalid resource pools were encountered" if invalid else "",
        facts=view.unusable,
        steps=effort.steps,
    )
