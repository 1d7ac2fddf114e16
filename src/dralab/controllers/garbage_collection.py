"""Garbage collection: deletes objects without owners, and handles foreground deletion.

Source: kube-controller-manager's garbagecollector: background, Foreground and Orphan propagation,
`blockOwnerDeletion`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ignoring
from dralab.objects.metadata import (
    NamespacedName,
    finalizers_of,
    is_deleting,
    key_of,
    owners_of,
    uid_of,
)
from dralab.runtime.cache import Cache
from dralab.runtime.client import Resource, amend, delete_only, drop_finalizer, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CRDS
from dralab.values.json_types import JsonDict, JsonObject

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
# Kinds that own nothing and are owned by nothing worth collecting.
IGNORED: Final = frozenset({"events", "events.k8s.io/events"})
NEEDED: Final = frozenset({"list", "watch", "delete"})


class CollectedObject(NamedTuple):
    """One object anywhere in the cluster."""

    resource: Resource
    key: NamespacedName


class GarbageCollector:
    """Watches every kind that can be deleted, custom ones included."""

    def __init__(self, manager: Manager, kinds: Kinds | None = None) -> None:
        self.manager = manager
        self.client = manager.client
        self.queue = manager.queue("garbage-collector", self.reconcile)
        self.caches: dict[Resource, Cache] = {}
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._by_uid: dict[str, CollectedObject] = {}
        self._dependents: dict[str, set[CollectedObject]] = {}
        hubs: set[str] = set()
        for kind in kinds or Kinds.standard():
            if kind.hub in IGNORED or not NEEDED.issubset(kind.verbs):
                continue
            resource = _resource(kind)
            self._kinds[kind.group, kind.kind] = resource
            if kind.hub not in hubs:
                hubs.add(kind.hub)
                self._follow(resource)
        manager.cache(CRDS).subscribe(self._definition)

    def _follow(self, resource: Resource) -> None:
        cache = self.manager.cache(resource)
        self.caches[resource] = cache
        cache.subscribe(lambda old, new: self._changed(resource, old, new))

    def _definition(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is None:
            return
        spec = new["spec"]
        served = [item for item in spec["versions"] if item.get("served")]
        stored = [item for item in served if item.get("storage")] or served
        if not stored:
            return
        resource = Resource(
            spec["group"], stored[0]["name"], spec["names"]["plural"], spec["scope"] == "Namespaced"
        )
        self._kinds[spec["group"], spec["names"]["kind"]] = resource
        if resource not in self.caches:
            self._follow(resource)

    def _changed(self, resource: Resource, old: JsonDict | None, new: JsonDict | None) -> None:
        obj = new if new is not None else old
        if obj is None:
            return
        item = CollectedObject(resource, key_of(obj))
        for reference in _owners(old):
            held = self._dependents.get(reference["uid"])
            if held is not None:
                held.discard(item)
                if not held:
                    del self._dependents[reference["uid"]]
        if new is None:
            self._by_uid.pop(uid_of(obj), None)
            # Its dependents have one owner less; owners that waited for it may go on.
            for dependent in sorted(self._dependents.get(uid_of(obj), ())):
                self.queue.add(dependent)
            self._queue_owners(old)
            return
        self._by_uid[uid_of(new)] = item
        if _owners(old) != _owners(new):
            self._queue_owners(old)  # one that waited for it may go on
        for reference in _owners(new):
            self._dependents.setdefault(reference["uid"], set()).add(item)
        if _owners(new) or _waits(new):
            self.queue.add(item)
            if is_deleting(new):
                self._queue_owners(new)

    def _queue_owners(self, obj: JsonDict | None) -> None:
        for reference in _owners(obj):
            owner = self._by_uid.get(reference["uid"])
            if owner is not None:
                self.queue.add(owner)

    def reconcile(self, item: CollectedObject) -> int | None:
        """Delete an object without owners; finish one that waited for its dependents."""
        cache = self.caches.get(item.resource)
        obj = cache.get(item.key) if cache is not None else None
        if obj is None:
            return None
        finalizers = finalizers_of(obj)
        if is_deleting(obj):
            if ORPHAN in finalizers:
                self._orphan_dependents(item, obj)
            elif FOREGROUND in finalizers:
                self._delete_dependents(item, obj)
            return None
        references = _owners(obj)
        if not references:
            return None
        present: list[Mapping[str, Any]] = []
        gone: list[Mapping[str, Any]] = []
        for reference in references:
            (present if self._is_there(item, reference) else gone).append(reference)
        waiting = [item for item in present if self._is_foreground(item)]
        if len(waiting) < len(present):
            # It stays, and owners that are going do not wait for it.
            if lost := {reference["uid"] for reference in (*gone, *waiting)}:
                self._drop_references(item, obj, lost)
            return None
        policy = "Background"
        if waiting and (dependents := self._dependents.get(uid_of(obj))):
            policy = "Foreground"
            if any(self._waits_for_dependents(each) for each in dependents):
                # It may be a circle, in which each would wait for the next.
                self._unblock(item, obj)
        if ORPHAN in finalizers:
            policy = "Orphan"
        delete_only(self.client, item.resource, obj, propagationPolicy=policy)
        return None

    def _is_there(self, item: CollectedObject, reference: Mapping[str, Any]) -> bool:
        known = self._by_uid.get(reference["uid"])
        if known is not None:
            # A namespaced owner in another namespace does not count.
            return known.key.namespace in {"", item.key.namespace}
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        resource = self._kinds.get((group, reference.get("kind", "")))
        if resource is None:
            return True  # a kind that is not served: never delete what cannot be judged
        namespace = item.key.namespace if resource.namespaced else ""
        if resource.namespaced and not namespace:
            return True
        owner = find(self.client, resource, reference["name"], namespace)
        return owner is not None and uid_of(owner) == reference["uid"]

    def _is_foreground(self, reference: Mapping[str, Any]) -> bool:
        known = self._by_uid.get(reference["uid"])
        return known is not None and self._waits_for_dependents(known)

    def _waits_for_dependents(self, item: CollectedObject) -> bool:
        found = self.caches[item.resource].get(item.key)
        return found is not None and is_deleting(found) and FOREGROUND in finalizers_of(found)

    def _unblock(self, item: CollectedObject, obj: JsonDict) -> None:
        """Remove blockOwnerDeletion from an object's owner references."""

        def change(latest: JsonDict) -> bool:
            blocking = [each for each in owners_of(latest) if each.get("blockOwnerDeletion")]
            latest["metadata"]["ownerReferences"] = [
                {**each, "blockOwnerDeletion": False} if each in blocking else each
                for each in owners_of(latest)
            ]
            return bool(blocking)

        self._amend(item, obj, change)

    def _delete_dependents(self, item: CollectedObject, obj: JsonDict) -> None:
        blocking = False
        for dependent in sorted(self._dependents.get(uid_of(obj), ())):
            found = self.caches[dependent.resource].get(dependent.key)
            if found is None:
                continue
            if any(
                reference["uid"] == uid_of(obj) and reference.get("blockOwnerDeletion")
                for reference in _owners(found)
            ):
                blocking = True
            if not is_deleting(found):
                self.queue.add(dependent)
        if not blocking:
            self._drop_finalizer(item, obj, FOREGROUND)

    def _orphan_dependents(self, item: CollectedObject, obj: JsonDict) -> None:
        for dependent in sorted(self._dependents.get(uid_of(obj), ())):
            found = self.caches[dependent.resource].get(dependent.key)
            if found is not None:
                self._drop_references(dependent, found, {uid_of(obj)})
        self._drop_finalizer(item, obj, ORPHAN)

    def _drop_references(self, item: CollectedObject, obj: JsonDict, uids: set[str]) -> None:
        def change(latest: JsonDict) -> bool:
            references = owners_of(latest)
            left = [reference for reference in references if reference["uid"] not in uids]
            if len(left) == len(references):
                return False
            latest["metadata"]["ownerReferences"] = left
            return True

        self._amend(item, obj, change)

    def _drop_finalizer(self, item: CollectedObject, obj: JsonDict, finalizer: str) -> None:
        self._amend(item, obj, lambda latest: drop_finalizer(latest, finalizer))

    def _amend(self, item: CollectedObject, obj: JsonDict, change: Any) -> None:
        with ignoring("NotFound"):
            amend(self.client, item.resource, obj, change)


def _resource(kind: Kind) -> Resource:
    return Resource(kind.group, kind.version, kind.plural, kind.namespaced)


def _owners(obj: JsonDict | None) -> Sequence[JsonObject]:
    return () if obj is None else owners_of(obj)


def _waits(obj: JsonDict) -> bool:
    finalizers: Iterable[str] = finalizers_of(obj)
    return is_deleting(obj) and (FOREGROUND in finalizers or ORPHAN in finalizers)
