"""How many devices of a node are free for a kind of claims, and whether the kind fits there.

Nodes in equal states have equal answers: each state is asked about once.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.plans import ClaimKind
from dralab.allocation.policy.ranking import NodeState
from dralab.values.json_types import JsonObject


class FreeDevices(NamedTuple):
    """The free devices that some request could use, and whether all requests fit."""

    free: int
    fits: bool


NONE_FREE: Final = FreeDevices(0, fits=False)


class FreeDeviceCounter:
    """Counts the free devices of nodes, and remembers what it counted by state."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[ClaimKind, dict[NodeState, FreeDevices]] = {}

    def on(self, numbers: Sequence[int], claims: Sequence[JsonObject]) -> list[FreeDevices]:
        """Return what is free for some claims on nodes; nothing where pools are in transition.

        Partitions of one card count one by one, although taking one may use up the others.
        """
        fleet = self._fleet
        kind = fleet.kind(claims)
        if kind.refused is not None:
            return [NONE_FREE] * len(numbers)
        known = self._known.setdefault(kind, {})
        counted: list[FreeDevices] = []
        for number in numbers:
            state = fleet.node_state(number)
            if state is None:
                counted.append(NONE_FREE)
                continue
            found = known.get(state)
            if found is None:
                found = known[state] = self._counted(number, claims, kind, state)
            counted.append(found)
        return counted

    def _counted(
        self, number: int, claims: Sequence[JsonObject], kind: ClaimKind, state: NodeState
    ) -> FreeDevices:
        shape = state.shape
        planner = shape.planner(kind, self._fleet.budget)
        wanted = 0
        for mask in (planner.known or {}).values():
            wanted |= mask
        start = shape.state(state.pools)
        free = wanted & shape.visible & shape.node_devices.fitting(start) & ~start.used
        if not free:
            return NONE_FREE
        # Where one device is all that is asked for, any that is free will do.
        fits = planner.single is not None and planner.count == 1
        fits = fits or isinstance(self._fleet.find_on_node(number, claims), list)
        return FreeDevices(free.bit_count(), fits)
