"""Sets of pods whose removal may make room on a node, the cheapest first.

Sets are counted first: a set can free at most the devices of its pods and those that share counters
with them. The allocator is asked only about sets that free enough by this count.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import combinations
from typing import NamedTuple

from dralab.allocation.releasing import WantedDevices
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.need import PodToPlace
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.state import PodPlacement
from dralab.values.records import dataclass


class Departure(NamedTuple):
    """Pods that leave a node, and what that costs."""

    cost: int
    importance: int
    pods: tuple[PodPlacement, ...]


@dataclass(slots=True)
class Tries:
    """A budget of tries; `left` is negative if more were needed."""

    left: int

    @property
    def exhausted(self) -> bool:
        """Whether something was left out."""
        return self.left < 0

    def spend(self) -> bool:
        """Return whether one more may be tried."""
        self.left -= 1
        return self.left >= 0


@dataclass(slots=True)
class _NodePods:
    """The pods of a node that may move, the cheapest first, while the node stays as it is."""

    key: object
    pods: list[PodPlacement]
    freed: list[int] | None = None
    least: dict[bytes, int | None] = field(default_factory=dict)
    wanted: dict[bytes, WantedDevices | None] = field(default_factory=dict)


class Departures:
    """The sets of pods of each node; results about a node are kept until it changes."""

    def __init__(self, model: ClusterModel, costs: MoveCosts) -> None:
        self.model = model
        self.costs = costs
        self._nodes: dict[int, _NodePods] = {}
        # Kinds of pods for which no other place was found, for searches in haste.
        self.stuck: set[Hashable] = set()

    def pods(self, row: int) -> list[PodPlacement]:
        """Return the pods of a node that may move, the cheapest first."""
        return self._of(row).pods

    def least(self, need: PodToPlace, row: int) -> int | None:
        """Return how many pods have to leave a node at least; None: not even all are enough."""
        node = self._of(row)
        asked = need.demand.signature
        if asked not in node.least:
            node.least[asked] = self._least(need, row, node)
        return node.least[asked]

    def _least(self, need: PodToPlace, row: int, node: _NodePods) -> int | None:
        counted = self._counted(need, row, node)
        if counted is None:
            return 1 if node.pods else None
        wanted, freed = counted
        free = wanted.free
        gains = sorted(((mask & wanted.wanted & ~free).bit_count() for mask in freed), reverse=True)
        missing = wanted.needed - free.bit_count()
        if missing <= 0:
            return 1 if gains else None
        for size, gain in enumerate(gains, start=1):
            missing -= gain
            if missing <= 0:
                return size
        return None

    def sets(
        self, need: PodToPlace, row: int, most: int | None, least: int, tries: Tries
    ) -> Iterator[Departure]:
        """Yield the sets of pods within these sizes that may suffice, the cheapest first.

        It ends early when the tries do.
        """
        node = self._of(row)
        counted = self._counted(need, row, node)
        largest = len(node.pods) if most is None else min(most, len(node.pods))
        prices = [self.costs.of(each.pod) for each in node.pods]
        ordered = (
            _by_size(len(prices), least, largest)
            if self.costs.by == "moves"
            else _by_cost(prices, least, largest)
        )
        for chosen in ordered:
            if not tries.spend():
                return
            if counted is not None:
                wanted, freed = counted
                after = wanted.free
                for number in chosen:
                    after |= freed[number] & wanted.wanted
                if after.bit_count() < wanted.needed:
                    continue
            pods = tuple(node.pods[number] for number in chosen)
            importance = sum(self.costs.importance(each.pod) for each in pods)
            yield Departure(sum(prices[number] for number in chosen), importance, pods)

    def _of(self, row: int) -> _NodePods:
        table = self.model.state.table
        name = table.names[row]
        key = self.model.changes_of(name)
        found = self._nodes.get(row)
        if found is None or found.key != key:
            refused = self.costs.refused
            there = [each for each in self.model.on(name) if each.pod.uid not in refused]
            costs = self.costs
            there.sort(key=lambda each: (costs.of(each.pod), costs.importance(each.pod)))
            found = self._nodes[row] = _NodePods(key, there)
        return found

    def _counted(
        self, need: PodToPlace, row: int, node: _NodePods
    ) -> tuple[WantedDevices, Sequence[int]] | None:
        """Return the devices that the pod wants on a node, and those that each removal may free."""
        if not need.claims or need.demand.extended:
            return None
        asked = need.demand.signature
        if asked not in node.wanted:
            node.wanted[asked] = self.model.devices.wanted(need.claims, row)
        wanted = node.wanted[asked]
        if wanted is None:
            return None
        if node.freed is None:
            devices = self.model.devices
            node.freed = [
                devices.freed_at_most(row, [plan.allocation for plan in each.plans])
                for each in node.pods
            ]
        return wanted, node.freed


def _by_size(count: int, least: int, largest: int) -> Iterator[tuple[int, ...]]:
    for size in range(least, largest + 1):
        yield from combinations(range(count), size)


def _by_cost(prices: Sequence[int], least: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of numbers by rising sum; prices rise."""
    heap: list[tuple[int, tuple[int, ...]]] = [(prices[0], (0,))] if prices and largest else []
    while heap:
        cost, chosen = heappop(heap)
        if len(chosen) >= least:
            yield chosen
        last = chosen[-1]
        if last + 1 < len(prices):
            more = prices[last + 1]
            heappush(heap, (cost - prices[last] + more, (*chosen[:-1], last + 1)))
            if len(chosen) < largest:
                heappush(heap, (cost + more, (*chosen, last + 1)))
