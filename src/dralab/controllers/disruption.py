"""PodDisruptionBudgets: how many pods may be disrupted now.

Source: kube-controller-manager's disruption controller. Evictions and preemption read the status.
"""

from typing import Any, Final, Literal

from dralab.controllers.workloads import each, percentage, write_status
from dralab.objects.budgets import covers
from dralab.objects.conditions import conditions_of, with_condition
from dralab.objects.metadata import (
    NamespacedName,
    controller_of,
    is_deleting,
    key_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished, is_ready
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from dralab.values.json_types import JsonDict, JsonObject

SIZED: Final = {
    "ReplicaSet": REPLICA_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
    "StatefulSet": STATEFUL_SETS,
    "Deployment": DEPLOYMENTS,
}
UNSCALED: Final = {"DaemonSet": "daemonsets.apps", "Job": "jobs.batch"}


FAILED: Final = "Failed to calculate the number of expected pods"
UNMANAGED: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. "
    "As a result, the status of the PDB cannot be calculated correctly, which may result in "
    'undefined behavior. To account for these pods please set ".spec.minAvailable" field of the '
    "PDB to an integer value."
)


class UnscaledError(Exception):
    """The owner of a pod has no number of replicas."""


class DisruptionBudgets:
    """Counts healthy pods and writes how many may be disrupted."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.budgets = manager.cache(DISRUPTION_BUDGETS)
        self.pods = manager.cache(PODS)
        self.pods.index("namespace", lambda pod: [key_of(pod).namespace])
        self.sets = {kind: manager.cache(resource) for kind, resource in SIZED.items()}
        self.recorder = manager.recorder("controllermanager")
        self._said: dict[NamespacedName, tuple[Any, ...]] = {}
        self.queue = manager.queue("disruption", self.reconcile)
        self.budgets.subscribe(each(self.queue.add))
        self.pods.subscribe(self._pod)
        for cache in self.sets.values():
            cache.subscribe_each(self._set)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for pod in (old, new):
            if pod is not None and len(self.budgets):
                for budget in self.budgets.namespace(key_of(pod).namespace):
                    if covers(budget, pod):
                        self.queue.add(key_of(budget))

    def _set(self, obj: JsonDict) -> None:
        if len(self.budgets):
            for budget in self.budgets.namespace(key_of(obj).namespace):
                self.queue.add(key_of(budget))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Count pods, and write the allowed disruptions."""
        budget = self.budgets.get(key)
        if budget is None or is_deleting(budget):
            self._said.pop(key, None)
            return None
        pods = [
            pod
            for pod in self.pods.find("namespace", key.namespace)
            if covers(budget, pod) and not is_finished(pod)
        ]
        if not pods:
            self._say(budget, "NoPods", "No matching pods found", type="Normal")
        try:
            found = self._counted(budget, pods)
        except UnscaledError as error:
            self._say(budget, "CalculateExpectedPodCountFailed", f"{FAILED}: {error}")
            # Nothing may be disrupted while nobody knows how many pods there should be.
            found = {
                **dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 0),
                **status_of(budget),
                "disruptionsAllowed": 0,
                "conditions": self._conditions(budget, "False", "SyncFailed", str(error)),
            }
        write_status(self.manager, self.budgets, budget, found)
        return None

    def _counted(self, budget: JsonDict, pods: list[JsonDict]) -> dict[str, Any]:
        """Return the status. UnscaledError: the owner of a pod has no number of replicas."""
        spec = spec_of(budget)
        expected = self._expected(budget, pods)
        if spec.get("maxUnavailable") is not None:
            desired = max(0, expected - percentage(spec["maxUnavailable"], expected, up=True))
        else:
            desired = percentage(spec.get("minAvailable", 1), expected, up=True)
        healthy = sum(is_ready(pod) and not is_deleting(pod) for pod in pods)
        allowed = max(0, healthy - desired) if expected else 0
        generation = budget["metadata"].get("generation", 0)
        reason = "SufficientPods" if allowed else "InsufficientPods"
        return {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": generation,
            "conditions": self._conditions(
                budget, "True" if allowed else "False", reason, observedGeneration=generation
            ),
        }

    def _conditions(
        self, budget: JsonDict, status: str, reason: str, message: str = "", **more: int
    ) -> list[dict[str, Any]]:
        condition = {"type": "DisruptionAllowed", "status": status, "reason": reason}
        return with_condition(
            conditions_of(budget),
            {**condition, "message": message, **more},
            now=self.manager.now(),
        )

    def _say(
        self,
        budget: JsonDict,
        reason: str,
        message: str,
        type: Literal["Normal", "Warning"] = "Warning",
    ) -> None:
        """Record an event once for each state of a budget, not at every change of a pod."""
        said = uid_of(budget), budget["metadata"].get("generation"), reason, message
        if self._said.get(key_of(budget)) != said:
            self._said[key_of(budget)] = said
            self.recorder.event(
                budget,
                "PodDisruptionBudget",
                reason,
                message,
                type=type,
                api_version="policy/v1",
            )

    def _expected(self, budget: JsonDict, pods: list[JsonDict]) -> int:
        """Return the expected number of pods: their count, or the replicas of their owners."""
        spec = spec_of(budget)
        limit = spec.get("maxUnavailable")
        if limit is None:
            limit = spec.get("minAvailable")
            if not isinstance(limit, str):
                return len(pods)
        owners: dict[str, int] = {}
        unmanaged = False
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                unmanaged = True
                continue
            uid, replicas = self._scale_of(key_of(pod).namespace, reference)
            owners[uid] = replicas
        if unmanaged:
            selector = _as_go(spec.get("selector") or {})
            self._say(budget, "UnmanagedPods", UNMANAGED.format(selector=selector))
        return sum(owners.values())

    def _scale_of(self, namespace: str, reference: JsonObject) -> tuple[str, int]:
        """Return the uid and the replicas of the owner that decides, a Deployment for its sets."""
        kind: str = reference["kind"]
        if (kind_of_group := UNSCALED.get(kind)) is not None:
            raise UnscaledError(f"{kind_of_group} does not implement the scale subresource")
        cache = self.sets.get(kind)
        owner = cache.get(NamespacedName(namespace, reference["name"])) if cache else None
        if owner is not None and kind == "ReplicaSet":
            above = controller_of(owner)
            if above is not None and above["kind"] == "Deployment":
                return self._scale_of(namespace, above)
        asked = (owner or {}).get("spec", {}).get("replicas", 1)
        return str(reference["uid"]), int(asked)


def _as_go(selector: JsonObject) -> str:
    """Return a selector as Go prints it, which is how the event shows it."""
    wanted = (selector.get("matchLabels") or {}).items()
    labels = "".join(f"{name}: {value}," for name, value in sorted(wanted))
    rules = "".join(
        f"LabelSelectorRequirement{{Key:{rule['key']},Operator:{rule['operator']},"
        f"Values:[{' '.join(rule.get('values') or ())}],}},"
        for rule in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"
    )
