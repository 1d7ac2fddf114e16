"""Pods that start together or not at all (scheduling.k8s.io PodGroup, KEP-4671).

Members are placed one after the other; where one finds no devices, the devices of the members
that were placed on a node before it are chosen again together with its own; members elsewhere give
up devices of the network that it needs; and where that does not help, earlier members move.
Upstream never looks back (kubernetes#138765).
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np

from dralab.scheduling.allocatable import NodeShortage
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.cycle import on_node, schedule
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.filters import lacking, passing
from dralab.scheduling.nodes import Mask
from dralab.scheduling.pods import PodInfo, with_claimed
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal
from dralab.values.records import dataclass

# Places tried for one gang before it is put off: members times nodes, not time, so runs repeat.
DEFAULT_BUDGET: Final = 2_000


def schedule_gang(
    state: ClusterState,
    members: Sequence[PodInfo],
    least: int,
    *,
    among: Mask | None = None,
    budget: int = DEFAULT_BUDGET,
    explains: bool = True,
) -> tuple[PodPlacement, ...] | Refusal:
    """Return places for all members, or else for at least `least`.

    Without a budget only the best node of each member is tried. The state is left as it was found.
    The refusal is that of the member that fits worst, without reasons unless it `explains`.
    """
    for member in members if least == len(members) and budget else ():
        alone = schedule(state, member, among, explains=explains)
        if isinstance(alone, Refusal):
            return alone
    search = _GangSearch(state, budget, among, explains)
    failed: Refusal | None = None
    for size in dict.fromkeys((len(members), least)):
        found = search.place(members[:size])
        if found is None:
            failed = failed or search.failed
            continue
        placements = list(found)
        for placement in placements:
            state.assume_placement(placement)
        for member in members[size:]:
            extra = schedule(state, member, among, explains=False)
            if isinstance(extra, PodPlacement):
                state.assume_placement(extra)
                placements.append(extra)
        for placement in reversed(placements):
            state.forget_placement(placement)
        return tuple(placements)
    return failed or Refusal(pod=members[0], nodes=state.table.count)


@dataclass
class _GangSearch:
    """Depth first over members and nodes, best nodes first, within a budget of tries."""

    state: ClusterState
    budget: int
    among: Mask | None = None
    explains: bool = True
    placed: list[PodPlacement] = field(default_factory=list)
    failed: Refusal | None = None
    depth: int = -1

    def place(self, members: Sequence[PodInfo]) -> tuple[PodPlacement, ...] | None:
        """Return places for all the members, or None."""
        self.placed = []
        self.depth = -1
        found = tuple(self.placed) if self._from(members, 0) else None
        for placement in reversed(self.placed):
            self.state.forget_placement(placement)
        self.placed = []
        return found

    def _from(self, members: Sequence[PodInfo], index: int) -> bool:
        if index == len(members):
            # The caller forgets what is placed: hand it a copy of the order that worked.
            return True
        pod, state = members[index], self.state
        first = schedule(state, pod, self.among, explains=self.explains)
        if isinstance(first, PodPlacement):
            if self._with(members, index, [*self.placed, first]):
                return True
            tried = first.node
        else:
            tried = ""
            if index > self.depth:
                self.depth, self.failed = index, first
        demand = state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod):
            return False
        for row in self._rows(pod, demand) if self.budget > 0 else ():
            if state.table.names[row] == tried:
                continue
            self.budget -= 1
            if self.budget < 0:
                return False
            revised = self._revised(pod, demand, row)
            if revised is not None and self._with(members, index, revised):
                return True
        return False

    def _with(self, members: Sequence[PodInfo], index: int, placements: list[PodPlacement]) -> bool:
        """Continue with these placements; restore the old ones if that fails."""
        before = self.placed
        self._become(placements)
        if self._from(members, index + 1):
            return True
        self._become(before)
        return False

    def _become(self, placements: list[PodPlacement]) -> None:
        for placement in reversed(self.placed):
            self.state.forget_placement(placement)
        self.placed = placements
        for placement in placements:
            self.state.assume_placement(placement)

    def _rows(self, pod: PodInfo, demand: PodDemand) -> list[int]:
        """Return the nodes worth a try: devices that others of the gang hold may be given up."""
        possible = passing(self.state, pod, demand)
        if self.among is not None:
            possible &= self.among
        table = self.state.table
        ours = {table.row_of[placement.node] for placement in self.placed}
        held = tuple(item for item in demand.claims if item.allocation is not None)
        without = PodDemand(claims=held, volumes=demand.volumes)
        relaxed = passing(self.state, pod, without) if ours else possible
        found: list[int] = np.nonzero(possible)[0].tolist()
        if any(self._holds_network(placement) for placement in self.placed):
            # A network-attached device that is held anywhere is held on all nodes.
            ours = set(table.row_of.values())
        inside = relaxed if self.among is None else relaxed & self.among
        found += [row for row in sorted(ours) if inside[row] and not possible[row]]
        return found

    def _holds_network(self, placement: PodPlacement) -> bool:
        return any(self.state.devices.is_of_network(plan.allocation) for plan in placement.plans)

    def _revised(self, pod: PodInfo, demand: PodDemand, row: int) -> list[PodPlacement] | None:
        """Return placements that add the pod on a node, its companions' devices chosen again."""
        state, node = self.state, self.state.table.names[row]
        tried = on_node(state, pod, demand, row)
        if tried.placement is not None:
            return [*self.placed, tried.placement]
        here = [placement for placement in self.placed if placement.node == node]
        if here and _can_be_revised(here, self.placed, demand):
            before = list(self.placed)
            self._become([placement for placement in before if placement.node != node])
            try:
                found = self._jointly([*(placement.pod for placement in here), pod], row, before)
            finally:
                self._become(before)
            if found is not None:
                return found
        return self._displacing(pod, demand, row, frozenset())

    def _displacing(
        self, pod: PodInfo, demand: PodDemand, row: int, moved: frozenset[str]
    ) -> list[PodPlacement] | None:
        """Return placements that add the pod on a node, others giving up devices of the network.

        One member lets its devices go, the pod takes what it needs, and the member chooses again on
        its node, where need be at the cost of a third one, and so on: each gives way once.
        """
        state, before = self.state, list(self.placed)
        for holder in before:
            if holder.pod.uid in moved or not self._holds_network(holder):
                continue
            self.budget -= 1
            if self.budget < 0:
                break
            self._become([placement for placement in before if placement is not holder])
            placement = on_node(state, pod, demand, row).placement
            found: list[PodPlacement] | None = None
            if placement is not None:
                self._become([*self.placed, placement])
                found = self._again(holder, moved | {holder.pod.uid, pod.uid})
            self._become(before)
            if found is not None:
                return found
        return None

    def _again(self, holder: PodPlacement, moved: frozenset[str]) -> list[PodPlacement] | None:
        """Return placements with a member back on its node, with other devices."""
        state = self.state
        demand, row = state.demands.demand_of(holder.pod), state.table.row_of[holder.node]
        if isinstance(demand, BlockedPod):
            return None
        provided = frozenset(demand.extended)
        if lacking(state.table, with_claimed(holder.pod, ()), row, provided):
            return None
        placement = on_node(state, holder.pod, demand, row).placement
        if placement is not None:
            return [*self.placed, placement]
        return self._displacing(holder.pod, demand, row, moved)

    def _jointly(
        self, pods: list[PodInfo], row: int, before: list[PodPlacement]
    ) -> list[PodPlacement] | None:
        state = self.state
        demands: list[PodDemand] = []
        for pod in pods:
            demand = state.demands.demand_of(pod)
            if isinstance(demand, BlockedPod):
                return None
            demands.append(demand)
        wires = {item.key: item.claim for demand in demands for item in demand.unallocated}
        found = state.devices.find_allocations(list(wires.values()), row)
        if not isinstance(found, list):
            return None
        chosen = dict(zip(wires, found, strict=True))
        node = state.table.names[row]
        made: dict[str, PodPlacement] = {}
        try:
            for pod, demand in zip(pods, demands, strict=True):
                plans = tuple(
                    ClaimPlan(
                        item.known,
                        item.consumer,
                        item.allocation if item.allocation is not None else chosen[item.key],
                    )
                    for item in demand.claims
                )
                charged = state.devices.charged(pod, plans)
                if isinstance(charged, NodeShortage):
                    return None
                if lacking(state.table, charged, row, frozenset()):
                    return None
                volumes = state.volume_plans(demand, row)
                if volumes is None:
                    return None
                made[pod.uid] = PodPlacement(state.settled(charged, row), node, plans, volumes)
                state.assume_placement(made[pod.uid])
        finally:
            for placement in reversed(made.values()):
                state.forget_placement(placement)
        kept = [made.pop(placement.pod.uid, placement) for placement in before]
        return [*kept, *made.values()]


def _can_be_revised(
    here: list[PodPlacement], placed: list[PodPlacement], demand: PodDemand
) -> bool:
    """Return whether devices on a node can change without touching members elsewhere."""
    if demand.extended:
        return False
    mine = {plan.key for placement in here for plan in placement.plans}
    mine |= {item.key for item in demand.claims}
    others = {plan.key for placement in placed if placement not in here for plan in placement.plans}
    return None not in mine and not mine & others
