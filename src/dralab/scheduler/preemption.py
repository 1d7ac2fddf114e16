"""Which pods would have to go so that one of higher priority fits, and from which node.

Source: kube-scheduler's DefaultPreemption. Room of pods is freed: cpu, memory, extended resources,
ports, places. Devices of victims are not: a pod that needs devices must find free ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dralab.kernel.clock import from_rfc3339
from dralab.objects.metadata import is_deleting, spec_of, status_of
from dralab.scheduler import filters, topology
from dralab.scheduler.cycle import ClusterState, on_node
from dralab.scheduler.demands import BlockedPod, PodDemand
from dralab.scheduler.pods import PodInfo
from dralab.values import labels
from dralab.values.json_types import JsonDict

# Upstream compares 10 % of the nodes, at least 100 of them.
LEAST_CANDIDATES: Final = 100


@dataclass(frozen=True, slots=True)
class Eviction:
    """These pods make room on that node, for `winner` with what its devices take there."""

    node: str
    winner: PodInfo
    victims: tuple[PodInfo, ...]
    violations: int


def eviction_for(
    state: ClusterState, pod: PodInfo, budgets: Iterable[JsonDict] = ()
) -> Eviction | None:
    """Return the cheapest eviction that makes a pod fit; None if none does, or none may.

    Cheapest: fewest broken disruption budgets, then the least important victims, then the
    smallest sum of priorities, then the fewest, then those that started last.
    """
    table = state.table
    if not pod.may_preempt or min(table.priorities, default=pod.priority) >= pod.priority:
        return None
    demand = state.demands.demand_of(pod)
    if isinstance(demand, BlockedPod):
        return None
    promised = state.nominees.get(pod.uid)
    if promised is not None and _still_leaving(state, pod, promised.node):
        return None
    possible = table.live & state.filters.mask(pod)
    for _, mask in state.volume_rules(demand):
        possible &= mask
    devices = state.devices.candidates(demand)
    if devices is not None:
        possible = possible & devices
    allowed = [(_selects(budget), _allowed(budget)) for budget in budgets]
    most = max(LEAST_CANDIDATES, table.count // 10)
    found: list[tuple[tuple[int, ...], Eviction]] = []
    for row in possible.nonzero()[0].tolist():
        eviction = _on_node(state, pod, demand, row, allowed)
        if eviction is not None:
            found.append((_price(eviction), eviction))
            if len(found) >= most:
                break
    return min(found, key=lambda item: item[0])[1] if found else None


def _on_node(
    state: ClusterState,
    pod: PodInfo,
    demand: PodDemand,
    row: int,
    budgets: list[tuple[Any, int]],
) -> Eviction | None:
    table = state.table
    name = table.names[row]
    lower = [other for other in table.pods[row].values() if other.priority < pod.priority]
    if not lower:
        return None
    for other in lower:
        table.remove_pod(name, other.uid)
    victims: list[PodInfo] = []
    violating: list[PodInfo] = []
    try:
        if not _fits(state, pod, demand, row):
            return None
        if demand.claims or demand.extended:
            placement = on_node(state, pod, demand, row).placement
            if placement is None:
                return None
            pod = placement.pod
        important = sorted(lower, key=lambda other: (-other.priority, _started(other)))
        violating = _violating(important, budgets)
        # Those whose budget would break are spared first, then by importance.
        order = [*violating, *(other for other in important if other not in violating)]
        for other in order:
            table.add_pod(name, other)
            if not _fits(state, pod, demand, row):
                table.remove_pod(name, other.uid)
                victims.append(other)
    finally:
        for other in lower:
            table.add_pod(name, other)
    if not victims:
        return None
    return Eviction(name, pod, tuple(victims), sum(victim in violating for victim in victims))


def _fits(state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> bool:
    table = state.table
    if filters.lacking(table, pod, row, frozenset(demand.extended)):
        return False
    ports = filters.ports_free(table, pod)
    if ports is not None and not ports[row]:
        return False
    if not topology.is_bound_by_pods(table, pod):
        return True
    return all(bool(mask[row]) for _, mask in topology.restrictions(table, state.filters, pod))


def _price(eviction: Eviction) -> tuple[int, ...]:
    priorities = [victim.priority for victim in eviction.victims]
    highest = max(priorities)
    earliest = min(_started(victim) for victim in eviction.victims if victim.priority == highest)
    # Priorities may be negative; the shift keeps "more victims" dearer (pickOneNodeForPreemption).
    total = sum(priority + 2**31 for priority in priorities)
    return eviction.violations, highest, total, len(priorities), -earliest


def _started(pod: PodInfo) -> int:
    started = status_of(pod.obj).get("startTime")
    return from_rfc3339(started) if started else pod.created


def _still_leaving(state: ClusterState, pod: PodInfo, node: str) -> bool:
    row = state.table.row_of.get(node)
    return row is not None and any(
        other.priority < pod.priority and is_deleting(other.obj)
        for other in state.table.pods[row].values()
    )


def _selects(budget: Mapping[str, Any]) -> Any:
    namespace = budget["metadata"].get("namespace", "")
    wanted = spec_of(budget).get("selector")
    selector = labels.from_mapping(wanted)

    def accepts(pod: PodInfo) -> bool:
        if wanted is None or pod.key.namespace != namespace:
            return False
        return selector.accepts(pod.labels)

    return accepts


def _allowed(budget: Mapping[str, Any]) -> int:
    return int(status_of(budget).get("disruptionsAllowed") or 0)


def _violating(pods: list[PodInfo], budgets: list[tuple[Any, int]]) -> list[PodInfo]:
    left = [allowed for _, allowed in budgets]
    found = []
    for pod in pods:
        broken = False
        for number, (accepts, _) in enumerate(budgets):
            if accepts(pod):
                left[number] -= 1
                broken = broken or left[number] < 0
        if broken:
            found.append(pod)
    return found
