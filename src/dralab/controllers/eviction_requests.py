"""EvictionRequests of lifecycle.k8s.io: evictions carried out by responders.

All requests for one pod become one Eviction; its `status` says whose turn it is (`eviction_steps`).
The last responder of every pod is this controller: it evicts through the pod's own subresource, as
far as disruption budgets allow. Pods of a PodGroup are refused.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.controllers.eviction_steps import (
    EVICTED,
    EVICTOR,
    FAILED,
    EvictionFacts,
    active_responder,
    advanced,
    is_over,
    silent_at,
)
from dralab.controllers.workloads import name_of_letters, write_status
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.conditions import with_condition
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, spec_of, status_of, uid_of
from dralab.objects.pods import group_of, is_finished
from dralab.runtime.client import delete_only, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import EVICTION_REQUESTS, EVICTIONS, PODS, is_served
from dralab.values.json_types import JsonDict, JsonObject

NOT_FOUND: Final = 404
CONFLICT: Final = 409
AGAIN: Final = 10 * SECOND
SIGN_OF_LIFE: Final = 5 * 60 * SECOND


class EvictionRequests:
    """Turns requests into evictions, and carries them out; idle if they are not served."""

    def __init__(self, manager: Manager, kinds: Kinds | None = None) -> None:
        if not is_served(EVICTION_REQUESTS, kinds):
            return
        self.manager = manager
        self.client = manager.client
        self.requests = manager.cache(EVICTION_REQUESTS)
        self.evictions = manager.cache(EVICTIONS)
        self.pods = manager.cache(PODS)
        self.queue = manager.queue("evictionrequests", self.reconcile)
        for cache in (self.requests, self.evictions):
            cache.index("target", _target)
            cache.subscribe_each(self._about)
        self.pods.subscribe_each(self._pod)

    def _about(self, obj: JsonDict) -> None:
        for uid in _target(obj):
            self.queue.add(NamespacedName(key_of(obj).namespace, uid))

    def _pod(self, pod: JsonDict) -> None:
        if self.evictions.find("target", uid_of(pod)):
            self.queue.add(NamespacedName(key_of(pod).namespace, uid_of(pod)))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Take the eviction of a pod, named by its UID, one step further."""
        namespace, uid = key.namespace, key.name
        requests = [
            each
            for each in self.requests.find("target", uid)
            if key_of(each).namespace == namespace
        ]
        eviction = next(iter(self.evictions.find("target", uid)), None)
        if eviction is None:
            self._begin(requests, uid)
            return None
        if not requests and is_over(status_of(eviction)):
            delete_only(self.client, EVICTIONS, eviction)
            return None
        pod = None if is_over(status_of(eviction)) else self._target_of(eviction)
        facts = EvictionFacts(
            pod=pod,
            intents=[(each["spec"]["requester"], each["spec"]["intent"]) for each in requests],
            now=self.manager.engine.clock.now(),
            time=self.manager.now(),
        )
        status = advanced(eviction, facts)
        if status != status_of(eviction):
            changed = {**eviction, "status": status}
            eviction = self.client.update(EVICTIONS, changed, subresource="status")
            self.evictions.learn(eviction)
        for request in requests:
            self._mirror(request, status)
        if is_over(status) or pod is None:
            return 0 if not requests else None
        if active_responder(status) == EVICTOR:
            return self._evict(eviction, pod)
        silent = silent_at(status)
        return None if silent is None else max(0, silent - facts.now)

    def _begin(self, requests: list[JsonDict], uid: str) -> None:
        asking = [each for each in requests if each["spec"]["intent"] == "Eviction"]
        if not asking:
            return
        target = asking[0]["spec"]["target"]["pod"]
        key = key_of(asking[0])
        pod = self._target_of(asking[0])
        reason = _refusal(pod)
        if reason:
            kind = FAILED if reason == "EvictionInvalid" else EVICTED
            condition = {"type": kind, "status": "True", "reason": reason, "message": ""}
            for each in asking:
                self._mirror(each, {"conditions": [condition]})
            return
        name = f"{target['name']}-{name_of_letters(uid)}"
        made = {
            "metadata": {"name": name, "namespace": key.namespace, "labels": _labels(asking, pod)},
            "spec": {"target": {"pod": target}},
        }
        self.evictions.learn(self.client.create(EVICTIONS, made, key.namespace))

    def _target_of(self, obj: JsonDict) -> JsonDict | None:
        target = obj["spec"]["target"]["pod"]
        pod = self.pods.get(NamespacedName(key_of(obj).namespace, target["name"]))
        if pod is None or uid_of(pod) != target["uid"]:
            # The watch of pods may lag behind that of requests: the server knows.
            pod = find(self.client, PODS, target["name"], key_of(obj).namespace)
        return pod if pod is not None and uid_of(pod) == target["uid"] else None

    def _mirror(self, request: JsonDict, status: JsonObject) -> None:
        """Copy the progress of the eviction into the request."""
        held = status_of(request)
        conditions = list(held.get("conditions") or ())
        for each in status.get("conditions") or ():
            if each["type"] in {EVICTED, FAILED}:
                plain = {part: each[part] for part in ("type", "status", "reason", "message")}
                conditions = with_condition(conditions, plain, now=self.manager.now())
        new = {"conditions": conditions, "observedGeneration": request["metadata"]["generation"]}
        write_status(self.manager, self.requests, request, new)

    def _evict(self, eviction: JsonDict, pod: JsonDict) -> int:
        """Evict a pod as kubectl drain does; return when to look again."""
        if is_deleting(pod):
            return self._report(eviction, "the pod is ending", SIGN_OF_LIFE)
        key = key_of(pod)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "deleteOptions": {"preconditions": {"uid": uid_of(pod)}},
        }
        try:
            self.client.post(PODS, key.name, "eviction", body, key.namespace)
        except ApiError as error:
            if error.code in {NOT_FOUND, CONFLICT}:
                return AGAIN  # it is gone, or another one: the watch tells
            return self._report(eviction, error.message, AGAIN)
        return self._report(eviction, "the pod is ending", SIGN_OF_LIFE)

    def _report(self, eviction: JsonDict, message: str, again: int) -> int:
        """Report what the last responder waits for: on changes, and as a heartbeat."""
        status = status_of(eviction)
        now = self.manager.engine.clock.now()
        responders = [
            {**each, "message": message, "heartbeatTime": self.manager.now()}
            if each["name"] == EVICTOR and _is_news(each, message, now)
            else each
            for each in status.get("responders") or ()
        ]
        write_status(self.manager, self.evictions, eviction, {"responders": responders})
        return again


def _target(obj: JsonObject) -> Iterable[str]:
    pod: Mapping[str, str] = (spec_of(obj).get("target") or {}).get("pod") or {}
    return [pod["uid"]] if pod.get("uid") else []


def _is_news(told: JsonObject, message: str, now: int) -> bool:
    """Return whether a responder has to report: a change, or a heartbeat."""
    last = told.get("heartbeatTime")
    if told.get("message") != message or not last:
        return True
    return now - from_rfc3339(last) >= SIGN_OF_LIFE


def _refusal(pod: JsonObject | None) -> str:
    """Return the reason not to evict a pod; empty if it is evicted."""
    if pod is None:
        return "PodDeleted"
    if is_finished(pod):
        return "PodTerminal"
    return "EvictionInvalid" if group_of(pod) else ""


def _labels(requests: Iterable[JsonObject], pod: JsonObject | None) -> dict[str, str]:
    asking = {each["spec"]["requester"] for each in requests}
    named = [] if pod is None else spec_of(pod).get("evictionResponders") or []
    acting = {EVICTOR, *(each["name"] for each in named)}
    return {
        name: "requester-responder"
        if name in asking & acting
        else "requester"
        if name in asking
        else "responder"
        for name in sorted(asking | acting)
    }
