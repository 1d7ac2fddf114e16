"""PodDisruptionBudgets: how many pods may be disrupted now.

Source: kube-controller-manager's disruption controller. Evictions and preemption read the status.
"""

from typing import Any, Final

from dralab.controllers.workloads import each, percentage, write_status
from dralab.objects.budgets import covers
from dralab.objects.conditions import conditions_of, with_condition
from dralab.objects.metadata import (
    NamespacedName,
    controller_of,
    is_deleting,
    key_of,
    spec_of,
)
from dralab.objects.pods import is_finished, is_ready
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from dralab.values.json_types import JsonDict, JsonObject

SIZED: Final = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS, "Deployment": DEPLOYMENTS}


class DisruptionBudgets:
    """Counts healthy pods and writes how many may be disrupted."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.budgets = manager.cache(DISRUPTION_BUDGETS)
        self.pods = manager.cache(PODS)
        self.pods.index("namespace", lambda pod: [key_of(pod).namespace])
        self.sets = {kind: manager.cache(resource) for kind, resource in SIZED.items()}
        self.queue = manager.queue("disruption", self.reconcile)
        self.budgets.subscribe(each(self.queue.add))
        self.pods.subscribe(self._pod)
        for cache in self.sets.values():
            cache.subscribe(self._set)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for pod in (old, new):
            if pod is not None and len(self.budgets):
                for budget in self.budgets.namespace(key_of(pod).namespace):
                    if covers(budget, pod):
                        self.queue.add(key_of(budget))

    def _set(self, old: JsonDict | None, new: JsonDict | None) -> None:
        obj = new if new is not None else old
        if obj is not None and len(self.budgets):
            for budget in self.budgets.namespace(key_of(obj).namespace):
                self.queue.add(key_of(budget))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Count, and write what is left."""
        budget = self.budgets.get(key)
        if budget is None or is_deleting(budget):
            return None
        pods = [
            pod
            for pod in self.pods.find("namespace", key.namespace)
            if covers(budget, pod) and not is_finished(pod)
        ]
        spec = spec_of(budget)
        expected = self._expected(spec, pods)
        if spec.get("maxUnavailable") is not None:
            desired = max(0, expected - percentage(spec["maxUnavailable"], expected, up=True))
        else:
            desired = percentage(spec.get("minAvailable", 1), expected, up=True)
        healthy = sum(is_ready(pod) and not is_deleting(pod) for pod in pods)
        allowed = max(0, healthy - desired) if expected else 0
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        before = conditions_of(budget)
        status: dict[str, Any] = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 0),
            "conditions": with_condition(before, condition, now=self.manager.now()),
        }
        write_status(self.manager, DISRUPTION_BUDGETS, self.budgets, budget, status)
        return None

    def _expected(self, spec: JsonObject, pods: list[JsonDict]) -> int:
        """Return how many pods there should be: a number of pods, or what their owners ask for."""
        limit = spec.get("maxUnavailable")
        if limit is None:
            limit = spec.get("minAvailable")
            if not isinstance(limit, str):
                return len(pods)
        owners: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                owners[key_of(pod).name] = 1
                continue
            owner = self._owner(key_of(pod).namespace, reference["kind"], reference["name"])
            asked = (owner or {}).get("spec", {}).get("replicas", 1)
            owners[str(reference["uid"])] = int(asked)
        return sum(owners.values())

    def _owner(self, namespace: str, kind: str, name: str) -> JsonDict | None:
        cache = self.sets.get(kind)
        return cache.get(NamespacedName(namespace, name)) if cache is not None else None
