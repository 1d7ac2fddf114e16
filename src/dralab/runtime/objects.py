"""Reading and changing API objects: keys, owners, conditions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from dralab.api.status import ApiError
from dralab.runtime.client import Client, Object, Resource


class Key(NamedTuple):
    """Which object of a collection; the namespace is empty where the kind has none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: Mapping[str, Any]) -> Key:
    """Return the key of an object."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def uid_of(obj: Mapping[str, Any]) -> str:
    """Return the UID of an object; empty where a server never saw it."""
    uid: str = obj["metadata"].get("uid", "")
    return uid


def revision_of(obj: Mapping[str, Any]) -> int:
    """Return the resource version as a number; 0 where there is none."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Return whether the object is on its way out."""
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Return whether the containers of a pod will never run again."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the owner reference that is the object's controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Mapping[str, Any] = reference
            return found
    return None


def owner_reference(owner: Object, *, api_version: str, kind: str) -> dict[str, Any]:
    """Return the reference by which `owner` controls what it makes.

    Kind and version are arguments: items of a built-in list carry neither.
    """
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition_of(obj: Mapping[str, Any], type: str) -> Mapping[str, Any] | None:
    """Return the condition of that type in the object's status."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition["type"] == type:
            found: Mapping[str, Any] = condition
            return found
    return None


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod's Ready condition is true."""
    condition = condition_of(pod, "Ready")
    return condition is not None and condition["status"] == "True"


def with_condition(
    conditions: Iterable[Mapping[str, Any]], new: Mapping[str, Any], *, now: str
) -> list[dict[str, Any]]:
    """Return the conditions with `new` in the place of the one of its type.

    The time of transition stays where the status does (metav1.Condition).
    """
    found, placed = [], False
    for condition in conditions:
        if condition["type"] != new["type"]:
            found.append(dict(condition))
            continue
        same = condition.get("status") == new["status"]
        since = condition.get("lastTransitionTime", now) if same else now
        found.append({**new, "lastTransitionTime": since})
        placed = True
    if not placed:
        found.append({**new, "lastTransitionTime": now})
    return found


def amend(
    client: Client,
    resource: Resource,
    obj: Object,
    change: Callable[[Object], bool],
    *,
    subresource: str = "",
    attempts: int = 5,
) -> Object:
    """Change an object and store it, reading it anew whenever someone else was faster.

    `change` edits the copy it is given and returns whether there is anything to write. It is
    called again after a conflict, so it must look at its argument and at nothing older.
    ApiError: the object is gone or was replaced (NotFound), or the server refuses.
    """
    key, uid = key_of(obj), uid_of(obj)
    for attempt in range(attempts):
        # Objects are JSON: this is twenty times faster than `copy.deepcopy`.
        copy: Object = orjson.loads(orjson.dumps(obj))
        if not change(copy):
            return obj
        try:
            return client.update(resource, copy, subresource=subresource)
        except ApiError as error:
            if error.reason != "Conflict" or attempt == attempts - 1:
                raise
        obj = client.get(resource, key.name, key.namespace)
        if uid_of(obj) != uid:
            raise ApiError.not_found(resource.plural, key.name, group=resource.group)
    raise AssertionError("unreachable: the last attempt returns or raises")
