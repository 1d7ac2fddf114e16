"""Preemption: the pods to evict so that one of higher priority, or a group, fits.

Source: kube-scheduler's DefaultPreemption, and for groups, anywhere in the cluster, that of 1.37
(`framework/preemption/podgrouppreemption.go`). Room of pods is freed: cpu, memory, extended
resources, ports, places; and the devices of claims that only victims use. Upstream frees no
devices: there a pod that needs devices never preempts for them (kubernetes 1.37, DynamicResources).
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dralab.objects.budgets import disruptions_allowed
from dralab.objects.claims import allocation_of, consumers_of
from dralab.objects.metadata import NamespacedName, is_deleting
from dralab.objects.pod_groups import preempts
from dralab.scheduling.cycle import on_node
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.filters import FILTERS, possible
from dralab.scheduling.group_placement import Placements, place_tree
from dralab.scheduling.group_trees import GroupTree, form_of_tree
from dralab.scheduling.nodes import REMEMBERED
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import ClusterState, NominatedPod, PodPlacement, Refusal
from dralab.scheduling.victims import (
    Budgets,
    PodsAway,
    Victim,
    Victims,
    spared_in_order,
    started,
)
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

# Upstream compares 10 % of the nodes, at least 100 of them.
LEAST_CANDIDATES: Final = 100
# What victims may change; their devices are lent, and the allocator is asked.
BY_PODS: Final = [each for each in FILTERS if each.by_pods and each.plugin != "DynamicResources"]


@dataclass(frozen=True, slots=True)
class Eviction:
    """The pods to evict from a node, for `winner` with its devices' consumption.

    `claims` are those of victims whose devices become free.
    """

    node: str
    winner: PodInfo
    victims: tuple[PodInfo, ...]
    violations: int
    claims: tuple[NamespacedName, ...] = ()


def eviction_for(
    state: ClusterState, pod: PodInfo, budgets: Iterable[JsonDict] = ()
) -> Eviction | None:
    """Return the cheapest eviction that makes a pod fit; None if none does or is allowed.

    Cheapest: fewest broken disruption budgets, then the least important victims, then the
    smallest sum of priorities, then the fewest, then those that started last.
    """
    table = state.table
    if (chosen := state.choice.victims(pod)) is not None:
        return _of_chosen(state, pod, chosen) if chosen else None
    if (
        not (pod.may_preempt and state.choice.preempts)
        or min(table.priorities, default=pod.priority) >= pod.priority
    ):
        return None
    demand = state.demands.demand_of(pod)
    if isinstance(demand, BlockedPod):
        return None
    if is_under_way(state, pod):
        return None
    may_serve = state.devices.may_serve(demand)
    units = Victims(state)
    allowed = [(budget, disruptions_allowed(budget)) for budget in budgets]
    most = max(LEAST_CANDIDATES, table.count // 10)
    found: list[tuple[tuple[int, ...], Eviction]] = []
    for row in possible(state, pod, demand).nonzero()[0].tolist():
        if not (may_serve(row) or _hold_devices(state, pod, row, units)):
            continue
        eviction = _on_node(state, pod, demand, row, units, allowed)
        if eviction is not None:
            found.append((_price(eviction), eviction))
            if len(found) >= most:
                break
    return min(found, key=lambda item: item[0])[1] if found else None


def _of_chosen(state: ClusterState, pod: PodInfo, uids: Sequence[str]) -> Eviction | None:
    """Return the eviction of pods that a policy chose, all of one node; None: it makes no room."""
    demand = state.demands.demand_of(pod)
    if isinstance(demand, BlockedPod) or is_under_way(state, pod):
        return None
    rows = {state.table.row_of[state.placed[uid]] for uid in uids if uid in state.placed}
    units = Victims(state).below(sys.maxsize, rows)
    chosen = [unit for unit in units if any(each.uid in uids for _, each in unit.pods)]
    away = PodsAway(state)
    for unit in chosen:
        away.take(unit)
    try:
        winner = _fitting(state, pod, demand, min(rows)) if len(rows) == 1 else None
        claims = away.claims()
    finally:
        away.bring_all_back()
    if winner is None:
        state.choice.in_vain(pod, uids)
        return None
    pods = tuple(each for unit in chosen for _, each in unit.pods)
    return Eviction(state.table.names[min(rows)], winner, pods, 0, claims)


def _on_node(  # noqa: PLR0917 - one question, and what is known for all nodes
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    row: int,
    units: Victims,
    budgets: Budgets,
) -> Eviction | None:
    lower = units.below(pod.priority, [row])
    if not lower:
        return None
    away = PodsAway(state)
    for unit in lower:
        away.take(unit)
    try:
        winner = _fitting(state, pod, demand, row)
        if winner is None:
            return None
        ordered, violating = spared_in_order(lower, budgets)
        victims: list[Victim] = []
        for unit in ordered:
            away.bring_back(unit)
            beside = _fitting(state, pod, demand, row)
            if beside is None:
                away.take(unit)
                victims.append(unit)
            else:
                winner = beside
        claims = away.claims()
    finally:
        away.bring_all_back()
    if not victims:
        return None
    violations = sum(victim in violating for victim in victims)
    pods = tuple(each for unit in victims for _, each in unit.pods)
    return Eviction(state.table.names[row], winner, pods, violations, claims)


def _fitting(state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> PodInfo | None:
    """Return a pod with its devices' consumption on a node, if it fits there; else None."""
    if any(each.at(state, pod, demand, row) for each in BY_PODS):
        return None
    if not (demand.claims or demand.extended):
        return pod
    placement = on_node(state, pod, demand, row).placement
    return None if placement is None else placement.pod


def _hold_devices(state: ClusterState, pod: PodInfo, row: int, units: Victims) -> bool:
    """Return whether pods of lower priority on a node hold any devices."""
    return any(
        state.devices.claims_held_by(other, state.demands.claims_of(other))
        for unit in units.below(pod.priority, [row])
        for _, other in unit.pods
    )


def _price(eviction: Eviction) -> tuple[int, ...]:
    priorities = [victim.priority for victim in eviction.victims]
    highest = max(priorities)
    earliest = min(started(victim) for victim in eviction.victims if victim.priority == highest)
    # Priorities may be negative; the shift keeps "more victims" dearer (pickOneNodeForPreemption).
    total = sum(priority + 2**31 for priority in priorities)
    return eviction.violations, highest, total, len(priorities), -earliest


def is_under_way(state: ClusterState, pod: PodInfo) -> bool:
    """Return whether a preemption for a pod is still under way."""
    promised = state.nominees.get(pod.uid)
    return promised is not None and (
        _still_leaving(state, pod, promised.node) or _still_held(state, promised)
    )


def _still_leaving(state: ClusterState, pod: PodInfo, node: str) -> bool:
    row = state.table.row_of.get(node)
    return row is not None and any(
        other.priority < pod.priority and is_deleting(other.obj)
        for other in state.table.pods[row].values()
    )


def _still_held(state: ClusterState, promised: NominatedPod) -> bool:
    """Return whether victims are gone but their claims are not released yet."""
    for key in promised.claims:
        claim = state.demands.claim(key)
        if claim is not None and allocation_of(claim) is not None:
            users = {consumer.get("uid") for consumer in consumers_of(claim)}
            if users <= promised.victims:
                return True
    return False


# --- for a group: everything of lower priority is taken away, the group is placed once, and then as
# much is spared as still fits beside it, the most important first


@dataclass(frozen=True, slots=True)
class GroupEviction:
    """The pods to evict for a group; `claims` are those whose devices become free."""

    placements: Placements
    victims: tuple[PodInfo, ...]
    claims: tuple[NamespacedName, ...] = ()


def group_eviction_for(
    state: ClusterState, tree: GroupTree, budgets: Iterable[JsonDict] = ()
) -> GroupEviction | None:
    """Return an eviction after which a group fits; None if none does or is allowed."""
    pods, table = tree.pods, state.table
    priority = max(pod.priority for pod in pods)
    may = preempts(tree.obj) and state.choice.preempts
    if not may or not all(pod.may_preempt for pod in pods):
        return None
    if min(table.priorities, default=priority) >= priority:
        return None
    if any(is_under_way(state, pod) for pod in pods):
        return None
    form = None if state.choice.by_object else form_of_tree(state, tree)
    stamp = table.without_below(priority), state.groups.version, frozenset(_nominated(state))
    if form is not None and state.without_help.get(form) == stamp:
        return None
    units = Victims(state).below(priority, table.row_of.values())
    if not units:
        return None
    away = PodsAway(state)
    for unit in units:
        away.take(unit)
    try:
        found = place_tree(state, tree, explains=False)
        if isinstance(found, Refusal):
            if form is not None:
                state.without_help[form] = stamp
                if len(state.without_help) > REMEMBERED:
                    state.without_help.popitem(last=False)
            return None
        victims: list[Victim] = []
        ordered, _ = spared_in_order(units, [(each, disruptions_allowed(each)) for each in budgets])
        for unit in ordered:
            away.bring_back(unit)
            if not _may_clash(unit, found):
                continue
            again = _again(state, found)
            if again is None:
                away.take(unit)
                victims.append(unit)
            else:
                found = again
        claims = away.claims()
    finally:
        away.bring_all_back()
    leaving = tuple(pod for unit in victims for _, pod in unit.pods)
    return GroupEviction(found, leaving, claims) if leaving else None


def _nominated(state: ClusterState) -> Iterator[tuple[str, str, int]]:
    return ((uid, each.node, each.pod.priority) for uid, each in state.nominees.items())


def _may_clash(unit: Victim, placements: Placements) -> bool:
    """Return whether pods may block others: on their nodes, or anywhere."""
    nodes = {each.node for each in placements}
    return any(node in nodes or pod.claims or pod.anti_affinity for node, pod in unit.pods) or any(
        each.pod.affinity or each.pod.anti_affinity or each.pod.spread for each in placements
    )


def _again(state: ClusterState, placements: Placements) -> Placements | None:
    """Return the same places with devices that are free now; None if one does not fit."""
    made: list[PodPlacement] = []
    for each in placements:
        placement = _still(state, each)
        if placement is None:
            break
        state.assume_placement(placement)
        made.append(placement)
    for placement in reversed(made):
        state.forget_placement(placement)
    return tuple(made) if len(made) == len(placements) else None


def _still(state: ClusterState, placed: PodPlacement) -> PodPlacement | None:
    pod, row = placed.pod, state.table.row_of[placed.node]
    demand = state.demands.demand_of(pod)
    if isinstance(demand, BlockedPod) or any(each.at(state, pod, demand, row) for each in BY_PODS):
        return None
    return on_node(state, pod, demand, row).placement
