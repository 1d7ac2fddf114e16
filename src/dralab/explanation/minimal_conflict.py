"""From an infeasible problem to its core: a minimal conflict, and minimal remedies.

Both ask "is the problem without these conditions feasible?" and nothing else. Conditions
are mostly monotone (dropping one never makes a problem infeasible), but not all: a selector of a
request for all devices is not, and one that guards another against errors is not. So results are
checked until nothing more can be left out, and are irreducible for any answers.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations
from typing import Final

from dralab.explanation.conditions import Condition

IsFeasible = Callable[[Collection[Condition]], bool | None]
"""Whether the problem without these conditions is feasible; None: not known."""

MOST_PAIRS: Final = 300
MOST_REMEDIES: Final = 3


def conflict(conditions: Sequence[Condition], feasible: IsFeasible) -> tuple[Condition, ...] | None:
    """Return conditions that alone are infeasible, none of which can be left out.

    None where they are feasible, or where that is not known. What is hardest to change is
    kept last: the conditions at the end of the list are dropped first.
    """
    if feasible(()) is not False:
        return None
    everything = list(conditions)
    kept = list(everything)

    def infeasible(candidate: Collection[Condition]) -> bool:
        return feasible([item for item in everything if item not in candidate]) is False

    kept = _halved(kept, infeasible)
    changed = True
    while changed:
        changed = False
        for item in list(kept):
            smaller = [other for other in kept if other is not item]
            if infeasible(smaller):
                kept = smaller
                changed = True
    return tuple(kept)


def remedies(
    conditions: Sequence[Condition], feasible: IsFeasible
) -> tuple[tuple[Condition, ...], ...]:
    """Return minimal sets of conditions without which the rest is feasible, the easiest first.

    Single conditions where there are any (several, each enough by itself); what would have to be
    released if nothing else changed; a pair; else one set from which nothing can be taken away.
    That a request is not asked at all is proposed only where nothing less helps.
    """
    lesser = [item for item in conditions if item.kind != "request"]
    single = []
    for item in lesser:
        if feasible((item,)) is True:
            single.append((item,))
            if len(single) == MOST_REMEDIES:
                break
    if single:
        return (*single, *_waiting(single, lesser, feasible))
    released = tuple(_waiting((), lesser, feasible))
    if len(lesser) * (len(lesser) - 1) // 2 <= MOST_PAIRS:
        for pair in combinations(lesser, 2):
            if feasible(pair) is True:
                return (*released, pair) if pair not in released else released
    if released:
        return released
    found = _shrunk(conditions, feasible)
    return (found,) if found else ()


def _waiting(
    found: Sequence[tuple[Condition, ...]], lesser: Sequence[Condition], feasible: IsFeasible
) -> Iterator[tuple[Condition, ...]]:
    """Yield what would have to be released if nothing else changed, where that takes several."""
    held = [item for item in lesser if item.kind == "held"]
    if len(held) > 1 and all(item.kind != "held" for remedy in found for item in remedy):
        released = _shrunk(held, feasible)
        if released:
            yield released


def _shrunk(conditions: Sequence[Condition], feasible: IsFeasible) -> tuple[Condition, ...]:
    """Start from all conditions dropped, and take back what is not needed, the hardest first."""
    dropped = list(conditions)
    if feasible(dropped) is not True:
        return ()
    dropped.reverse()
    dropped = _halved(dropped, lambda candidate: feasible(candidate) is True)
    changed = True
    while changed:
        changed = False
        for item in list(dropped):
            fewer = [other for other in dropped if other is not item]
            if feasible(fewer) is True:
                dropped = fewer
                changed = True
    return tuple(reversed(dropped))


def _halved(
    items: list[Condition], holds: Callable[[Collection[Condition]], bool]
) -> list[Condition]:
    """Leave out whole runs of items while the property holds: far fewer questions for many."""
    size = len(items) // 2
    while size > 1:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if holds(rest):
                items = rest
            else:
                at += size
        size //= 2
    return items
