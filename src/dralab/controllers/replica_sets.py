"""ReplicaSets and ReplicationControllers: keep the requested number of pods.

Source: kube-controller-manager's replicaset controller, which serves both.
"""

from typing import Any, Final

from dralab.api.status import ApiError
from dralab.controllers.workloads import (
    BURST,
    OwnedObjects,
    PodControl,
    available_at,
    deletion_rank,
    each,
    enqueue_owner,
    is_active,
    is_available,
    is_ending,
    pod_from_template,
    write_status,
)
from dralab.kernel.clock import SECOND
from dralab.objects.conditions import condition_of, conditions_of, with_condition
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, labels_of
from dralab.objects.pods import is_ready
from dralab.runtime.manager import Manager
from dralab.runtime.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from dralab.values.json_types import JsonDict

# Pods change by the thousand while a set starts, and each look at it counts them all.
GATHER: Final = SECOND // 20


class ReplicaSets:
    """Creates and deletes pods until their number is right."""

    kind = "ReplicaSet"
    api_version = "apps/v1"
    resource = REPLICA_SETS
    reporter = "replicaset-controller"

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.sets = manager.cache(self.resource)
        self.owned = OwnedObjects(
            manager,
            PODS,
            kind=self.kind,
            api_version=self.api_version,
            plain=self.resource is REPLICATION_CONTROLLERS,
        )
        recorder = manager.recorder(self.reporter)
        self.control = PodControl(manager, recorder, kind=self.kind, api_version=self.api_version)
        self.queue = manager.queue(self.resource.plural, self.reconcile)
        self.sets.subscribe(each(self.queue.add))
        self.owned.cache.subscribe(enqueue_owner(self.owned, self._pod_changed, self.sets))

    def _pod_changed(self, key: NamespacedName) -> None:
        self.queue.add_after(key, GATHER)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Bring a set to its number of pods, and write its status."""
        replica_set = self.sets.get(key)
        if replica_set is None:
            return None
        owned = self.owned.owned_by(replica_set)
        pods = [pod for pod in owned if is_active(pod)]
        failure: ApiError | None = None
        if not is_deleting(replica_set):
            try:
                pods = self._scale(replica_set, pods)
            except ApiError as error:
                failure = error
        ending = sum(is_ending(pod) for pod in owned)
        again = self._tell(replica_set, pods, ending, failure)
        if failure is not None:
            raise failure
        return again

    def _scale(self, replica_set: JsonDict, pods: list[JsonDict]) -> list[JsonDict]:
        spec = replica_set["spec"]
        wanted = spec.get("replicas", 1)
        missing = wanted - len(pods)
        if missing > 0:
            reference = self.owned.reference(replica_set)
            key = key_of(replica_set)
            made = []
            for _ in range(min(missing, BURST)):
                body = pod_from_template(
                    spec["template"],
                    reference=reference,
                    namespace=key.namespace,
                    generateName=f"{key.name}-",
                )
                made.append(self.control.create(replica_set, body))
            return [*pods, *made]
        if missing < 0:
            going = sorted(pods, key=deletion_rank)[: min(-missing, BURST)]
            for pod in going:
                self.control.delete(replica_set, pod)
            return [pod for pod in pods if pod not in going]
        return pods

    def _tell(
        self, replica_set: JsonDict, pods: list[JsonDict], ending: int, failure: ApiError | None
    ) -> int | None:
        spec, now = replica_set["spec"], self.manager.engine.clock.now()
        min_ready_seconds = spec.get("minReadySeconds") or 0
        wanted_labels = labels_of(spec["template"])
        ready = [pod for pod in pods if is_ready(pod)]
        available = [pod for pod in ready if is_available(pod, min_ready_seconds, now)]
        status: dict[str, Any] = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(
                wanted_labels.items() <= labels_of(pod).items() for pod in pods
            )
            or None,
            "readyReplicas": len(ready) or None,
            "availableReplicas": len(available) or None,
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }
        if self.resource is REPLICA_SETS:
            status["terminatingReplicas"] = ending
        before = conditions_of(replica_set)
        others = [condition for condition in before if condition["type"] != "ReplicaFailure"]
        if failure is not None:
            condition = {
                "type": "ReplicaFailure",
                "status": "True",
                "reason": "FailedCreate",
                "message": failure.message,
            }
            known = condition_of(replica_set, "ReplicaFailure") or {}
            if all(known.get(part) == condition[part] for part in ("status", "reason")):
                # Its message names another pod each time (replica_set_utils.go, SetCondition).
                condition["message"] = known.get("message", "")
            status["conditions"] = with_condition(before, condition, now=self.manager.now())
        elif len(others) != len(before):
            status["conditions"] = others or None
        write_status(self.manager, self.sets, replica_set, status)
        later = [
            available_at(pod, min_ready_seconds) - now
            for pod in ready
            if not is_available(pod, min_ready_seconds, now)
        ]
        return min(later, default=None)


class ReplicationControllers(ReplicaSets):
    """The same for ReplicationControllers, the predecessor of ReplicaSets."""

    kind = "ReplicationController"
    api_version = "v1"
    resource = REPLICATION_CONTROLLERS
    reporter = "replication-controller"
