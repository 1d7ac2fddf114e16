"""Where the objects on the page come from: files, this process's server, or any cluster.

A source only reads. What the objects mean is left to the views.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dralab.api.status import ApiError
from dralab.runtime.client import ObjectList, Resource
from dralab.runtime.reading import Lister, ReadingError, read_cluster
from dralab.runtime.resources import EVENTS
from dralab.values.json_types import JsonDict
from dralab.values.names import subdomain_problems
from dralab.web.pod_events import is_about


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


class EventLister(Lister, Protocol):
    """The verb of a client that a source needs, with the selector by which it finds events."""

    def list(
        self, resource: Resource, namespace: str = "", *, field_selector: str = ""
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty."""
        ...


@dataclass(frozen=True, slots=True)
class FixedSource:
    """Objects that never change, such as those of a file."""

    objects: Sequence[JsonDict]

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


@dataclass(frozen=True, slots=True)
class ListedSource:
    """The objects that a client may list; `changed` tells the revision of a server that is near."""

    client: EventLister
    changed: Callable[[], int] | None = None

    def revision(self) -> str | None:
        """Return the revision of the server's store, where it is known."""
        return None if self.changed is None else str(self.changed())

    def read(self) -> Sequence[JsonDict]:
        """Return the objects.

        UnreadableClusterError: 403 where some may not be listed, 502 without an answer.
        """
        try:
            return list(read_cluster(self.client))
        except ReadingError as error:
            raise _unreadable(str(error), error.__cause__) from error

    def events(self, kind: str, namespace: str, name: str) -> Sequence[JsonDict]:
        """Return the events about an object. UnreadableClusterError, as for `read`."""
        # Names have neither commas nor equals signs, which a selector could not quote.
        if subdomain_problems(name):
            return ()
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        try:
            return self.client.list(EVENTS, namespace, field_selector=selector).items
        except ApiError as error:
            raise _unreadable(f"cannot list events: {error.message}", error) from error


def _unreadable(message: str, cause: BaseException | None) -> UnreadableClusterError:
    code = cause.code if isinstance(cause, ApiError) else 502
    return UnreadableClusterError(message, code if code in {401, 403} else 502)
