"""Where the objects on the page come from: files, or this process's server.

Clusters far away are followed (`followed_source`). A source only reads; what the objects mean is
left to the views.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.storage import Change
from dralab.prototypes.evolution.on_nodes import user_of_claims
from dralab.prototypes.findings import identity
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import stored_name
from dralab.runtime.client import ObjectList, Resource
from dralab.runtime.generations import Reader, objects_of, served
from dralab.runtime.reading import COLLECTIONS, ReadingError, read_cluster
from dralab.runtime.resources import EVENTS
from dralab.values.json_types import JsonDict
from dralab.values.names import subdomain_problems
from dralab.web.pod_events import is_about

# The collections as a store names them.
OLDER: Final = frozenset(
    stored_name(generation.name, api_version.partition("/")[0], kind["plural"])
    for generation in GENERATIONS.values()
    for api_version, kinds in generation.kinds.items()
    for kind in kinds
)
FOLLOWED: Final = OLDER | {
    f"{each.resource.group}/{each.resource.plural}".lstrip("/") for each in COLLECTIONS
}


class UnreadableClusterError(Exception):
    """The objects cannot be read; `code` is the HTTP status that says why."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class ObjectSource(Protocol):
    """Reads the objects of a cluster as they are now."""

    def revision(self) -> str | None:
        """Return a text that changes with the objects; None where only reading them tells."""
        ...

    def read(self) -> Sequence[JsonDict]:
        """Return the objects, in the hub's versions. UnreadableClusterError."""
        ...

    def events(self, kind: str, namespace: str, name: str) -> Sequence[JsonDict]:
        """Return the events about an object. UnreadableClusterError."""
        ...

    @property
    def not_judged(self) -> Sequence[str]:
        """What the last reading left out because it was forbidden (403), such as volumes."""
        ...

    @property
    def follows(self) -> bool:
        """Whether followers are notified of each change."""
        ...

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in any thread, after each change; return how to stop."""
        ...

    def release(self) -> None:
        """Release what only followers need, if there are none."""
        ...


class EventLister(Reader, Protocol):
    """The verbs of a client that a source needs, with the selector by which it finds events."""

    def list(
        self, resource: Resource, namespace: str = "", *, field_selector: str = ""
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty."""
        ...


@dataclass(frozen=True, slots=True)
class FixedSource:
    """Objects that never change, such as those of a file."""

    objects: Sequence[JsonDict]
    not_judged: Sequence[str] = ()

    def revision(self) -> str | None:
        """Return the one revision that there is."""
        return "1"

    def read(self) -> Sequence[JsonDict]:
        """Return the objects."""
        return self.objects

    def events(self, kind: str, namespace: str, name: str) -> Sequence[JsonDict]:
        """Return the events among the objects; snapshots have none."""
        return [
            item
            for item in self.objects
            if item.get("kind") == "Event" and is_about(item, kind, namespace, name)
        ]

    @property
    def follows(self) -> bool:
        """Whether followers are notified: there are no changes."""
        return True

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Return a function that does nothing."""
        return _nothing

    def release(self) -> None:
        """Keep the objects: they are all there is."""


class NearStore(Protocol):
    """The part of a server's store that notifies of changes."""

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        ...

    def subscribe(self, listener: Callable[[Sequence[Change]], None]) -> Callable[[], None]:
        """Call `listener` with each batch of changes, with the lock held; return how to stop."""
        ...


@dataclass(frozen=True, slots=True)
class ListedSource:
    """The objects that a client may list, listed each time; `store` notifies of changes.

    The client is that of a server in this process, for which a list is cheap.
    """

    client: EventLister
    store: NearStore
    not_judged: list[str] = field(default_factory=list)

    @property
    def follows(self) -> bool:
        """Whether followers are notified of each change."""
        return True

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in the thread of the writer, after each change; return how to stop."""

        def of_batch(changes: Sequence[Change]) -> None:
            names = {each.key.resource for each in changes}
            if names & FOLLOWED:
                changed()

        return self.store.subscribe(of_batch)

    def release(self) -> None:
        """Keep nothing, as before."""

    def revision(self) -> str | None:
        """Return the revision of the server's store."""
        return str(self.store.revision)

    def read(self) -> Sequence[JsonDict]:
        """Return the objects.

        UnreadableClusterError: 403 where some may not be listed, 502 without an answer.
        """
        self.not_judged.clear()
        return read_any(self.client, self.not_judged.append)

    def events(self, kind: str, namespace: str, name: str) -> Sequence[JsonDict]:
        """Return the events about an object. UnreadableClusterError, as for `read`."""
        return events_about(self.client, kind, namespace, name)


def read_any(client: Reader, not_judged: Callable[[str], None]) -> list[JsonDict]:
    """Return the objects of a cluster; of older generations where it does not serve today's.

    `not_judged` is told of each subject that may not be read. UnreadableClusterError.
    """
    try:
        try:
            return list(read_cluster(client, not_judged=not_judged))
        except ReadingError as error:
            older = served(client) if error.missing else []
            if not older or "v1" in older:
                raise
            return _of_older(client, older)
    except ReadingError as error:
        raise unreadable(str(error), error.__cause__) from error
    except ApiError as error:
        raise unreadable(error.message, error) from error


def _of_older(client: Reader, names: Sequence[str]) -> list[JsonDict]:
    """Return the objects of several older generations as today's, each once."""
    from dralab.prototypes.conversion.as_today import as_today

    found: dict[object, JsonDict] = {}
    for name in names:
        # What runs a pod of dra-evolution is not a second pod.
        objects = [
            each
            for each in objects_of(client, GENERATIONS[name])
            if each["kind"] != "Pod" or not user_of_claims(each)
        ]
        reports = GENERATIONS[name].read_all(objects)
        for item in as_today([r.document for r in reports if r.state != "invalid"], name):
            found.setdefault(identity(item), item)
    return list(found.values())


def events_about(client: EventLister, kind: str, namespace: str, name: str) -> Sequence[JsonDict]:
    """Return the events about an object. UnreadableClusterError."""
    # Names have neither commas nor equals signs, which a selector could not quote.
    if subdomain_problems(name):
        return ()
    selector = f"involvedObject.kind={kind},involvedObject.name={name}"
    try:
        return client.list(EVENTS, namespace, field_selector=selector).items
    except ApiError as error:
        raise unreadable(f"cannot list events: {error.message}", error) from error


def _nothing() -> None:
    """Do nothing."""


def unreadable(message: str, cause: BaseException | None) -> UnreadableClusterError:
    """Return the error of objects that cannot be read: 401, 403, or else 502."""
    code = cause.code if isinstance(cause, ApiError) else 502
    return UnreadableClusterError(message, code if code in {401, 403} else 502)
