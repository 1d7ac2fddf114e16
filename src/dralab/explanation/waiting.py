"""Whose end would be enough: one holder of devices, or a few on one node."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from dralab.allocation.problem import DeviceId
from dralab.explanation.causes import Help
from dralab.explanation.endings import UNKNOWN
from dralab.explanation.inquiry import Inquiry

MOST_TRIED: Final = 48
MOST_NODES: Final = 6
MOST_NAMED: Final = 3


def waits_for(inquiry: Inquiry, holders: Sequence[str]) -> Iterator[Help]:
    """Yield which holders of devices it would be enough to wait for.

    Several that are each enough are one proposal, those that end first before others; where one is
    not enough, the fewest of one node.
    """
    held = _held(inquiry)
    where = inquiry.asking.node_of_held
    enough: list[str] = []
    ends = inquiry.ends
    ordered = sorted(holders, key=lambda name: ends.get(name, UNKNOWN))
    for name in ordered[:MOST_TRIED]:
        devices = held.get(name, frozenset())
        nodes = {where[device] for device in devices if device in where}
        if nodes and inquiry.asking.serves(freed=devices, nodes=nodes):
            enough.append(name)
            if len(enough) > MOST_NAMED:
                break
    if enough:
        more = len(holders) - len(enough) if len(enough) > MOST_NAMED else 0
        named = enough[:MOST_NAMED]
        yield Help(
            kind="wait", now=True, who=tuple(named), number=len(enough) + more, note="any",
            ends=ends.get(named[0], UNKNOWN).text,
        )  # fmt: skip
        return
    yield from _several(inquiry, held, where)


def _several(
    inquiry: Inquiry,
    held: dict[str, frozenset[DeviceId]],
    where: dict[DeviceId, str],
) -> Iterator[Help]:
    by_node: dict[str, list[str]] = {}
    for name, devices in held.items():
        for node in {where[device] for device in devices if device in where}:
            by_node.setdefault(node, []).append(name)
    best: list[str] = []
    for node, names in sorted(by_node.items(), key=lambda item: len(item[1]))[: 4 * MOST_NODES]:
        if best and len(best) <= 2:
            break
        if not _enough(inquiry, held, names, node):
            continue
        kept = list(names)
        for name in names:
            fewer = [other for other in kept if other != name]
            if fewer and _enough(inquiry, held, fewer, node):
                kept = fewer
        if not best or len(kept) < len(best):
            best = kept
    if best:
        yield Help(kind="wait", now=True, who=tuple(best), number=len(best), note="all")


def _enough(
    inquiry: Inquiry,
    held: dict[str, frozenset[DeviceId]],
    names: Sequence[str],
    node: str,
) -> bool:
    freed: AbstractSet[DeviceId] = frozenset().union(*(held[name] for name in names))
    return inquiry.asking.serves(freed=freed, nodes={node}) is True


def _held(inquiry: Inquiry) -> dict[str, frozenset[DeviceId]]:
    found: dict[str, set[DeviceId]] = {}
    for device, names in inquiry.in_use.holders.items():
        for name in names:
            found.setdefault(name, set()).add(device)
    return {name: frozenset(devices) for name, devices in found.items()}
