"""What it costs to move a pod, and which pods cannot be moved."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from dralab.capacity.changes import of_daemon_set
from dralab.controllers.workloads import percentage
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.metadata import is_deleting, spec_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict

By = Literal["moves", "cost"]
# Cost of a move, of each priority below the pod's that some pod has, and of its age at most.
PER_MOVE: Final = 10
PER_PRIORITY: Final = 10
MOST_FOR_AGE: Final = 9
BELONGS: Final = "it belongs to its node"


class MoveCosts:
    """The cost of moving each pod; `refused` says, by uid, why a pod must stay.

    By moves, each costs 1. By cost, a move costs 10, and 10 more for each lower priority that
    pods have, and up to 9 more the longer the pod runs compared with the others.
    """

    def __init__(self, model: ClusterModel, by: By = "moves") -> None:
        self.by = by
        running = list(model.running.values())
        budgets = [
            (budget, _allowed(budget, running))
            for budget in model.objects.of("PodDisruptionBudget")
        ]
        self.refused: dict[str, str] = {}
        for each in running:
            why = _why_not(each.pod, budgets)
            if why:
                self.refused[each.pod.uid] = why
        self._priorities = sorted({each.pod.priority for each in running})
        self._created = sorted((each.pod.created for each in running), reverse=True)
        self.least = 1 if by == "moves" else PER_MOVE

    def of(self, pod: PodInfo) -> int:
        """Return what moving a pod costs."""
        return 1 if self.by == "moves" else self.importance(pod)

    def importance(self, pod: PodInfo) -> int:
        """Return the cost by priority and age, which also settles ties between equal moves."""
        rank = bisect_right(self._priorities, pod.priority) - 1
        older = bisect_right(self._created, -pod.created, key=lambda created: -created)
        age = MOST_FOR_AGE * (older - 1) // max(1, len(self._created))
        return PER_MOVE + PER_PRIORITY * max(0, rank) + max(0, age)


def _why_not(pod: PodInfo, budgets: Iterable[tuple[JsonDict, int]]) -> str:
    if of_daemon_set(pod.obj):
        return BELONGS
    if is_deleting(pod.obj):
        return "it is being deleted"
    for budget, allowed in budgets:
        if not allowed and covers(budget, pod.obj):
            return f"PodDisruptionBudget {budget['metadata']['name']} allows no disruption"
    return ""


def _allowed(budget: JsonDict, running: Iterable[PodPlacement]) -> int:
    """Return how many pods of a budget may be evicted; counts its pods if it has no status."""
    if "status" in budget:
        return disruptions_allowed(budget)
    spec: Mapping[str, object] = spec_of(budget)
    there = sum(covers(budget, each.pod.obj) for each in running)
    if spec.get("maxUnavailable") is not None:
        return min(there, percentage(spec["maxUnavailable"], there, up=True))
    return max(0, there - percentage(spec.get("minAvailable", 1), there, up=True))
