"""All allocations, not only the first: for counting and for tools that list what is possible."""

from collections.abc import Iterator

from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.allocation.search.backtracking import Effort, solutions
from dralab.allocation.search.node_devices import NodeDevices
from dralab.allocation.search.setup import prepare

Assignment = tuple[tuple[str, tuple[DeviceId, ...]], ...]


def assignments(problem: Problem, node: Node, *, budget: int) -> Iterator[Assignment]:
    """Yield every valid choice of devices on one node, in Kubernetes' order.

    An assignment lists (request as in results, its devices) for all claims in order. Raises
    RefusedError or SearchError as the search does, BudgetError beyond `budget` steps.
    """
    node_devices = NodeDevices(
        SliceCatalog(problem.slices).view(node, problem.features), problem.features
    )
    setup = prepare(node_devices, problem.claims, problem.classes, problem.features, problem.in_use)
    for picked in solutions(setup, Effort(budget)):
        yield tuple(
            (
                each.alternative.name,
                tuple(node_devices.offers[number].id for number in each.devices),
            )
            for each in picked
        )
