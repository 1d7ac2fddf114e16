"""A small API server in memory, for parts that need no more than its `Client` protocol.

It keeps resource versions, UIDs, finalizers, graceful deletion, status and binding as a server
does; it checks nothing.
"""

from collections import deque
from copy import deepcopy

from dralab.api.status import ApiError
from dralab.kernel.clock import rfc3339
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import Key, key_of
from dralab.runtime.client import Event, Listing
from dralab.values import labels


class FakeWatch:
    def __init__(self, server, resource, namespace, accepts, revision):
        self.server, self.resource, self.namespace = server, resource, namespace
        self.accepts = accepts
        self.events = deque()
        self.ready = lambda: None
        self.expired = False
        for number, changed, old, new in server.history:
            if number > int(revision):
                self.offer(changed, old, new)

    def offer(self, resource, old, new):
        if (resource.group, resource.plural) != (self.resource.group, self.resource.plural):
            return
        obj = new if new is not None else old
        if self.namespace and obj["metadata"].get("namespace") != self.namespace:
            return
        before = old is not None and self.accepts(old)
        after = new is not None and self.accepts(new)
        if before and after:
            self.events.append(Event("MODIFIED", new))
        elif after:
            self.events.append(Event("ADDED", new))
        elif before:
            revision = (new or old)["metadata"]["resourceVersion"]
            last = {**old, "metadata": {**old["metadata"], "resourceVersion": revision}}
            self.events.append(Event("DELETED", last))
        else:
            return
        self.ready()

    def next(self, timeout=None):
        if self.expired:
            raise ApiError("Expired", "too old resource version")
        return self.events.popleft() if self.events else None

    def notify(self, ready):
        self.ready = ready
        if self.events or self.expired:
            ready()

    def expire(self):
        """Behave like a watch whose revisions were compacted."""
        self.expired = True
        self.ready()

    def close(self):
        self.ready = lambda: None
        self.server.watches.remove(self)


class FakeServer:
    def __init__(self, clock):
        self.clock = clock
        self.revision = 0
        self.collections = {}
        self.history = []
        self.watches = []
        self.log = []
        self.failures = []

    # --- for tests

    def add(self, resource, *objects):
        return [self.create(resource, obj) for obj in objects]

    def all(self, resource):
        found = self._of(resource)
        return [found[key] for key in sorted(found)]

    def fail_next(self, verb, plural, error):
        self.failures.append((verb, plural, error))

    # --- the verbs

    def get(self, resource, name, namespace=""):
        self._log("get", resource, name)
        found = self._of(resource).get(Key(namespace, name))
        if found is None:
            raise ApiError.not_found(resource.plural, name, group=resource.group)
        return found

    def list(self, resource, namespace="", *, label_selector="", field_selector=""):
        self._log("list", resource, "")
        accepts = _accepts(label_selector, field_selector)
        items = [
            obj
            for obj in self.all(resource)
            if (not namespace or obj["metadata"].get("namespace") == namespace) and accepts(obj)
        ]
        return Listing(items, str(self.revision))

    def watch(self, resource, namespace="", *, revision, label_selector="", field_selector=""):
        accepts = _accepts(label_selector, field_selector)
        watch = FakeWatch(self, resource, namespace, accepts, revision)
        self.watches.append(watch)
        return watch

    def create(self, resource, body, namespace=""):
        self._log("create", resource, body["metadata"].get("name", ""))
        obj = deepcopy(body)
        metadata = obj["metadata"]
        if resource.namespaced:
            metadata["namespace"] = namespace or metadata.get("namespace") or "default"
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{self.revision + 1:05d}"
        key = key_of(obj)
        if key in self._of(resource):
            raise ApiError.already_exists(resource.plural, key.name, group=resource.group)
        metadata["uid"] = f"uid-{self.revision + 1}"
        metadata["creationTimestamp"] = rfc3339(self.clock.now())
        metadata["generation"] = 1
        if resource.plural == "pods":
            obj.setdefault("status", {}).setdefault("phase", "Pending")
            obj["spec"].setdefault("schedulerName", "default-scheduler")
        return self._store(resource, None, obj)

    def update(self, resource, body, *, subresource=""):
        self._log(f"update {subresource}".strip(), resource, body["metadata"]["name"])
        old = self.get(resource, body["metadata"]["name"], body["metadata"].get("namespace", ""))
        given = body["metadata"].get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            raise ApiError.conflict(
                resource.plural,
                body["metadata"]["name"],
                "the object has been modified; please apply your changes to the latest version "
                "and try again",
                group=resource.group,
            )
        new = deepcopy(body)
        if subresource == "status":
            new = {**old, "status": new.get("status", {})}
        elif "status" in old:
            new["status"] = old["status"]
        return self._change(resource, old, new)

    def patch(
        self,
        resource,
        name,
        patch,
        namespace="",
        *,
        type="merge",
        subresource="",
        field_manager="",
        force=False,
    ):
        self._log(f"patch {subresource}".strip(), resource, name)
        old = self.get(resource, name, namespace)
        uid = (patch.get("metadata") or {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise ApiError.conflict(resource.plural, name, "the UID in the precondition differs")
        new = _merged(old, patch)
        if type == "strategic" and "conditions" in (patch.get("status") or {}):
            kept = {c["type"]: c for c in (old.get("status") or {}).get("conditions", ())}
            kept |= {c["type"]: c for c in patch["status"]["conditions"]}
            new["status"]["conditions"] = list(kept.values())
        return self._change(resource, old, new)

    def delete(self, resource, name, namespace="", *, options=None):
        self._log("delete", resource, name)
        old = self.get(resource, name, namespace)
        options = options or {}
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise ApiError.conflict(resource.plural, name, "the UID in the precondition differs")
        finalizers = list(old["metadata"].get("finalizers") or ())
        policy = options.get("propagationPolicy")
        if policy == "Foreground":
            finalizers.append("foregroundDeletion")
        elif policy == "Orphan":
            finalizers.append("orphan")
        running = resource.plural == "pods" and old["spec"].get("nodeName")
        graceful = running and options.get("gracePeriodSeconds") != 0
        if not finalizers and not graceful:
            self._store(resource, old, None)
            return
        new = deepcopy(old)
        new["metadata"].setdefault("deletionTimestamp", rfc3339(self.clock.now()))
        if finalizers:
            new["metadata"]["finalizers"] = finalizers
        self._change(resource, old, new)

    def delete_collection(self, resource, namespace="", *, label_selector="", field_selector=""):
        self._log("delete collection", resource, "")
        chosen = self.list(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )
        for obj in chosen.items:
            self.delete(resource, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))

    def post(self, resource, name, subresource, body, namespace=""):
        self._log(subresource, resource, name)
        old = self.get(resource, name, namespace)
        new = deepcopy(old)
        if old["spec"].get("nodeName"):
            raise ApiError.conflict(resource.plural, name, "is already assigned to a node")
        new["spec"]["nodeName"] = body["target"]["name"]
        conditions = new.setdefault("status", {}).setdefault("conditions", [])
        if condition_of(new, "PodScheduled") is None:
            conditions.append({"type": "PodScheduled", "status": "True"})
        else:
            for condition in conditions:
                if condition["type"] == "PodScheduled":
                    condition["status"] = "True"
        self._change(resource, old, new)
        return {"kind": "Status", "status": "Success"}

    # --- inside

    def _of(self, resource):
        return self.collections.setdefault((resource.group, resource.plural), {})

    def _log(self, verb, resource, name):
        self.log.append((verb, resource.plural, name))
        for number, (failing, plural, error) in enumerate(self.failures):
            if (failing, plural) == (verb, resource.plural):
                del self.failures[number]
                raise error

    def _change(self, resource, old, new):
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            running = resource.plural == "pods" and new["spec"].get("nodeName")
            if not running:
                self._store(resource, old, None)
                return new
        if {**new, "metadata": {**new["metadata"], "resourceVersion": ""}} == {
            **old,
            "metadata": {**old["metadata"], "resourceVersion": ""},
        }:
            return old
        new = deepcopy(new)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self._store(resource, old, new)

    def _store(self, resource, old, new):
        self.revision += 1
        if new is None:
            del self._of(resource)[key_of(old)]
            metadata = {**old["metadata"], "resourceVersion": str(self.revision)}
            old = {**old, "metadata": metadata}
        else:
            new["metadata"]["resourceVersion"] = str(self.revision)
            self._of(resource)[key_of(new)] = new
        self.history.append((self.revision, resource, old, new))
        for watch in list(self.watches):
            watch.offer(resource, old, new)
        return new


def _accepts(label_selector, field_selector):
    selector = labels.parse(label_selector)
    fields = labels.parse(field_selector)

    def accepts(obj):
        values = {
            "metadata.name": obj["metadata"]["name"],
            "status.phase": (obj.get("status") or {}).get("phase", ""),
            "spec.nodeName": (obj.get("spec") or {}).get("nodeName", ""),
        }
        return selector.accepts(obj["metadata"].get("labels") or {}) and fields.accepts(values)

    return accepts


def _merged(target, patch):
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
