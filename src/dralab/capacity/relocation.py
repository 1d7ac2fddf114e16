"""Places for pods that have to leave a node: where they fit, or where others are moved for them.

Each step is carried out on the model with the devices that the allocator chooses, so the moves that
are found work in this order.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Final

import orjson

from dralab.capacity.departures import Departures, Tries
from dralab.capacity.need import PodToPlace
from dralab.objects.claims import results_of
from dralab.objects.metadata import NamespacedName, spec_of
from dralab.scheduling.cycle import on_node
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.filters import passing
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.records import dataclass

# Nodes tried as targets of one pod, and sets of pods that make way for it, in a chain.
TARGETS: Final = 4
WAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Move:
    """A pod leaves a node for another one, to make room for a pod there."""

    pod: PodInfo
    origin: PodPlacement
    placement: PodPlacement
    makes_room_for: NamespacedName
    cost: int


class Relocation:
    """Moves pods from one node, so that the pod of `need` fits there."""

    def __init__(self, departures: Departures, need: PodToPlace, tries: Tries) -> None:
        self.departures = departures
        self.model = departures.model
        self.costs = departures.costs
        self.need = need
        self.tries = tries

    def direct(self, row: int, pods: Sequence[PodPlacement]) -> list[Move] | None:
        """Return moves of just these pods, each once; None if impossible, or the tries run out."""
        largest = sorted(pods, key=_size, reverse=True)
        with self.model.tentatively():
            moves = self._as_scheduled(row, largest)
            if moves is not None and self.need.placement_on(row) is not None:
                return moves
        for order in permutations(largest):
            with self.model.tentatively():
                found = self._moved(row, order)
            if found is not None or self.tries.exhausted:
                return found
        return None

    def chained(self, row: int, pods: Sequence[PodPlacement], extra: int) -> list[Move] | None:
        """Return moves of these pods and of others to make room for them, at that extra cost."""
        largest = sorted(pods, key=_size, reverse=True)
        with self.model.tentatively():
            return self._solved(row, [(each, -1, self.need.pod.key) for each in largest], extra)

    def do(self, each: PodPlacement, placement: PodPlacement, why: NamespacedName) -> Move:
        """Move a pod on the model, and return the move."""
        pod = self.model.take_away(each.pod.uid)
        self.model.place(placement)
        return Move(pod, each, placement, why, self.costs.of(pod))

    def kind_of(self, each: PodPlacement) -> Hashable:
        """Return the key of pods that fit in the same places; its uid if it is unique."""
        pod = each.pod
        if pod.affinity or pod.anti_affinity or pod.spread or pod.volume_claims or pod.ports:
            return pod.uid
        specs = [plan.claim["spec"] for plan in each.plans]
        requests = sorted(self.model.unbound(pod).requests.items())
        return pod.placement, orjson.dumps([specs, requests], option=orjson.OPT_SORT_KEYS)

    def targets(self, each: PodPlacement) -> list[PodPlacement]:
        """Return the places that a pod could move to, one of each kind of nodes."""
        model, state = self.model, self.model.state
        found: list[PodPlacement] = []
        with model.tentatively():
            pod = model.take_away(each.pod.uid)
            demand = state.demands.demand_of(pod)
            if isinstance(demand, BlockedPod):
                return []
            seen: set[object] = set()
            for row in passing(state, pod, demand).nonzero()[0].tolist():
                kind = self._kind_of_node(row, each)
                if kind in seen:
                    continue
                seen.add(kind)
                if not self.tries.spend():
                    break
                placement = on_node(state, pod, demand, row).placement
                if placement is not None and not _is_same(placement, each):
                    found.append(placement)
        return found

    def _as_scheduled(self, row: int, pods: Sequence[PodPlacement]) -> list[Move] | None:
        """Move pods to where the scheduler puts them while their node is cordoned."""
        model, name = self.model, self.model.state.table.names[row]
        moves = []
        with model.cordoned(name):
            for each in pods:
                if not self.tries.spend():
                    return None
                with model.tentatively():
                    decision = model.find_place(model.take_away(each.pod.uid))
                if decision is None or decision.node == name:
                    return None
                moves.append(self.do(each, decision, self.need.pod.key))
        return moves

    def _moved(self, row: int, pods: Sequence[PodPlacement]) -> list[Move] | None:
        """Try every target of each pod in turn."""
        if not pods:
            return [] if self.need.placement_on(row) is not None else None
        each = pods[0]
        for placement in self.targets(each):
            with self.model.tentatively():
                move = self.do(each, placement, self.need.pod.key)
                rest = self._moved(row, pods[1:])
            if rest is not None:
                return [move, *rest]
            if self.tries.exhausted:
                return None
        return None

    def _solved(
        self, row: int, tasks: Sequence[tuple[PodPlacement, int, NamespacedName]], extra: int
    ) -> list[Move] | None:
        """Do the tasks in order: a pod moves to a node (-1: any), to make room for another one."""
        if not tasks:
            return [] if self.need.placement_on(row) is not None else None
        (each, target, why), *rest = tasks
        for placement in self._chain_targets(each, target):
            with self.model.tentatively():
                move = self.do(each, placement, why)
                found = self._solved(row, rest, extra)
            if found is not None:
                return [move, *found]
            if self.tries.exhausted:
                return None
        if target >= 0 or extra < self.costs.least:
            return None
        busy = {task[0].pod.uid for task in tasks}
        for way, others in self._ways(each, extra, busy):
            first = [(other, -1, each.pod.key) for other in others]
            left = extra - sum(self.costs.of(other.pod) for other in others)
            found = self._solved(row, [*first, (each, way, why), *rest], left)
            if found is not None or self.tries.exhausted:
                return found
        return None

    def _chain_targets(self, each: PodPlacement, target: int) -> list[PodPlacement]:
        names = self.model.state.table.names
        found = [place for place in self.targets(each) if place.node != each.node]
        if target >= 0:
            return [place for place in found if place.node == names[target]] or self._on(
                each, target
            )
        return found[:TARGETS]

    def _on(self, each: PodPlacement, row: int) -> list[PodPlacement]:
        """Return the place of a pod on one node, where a node like it was tried instead."""
        with self.model.tentatively():
            pod = self.model.take_away(each.pod.uid)
            demand = self.model.state.demands.demand_of(pod)
            if isinstance(demand, BlockedPod):
                return []
            placement = PodToPlace(self.model, pod, demand).placement_on(row)
        return [] if placement is None else [placement]

    def _ways(
        self, each: PodPlacement, extra: int, busy: set[str]
    ) -> Iterator[tuple[int, list[PodPlacement]]]:
        """Yield nodes, with the pods that would have to leave for a pod to fit there."""
        model = self.model
        with model.tentatively():
            pod = model.take_away(each.pod.uid)
            demand = model.state.demands.demand_of(pod)
            need = None if isinstance(demand, BlockedPod) else PodToPlace(model, pod, demand)
        if need is None:
            return
        left = WAYS
        home = model.state.table.row_of[each.node]
        for row in need.rows():
            if row == home:
                continue
            there = [o for o in self.departures.pods(row) if o.pod.uid not in busy]
            for size in range(1, min(len(there), extra // self.costs.least) + 1):
                for others in combinations(there, size):
                    cost = sum(self.costs.of(other.pod) for other in others)
                    if cost > extra or need.met_without(row, others) is False:
                        continue
                    yield row, list(others)
                    left -= 1
                    if not left or not self.tries.spend():
                        return

    def _kind_of_node(self, row: int, moving: PodPlacement) -> object:
        """Return the key of interchangeable nodes."""
        model, table = self.model, self.model.state.table
        state = model.devices.state_of(row)
        if state is None or self.need.by_pods or table.repelling or table.names[row] == moving.node:
            return row
        node = table.objects[row] or {}
        own = {key: v for key, v in table.labels[row].items() if v != table.names[row]}
        there = sorted(
            repr((pod.placement, sorted(pod.requests.items()), pod.priority, _devices(held)))
            for uid, pod in table.pods[row].items()
            if (held := model.running.get(uid)) is not None
        )
        free = tuple(int(table.free(name)[row]) for name in table.columns)
        return state, tuple(there), free, repr(sorted(own.items())), repr(spec_of(node))


def devices_of(placement: PodPlacement) -> list[str]:
    """Return the devices of a pod as POOL/DEVICE, in order."""
    return sorted(
        f"{result['pool']}/{result['device']}"
        for plan in placement.plans
        for result in results_of(plan.allocation)
    )


def _devices(placement: PodPlacement) -> list[str]:
    return sorted(
        result["device"] for plan in placement.plans for result in results_of(plan.allocation)
    )


def _size(placement: PodPlacement) -> tuple[int, int]:
    return len(_devices(placement)), sum(placement.pod.requests.values())


def _is_same(one: PodPlacement, other: PodPlacement) -> bool:
    return one.node == other.node and devices_of(one) == devices_of(other)
