"""How many devices could serve one request, on all nodes together, and what blocks the others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dralab.allocation.facts import Excluded, RequestFacts
from dralab.allocation.problem import Problem
from dralab.explanation.alike import AlikeNodes, DeviceKind
from dralab.explanation.explain import held_anywhere
from dralab.explanation.findings import findings
from dralab.explanation.names import taint_text
from dralab.explanation.questions import FleetQuestions
from dralab.values.quantity import Number

BLOCKS: Final = frozenset({"in-use", "taint", "counters", "capacity", "groups"})
"""What keeps a device that suits from being had; it could be lifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSupply:
    """What nodes have for one request alone.

    `free` devices could serve it now; `most` suit on one node, `most_free` could serve it on one,
    `where` is that node. `blocked` counts the others by what blocks them, `holders` are the claims
    that do. `name`, `needed` and `offered` tell of the counter or capacity that comes nearest.
    """

    free: int = 0
    most: int = 0
    most_free: int = 0
    where: str = ""
    blocked: Mapping[str, int]
    holders: tuple[str, ...] = ()
    name: str = ""
    needed: Number = 0
    offered: Number = 0
    taints: tuple[tuple[str, int], ...] = ()


def total_of(kinds: Sequence[DeviceKind]) -> int:
    """Return the number of devices of some kinds."""
    return sum(kind.count for kind in kinds)


def supply_of(asking: FleetQuestions, alone: Problem) -> RequestSupply:
    """Return the supply for a problem of one request."""
    blocked: Counter[str] = Counter()
    taints: Counter[str] = Counter()
    holders: dict[str, None] = {}
    nearest: Excluded | None = None
    free = most = 0
    best, where = -1, ""
    for place in asking.places:
        fact = _fact(asking, alone, place)
        if fact is None:
            continue
        nodes = place.size
        lifted = [item for item in fact.excluded if item.why in BLOCKS]
        free += fact.eligible * nodes
        suitable = fact.eligible + sum(item.count for item in lifted)
        most = max(most, suitable)
        if suitable and fact.eligible > best:
            best, where = fact.eligible, place.names[0]
        for item in lifted:
            blocked[item.why] += item.count * nodes
            holders |= dict.fromkeys(item.holders)
            if item.taint is not None:
                taints[taint_text(item.taint)] += item.count * nodes
            if item.why in {"counters", "capacity"} and _nearer(item, nearest):
                nearest = item
    return RequestSupply(
        free=free,
        most=most,
        most_free=max(best, 0),
        where=where,
        blocked=dict(blocked),
        holders=tuple(holders),
        name=nearest.detail if nearest else "",
        needed=nearest.needed if nearest else 0,
        offered=nearest.offered if nearest else 0,
        taints=tuple(taints.most_common()),
    )


def _fact(asking: FleetQuestions, alone: Problem, place: AlikeNodes) -> RequestFacts | None:
    local = replace(alone, in_use=place.in_use)
    for fact in findings(local, place.view).facts:
        if isinstance(fact, RequestFacts):
            found = held_anywhere(fact, place, asking.likeness, asking.uses)
            return found if isinstance(found, RequestFacts) else None
    return None


def _nearer(item: Excluded, known: Excluded | None) -> bool:
    return known is None or item.needed - item.offered < known.needed - known.offered
