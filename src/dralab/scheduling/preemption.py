"""Which pods would have to go so that one of higher priority fits, and from which node.

Source: kube-scheduler's DefaultPreemption. Room of pods is freed: cpu, memory, extended resources,
ports, places; and the devices of claims that only victims use. Upstream frees no devices:
there a pod that needs devices never preempts for them (kubernetes 1.37, DynamicResources).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dralab.kernel.clock import from_rfc3339
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.claims import allocation_of, consumers_of
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, status_of, uid_of
from dralab.scheduling.cycle import on_node
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.devices import LentDevices
from dralab.scheduling.filters import FILTERS, possible
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import ClusterState, NominatedPod
from dralab.values.json_types import JsonDict

# Upstream compares 10 % of the nodes, at least 100 of them.
LEAST_CANDIDATES: Final = 100
# What victims may change; their devices are lent, and the allocator is asked.
BY_PODS: Final = [each for each in FILTERS if each.by_pods and each.plugin != "DynamicResources"]


@dataclass(frozen=True, slots=True)
class Eviction:
    """These pods make room on that node, for `winner` with what its devices take there.

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
    if promised is not None and (
        _still_leaving(state, pod, promised.node) or _still_held(state, promised)
    ):
        return None
    free = state.devices.feasible(demand)
    allowed = [(budget, disruptions_allowed(budget)) for budget in budgets]
    most = max(LEAST_CANDIDATES, table.count // 10)
    found: list[tuple[tuple[int, ...], Eviction]] = []
    for row in possible(state, pod, demand).nonzero()[0].tolist():
        if free is not None and not free[row] and not _hold_devices(state, pod, row):
            continue
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
    budgets: list[tuple[JsonDict, int]],
) -> Eviction | None:
    lower = _lower(state, pod, row)
    if not lower:
        return None
    away = _PodsAway(state, state.table.names[row])
    for other in lower:
        away.take(other)
    try:
        winner = _fitting(state, pod, demand, row)
        if winner is None:
            return None
        important = sorted(lower, key=lambda other: (-other.priority, _started(other)))
        violating = _violating(important, budgets)
        victims: list[PodInfo] = []
        # Those whose budget would break are spared first, then by importance.
        for other in [*violating, *(each for each in important if each not in violating)]:
            away.bring_back(other)
            beside = _fitting(state, pod, demand, row)
            if beside is None:
                away.take(other)
                victims.append(other)
            else:
                winner = beside
        claims = away.claims()
    finally:
        away.bring_all_back()
    if not victims:
        return None
    violations = sum(victim in violating for victim in victims)
    return Eviction(state.table.names[row], winner, tuple(victims), violations, claims)


def _fitting(state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> PodInfo | None:
    """Return a pod with what its devices take of a node, if it fits there; else None."""
    if any(each.at(state, pod, demand, row) for each in BY_PODS):
        return None
    if not (demand.claims or demand.extended):
        return pod
    placement = on_node(state, pod, demand, row).placement
    return None if placement is None else placement.pod


class _PodsAway:
    """Pods that are taken from their node for a moment, with the devices that only they use."""

    def __init__(self, state: ClusterState, node: str) -> None:
        self._state = state
        self._node = node
        self._pods: dict[str, PodInfo] = {}
        self._lent: dict[str, LentDevices] = {}

    def take(self, pod: PodInfo) -> None:
        """Take a pod away."""
        self._state.table.remove_pod(self._node, pod.uid)
        self._pods[pod.uid] = pod
        self._settle(pod)

    def bring_back(self, pod: PodInfo) -> None:
        """Bring a pod back, with its devices."""
        del self._pods[pod.uid]
        self._settle(pod)
        self._state.table.add_pod(self._node, pod)

    def bring_all_back(self) -> None:
        """Bring all pods back that are away."""
        for pod in list(self._pods.values()):
            self.bring_back(pod)

    def claims(self) -> tuple[NamespacedName, ...]:
        """Return the claims whose devices are free because of the pods that are away."""
        return tuple(
            key_of(claim)
            for pod in self._pods.values()
            for claim in self._state.demands.claims_of(pod)
            if uid_of(claim) in self._lent
        )

    def _settle(self, pod: PodInfo) -> None:
        devices = self._state.devices
        claims = self._state.demands.claims_of(pod)
        for uid, users in devices.claims_held_by(pod, claims).items():
            if users <= self._pods.keys() and uid not in self._lent:
                self._lent[uid] = devices.lend(uid)
        for uid in devices.claims_named(pod, claims) & self._lent.keys():
            if pod.uid not in self._pods:
                devices.take_back(self._lent.pop(uid))


def _lower(state: ClusterState, pod: PodInfo, row: int) -> list[PodInfo]:
    return [other for other in state.table.pods[row].values() if other.priority < pod.priority]


def _hold_devices(state: ClusterState, pod: PodInfo, row: int) -> bool:
    """Return whether pods of lower priority on a node hold any devices."""
    return any(
        state.devices.claims_held_by(other, state.demands.claims_of(other))
        for other in _lower(state, pod, row)
    )


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


def _still_held(state: ClusterState, promised: NominatedPod) -> bool:
    """Return whether victims have gone, and their claims still wait to be released."""
    for key in promised.claims:
        claim = state.demands.claim(key)
        if claim is not None and allocation_of(claim) is not None:
            users = {consumer.get("uid") for consumer in consumers_of(claim)}
            if users <= promised.victims:
                return True
    return False


def _violating(pods: list[PodInfo], budgets: list[tuple[JsonDict, int]]) -> list[PodInfo]:
    left = [allowed for _, allowed in budgets]
    found = []
    for pod in pods:
        broken = False
        for number, (budget, _) in enumerate(budgets):
            if covers(budget, pod.obj):
                left[number] -= 1
                broken = broken or left[number] < 0
        if broken:
            found.append(pod)
    return found
