"""A client of a server in this process: the verbs themselves, without HTTP and without JSON.

Objects that come out are the server's own and may not be changed; objects that go in are copied.
Any thread may use it.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.scope import MustWait
from dralab.apiserver.access.users import ADMIN, User
from dralab.apiserver.storage import Changed, Compacted, Stored
from dralab.apiserver.storage.watching import Hub, Subscription, TooManyWatchers
from dralab.apiserver.storage.watching.interfaces import EventType
from dralab.apiserver.verbs import deleting, patching, reading, writing
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.reading import not_converted
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import Context, Scope
from dralab.apiserver.verbs.state.options import PLAINLY, ListOptions, WriteOptions, delete_options
from dralab.apiserver.verbs.state.selectors import exact_fields
from dralab.apiserver.verbs.subresources import subresources
from dralab.objects.metadata import metadata_of
from dralab.runtime.client import ObjectList, PatchType, Resource, WatchEvent
from dralab.values.json_types import JsonDict

AGENT: Final = "dralab"
Found = TypeVar("Found")


TRIES: Final = 8  # of a request whose objects others keep changing


class LocalClient:
    """The `Client` of a server in this process.

    `agent` is the writer in managed fields. With `user`, requests are authorized as that user's,
    if the server has authorization on (ApiError Forbidden).
    """

    def __init__(
        self, resources: Resources, hub: Hub, *, agent: str = AGENT, user: User = ADMIN
    ) -> None:
        self.resources = resources
        self.hub = hub
        self.agent = agent
        self.user = user
        self._limited = not user.is_superuser

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object."""
        kind = self._kind(resource)
        if self._limited:
            self._check("get", kind, namespace, name)
        return self._answer(
            lambda scope: self._view(kind, scope.live(kind, namespace, name), scope)
        )

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty."""
        kind = self._kind(resource)
        if self._limited:
            self._check("list", kind, namespace, fields=field_selector)
        options = ListOptions(label_selector=label_selector, field_selector=field_selector)

        def found(scope: Scope) -> ObjectList:
            page = reading.list_page(scope, kind, namespace, options)
            scope.rules.prepare(kind, page.items, scope)
            return ObjectList(
                [self._view(kind, one, scope) for one in page.items], str(page.revision)
            )

        return self._answer(found)

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        revision: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> "LocalWatch":
        """Return the changes after `revision`."""
        kind = self._kind(resource)
        if self._limited:
            self._check("watch", kind, namespace, fields=field_selector)
        options = ListOptions(
            label_selector=label_selector, field_selector=field_selector, revision=revision
        )
        with self.hub.store.lock:
            wanted = reading.watch(self.resources.context.own, kind, namespace, options)
            try:
                return LocalWatch(
                    self.hub.open(wanted, _Objects(self.resources.context.rules, kind))
                )
            except Compacted as error:
                text = f"too old resource version: {error.requested} ({error.compacted})"
                raise ApiError("Expired", text) from error
            except TooManyWatchers as error:
                raise ApiError("TooManyRequests", str(error)) from error

    def create(self, resource: Resource, body: JsonDict, namespace: str = "") -> JsonDict:
        """Store a new object."""
        kind = self._kind(resource)
        if kind.namespaced:
            namespace = namespace or metadata_of(body).get("namespace") or ""
        if self._limited:
            self._check("create", kind, namespace)
        stored = self._answer(
            lambda scope: self.resources.create(kind, _copy(body), namespace, scope)
        )
        return self._view(kind, stored)

    def update(self, resource: Resource, body: JsonDict, *, subresource: str = "") -> JsonDict:
        """Replace an object, or one of its subresources such as `status`."""
        kind = self._kind(resource)
        metadata = body["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        if self._limited:
            self._check("update", kind, namespace, name, subresource)
        if subresource not in {"", "status"}:
            return self._subresource("update", kind, (name, namespace), subresource, body)
        stored = self._answer(
            lambda scope: writing.update(
                scope, kind, _copy(body), name, namespace, subresource=subresource
            )[0]
        )
        return self._view(kind, stored)

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
        kind = self._kind(resource)
        if self._limited:
            self._check("patch", kind, namespace, name, subresource)

        options = partial(
            WriteOptions, manager=field_manager, agent=self.agent, force=force, kind="PatchOptions"
        )
        if subresource not in {"", "status"}:
            named = name, namespace
            return self._subresource("patch", kind, named, subresource, patch, type, options)
        stored, _ = self._answer(
            lambda scope: patching.patch(
                scope,
                kind,
                name,
                _copy(patch),
                namespace=namespace,
                type=type,
                subresource=subresource,
            ),
            options,
        )
        return self._view(kind, stored)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete an object; `options` is a DeleteOptions mapping."""
        kind = self._kind(resource)
        if self._limited:
            self._check("delete", kind, namespace, name)
        how = delete_options({}, options)
        self._answer(lambda scope: self.resources.delete(kind, name, namespace, how, scope))

    def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Delete what a list with the same arguments returns, in one request."""
        kind = self._kind(resource)
        if self._limited:
            self._check("deletecollection", kind, namespace, fields=field_selector)
        chosen = ListOptions(label_selector=label_selector, field_selector=field_selector)
        self._answer(
            lambda scope: deleting.delete_collection(scope, kind, namespace, chosen, PLAINLY)
        )

    def post(
        self, resource: Resource, name: str, subresource: str, body: JsonDict, namespace: str = ""
    ) -> JsonDict:
        """Create a subresource such as `binding`, `eviction` or `token`."""
        kind = self._kind(resource)
        if self._limited:
            self._check("create", kind, namespace, name, subresource)
        return self._subresource("create", kind, (name, namespace), subresource, body)

    def _subresource(  # noqa: PLR0917 - all of it decides
        self,
        verb: str,
        kind: Kind,
        named: tuple[str, str],
        subresource: str,
        body: Any,
        type: PatchType = "merge",
        options: Callable[[], WriteOptions] | None = None,
    ) -> JsonDict:
        name, namespace = named
        return self._answer(
            lambda scope: subresources.call(
                scope,
                verb,
                kind,
                name,
                subresource,
                body=_copy(body),
                namespace=namespace,
                type=type,
            ),
            options,
        )

    def _answer(
        self, call: Callable[[Scope], Found], options: Callable[[], WriteOptions] | None = None
    ) -> Found:
        """Return the answer of the verbs to this user. ApiError."""

        def asked(scope: Scope) -> Found:
            scope.options = options() if options else WriteOptions(agent=self.agent)
            return call(scope)

        return waited(self.resources.context, asked, self.user)

    def _view(self, kind: Kind, stored: Stored, scope: Scope | None = None) -> JsonDict:
        """Return a stored object in the version of `kind`."""
        return self.resources.context.rules.from_hub(kind, stored.value, scope)

    def _kind(self, resource: Resource) -> Kind:
        named = resource.group, resource.version, resource.plural
        return self.resources.kinds.within(*named) or self.resources.kind(*named)

    def _check(
        self,
        verb: str,
        kind: Kind,
        namespace: str,
        name: str = "",
        subresource: str = "",
        *,
        fields: str = "",
    ) -> None:
        """Ask whether the user may do something, as the server does for requests. ApiError."""
        context = self.resources.context
        if context.authorizer is not None:
            exact = exact_fields(fields) if fields else ()
            if verb in {"list", "watch"}:
                name = name or dict(exact).get("metadata.name", "")
            context.scope(user=self.user).check_access(
                Attributes(
                    user=self.user,
                    verb=verb,
                    group=kind.group,
                    version=kind.version,
                    resource=kind.plural,
                    subresource=subresource,
                    namespace=namespace if kind.namespaced else "",
                    name=name,
                    fields=exact,
                )
            )


class LocalWatch:
    """Changes delivered by the hub."""

    def __init__(self, subscription: Subscription[WatchEvent]) -> None:
        self._subscription = subscription
        self._events: deque[WatchEvent] = deque()
        self._news = threading.Event()
        self._ready: Callable[[], None] = lambda: None
        subscription.notify(self._tell)

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """Return the next change; None if none comes within `timeout` seconds."""
        while not self._events:
            if timeout != 0:
                self._news.clear()
            self._events.extend(self._subscription.take_items())
            if self._events:
                break
            cut = self._subscription.cut
            if cut == "":
                return None
            if self._subscription.done:
                why = cut or "the server is shutting down"
                raise ApiError("Expired", f"the watch ended: {why}")
            if timeout == 0 or not self._news.wait(timeout):
                return None
        return self._events.popleft()

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready`, in any thread, each time `next` may have got something to return."""
        with self._subscription.lock:
            self._ready = ready
            if self._events or self._subscription.waiting:
                ready()

    def close(self) -> None:
        """Stop; further changes are not kept."""
        self._subscription.close()

    def _tell(self) -> None:
        # Engines never wait here: it stays set, and costs nothing.
        if not self._news.is_set():
            self._news.set()
        self._ready()


class _Objects:
    """Events as the server's own objects, in one version of their kind."""

    shared = True

    def __init__(self, rules: Rules, kind: Kind) -> None:
        self.rules = rules
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Objects) and other.kind is self.kind

    def __hash__(self) -> int:
        return hash(id(self.kind))

    def event(self, type: EventType, stored: Stored) -> WatchEvent:
        try:
            return WatchEvent(type, self.rules.from_hub(self.kind, stored.value))
        except ApiError as error:
            return WatchEvent("ERROR", error.status())
        except MustWait:
            return WatchEvent("ERROR", not_converted(self.kind, stored).status())

    def bookmark(self, revision: int, *, initial_end: bool = False) -> WatchEvent:  # noqa: ARG002
        metadata = {"resourceVersion": str(revision)}
        named = {"kind": self.kind.kind, "apiVersion": self.kind.api_version}
        return WatchEvent("BOOKMARK", {**named, "metadata": metadata})


def _copy(value: Any) -> Any:
    """Return a deep copy; values that are not JSON are refused."""
    try:
        return orjson.loads(orjson.dumps(value))
    except (orjson.JSONEncodeError, orjson.JSONDecodeError) as error:
        raise ApiError.bad_request(f"the object is not JSON: {error}") from error


def waited(context: Context, call: Callable[[Scope], Found], user: User = ADMIN) -> Found:
    """Return the result of `call`, which is retried where it has to wait. ApiError.

    Without the store's lock: others go on, and where they change what was read it is tried again.
    """
    try:
        return call(context.scope(user=user))
    except MustWait:
        pass
    for _ in range(TRIES):
        try:
            scope = context.scope(user=user, store=context.store.view())
            scope.waits = True
            return call(context.may_compute(scope))
        except Changed:
            continue
    raise ApiError(
        "ServerTimeout",
        "others keep changing what the write depends on, please try again",
        details={"retryAfterSeconds": 1},
    )
