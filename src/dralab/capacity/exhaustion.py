"""Every sequence of moves, for clusters that are small enough: what is cheaper than a given cost.

Depth first by rising cost. A branch ends where the pods that would still have to leave some node
cost more than is left. Nodes that are alike count once.
"""

from itertools import combinations
from typing import Final

from dralab.capacity.need import PodToPlace
from dralab.capacity.relocation import Move, Relocation
from dralab.scheduling.state import PodPlacement

# Beyond so many pods times nodes nothing is tried.
SMALL: Final = 3_000
Plan = tuple[list[Move], PodPlacement]


def cheaper(relocation: Relocation, start: int, below: int) -> tuple[Plan | None, int]:
    """Return the cheapest plan that costs at least `start` and less than `below`, and the bound.

    The bound is the least cost that was not excluded; `below` if there is no cheaper plan.
    """
    model = relocation.model
    if len(model.running) * model.state.table.count > SMALL:
        return None, start
    for cost in range(start, below):
        found = _Exhaustion(relocation).within(cost, "")
        if found is not None:
            return found, cost
        if relocation.tries.exhausted:
            return None, cost
    return None, below


class _Exhaustion:
    def __init__(self, relocation: Relocation) -> None:
        self.relocation = relocation
        self.model = relocation.model
        self.costs = relocation.costs
        self.need: PodToPlace = relocation.need

    def within(self, left: int, last: str) -> Plan | None:
        """Return moves that cost at most what is left; `last` moved just before."""
        found = self.model.find_place(self.need.pod)
        if found is not None:
            return [], found
        if left < self.costs.least or not self._is_possible(left):
            return None
        for each in self.model.in_order(self.model.running.values()):
            uid = each.pod.uid
            if uid == last or uid in self.costs.refused or self.costs.of(each.pod) > left:
                continue
            for placement in self.relocation.targets(each):
                with self.model.tentatively():
                    move = self.relocation.do(each, placement, self.need.pod.key)
                    rest = self.within(left - move.cost, uid)
                if rest is not None:
                    return [move, *rest[0]], rest[1]
                if self.relocation.tries.exhausted:
                    return None
        return None

    def _is_possible(self, left: int) -> bool:
        """Return whether the pod fits somewhere once pods of that cost have left."""
        if self.need.by_pods:
            return True
        for row in self.need.rows():
            pods = self.relocation.departures.pods(row)
            for size in range(1, min(len(pods), left // self.costs.least) + 1):
                for leaving in combinations(pods, size):
                    cost = sum(self.costs.of(each.pod) for each in leaving)
                    if cost <= left and self.need.met_without(row, leaving) is not False:
                        return True
        return False
