"""The devices that a waiting claim could use: those it could have now, and those that others hold.

For a map of the fleet. Each device counts alone: whether all requests can be met together, and on
one node, is left to `why`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.explanation.findings import against_each
from dralab.explanation.inquiry import Inquiry
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.supply import BLOCKS

NOTHING: Final = frozenset[DeviceId]()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableDevices:
    """Devices that suit a request: `now` could serve it as things are.

    `later` could once they are released, untainted, or not blocked by counters of others.
    """

    now: frozenset[DeviceId] = NOTHING
    later: frozenset[DeviceId] = NOTHING


def usable_devices(problem: Problem, nodes: Sequence[Node], catalog: SliceCatalog) -> UsableDevices:
    """Return the devices that suit any request; none for claims that cannot be read."""
    if not nodes:
        return UsableDevices()
    inquiry = Inquiry(FleetQuestions(problem, nodes[:1], catalog=catalog))
    if inquiry.read_claims() is not None:
        return UsableDevices()
    alternatives = list(inquiry.each_alternative())
    now: set[DeviceId] = set()
    later: set[DeviceId] = set()
    for node in nodes:
        view = catalog.view(node, problem.features)
        for device, reasons in against_each(problem, view, alternatives):
            if any(each is None for each in reasons):
                now.add(device)
            elif any(each is not None and each.why in BLOCKS for each in reasons):
                later.add(device)
    return UsableDevices(now=frozenset(now), later=frozenset(later - now))
