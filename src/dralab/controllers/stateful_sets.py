"""StatefulSets: pods with stable names, created in order.

Source: kube-controller-manager's statefulset controller: ordinals, OrderedReady and Parallel,
RollingUpdate with a partition and OnDelete, claims from volumeClaimTemplates, revisions.
"""

from typing import Any, Final

from dralab.api.status import ApiError
from dralab.controllers.revisions import Revisions
from dralab.controllers.set_claims import SetClaims
from dralab.controllers.workloads import (
    OwnedObjects,
    PodControl,
    available_at,
    each,
    enqueue_owner,
    pod_from_template,
    serves,
    write_status,
)
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, labels_of, status_of
from dralab.objects.pods import is_finished, is_ready
from dralab.runtime.manager import Manager
from dralab.runtime.resources import PODS, STATEFUL_SETS
from dralab.values.json_types import JsonDict

REVISION: Final = "controller-revision-hash"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


class OrdinalPods(PodControl):
    """The pods of a StatefulSet, in its words."""

    def created(self, owner: JsonDict, name: str) -> str:
        """Say that a pod was created."""
        return f"Create Pod {name} in StatefulSet {owner['metadata']['name']} successful"

    def deleted(self, owner: JsonDict, name: str) -> str:
        """Say that a pod was deleted."""
        return f"Delete Pod {name} in StatefulSet {owner['metadata']['name']} successful"

    def failed(self, owner: JsonDict, body: JsonDict, error: ApiError) -> str:
        """Say that a pod could not be created."""
        name = body["metadata"]["name"]
        owner_name = owner["metadata"]["name"]
        return f"Create Pod {name} in StatefulSet {owner_name} failed error: {error.message}"


class StatefulSets:
    """Creates pods in order, updates and deletes them in reverse."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.sets = manager.cache(STATEFUL_SETS)
        self.owned = OwnedObjects(manager, PODS, kind="StatefulSet", api_version="apps/v1")
        self.revisions = Revisions(manager, kind="StatefulSet")
        recorder = manager.recorder("statefulset-controller")
        self.control = OrdinalPods(manager, recorder, kind="StatefulSet", api_version="apps/v1")
        self.claims = SetClaims(manager, self.control, self.owned.reference)
        self.queue = manager.queue("statefulsets", self.reconcile)
        self.sets.subscribe(each(self.queue.add))
        self.owned.cache.subscribe(enqueue_owner(self.owned, self.queue.add, self.sets))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Take the next steps of a set, and write its status."""
        stateful = self.sets.get(key)
        if stateful is None:
            return None
        update = self.revisions.current(stateful)
        status = status_of(stateful)
        current = status.get("currentRevision") or update
        pods = {
            number: pod
            for pod in self.owned.owned_by(stateful)
            if (number := _ordinal(stateful, pod)) is not None
        }
        failure: ApiError | None = None
        if not is_deleting(stateful):
            try:
                self._step(stateful, pods, current, update)
            except ApiError as error:
                failure = error
        again = self._tell(stateful, current, update)
        if failure is not None:
            raise failure
        return again

    # --- steps

    def _step(
        self, stateful: JsonDict, pods: dict[int, JsonDict], current: str, update: str
    ) -> None:
        spec = stateful["spec"]
        first = _first(stateful)
        wanted = range(first, first + spec.get("replicas", 1))
        ordered = spec.get("podManagementPolicy") != "Parallel"
        for number, known in pods.items():
            if number in wanted:
                self.claims.own(stateful, known, condemned=False)
        for number in wanted:
            pod = pods.get(number)
            if pod is not None and is_finished(pod) and not is_deleting(pod):
                self.control.delete(stateful, pod)
                return
            if pod is None:
                revision = self._revision_for(stateful, number, current, update)
                pods[number] = self._create(stateful, number, revision)
                if ordered:
                    return
            elif ordered and (is_deleting(pod) or not self._is_available(stateful, pod)):
                return
        condemned = sorted((n for n in pods if n not in wanted), reverse=True)
        troubled = [n for n in condemned if not self._is_available(stateful, pods[n])]
        for number in condemned:
            # In order, only pods that are available go, or the one that holds all others up
            # (`processCondemned`).
            if ordered and number in troubled[:-1]:
                return
            if not is_deleting(pods[number]):
                self.claims.own(stateful, pods[number], condemned=True)
                self.control.delete(stateful, pods[number])
            if ordered:
                return
        self._roll(stateful, {n: pods[n] for n in wanted}, update)

    def _roll(self, stateful: JsonDict, pods: dict[int, JsonDict], update: str) -> None:
        strategy = stateful["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        # As long as MaxUnavailableStatefulSet is off in Kubernetes, one pod at a time.
        for number in sorted(pods, reverse=True):
            pod = pods[number]
            if number < _partition(stateful):
                return
            if labels_of(pod).get(REVISION) != update and not is_deleting(pod):
                self.control.delete(stateful, pod)
                return
            if not self._is_available(stateful, pod):
                return

    def _is_available(self, stateful: JsonDict, pod: JsonDict) -> bool:
        return serves(pod, stateful, self.manager.engine.clock.now())

    def _revision_for(self, stateful: JsonDict, number: int, current: str, update: str) -> str:
        return current if number < _partition(stateful) else update

    def _create(self, stateful: JsonDict, number: int, revision: str) -> JsonDict:
        key, spec = key_of(stateful), stateful["spec"]
        name = f"{key.name}-{number}"
        template = self.revisions.template(stateful, revision)
        body = pod_from_template(
            template, reference=self.owned.reference(stateful), namespace=key.namespace, name=name
        )
        labels = body["metadata"].setdefault("labels", {})
        labels |= {POD_NAME: name, POD_INDEX: str(number), REVISION: revision}
        body["spec"].setdefault("hostname", name)
        if spec.get("serviceName"):
            body["spec"].setdefault("subdomain", spec["serviceName"])
        self.claims.mount(stateful, name, body)
        return self.control.create(stateful, body)

    # --- status

    def _tell(self, stateful: JsonDict, current: str, update: str) -> int | None:
        pods = [
            pod
            for pod in self.owned.owned_by(stateful, adopt=False)
            if _ordinal(stateful, pod) is not None
        ]
        alive = [pod for pod in pods if not is_deleting(pod) and not is_finished(pod)]
        updated = [pod for pod in alive if labels_of(pod).get(REVISION) == update]
        available = [pod for pod in alive if self._is_available(stateful, pod)]
        replicas = stateful["spec"].get("replicas", 1)
        if len(updated) == len(alive) == replicas and len(available) == replicas:
            current = update
        status: dict[str, Any] = {
            "replicas": len(alive),
            "readyReplicas": sum(is_ready(pod) for pod in alive) or None,
            "availableReplicas": len(available),
            "updatedReplicas": len(updated) or None,
            "currentReplicas": sum(labels_of(pod).get(REVISION) == current for pod in alive)
            or None,
            "currentRevision": current,
            "updateRevision": update,
            "observedGeneration": stateful["metadata"].get("generation", 0),
            "collisionCount": status_of(stateful).get("collisionCount") or 0,
        }
        write_status(self.manager, self.sets, stateful, status)
        self.revisions.delete_old_revisions(stateful, {current, update})
        min_ready_seconds = stateful["spec"].get("minReadySeconds") or 0
        now = self.manager.engine.clock.now()
        later = [
            when - now
            for pod in alive
            if is_ready(pod) and (when := available_at(pod, min_ready_seconds)) > now
        ]
        return min(later, default=None)


def _ordinal(stateful: JsonDict, pod: JsonDict) -> int | None:
    prefix, _, number = pod["metadata"]["name"].rpartition("-")
    if prefix != stateful["metadata"]["name"] or not number.isdecimal():
        return None
    return int(number)


def _first(stateful: JsonDict) -> int:
    """Return the number of the first pod."""
    start: int = (stateful["spec"].get("ordinals") or {}).get("start") or 0
    return start


def _partition(stateful: JsonDict) -> int:
    """Return the number of the first pod that is updated."""
    strategy = stateful["spec"].get("updateStrategy") or {}
    kept: int = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    return _first(stateful) + kept
