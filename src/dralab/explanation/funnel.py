"""How the devices that a request may get become fewer: class, selectors, what is free.

For a page that shows the way from a claim to its devices. Causes and remedies are left to `why`.
"""

from collections.abc import Sequence
from typing import Any

from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Node, Problem
from dralab.allocation.search.alternatives import Alternative, LocatedSelector
from dralab.explanation.inquiry import Inquiry
from dralab.explanation.misses import selects
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.supply import total_of


def funnels(problem: Problem, nodes: Sequence[Node], catalog: SliceCatalog) -> list[dict[str, Any]]:
    """Return, for each alternative of each request, its steps with the devices that are left.

    The first step counts all devices that the nodes can use, the last one those that could serve
    the request alone now; `blocked` counts by what the others are blocked. Nothing for claims that
    cannot be read.
    """
    inquiry = Inquiry(FleetQuestions(problem, nodes, catalog=catalog))
    if inquiry.read_claims() is not None:
        return []
    return [_funnel(inquiry, each) for each in inquiry.each_alternative()]


def _funnel(inquiry: Inquiry, alternative: Alternative) -> dict[str, Any]:
    kinds = inquiry.kinds
    steps: list[dict[str, Any]] = [{"what": "devices", "text": "", "devices": total_of(kinds)}]
    for located in alternative.conditions:
        kinds = [kind for kind in kinds if selects([located], kind.device)]
        steps.append(
            {"what": _origin(located), "text": located.selector.text, "devices": total_of(kinds)}
        )
    supply = inquiry.supply(alternative)
    steps.append({"what": "free", "text": "", "devices": supply.free})
    return {
        "claim": inquiry.claim_of(alternative),
        "request": alternative.name,
        "class": alternative.device_class.name,
        "count": "All" if alternative.all else alternative.count,
        "steps": steps,
        "blocked": dict(supply.blocked),
        "where": supply.where,
        "onOneNode": supply.most_free,
    }


def _origin(located: LocatedSelector) -> str:
    return "class" if located.where.startswith("class ") else "selector"
