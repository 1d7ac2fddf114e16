"""The metadata of every object: its key, its owners, whether it is being deleted.

Source: k8s.io/apimachinery `apis/meta/v1` (OwnerReference, controller_ref.go).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dralab.values.json_types import JsonDict, JsonObject

DEFAULT_NAMESPACE: Final = "default"


class NamespacedName(NamedTuple):
    """Which object of a collection; the namespace is empty if the kind has none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: JsonObject) -> NamespacedName:
    """Return the key of an object."""
    metadata = obj["metadata"]
    return NamespacedName(metadata.get("namespace", ""), metadata["name"])


def full_key(obj: JsonObject) -> NamespacedName:
    """Return the key that an object of a file gets: without a namespace it goes to `default`."""
    return NamespacedName(namespace_of(obj), obj["metadata"]["name"])


def namespace_of(obj: JsonObject) -> str:
    """Return the namespace of an object of a file, which may have no name yet; likewise."""
    return obj["metadata"].get("namespace") or DEFAULT_NAMESPACE


def spec_of(obj: JsonObject) -> JsonObject:
    """Return an object's spec; empty if it has none."""
    return obj.get("spec") or {}


def status_of(obj: JsonObject) -> JsonObject:
    """Return an object's status; empty if it has none."""
    return obj.get("status") or {}


def metadata_of(obj: JsonObject) -> JsonObject:
    """Return an object's metadata; empty for a template that has none."""
    return obj.get("metadata") or {}


def without_field_owners(obj: JsonDict) -> JsonDict:
    """Return an object without metadata.managedFields: a third of it, which only servers read.

    A server takes an update without them to mean those that it has.
    """
    metadata = obj["metadata"]
    if "managedFields" not in metadata:
        return obj
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**obj, "metadata": kept}


def labels_of(obj: JsonObject) -> Mapping[str, str]:
    """Return an object's labels; empty if it has none."""
    return metadata_of(obj).get("labels") or {}


def annotations_of(obj: JsonObject) -> Mapping[str, str]:
    """Return an object's annotations; empty if it has none."""
    return metadata_of(obj).get("annotations") or {}


def uid_of(obj: JsonObject) -> str:
    """Return the UID of an object; empty if a server never saw it."""
    uid: str = obj["metadata"].get("uid", "")
    return uid


def revision_of(obj: JsonObject) -> int:
    """Return the resource version as a number; 0 if there is none."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def finalizers_of(obj: JsonObject) -> Sequence[str]:
    """Return the finalizers of an object."""
    found: Sequence[str] = obj["metadata"].get("finalizers") or ()
    return found


def is_deleting(obj: JsonObject) -> bool:
    """Return whether the object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def owners_of(obj: JsonObject) -> Sequence[JsonObject]:
    """Return the owner references of an object."""
    found: Sequence[JsonObject] = obj["metadata"].get("ownerReferences") or ()
    return found


def owner_uids(obj: JsonObject) -> list[str]:
    """Return the UIDs of an object's owners."""
    return [item.get("uid", "") for item in owners_of(obj)]


def controller_of(obj: JsonObject) -> JsonObject | None:
    """Return the owner reference that is the object's controller."""
    return next((item for item in owners_of(obj) if item.get("controller")), None)


def owner_reference(owner: JsonObject, *, api_version: str, kind: str) -> JsonDict:
    """Return the reference by which `owner` controls what it makes.

    Kind and version are arguments: items of a built-in list carry neither.
    """
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
