"""dra-evolution: releases the claims of deleted or finished pods, which may then be deleted.

`dralab allocate --apply` allocates and reserves; a finalizer keeps a claim while it is in use.
"""

from dralab.controllers.workloads import each
from dralab.objects.metadata import NamespacedName, key_of, status_of, uid_of
from dralab.objects.pods import is_finished
from dralab.prototypes.evolution.kinds import FINALIZER
from dralab.runtime.client import amend, drop_finalizer, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import EVOLUTION_CLAIMS, EVOLUTION_PODS
from dralab.values.json_types import JsonDict


class EvolutionClaims:
    """Removes deleted pods from the claims that they used."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.claims = manager.cache(EVOLUTION_CLAIMS)
        self.pods = manager.cache(EVOLUTION_PODS)
        self.queue = manager.queue("evolutionclaims", self.reconcile)
        self.claims.subscribe(each(self.queue.add))
        self.pods.subscribe(self._pod)

    def _pod(self, _: JsonDict | None, new: JsonDict | None) -> None:
        if new is None or is_finished(new):
            for claim in self.claims:
                self.queue.add(key_of(claim))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Release a claim that is not used any more."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        reserved = status_of(claim).get("reservedFor") or []
        used = [user for user in reserved if not self._is_gone(key.namespace, user)]
        if len(used) < len(reserved):
            status = {**status_of(claim), "reservedFor": used}
            if not used:
                del status["reservedFor"]
                status.pop("allocation", None)

            def release(item: JsonDict) -> bool:
                if status_of(item).get("reservedFor") != reserved:
                    return False  # it is in use again; that change adds it to the queue
                item["status"] = status
                return True

            claim = amend(self.client, EVOLUTION_CLAIMS, claim, release, subresource="status")
        if not used and not status_of(claim).get("allocation"):
            amend(
                self.client, EVOLUTION_CLAIMS, claim, lambda item: drop_finalizer(item, FINALIZER)
            )
        return None

    def _is_gone(self, namespace: str, user: JsonDict) -> bool:
        """Return whether a pod is gone or over; the cache may not have a new one yet."""
        pod = find(self.client, EVOLUTION_PODS, user["name"], namespace)
        if pod is None:
            return True
        return is_finished(pod) or (bool(user.get("uid")) and uid_of(pod) != user["uid"])
