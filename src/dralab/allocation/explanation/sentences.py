"""An explanation as text: one sentence that fits into an event, and a page for people."""

from collections.abc import Iterator
from typing import Final

from dralab.allocation.explanation.explain import Explanation, NodeGroup
from dralab.allocation.explanation.grouping import grouped
from dralab.allocation.explanation.phrases import (
    amount,
    devices,
    impossible,
    left_out,
    listed,
    needed_together,
    remedy,
    short_offers,
)
from dralab.allocation.facts import (
    BadRequest,
    ConstraintOffers,
    CounterShortage,
    Fact,
    PoolUnusable,
    RequestFacts,
    Shortage,
    TooManyDevices,
)

EVENT_BYTES: Final = 1024
"""As much as the note of an events.k8s.io Event holds."""


def event(explanation: Explanation, limit: int = EVENT_BYTES) -> str:
    """Return the explanation as one sentence of at most `limit` bytes (UTF-8)."""
    start = f"cannot allocate {_claims(explanation)}: "
    fatal = _refusal(explanation)
    if fatal:
        return _cut(start + fatal, limit)
    total = explanation.nodes
    if not total:
        return f"{start}there are no nodes."
    parts = list(grouped(explanation))
    if len(parts) > 1:
        start += f"{total} nodes: "
    end = _advice(explanation)
    room = limit - _size(start) - _size(end) - _size("; and others for 00000 nodes") - 1
    text = ""
    told = 0
    for part, count in parts:
        joined = f"{text}; {part}" if text else part
        if text and _size(joined) > room:
            break
        text = joined
        told += count
    if told < total:
        text += f"; and others for {total - told} nodes"
    whole = f"{start}{text}.{end}"
    return whole if _size(whole) <= limit else _cut(f"{start}{text}", limit)


def page(explanation: Explanation) -> str:
    """Return the explanation as several lines, with every group of nodes and every request."""
    return "\n".join(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    claims = _claims(explanation)
    yield f"Cannot allocate {claims} on {_on(explanation)}."
    fatal = _refusal(explanation)
    if fatal:
        yield f"  {fatal}"
    for group in explanation.groups:
        yield ""
        yield f"{_nodes(group)}:"
        for fact in group.facts:
            yield from (f"  {line}" for line in _told(fact))
    yield ""
    if explanation.conflict:
        yield "These together make it impossible, and none of them can be left out:"
        yield from (f"  - {text}" for text in needed_together(explanation.conflict))
        if len(explanation.weighed) < len(explanation.groups):
            yield "  (what is in use on other nodes is taken as given)"
    if explanation.remedies:
        each = "any one of these" if len(explanation.remedies) > 1 else "this"
        yield f"It would fit if {each} were so:"
        for found in explanation.remedies:
            yield f"  - {remedy(found, explanation.fits, 200)}"
    if not explanation.settled:
        yield "More steps would be needed to say what exactly is in conflict."


def _told(fact: Fact) -> Iterator[str]:
    match fact:
        case PoolUnusable():
            detail = f": {fact.detail}" if fact.detail else ""
            yield f"pool {fact.driver}/{fact.pool} is {fact.why}{detail}"
        case BadRequest():
            yield fact.text
        case RequestFacts():
            yield (
                f"request {fact.request} of {fact.claim} wants {devices(fact.wanted)}: "
                f"{fact.eligible} of {fact.devices} could serve it"
            )
            for item in fact.excluded:
                yield f"  {left_out(item, 200)}"
        case Shortage():
            names = ", ".join(request for _, request in fact.requests)
            yield (
                f"requests {names} together want {devices(fact.wanted)}, and {fact.eligible} "
                "could serve them"
            )
        case CounterShortage():
            yield (
                f"counter {fact.counter_set}/{fact.counter} of pool {fact.driver}/{fact.pool} has "
                f"{amount(fact.left)} left, and {amount(fact.least)} are needed at least: short "
                f"by {amount(fact.least - fact.left)}"
            )
        case ConstraintOffers():
            yield short_offers(fact).format(have="has" if impossible(fact) else "may have")
        case TooManyDevices():
            yield f"claim {fact.claim} wants more than {fact.limit} devices"


def _refusal(explanation: Explanation) -> str:
    for group in explanation.groups:
        for fact in group.facts:
            if isinstance(fact, BadRequest):
                return fact.text
    return explanation.error if "CEL" in explanation.error else ""


def _advice(explanation: Explanation) -> str:
    if not explanation.remedies:
        return ""
    shown = [remedy(found, explanation.fits, 60) for found in explanation.remedies[:2]]
    return f" It would fit if {', or if '.join(shown)}."


def _claims(explanation: Explanation) -> str:
    word = "claim" if len(explanation.claims) == 1 else "claims"
    return f"{word} {listed(explanation.claims, 4)}"


def _on(explanation: Explanation) -> str:
    if not explanation.nodes:
        return "any node: there are none"
    return "any node" if explanation.nodes > 1 else f"node {explanation.groups[0].nodes[0]}"


def _nodes(group: NodeGroup) -> str:
    if len(group.nodes) == 1:
        return f"Node {group.nodes[0]}"
    return f"{len(group.nodes)} nodes ({listed(group.nodes)})"


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, limit: int) -> str:
    if _size(text) <= limit:
        return text
    return text.encode()[: limit - len("…".encode())].decode(errors="ignore") + "…"
