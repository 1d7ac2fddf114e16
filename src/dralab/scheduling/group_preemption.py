"""Which pods would have to go so that a group finds its places, anywhere in the cluster.

Source: kube-scheduler 1.37, `framework/preemption/podgrouppreemption.go`: everything of lower
priority is taken away, the group is placed once, and then as much is spared as still fits beside
it, the most important first. Devices that only victims use become free, as in `preemption`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dralab.objects.budgets import disruptions_allowed
from dralab.objects.metadata import NamespacedName
from dralab.objects.pod_groups import preempts
from dralab.scheduling.cycle import on_node
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.group_placement import GroupTree, Placements, place_tree
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import BY_PODS, is_under_way
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal
from dralab.scheduling.victims import PodsAway, Victim, Victims, spared_in_order
from dralab.values.json_types import JsonDict


@dataclass(frozen=True, slots=True)
class GroupEviction:
    """These pods make room for a group; `claims` are those of victims whose devices become free."""

    placements: Placements
    victims: tuple[PodInfo, ...]
    claims: tuple[NamespacedName, ...] = ()


def group_eviction_for(
    state: ClusterState, tree: GroupTree, budgets: Iterable[JsonDict] = ()
) -> GroupEviction | None:
    """Return an eviction after which a group fits; None if none does, or none may."""
    pods, table = tree.pods, state.table
    priority = max(pod.priority for pod in pods)
    may = preempts(tree.obj) and state.choice.preempts
    if not may or not all(pod.may_preempt for pod in pods):
        return None
    if min(table.priorities, default=priority) >= priority:
        return None
    if any(is_under_way(state, pod) for pod in pods):
        return None
    units = Victims(state).below(priority, table.row_of.values())
    if not units:
        return None
    away = PodsAway(state)
    for unit in units:
        away.take(unit)
    try:
        found = place_tree(state, tree)
        if isinstance(found, Refusal):
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


def _may_clash(unit: Victim, placements: Placements) -> bool:
    """Return whether pods can be in the way of others: on their nodes, or wherever they are."""
    nodes = {each.node for each in placements}
    return any(node in nodes or pod.claims or pod.anti_affinity for node, pod in unit.pods) or any(
        each.pod.affinity or each.pod.anti_affinity or each.pod.spread for each in placements
    )


def _again(state: ClusterState, placements: Placements) -> Placements | None:
    """Return the same places with devices that are free now; None where one does not fit."""
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
