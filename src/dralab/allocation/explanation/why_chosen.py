"""Why this one: for each chosen device, what came before it in the order and was passed over."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from dralab.allocation.explanation.facts_text import left_out
from dralab.allocation.explanation.findings import NodeFindings, findings, reason_against
from dralab.allocation.explanation.names import counted, device_name, listed, shortened
from dralab.allocation.facts import Excluded
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.objects.claims import results_of

MOST_PASSED: Final = 8


def why_these(
    problem: Problem, node: Node, allocations: Sequence[Mapping[str, Any]], catalog: SliceCatalog
) -> str:
    """Return, for people, why the devices of an allocation were chosen and no earlier ones.

    `problem` is the one that was solved, with what was in use before; `allocations` are its
    claims' `status.allocation`.
    """
    found = findings(problem, catalog.view(node, problem.features))
    chosen = {
        str(claim): [
            (item["request"], DeviceId(item["driver"], item["pool"], item["device"]))
            for item in results_of(allocation)
        ]
        for claim, allocation in zip(problem.claims, allocations, strict=True)
    }
    taken = {device for results in chosen.values() for _, device in results}
    return "\n".join(
        line
        for claim, results in chosen.items()
        for line in _claim(problem, found, claim, results, taken)
    )


def _claim(
    problem: Problem,
    found: NodeFindings,
    claim: str,
    results: Sequence[tuple[str, DeviceId]],
    taken: AbstractSet[DeviceId],
) -> Iterator[str]:
    node = found.node_devices.view.node.name
    masks = {
        (str(problem.claims[alternative.claim]), alternative.name): (alternative, mask)
        for alternative, mask in found.eligible
    }
    for request, device in results:
        alternative, mask = masks[claim, request]
        reasons = list(_passed(problem, found, alternative, device, taken))
        among = _among(mask.bit_count(), first=not reasons)
        yield f"  {request} of claim {shortened(claim)}: {device_name(device, node)}, {among}"
        if alternative.rank:
            yield f"    the {_earlier(alternative)} could not be had"
        yield from (f"    passed over: {text}" for text in reasons)


def _among(count: int, *, first: bool) -> str:
    if count == 1:
        return "the only device that could serve it"
    which = "the first" if first else "one"
    return f"{which} of {counted(count, 'device')} that could serve it"


def _earlier(alternative: Alternative) -> str:
    return (
        "alternative before it"
        if alternative.rank == 1
        else f"{alternative.rank} alternatives before it"
    )


def _passed(
    problem: Problem,
    found: NodeFindings,
    alternative: Alternative,
    device: DeviceId,
    taken: AbstractSet[DeviceId],
) -> Iterator[str]:
    """Yield what kept the devices before a chosen one out, equal reasons counted together."""
    reasons: dict[str, Excluded] = {}
    blocked: list[str] = []
    chosen = found.node_devices.index[device]
    for number in range(chosen):
        offer = found.node_devices.offers[number]
        if offer.id in taken:
            continue
        why = reason_against(found, problem, alternative, number)
        if why is None:
            blocked.append(offer.id.device)
            continue
        text = left_out(why)
        before = reasons.get(text)
        reasons[text] = why if before is None else replace(why, count=before.count + 1)
    yield from [left_out(why) for why in reasons.values()][:MOST_PASSED]
    if blocked:
        yield (
            f"{listed(blocked)}: with {'it' if len(blocked) == 1 else 'any of them'} the rest "
            "could not be met"
        )
