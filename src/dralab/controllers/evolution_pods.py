"""dra-evolution: runs bound pods on nodes, and writes back their status.

A kubelet knows pods of the core API alone: `prototypes.evolution.on_nodes` says which pod stands
for one of dra-evolution there. A node that only a ResourcePool names runs nothing.
"""

from typing import Final

from dralab.api.status import ApiError
from dralab.objects.metadata import (
    NamespacedName,
    finalizers_of,
    is_deleting,
    key_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished
from dralab.prototypes.evolution.on_nodes import FINALIZER, core_pod, user_of_claims
from dralab.runtime.client import amend, delete_only, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import EVOLUTION_PODS, NODES, PODS
from dralab.values.json_types import JsonDict

NAME_TAKEN: Final = "NameTaken"


class EvolutionPods:
    """Makes a core pod for each bound pod whose node is there."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.pods = manager.cache(EVOLUTION_PODS)
        self.core = manager.cache(PODS)
        self.nodes = manager.cache(NODES)
        # Whose core pod somebody deleted, as kubectl and evictions do: it is not run again.
        self.deleted: set[str] = set()
        self.queue = manager.queue("evolutionpods", self.reconcile)
        self.pods.subscribe_each(self._changed)
        self.core.subscribe_each(self._core_changed)
        self.nodes.subscribe(self._node)

    def _changed(self, pod: JsonDict) -> None:
        self.queue.add(key_of(pod))

    def _core_changed(self, pod: JsonDict) -> None:
        if is_deleting(pod) and (uid := user_of_claims(pod)):
            self.deleted.add(uid)
        self._changed(pod)

    def _node(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if old is None and new is not None:
            for pod in self.pods:
                self.queue.add(key_of(pod))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Synchronise a pod with the core pod that runs it."""
        pod = self.pods.get(key)
        if pod is None:
            return None  # what ran it is collected as garbage
        core = self.core.get(key)
        mine = core is not None and user_of_claims(core) == uid_of(pod)
        if is_deleting(pod):
            self.deleted.discard(uid_of(pod))
            self._end(pod, core if mine else None)
        elif uid_of(pod) in self.deleted:
            delete_only(self.client, EVOLUTION_PODS, pod)
        elif core is not None and mine:
            self._tell(pod, dict(status_of(core)))
        elif not is_finished(pod) and self._has_node(pod):
            self._run(pod)
        return None

    def _has_node(self, pod: JsonDict) -> bool:
        name = spec_of(pod).get("nodeName") or ""
        return bool(name) and self.nodes.get(NamespacedName("", name)) is not None

    def _run(self, pod: JsonDict) -> None:
        key = key_of(pod)

        def protect(item: JsonDict) -> bool:
            if is_deleting(item) or FINALIZER in finalizers_of(item):
                return False
            item["metadata"]["finalizers"] = [*finalizers_of(item), FINALIZER]
            return True

        pod = amend(self.client, EVOLUTION_PODS, pod, protect)
        if is_deleting(pod):
            return
        try:
            self.client.create(PODS, core_pod(pod), key.namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._tell(pod, _name_taken(key))

    def _end(self, pod: JsonDict, core: JsonDict | None) -> None:
        if core is None:
            amend(self.client, EVOLUTION_PODS, pod, lambda item: drop_finalizer(item, FINALIZER))
        elif not is_deleting(core):
            delete_only(self.client, PODS, core)

    def _tell(self, pod: JsonDict, status: JsonDict) -> None:
        def change(item: JsonDict) -> bool:
            if status_of(item) == status:
                return False
            item["status"] = status
            return True

        amend(self.client, EVOLUTION_PODS, pod, change, subresource="status")


def _name_taken(key: NamespacedName) -> JsonDict:
    return {
        "phase": "Pending",
        "reason": NAME_TAKEN,
        "message": f"a v1 Pod {key} exists: it has the name that this pod needs on its node",
    }
