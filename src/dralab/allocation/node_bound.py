"""The least price of nodes that serve some pods: a relaxation, solved by OR-Tools CP-SAT.

As in `serving_bound`, the devices of a pod may come from all nodes of a shape together, apart from
rules that keep the bound close; CPU, memory and other amounts are added up over the nodes of a
shape. So no plan is cheaper, whatever the scheduler does.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from dralab.allocation.fleet import Fleet
from dralab.allocation.policy.ranking import NodeState
from dralab.allocation.serving_bound import Supply, solved
from dralab.kernel.extras import require
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

EFFORT: Final = 10.0
# Prices are counted in hundredths, rounded down.
PARTS_OF_PRICE: Final = 100


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """An empty node: its price, its devices in a fleet, and its amounts in base units."""

    price: float
    fleet: Fleet
    state: NodeState | None
    amounts: Mapping[str, int]


def least_price(
    offers: Sequence[NodeOffer],
    claims: Sequence[Sequence[JsonObject]],
    counts: Sequence[int],
    requests: Sequence[Mapping[str, int]],
) -> float | None:
    """Return a price below which no nodes of these shapes serve all pods.

    `claims`, `counts` and `requests` are those of each kind of pods. None: the devices of some
    shape are in transition, or have too many patterns. MissingExtraError without OR-Tools.
    """
    require("optimal", "a bound")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    everyone = sum(counts)
    served: list[list[Any]] = [[] for _ in counts]
    total: list[Any] = []
    for number, offer in enumerate(offers):
        if offer.state is None:
            return None
        supply = Supply([offer.fleet.kind(each) for each in claims], list(counts))
        if not supply.add(offer.state, 1, offer.fleet.budget):
            return None
        nodes = model.new_int_var(0, everyone, f"nodes {number}")
        here = [
            model.new_int_var(0, count, f"kind {kind} on {number}")
            for kind, count in enumerate(counts)
        ]
        supply.constrain(model, here, nodes, str(number))
        for resource in sorted({name for request in requests for name in request}):
            asked = [request.get(resource, 0) for request in requests]
            has = offer.amounts.get(resource, 0)
            model.add(
                sum(amount * pods for amount, pods in zip(asked, here, strict=True)) <= has * nodes
            )
        for kind, pods in enumerate(here):
            served[kind].append(pods)
        total.append(int(offer.price * PARTS_OF_PRICE) * nodes)
    for count, pods_of_kind in zip(counts, served, strict=True):
        model.add(sum(pods_of_kind) >= count)
    model.minimize(sum(total))
    solver = solved(model, EFFORT)
    if solver is None:
        return 0.0
    # The bound of a problem in whole numbers is one itself.
    bound: float = solver.best_objective_bound
    return ceil(bound - 1e-6) / PARTS_OF_PRICE
