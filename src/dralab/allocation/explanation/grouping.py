"""Nodes grouped by what they lack: the same sentence for all that share it.

Where every node lacks something else (other devices are in use everywhere), nodes are put
together by what kind of thing is missing, and the amounts become ranges.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dralab.allocation.explanation.explain import Explanation, NodeGroup
from dralab.allocation.explanation.phrases import (
    UNSUITABLE,
    devices,
    escaped,
    impossible,
    listed,
    short_counters,
    short_offers,
    short_request,
    short_shortage,
)
from dralab.allocation.facts import (
    ConstraintOffers,
    CounterShortage,
    Fact,
    PoolUnusable,
    RequestFacts,
    Shortage,
    TooManyDevices,
)

MOST_GROUPS: Final = 4
"""Beyond so many different sentences nodes are put together by kind."""
EXPRESSION: Final = 60
"""How much of a selector a sentence shows."""
Kind = tuple[str, str]


def grouped(explanation: Explanation) -> Iterator[tuple[str, int]]:
    """Yield sentences with the number of nodes for which they hold, most nodes first."""
    by_text: dict[str, list[NodeGroup]] = {}
    for group in explanation.groups:
        by_text.setdefault(_exact(explanation, group.facts), []).append(group)
    if len(by_text) > MOST_GROUPS:
        by_text = _by_kind(explanation)
    counts = {
        text: [n for group in groups for n in group.nodes] for text, groups in by_text.items()
    }
    for text, nodes in sorted(counts.items(), key=lambda item: (-len(item[1]), item[0])):
        if explanation.nodes == 1:
            subject, have = f"node {nodes[0]}", "has"
        elif len(nodes) == explanation.nodes:
            subject, have = f"all {len(nodes)} nodes", "have"
        else:
            subject, have = str(len(nodes)), "has" if len(nodes) == 1 else "have"
        yield text.format(have=f"{subject} {have}"), len(nodes)


def _exact(explanation: Explanation, facts: Sequence[Fact]) -> str:
    fact = _first_reason(facts)
    match fact:
        case PoolUnusable():
            detail = f" ({escaped(fact.detail)})" if fact.detail else ""
            return f"{{have}} pool {fact.driver}/{fact.pool}, which is {fact.why}{detail}"
        case RequestFacts():
            return short_request(fact, EXPRESSION)
        case Shortage():
            return short_shortage(fact)
        case CounterShortage():
            return short_counters(fact)
        case TooManyDevices():
            return f"{{have}} to give more than {fact.limit} devices to claim {fact.claim}"
        case ConstraintOffers() if impossible(fact):
            return short_offers(fact)
        case ConstraintOffers():
            return "{have} devices for every request by itself, but none that meet all constraints"
        case _:
            names = [item.request for item in explanation.conflict if item.kind == "request"]
            several = f"requests {listed(names, 4)} together"
            together = several if len(names) > 1 else "all that is asked"
            return f"{{have}} devices for every request by itself, but not for {together}"


def _first_reason(facts: Sequence[Fact]) -> Fact | None:
    """Return the first fact that is enough for a no by itself; None where several work together.

    A constraint that is not impossible by itself stands for all of them.
    """
    requests = [fact for fact in facts if isinstance(fact, RequestFacts)]
    short = next((fact for fact in requests if "/" not in fact.request and _short(fact)), None)
    short = short or _short_alternatives(requests)
    if short is not None:
        broken = next((fact for fact in facts if isinstance(fact, PoolUnusable)), None)
        return broken if broken is not None and not _suitable(short) else short
    for fact in facts:
        if isinstance(fact, (Shortage, CounterShortage, TooManyDevices)):
            return fact
    offers = [fact for fact in facts if isinstance(fact, ConstraintOffers)]
    return next((fact for fact in offers if impossible(fact)), offers[0] if offers else None)


def _short_alternatives(requests: Sequence[RequestFacts]) -> RequestFacts | None:
    """Return the last alternative of a request of which none has enough devices."""
    by_request: dict[tuple[str, str], list[RequestFacts]] = {}
    for fact in requests:
        if "/" in fact.request:
            name = fact.request.partition("/")[0]
            by_request.setdefault((fact.claim, name), []).append(fact)
    for alternatives in by_request.values():
        if all(map(_short, alternatives)):
            return alternatives[-1]
    return None


def _by_kind(explanation: Explanation) -> dict[str, list[NodeGroup]]:
    kinds: dict[Kind, list[tuple[NodeGroup, Fact | None]]] = {}
    for group in explanation.groups:
        fact = _first_reason(group.facts)
        kinds.setdefault(_kind(fact), []).append((group, fact))
    found: dict[str, list[NodeGroup]] = {}
    for members in kinds.values():
        requests = [fact for _, fact in members if isinstance(fact, RequestFacts)]
        text = _range(requests) if requests else ""
        for group, _ in members:
            found.setdefault(text or _exact(explanation, group.facts), []).append(group)
    return found


def _kind(fact: Fact | None) -> Kind:
    if not isinstance(fact, RequestFacts):
        return (type(fact).__name__, "")
    if not _suitable(fact):
        return ("none", fact.request)
    return ("few" if _suitable(fact) < fact.wanted else "left", fact.request)


def _range(facts: Sequence[RequestFacts]) -> str:
    """Return one sentence for nodes on which the same request is short by different amounts."""
    request = facts[0].request
    if not _suitable(facts[0]):
        texts = {short_request(fact, EXPRESSION) for fact in facts}
        return texts.pop() if len(texts) == 1 else f"{{have}} no device for request {request}"
    wanted = devices(facts[0].wanted)
    if _suitable(facts[0]) < facts[0].wanted:
        return f"{{have}} only {_spread(map(_suitable, facts))} of {wanted} for request {request}"
    left = _spread(fact.eligible for fact in facts)
    return f"{{have}} only {left} of {wanted} left for request {request} ({_others(facts)})"


def _others(facts: Sequence[RequestFacts]) -> str:
    """Return what keeps the other devices out, over all nodes."""
    words = {
        "in-use": "in use", "taint": "tainted", "capacity": "too small",
        "counters": "short of counters", "groups": "of another group",
    }  # fmt: skip
    counts: dict[str, int] = {}
    holders: set[str] = set()
    for fact in facts:
        for item in fact.excluded:
            if item.why in words:
                counts[item.why] = counts.get(item.why, 0) + item.count
                holders.update(item.holders)
    shown = ", ".join(f"{count} {words[why]}" for why, count in sorted(counts.items()))
    by = f" by {listed(sorted(holders), 2)}" if holders else ""
    return escaped(f"{shown}{by}")


def _spread(numbers: Iterator[int]) -> str:
    every = sorted(numbers)
    return str(every[0]) if every[0] == every[-1] else f"{every[0]} to {every[-1]}"


def _short(fact: RequestFacts) -> bool:
    return fact.eligible < fact.wanted


def _suitable(fact: RequestFacts) -> int:
    return fact.devices - sum(item.count for item in fact.excluded if item.why in UNSUITABLE)
