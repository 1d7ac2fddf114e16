"""Asks for the eviction of pods by EvictionRequests, which name a pod by its UID."""

from dralab.api.status import ApiError
from dralab.objects.metadata import key_of, uid_of
from dralab.runtime.resources import EVICTION_REQUESTS, PODS


class Mover:
    """Asks for pods with the label `leave: yes`, and withdraws what it asked where it says `no`.

    Where a pod has the label no more, the request is deleted; that of a pod that left remains.
    """

    def __init__(self, manager):
        self.client = manager.client
        self.pods = manager.cache(PODS)
        self.requests = manager.cache(EVICTION_REQUESTS)
        self.queue = manager.queue("mover", self.reconcile)
        for cache in (self.pods, self.requests):
            cache.subscribe(self.changed)

    def changed(self, old, new):
        self.queue.add(key_of(new if new is not None else old))

    def reconcile(self, key):
        pod, request = self.pods.get(key), self.requests.get(key)
        if pod is None:
            return
        wish = (pod["metadata"].get("labels") or {}).get("leave", "")
        try:
            if wish == "yes" and request is None:
                self.ask(pod)
            elif wish == "no" and request is not None and request["spec"]["intent"] == "Eviction":
                spec = {**request["spec"], "intent": "Withdrawn"}
                self.client.update(EVICTION_REQUESTS, {**request, "spec": spec})
            elif not wish and request is not None:
                self.client.delete(EVICTION_REQUESTS, key.name, key.namespace)
        except ApiError as error:
            if error.reason not in {"AlreadyExists", "NotFound"}:
                raise

    def ask(self, pod):
        """Ask for the eviction of a pod."""
        key = key_of(pod)
        spec = {
            "target": {"pod": {"name": key.name, "uid": uid_of(pod)}},
            "requester": "move.example.com/mover",
            "intent": "Eviction",
        }
        made = {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}
        self.client.create(EVICTION_REQUESTS, made, key.namespace)
