"""Places for the pods of a PodGroup, or the groups of a composite: all, or none.

Source: kube-scheduler 1.37, `schedule_one_podgroup.go` and the plugins GangScheduling,
TopologyPlacementGenerator, PodGroupPodsCount and NodeResourcesFit (`ScorePlacement`). A group with
a topology key is tried in each value of that node label, and the best value wins: the most pods,
then the fullest nodes. `gangs` finds places inside one value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import numpy as np

from dralab.objects import pod_groups
from dralab.objects.pod_groups import COMPOSITE
from dralab.scheduling.cycle import schedule
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.filters import possible
from dralab.scheduling.gangs import DEFAULT_BUDGET, schedule_gang
from dralab.scheduling.group_trees import GroupTree, unready
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.nodes import Mask
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    GROUP_EMPTY,
    GROUP_SPLIT,
    GROUP_STARTED,
    GROUPS_TOO_FEW,
    NO_DOMAIN,
    NO_DOMAIN_LABEL,
    PODS,
    Reason,
)
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal
from dralab.values.records import dataclass

# Where first choices lead nowhere, other choices are tried in so many values of the node label.
SEARCHED_DOMAINS: Final = 4
MOST_POINTS: Final = 100
FREE_OF_LIMITS: Final = 1 << 40

Placements = tuple[PodPlacement, ...]


def left_over(state: ClusterState, tree: GroupTree, pod: PodInfo) -> Refusal:
    """Return the refusal of a pod that is not placed although its group starts."""
    found = schedule(state, pod)
    if isinstance(found, Refusal):
        return found
    reason = Reason(GROUP_STARTED, (tree.name,))
    return Refusal(pod=pod, nodes=state.table.count, blocked=reason)


def place_tree(
    state: ClusterState, tree: GroupTree, *, explains: bool = True
) -> Placements | Refusal:
    """Return places for the waiting pods of a tree; the state is not changed.

    Unless it `explains`, a refusal is without reasons.
    """
    found = _Placing(state, tree.pods[0], explains).place(tree, None, DEFAULT_BUDGET)
    if not found and not isinstance(found, Refusal):
        empty = Reason(GROUP_EMPTY, (tree.name,))
        return Refusal(pod=tree.pods[0], nodes=state.table.count, blocked=empty)
    return found


@dataclass(frozen=True, slots=True)
class _Placing:
    """Tries the groups of one tree; `pod` is the one that refusals name."""

    state: ClusterState
    pod: PodInfo
    explains: bool

    def place(self, tree: GroupTree, among: Mask | None, budget: int) -> Placements | Refusal:
        """Return places that the tree's own topology allows."""
        key = pod_groups.topology_of(tree.obj)
        if not key or not tree.pods:
            return self._inside(tree, among, budget)
        domains = Domains(self.state, tree, key, among)
        if (reason := domains.unusable()) is not None:
            return self._refused(reason)
        best: tuple[tuple[int, int], Placements] | None = None
        candidates = domains.candidates()
        # What is missing in one value is not told.
        inside = replace(self, explains=False)
        for number in candidates:
            found = inside._inside(tree, domains.mask(number), 0)  # noqa: SLF001 - another of it
            if isinstance(found, Refusal):
                continue
            points = MOST_POINTS * len(found), domains.fullness(number, found)
            if best is None or points > best[0]:
                best = points, found
        if best is not None:
            return best[1]
        for number in candidates[:SEARCHED_DOMAINS] if budget else ():
            found = inside._inside(tree, domains.mask(number), budget)  # noqa: SLF001 - as above
            if not isinstance(found, Refusal):
                return found
        return self._refused(domains.reason() if self.explains else Reason(NO_DOMAIN))

    def _inside(self, tree: GroupTree, among: Mask | None, budget: int) -> Placements | Refusal:
        if tree.kind == COMPOSITE:
            return self._children(tree, among, budget)
        if tree.gang and tree.waiting:
            need = tree.needed
            found = schedule_gang(
                self.state, tree.waiting, need, among=among, budget=budget, explains=self.explains
            )
            if need == len(tree.waiting) or not isinstance(found, Refusal):
                return found
        # One after the other, as kube-scheduler does: of the first ones not all may fit.
        placements, failed = as_many(self.state, tree.waiting, among, explains=self.explains)
        if len(placements) >= tree.needed:
            return placements
        return failed or self._refused(Reason(GROUP_EMPTY, (tree.name,)))

    def _children(self, tree: GroupTree, among: Mask | None, budget: int) -> Placements | Refusal:
        placements: list[PodPlacement] = []
        fitting, refusals = 0, {}
        for child in tree.children:
            blocked = unready(child)
            found = self._refused(blocked) if blocked else self.place(child, among, budget)
            if isinstance(found, Refusal):
                refusals[child.name] = found
                continue
            fitting += 1
            for each in found:
                self.state.assume_placement(each)
            placements += found
        for each in reversed(placements):
            self.state.forget_placement(each)
        if fitting >= tree.least:
            return tuple(placements)
        counts = str(tree.least), str(len(tree.children)), tree.name, str(fitting)
        name, failed = next(iter(refusals.items()))
        reason = Reason(GROUPS_TOO_FEW, (*counts, name))
        return replace(failed, blocked=reason)

    def _refused(self, reason: Reason) -> Refusal:
        return Refusal(pod=self.pod, nodes=self.state.table.count, blocked=reason)


def as_many(
    state: ClusterState, pods: Iterable[PodInfo], among: Mask | None, *, explains: bool
) -> tuple[Placements, Refusal | None]:
    """Return places for as many pods as fit, one after the other, and the first refusal."""
    placements: list[PodPlacement] = []
    failed: Refusal | None = None
    for pod in pods:
        found = schedule(state, pod, among, explains=explains and failed is None)
        if isinstance(found, Refusal):
            failed = failed or found
            continue
        state.assume_placement(found)
        placements.append(found)
    for each in reversed(placements):
        state.forget_placement(each)
    return tuple(placements), failed


class Domains:
    """The values of one node label, as places for a group."""

    def __init__(self, state: ClusterState, tree: GroupTree, key: str, among: Mask | None) -> None:
        self.state, self.tree, self.key = state, tree, key
        self.count, self._of_row = state.table.domains(key)
        self.among = state.table.live if among is None else among & state.table.live
        labelled = self.among & (self._of_row >= 0)
        self._taken = {int(self._of_row[row]) for row in tree.placed}
        if len(self._taken) == 1:
            labelled &= self._of_row == next(iter(self._taken))
        self._labelled = labelled
        self._room = self._upper_bounds()

    def unusable(self) -> Reason | None:
        """Return the refusal if no value can have room; None if one may."""
        if len(self._taken) > 1 or -1 in self._taken:
            names = ", ".join(sorted(self.name(each) or "none" for each in self._taken))
            return Reason(GROUP_SPLIT, (self.tree.name, self.key, names))
        if not self._labelled.any():
            return Reason(NO_DOMAIN_LABEL, (self.key, self.tree.name))
        return None

    def candidates(self) -> list[int]:
        """Return the values in which the group may fit, by name; those with most room first."""
        numbers = [
            number
            for number in np.unique(self._of_row[self._labelled]).tolist()
            if self._room[number] >= max(self.tree.needed, 1)
        ]
        return sorted(numbers, key=lambda each: (-self._room[each], self.name(each)))

    def mask(self, number: int) -> Mask:
        """Return the nodes of one value."""
        found: Mask = self._labelled & (self._of_row == number)
        return found

    def name(self, number: int) -> str:
        """Return a value; empty for nodes without the label."""
        rows = np.flatnonzero(self._of_row == number)
        return str(self.state.table.labels[rows[0]].get(self.key, "")) if len(rows) else ""

    def fullness(self, number: int, placements: Placements) -> int:
        """Return how full the nodes of a value would be, of cpu and memory, from 0 to 100."""
        table, mask = self.state.table, self.mask(number)
        offer = table.scored_offer()[:, mask].sum(axis=1)
        asked = np.array([each.pod.asked_in_scores for each in placements], dtype=np.int64)
        used = offer - table.scored_free()[:, mask].sum(axis=1) + asked.sum(axis=0)
        there = offer > 0
        shares = np.minimum(used, offer)[there] * MOST_POINTS // offer[there]
        return int(shares.sum() // max(there.sum(), 1))

    def reason(self) -> Reason:
        """Return that no value has room, with the one that comes closest."""
        if not self.tree.needed:
            return Reason(GROUP_STARTED, (self.tree.name,))
        numbers = np.unique(self._of_row[self._labelled]).tolist()
        nearest = max(numbers, key=lambda each: (self._room[each], self.name(each)))
        have = len(self.tree.placed)
        if self._room[nearest]:
            mask = self.mask(nearest)
            have += len(as_many(self.state, self.tree.pods, mask, explains=False)[0])
        least = self.tree.needed + len(self.tree.placed)
        fields = (self.tree.name, str(least), self.key, self.name(nearest), str(have))
        return Reason(NO_DOMAIN, fields)

    def _upper_bounds(self) -> list[int]:
        """Return for each value how many of the group's pods may fit at most, by their requests."""
        table, pods = self.state.table, self.tree.pods
        smallest = reduce(
            lambda some, more: {
                name: min(amount, more[name]) for name, amount in some.items() if name in more
            },
            (pod.requests for pod in pods),
        )
        fits = np.minimum(table.free(PODS), FREE_OF_LIMITS)
        for name, amount in smallest.items():
            # What devices may provide in the node's place is left to the search.
            if amount and name not in self.state.demands.provided:
                fits = np.minimum(fits, table.free(name) // amount)
        shares = [pod.shares for pod in pods if pod.shares is not None]
        if len(shares) == len(pods):
            gpus, milli = min(each.gpus for each in shares), min(each.milli for each in shares)
            if gpus and milli:
                fits = np.minimum(fits, (table.shared_gpus().left // milli).sum(axis=1) // gpus)
        fits = np.maximum(fits, 0) * self._possible(pods)
        counted = np.bincount(
            self._of_row[self._labelled], weights=fits[self._labelled], minlength=self.count
        )
        return [int(each) for each in counted]

    def _possible(self, pods: Sequence[PodInfo]) -> Numbers | Mask:
        """Return the nodes that some pod may use; all, where devices decide."""
        kinds: dict[object, tuple[PodInfo, PodDemand]] = {}
        for pod in pods:
            demand = self.state.demands.demand_of(pod)
            if isinstance(demand, BlockedPod):
                continue
            if demand.claims:
                return self.state.table.live
            kinds.setdefault(pod.placement, (pod, demand))
        found = [possible(self.state, pod, demand) for pod, demand in kinds.values()]
        return np.logical_or.reduce(found) if found else self.state.table.live
