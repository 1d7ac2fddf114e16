"""What groups of nodes lack, line by line: the long form of a page, and of "why this device"."""

from collections.abc import Iterable, Iterator

from dralab.allocation.facts import (
    BadRequest,
    ConstraintOffers,
    CounterShortage,
    Excluded,
    Fact,
    PoolUnusable,
    RequestFacts,
    Shortage,
    TooManyDevices,
)
from dralab.explanation.explain import NodeGroup
from dralab.explanation.names import amount, counted, listed, shown_value, taint_text


def group_lines(groups: Iterable[NodeGroup]) -> Iterator[str]:
    """Yield every group of nodes with all of its facts."""
    for group in groups:
        if len(group.nodes) == 1:
            yield f"Node {group.nodes[0]}:"
        else:
            yield f"{len(group.nodes)} nodes ({', '.join(group.nodes)}):"
        for fact in group.facts:
            yield from (f"  {line}" for line in fact_lines(fact))


def fact_lines(fact: Fact) -> Iterator[str]:
    """Yield a fact of one node."""
    match fact:
        case PoolUnusable():
            detail = f": {fact.detail}" if fact.detail else ""
            yield f"pool {fact.driver}/{fact.pool} is {fact.why}{detail}"
        case BadRequest():
            yield fact.text
        case RequestFacts():
            yield (
                f"request {fact.request} of {fact.claim} wants {counted(fact.wanted, 'device')}: "
                f"{fact.eligible} of {fact.devices} could serve it"
            )
            for item in fact.excluded:
                yield f"  {left_out(item)}"
        case Shortage():
            names = ", ".join(request for _, request in fact.requests)
            yield (
                f"requests {names} together want {counted(fact.wanted, 'device')}, and "
                f"{fact.eligible} could serve them"
            )
        case CounterShortage():
            yield (
                f"counter {fact.counter_set}/{fact.counter} of pool {fact.driver}/{fact.pool} has "
                f"{amount(fact.left)} of the {amount(fact.least)} needed at least"
            )
        case ConstraintOffers():
            rule = "with the same" if fact.kind == "match" else "that differ in"
            values = [
                f"{'none' if value is None else shown_value(value)} ({count})"
                for value, count in fact.offers
            ]
            offers = listed(values, 8) or "nothing"
            yield f"{counted(fact.wanted, 'device')} {rule} {fact.name}: there are {offers}"
        case TooManyDevices():
            yield f"claim {fact.claim} wants more than {fact.limit} devices"


def left_out(item: Excluded) -> str:
    """Return how many devices a reason leaves out, and what the reason is."""
    held = f" (held by {listed(item.holders)})" if item.holders else ""
    match item.why:
        case "selector":
            text = f"not of {item.where} `{' '.join(item.detail.split())}`"
        case "error":
            text = f"for which {item.error}"
        case "in-use":
            text = f"in use by {listed(item.holders)}" if item.holders else "in use"
        case "node":
            text = "for other nodes"
        case "taint":
            text = f"with taint {taint_text(item.taint) if item.taint is not None else 'unknown'}"
        case "capacity" if not item.offered and not item.holders:
            text = f"without capacity {item.detail}"
        case "capacity":
            text = (
                f"where {item.detail} has {amount(item.offered)} of the {amount(item.needed)} "
                f"needed{held}"
            )
        case "counters":
            text = (
                f"for which counter {item.detail} has {amount(item.offered)} of the "
                f"{amount(item.needed)} needed{held}"
            )
        case "groups":
            text = f"that do not go together with others on {item.detail}{held}"
        case "attribute":
            text = f"without attribute {item.detail}"
        case _:
            text = f"with {item.detail}, which is switched off"
    return f"{item.count} {text}"
