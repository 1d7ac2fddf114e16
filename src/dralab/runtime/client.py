"""The client interface of the API server: verbs on plain objects.

Two implementations: `local` calls a server in this process, `remote` speaks HTTP to any cluster.
Both are synchronous and raise `ApiError`; objects are JSON mappings that the caller may keep but
must not change (copy before you edit: the server hands out its own).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from dralab.api.status import ApiError, ignoring
from dralab.objects.metadata import finalizers_of, key_of, uid_of
from dralab.values.json_types import JsonDict, JsonObject

PatchType = Literal["json", "merge", "strategic", "apply"]


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """Which collection: `Resource("resource.k8s.io", "v1", "resourceclaims")`."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def path(self) -> str:
        """The root of its URLs, such as `/apis/resource.k8s.io/v1` or `/api/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of a collection as of one revision."""

    items: Sequence[JsonDict]
    revision: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change that a watch reports."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: JsonDict


class Watch(Protocol):
    """Changes of a collection, in order, after some revision."""

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """Return the next change; None if none comes within `timeout` seconds.

        `timeout=0` never waits. ApiError with reason Expired: list again.
        """
        ...

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready`, from whatever thread, each time `next` may have got something to return.

        It is called at once where something waits already. `ready` returns quickly, raises
        nothing and calls nothing of the server: an engine only notes that the watch has news.
        """
        ...

    def close(self) -> None:
        """Stop; further changes are not kept."""
        ...


class Client(Protocol):
    """The verbs of an API server. Every method may raise ApiError."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object."""
        ...

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty."""
        ...

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        revision: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Watch:
        """Return the changes after `revision`."""
        ...

    def create(self, resource: Resource, body: JsonDict, namespace: str = "") -> JsonDict:
        """Store a new object."""
        ...

    def update(self, resource: Resource, body: JsonDict, *, subresource: str = "") -> JsonDict:
        """Replace an object, or one of its subresources such as `status`."""
        ...

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: JsonDict | Sequence[JsonDict],
        namespace: str = "",
        *,
        type: PatchType = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> JsonDict:
        """Change an object by a patch."""
        ...

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete an object; `options` is a DeleteOptions mapping."""
        ...

    def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Delete what a list with the same arguments returns, in one request."""
        ...

    def post(
        self, resource: Resource, name: str, subresource: str, body: JsonDict, namespace: str = ""
    ) -> JsonDict:
        """Create a subresource such as `binding`, `eviction` or `token`."""
        ...


def serves(client: Client, resource: Resource) -> bool:
    """Return whether a server has a collection. ApiError."""
    with ignoring("NotFound"):
        client.list(resource)
        return True
    return False


def find(client: Client, resource: Resource, name: str, namespace: str = "") -> JsonDict | None:
    """Return an object; None if it does not exist. ApiError: the server refuses to tell."""
    with ignoring("NotFound"):
        return client.get(resource, name, namespace)
    return None


def delete_only(client: Client, resource: Resource, obj: JsonObject, **options: Any) -> bool:
    """Delete this object and no later one of its name; False: it is gone. ApiError."""
    key, options = key_of(obj), {**options, "preconditions": {"uid": uid_of(obj)}}
    with ignoring("NotFound", "Conflict"):
        client.delete(resource, key.name, key.namespace, options=options)
        return True
    return False


def add_finalizer(obj: JsonDict, name: str) -> bool:
    """Add a finalizer to an object, as a change for `amend`; False if it has it."""
    finalizers = finalizers_of(obj)
    if name in finalizers:
        return False
    obj["metadata"]["finalizers"] = [*finalizers, name]
    return True


def drop_finalizer(obj: JsonDict, name: str) -> bool:
    """Remove a finalizer from an object, as a change for `amend`; False if it does not have it."""
    finalizers = finalizers_of(obj)
    if name not in finalizers:
        return False
    obj["metadata"]["finalizers"] = [each for each in finalizers if each != name]
    return True


def amend(
    client: Client,
    resource: Resource,
    obj: JsonDict,
    change: Callable[[JsonDict], bool],
    *,
    subresource: str = "",
    attempts: int = 5,
) -> JsonDict:
    """Change an object and store it, reading it again after each conflict.

    `change` edits the copy it is given and returns whether there is anything to write. It is
    called again after a conflict, so it must look at its argument and at nothing older.
    ApiError: the object is gone or was replaced (NotFound), or the server refuses the write.
    """
    key, uid = key_of(obj), uid_of(obj)
    for attempt in range(attempts):
        # Objects are JSON: this is twenty times faster than `copy.deepcopy`.
        copy: JsonDict = orjson.loads(orjson.dumps(obj))
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
