"""Shared by workload controllers: pods from templates, ownership of pods, hashes.

Source: k8s.io/kubernetes `controller_utils.go`, `controller_ref_manager.go`.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, Literal

import orjson

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    metadata_of,
    owner_reference,
    owners_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import group_of, is_finished, is_ready
from dralab.runtime.cache import Cache
from dralab.runtime.client import Resource, delete_only
from dralab.runtime.events import EventRecorder
from dralab.runtime.manager import Manager
from dralab.runtime.resources import PODS
from dralab.values import labels
from dralab.values.json_types import JsonDict

# The letters of names that no word is made of (k8s.io/apimachinery util/rand).
SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
BURST: Final = 500
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


class OwnedObjects:
    """The objects of one collection that belong to objects of one kind.

    An object belongs to its controller reference. One without that fits a selector is adopted, and
    one that no longer fits is released. `plain`: select by labels alone (ReplicationController).
    """

    def __init__(
        self,
        manager: Manager,
        resource: Resource,
        *,
        kind: str,
        api_version: str,
        plain: bool = False,
    ) -> None:
        self.client = manager.client
        self.cache = manager.cache(resource)
        self.cache.index("controller", _controller_uid)
        self.cache.index("namespace of orphans", _orphan_namespace)
        self.resource = resource
        self.kind = kind
        self.api_version = api_version
        self.plain = plain

    def selector_of(self, owner: JsonDict) -> labels.Selector | None:
        """Return what an owner selects; None if it has no selector."""
        wanted = spec_of(owner).get("selector")
        if not wanted:
            return None
        return labels.from_mapping({"matchLabels": wanted} if self.plain else wanted)

    def owned_by(self, owner: JsonDict, *, adopt: bool = True) -> list[JsonDict]:
        """Return an owner's objects by name; adopts and releases objects."""
        found = self.cache.find("controller", uid_of(owner))
        selector = self.selector_of(owner) if adopt and not is_deleting(owner) else None
        if selector is None:
            return found
        mine = []
        for obj in found:
            if selector.accepts(labels_of(obj)):
                mine.append(obj)
            elif not is_deleting(obj):
                self._refer(obj, [])
        for obj in self.cache.find("namespace of orphans", key_of(owner).namespace):
            own = labels_of(obj)
            if not is_deleting(obj) and not is_finished(obj) and selector.accepts(own):
                reference = self.reference(owner)
                adopted = self._refer(obj, [reference])
                if adopted is not None:
                    mine.append(adopted)
        return sorted(mine, key=key_of)

    def reference(self, owner: JsonDict) -> dict[str, Any]:
        """Return the reference by which an owner controls."""
        return owner_reference(owner, api_version=self.api_version, kind=self.kind)

    def owner_key(self, obj: JsonDict) -> NamespacedName | None:
        """Return the key of an object's owner, where it is of this kind."""
        reference = controller_of(obj)
        if reference is None or reference["kind"] != self.kind:
            return None
        if reference["apiVersion"].partition("/")[0] != self.api_version.partition("/")[0]:
            return None
        return NamespacedName(key_of(obj).namespace, reference["name"])

    def _refer(self, obj: JsonDict, references: list[Mapping[str, Any]]) -> JsonDict | None:
        others = [item for item in owners_of(obj) if not item.get("controller")]
        metadata = {
            "uid": uid_of(obj),
            "resourceVersion": obj["metadata"].get("resourceVersion"),
            "ownerReferences": [*others, *references],
        }
        key = key_of(obj)
        try:
            changed = self.client.patch(
                self.resource, key.name, {"metadata": metadata}, key.namespace
            )
        except ApiError as error:
            if error.reason in {"NotFound", "Conflict", "Invalid"}:
                return None
            raise
        self.cache.learn(changed)
        return changed


class PodControl:
    """Creates and deletes the pods of an owner, and records events on it."""

    def __init__(
        self, manager: Manager, recorder: EventRecorder, *, kind: str, api_version: str
    ) -> None:
        self.manager = manager
        self.client = manager.client
        self.pods = manager.cache(PODS)
        self.recorder = recorder
        self.kind = kind
        self.api_version = api_version

    def create(self, owner: JsonDict, body: JsonDict) -> JsonDict:
        """Create a pod; an ApiError is recorded as an event of the owner and raised."""
        try:
            created = self.client.create(PODS, body, key_of(owner).namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                self.say(owner, "FailedCreate", self.failed(owner, body, error), bad=True)
            raise
        self.pods.learn(created)
        self.say(owner, "SuccessfulCreate", self.created(owner, created["metadata"]["name"]))
        return created

    def delete(self, owner: JsonDict, pod: JsonDict) -> None:
        """Delete a pod; not an error if it is already gone."""
        if delete_only(self.client, PODS, pod):
            self.pods.learn_deletion(pod, self.manager.now())
            self.say(owner, "SuccessfulDelete", self.deleted(owner, key_of(pod).name))

    def say(self, owner: JsonDict, reason: str, message: str, *, bad: bool = False) -> None:
        """Record an event of the owner, a warning where it is bad."""
        type_: Literal["Normal", "Warning"] = "Warning" if bad else "Normal"
        self.recorder.event(
            owner, self.kind, reason, message, type=type_, api_version=self.api_version
        )

    # --- the words of most controllers

    def created(self, owner: JsonDict, name: str) -> str:  # noqa: ARG002 - for others
        """Say that a pod was created."""
        return f"Created pod: {name}"

    def deleted(self, owner: JsonDict, name: str) -> str:  # noqa: ARG002 - for others
        """Say that a pod was deleted."""
        return f"Deleted pod: {name}"

    def failed(self, owner: JsonDict, body: JsonDict, error: ApiError) -> str:  # noqa: ARG002
        """Say that a pod could not be created."""
        return f"Error creating: {error.message}"


def pod_from_template(
    template: Mapping[str, Any], *, reference: Mapping[str, Any], namespace: str, **name: str
) -> JsonDict:
    """Return a pod of a template; `name` is either `name=` or `generateName=`."""
    metadata = metadata_of(template)
    made: dict[str, Any] = {**name, "namespace": namespace, "ownerReferences": [dict(reference)]}
    for field in ("labels", "annotations", "finalizers"):
        if metadata.get(field):
            made[field] = deepcopy(metadata[field])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": deepcopy(template["spec"])}


def is_active(pod: JsonDict) -> bool:
    """Return whether a pod counts: it neither ended nor is it ending."""
    return not is_finished(pod) and not is_deleting(pod)


def is_ending(pod: JsonDict) -> bool:
    """Return whether a pod is deleted and has not ended."""
    return is_deleting(pod) and not is_finished(pod)


def is_available(pod: JsonDict, min_ready_seconds: int, now: int) -> bool:
    """Return whether a pod has been ready for long enough."""
    if not is_ready(pod):
        return False
    return not min_ready_seconds or available_at(pod, min_ready_seconds) <= now


def available_at(pod: JsonDict, min_ready_seconds: int) -> int:
    """Return when a ready pod becomes available, in ns since the epoch."""
    since = (condition_of(pod, "Ready") or {}).get("lastTransitionTime")
    return (from_rfc3339(since) if since else 0) + min_ready_seconds * SECOND


def deletion_rank(pod: JsonDict) -> tuple[Any, ...]:
    """Return the sort key for deleting surplus pods (ActivePodsWithRanks)."""
    phase = status_of(pod).get("phase", "")
    annotations = annotations_of(pod)
    try:
        cost = int(annotations.get(DELETION_COST, 0))
    except ValueError:
        cost = 0
    created = pod["metadata"].get("creationTimestamp", "")
    return (
        bool(pod["spec"].get("nodeName")),
        {"Pending": 0, "Unknown": 1, "Running": 2}.get(phase, 0),
        is_ready(pod),
        cost,
        _Reversed(created),
        pod["metadata"]["name"],
    )


class _Reversed:
    """A text that sorts in reverse: newer first."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: "_Reversed") -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def template_hash(template: Mapping[str, Any], collisions: int = 0) -> str:
    """Return a short name for a pod template, of letters that make no words.

    Upstream hashes Go's memory layout, so no two implementations can agree on the value.
    """
    content = orjson.dumps([template, collisions], option=orjson.OPT_SORT_KEYS)
    return _letters(content)


def name_of_letters(*texts: str) -> str:
    """Return a short name for some texts, of letters that make no words."""
    return _letters(orjson.dumps(texts))


def _letters(content: bytes) -> str:
    number = int.from_bytes(hashlib.sha256(content).digest()[:6], "big")
    letters = []
    for _ in range(10):
        number, rest = divmod(number, len(SAFE))
        letters.append(SAFE[rest])
    return "".join(letters)


def group_key(pod: JsonDict) -> list[str]:
    """Return the key of a pod's group, to index pods by it."""
    name = group_of(pod)
    return [str(NamespacedName(key_of(pod).namespace, name))] if name else []


def serves(pod: JsonDict, owner: JsonDict, now: int) -> bool:
    """Return whether a pod counts as available for its workload."""
    least = owner["spec"].get("minReadySeconds") or 0
    return not is_deleting(pod) and is_available(pod, least, now)


def percentage(value: Any, of: int, *, up: bool) -> int:
    """Return an IntOrString as a number: `25%` of `owned_by`, rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        product = of * int(value[:-1])
        return -(-product // 100) if up else product // 100
    return int(value or 0)


def each(
    add: Callable[[NamespacedName], None],
) -> Callable[[JsonDict | None, JsonDict | None], None]:
    """Return a subscriber that queues every new or changed object."""

    def change(_old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            add(key_of(new))

    return change


def enqueue_owner(
    owned: OwnedObjects, add: Callable[[NamespacedName], None], owners: Cache
) -> Callable[[JsonDict | None, JsonDict | None], None]:
    """Return a subscriber that queues an owner when one of its objects changes."""

    def add_owner_of(obj: JsonDict | None) -> None:
        key = None if obj is None else owned.owner_key(obj)
        if key is not None:
            add(key)

    def change(old: JsonDict | None, new: JsonDict | None) -> None:
        if new is None or (old is not None and owners_of(old) != owners_of(new)):
            add_owner_of(old)
        add_owner_of(new)
        if new is not None and controller_of(new) is None and old is None:
            # An orphan that appears may be adopted by any controller that selects it.
            for owner in owners.namespace(key_of(new).namespace):
                wanted = owned.selector_of(owner)
                if wanted is not None and wanted.accepts(labels_of(new)):
                    add(key_of(owner))

    return change


def write_status(
    manager: Manager, cache: Cache, obj: JsonDict, status: Mapping[str, Any]
) -> JsonDict:
    """Write a status where it differs; return the object as it then is.

    ApiError NotFound: the object is gone, and from now on the cache has it as being deleted.
    """
    before = status_of(obj)
    if all(before.get(name) == value for name, value in status.items()):
        return obj
    body = {**obj, "status": {**before, **status}}
    body["status"] = {name: value for name, value in body["status"].items() if value is not None}
    try:
        written = manager.client.update(cache.resource, body, subresource="status")
    except ApiError as error:
        if error.reason == "NotFound":
            # The watch lags: without this, pods are made for it as fast as they are collected.
            cache.learn_deletion(obj, manager.now())
        raise
    cache.learn(written)
    return written


def _controller_uid(obj: JsonDict) -> Iterable[str]:
    reference = controller_of(obj)
    return () if reference is None else (reference["uid"],)


def _orphan_namespace(obj: JsonDict) -> Iterable[str]:
    return (key_of(obj).namespace,) if controller_of(obj) is None else ()
