"""Units of preemption: a pod, or a group that is preempted as a whole.

Source: kube-scheduler 1.37, `framework/preemption` (`Victim`, `MoreImportantVictim`,
`FilterVictimsWithPDBViolation`).
"""

from collections.abc import Iterable, Sequence

from dralab.kernel.clock import from_rfc3339
from dralab.objects.budgets import covers
from dralab.objects.metadata import NamespacedName, key_of, status_of, uid_of
from dralab.objects.pod_groups import COMPOSITE
from dralab.scheduling.claims import EXTENDED_CLAIM
from dralab.scheduling.devices import LentDevices
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import ClusterState
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Budgets = Sequence[tuple[JsonDict, int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Victim:
    """Pods that end together, with their nodes; `rank` is 0 of a pod, 1 of a group, 2 above."""

    pods: tuple[tuple[str, PodInfo], ...]
    priority: int
    rank: int = 0

    @property
    def importance(self) -> tuple[int, ...]:
        """A sort key: the most important first."""
        earliest = min(started(pod) for _, pod in self.pods)
        return -self.priority, -self.rank, -len(self.pods), earliest


class Victims:
    """The running pods as units; create a new one for each question."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._groups: dict[NamespacedName, Victim | None] = {}
        self._members: dict[NamespacedName, list[tuple[str, PodInfo]]] | None = None

    def below(self, priority: int, rows: Iterable[int]) -> list[Victim]:
        """Return the units with a pod on some nodes whose priority is lower."""
        table = self._state.table
        found: dict[object, Victim] = {}
        for row in rows:
            node = table.names[row]
            for pod in table.pods[row].values():
                unit = self._unit(pod) if pod.group else None
                if unit is None:
                    unit = Victim(pods=((node, pod),), priority=self._priority(pod))
                if unit.priority < priority:
                    found[unit.pods[0][1].uid] = unit
        return list(found.values())

    def _priority(self, pod: PodInfo) -> int:
        if not pod.group:
            return pod.priority
        key = NamespacedName(pod.key.namespace, pod.group)
        stated = self._state.groups.priority_of(key)
        return pod.priority if stated is None else stated

    def _unit(self, pod: PodInfo) -> Victim | None:
        key = NamespacedName(pod.key.namespace, pod.group)
        if key not in self._groups:
            self._groups[key] = self._whole(key, pod)
        return self._groups[key]

    def _whole(self, key: NamespacedName, pod: PodInfo) -> Victim | None:
        unit = self._state.groups.unit_of(key)
        if unit is None:
            return None
        if self._members is None:
            self._members = {}
            table = self._state.table
            for row, there in enumerate(table.pods):
                for other in there.values():
                    if other.group:
                        group = NamespacedName(other.key.namespace, other.group)
                        self._members.setdefault(group, []).append((table.names[row], other))
        leaves = self._state.groups.leaves(*unit)
        pods = tuple(each for leaf in leaves for each in self._members.get(leaf, ()))
        rank = 2 if unit[0] == COMPOSITE else 1
        return Victim(pods=pods, priority=self._priority(pod), rank=rank)


class PodsAway:
    """Units that are temporarily removed from their nodes, with devices that only they use."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._pods: dict[str, tuple[str, PodInfo]] = {}
        self._lent: dict[str, LentDevices] = {}

    def take(self, unit: Victim) -> None:
        """Take the pods of a unit away."""
        for node, pod in unit.pods:
            self._state.table.remove_pod(node, pod.uid)
            self._pods[pod.uid] = node, pod
            self._settle(pod)

    def bring_back(self, unit: Victim) -> None:
        """Bring the pods of a unit back, with their devices."""
        for node, pod in unit.pods:
            del self._pods[pod.uid]
            self._settle(pod)
            self._state.table.add_pod(node, pod)

    def bring_all_back(self) -> None:
        """Bring back all removed pods."""
        for node, pod in list(self._pods.values()):
            self.bring_back(Victim(pods=((node, pod),), priority=0))

    def claims(self) -> tuple[NamespacedName, ...]:
        """Return the claims whose devices are free because of the pods that are away."""
        found: list[NamespacedName] = []
        for _, pod in self._pods.values():
            claims = self._state.demands.claims_of(pod)
            found += [key_of(claim) for claim in claims if uid_of(claim) in self._lent]
            # The claim for extended resources may not be written yet, or never.
            unwritten = self._state.devices.claims_named(pod, ()) & self._lent.keys()
            found += [NamespacedName(pod.key.namespace, EXTENDED_CLAIM)] * len(unwritten)
        return tuple(found)

    def _settle(self, pod: PodInfo) -> None:
        devices = self._state.devices
        claims = self._state.demands.claims_of(pod)
        for uid, users in devices.claims_held_by(pod, claims).items():
            if users <= self._pods.keys() and uid not in self._lent:
                self._lent[uid] = devices.lend(uid)
        for uid in devices.claims_named(pod, claims) & self._lent.keys():
            if pod.uid not in self._pods:
                devices.take_back(self._lent.pop(uid))


def spared_in_order(units: Iterable[Victim], budgets: Budgets) -> tuple[list[Victim], list[Victim]]:
    """Return units in the order in which they are spared, and those that break a budget.

    Those whose budget would break come first, then the others, each by importance.
    """
    important = sorted(units, key=lambda unit: unit.importance)
    left = [allowed for _, allowed in budgets]
    violating = []
    for unit in important:
        broken = False
        for _, pod in unit.pods:
            for number, (budget, _) in enumerate(budgets):
                if covers(budget, pod.obj):
                    left[number] -= 1
                    broken = broken or left[number] < 0
        if broken:
            violating.append(unit)
    return [*violating, *(unit for unit in important if unit not in violating)], violating


def started(pod: PodInfo) -> int:
    """Return when a pod started; its creation if it has not."""
    found = status_of(pod.obj).get("startTime")
    return from_rfc3339(found) if found else pod.created
