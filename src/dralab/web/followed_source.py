"""The objects of a cluster in memory, kept up to date by watches while a page follows them.

Without a page that follows, or without the right to watch, every reading lists them anew.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, Clock
from dralab.objects.metadata import NamespacedName, key_of, without_field_owners
from dralab.runtime.client import Resource, Watch
from dralab.runtime.reading import (
    COLLECTIONS,
    ReadingError,
    ServedKind,
    in_hub,
    read_collection,
)
from dralab.runtime.resources import CLASSES
from dralab.values.json_types import JsonDict
from dralab.web.sources import EventLister, events_about, read_any, unreadable

# A watch is silent while its server is away, or after rights were withdrawn: a short list tells.
CHECK_EVERY: Final = 10 * SECOND


class WatchingLister(EventLister, Protocol):
    """The verbs of a client that following needs."""

    def watch(self, resource: Resource, namespace: str = "", *, revision: str) -> Watch:
        """Return the changes after `revision`."""
        ...


@dataclass(slots=True)
class FollowedCollection:
    """A collection as it is now; without a watch it has to be listed."""

    served: ServedKind
    resource: Resource | None = None
    watch: Watch | None = None
    objects: dict[NamespacedName, JsonDict] = field(default_factory=dict)
    sorted: bool = True
    refused: bool = False


class FollowedSource:
    """An `ObjectSource` for a cluster far away. One thread reads; any thread may follow."""

    def __init__(self, client: WatchingLister, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._collections = [FollowedCollection(each) for each in COLLECTIONS]
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()
        self._open = False
        self._may_watch = True
        self.not_judged: list[str] = []
        self._changes = 0
        self._checked = 0

    @property
    def follows(self) -> bool:
        """Whether followers are notified of each change."""
        return self._open and self._may_watch

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in any thread, after each change; return how to stop."""

        def tell() -> None:
            changed()

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not tell)

        with self._lock:
            self._listeners = (*self._listeners, tell)
        return stop

    def release(self) -> None:
        """Close the watches and forget the objects where no page follows any more."""
        if not self._listeners:
            self._close()

    def revision(self) -> str | None:
        """Return a text that changes with the objects; None where they have to be listed.

        UnreadableClusterError: the server is away, or no longer lets them be read.
        """
        self.release()
        if not self.follows:
            return None
        self._check()
        for collection in self._collections:
            self._take_changes(collection)
        return str(self._changes) if self.follows else None

    def read(self) -> Sequence[JsonDict]:
        """Return the objects. UnreadableClusterError."""
        try:
            self._open = bool(self._listeners) and all(map(self._update, self._collections))
        except ReadingError as error:
            self._close()
            if not error.missing:
                raise unreadable(str(error), error.__cause__) from error
        if not self._open:
            self.not_judged = []
            return read_any(self._client, self.not_judged.append)
        refused = {each.served.judged for each in self._collections if each.refused}
        self.not_judged = sorted(refused)
        return [
            item
            for each in self._collections
            if each.served.judged not in refused
            for item in _in_order(each)
        ]

    def events(self, kind: str, namespace: str, name: str) -> Sequence[JsonDict]:
        """Return the events about an object. UnreadableClusterError."""
        return events_about(self._client, kind, namespace, name)

    # --- one collection

    def _update(self, collection: FollowedCollection) -> bool:
        """Bring a collection up to date; return whether it may be watched. ReadingError."""
        if self._may_watch:
            self._take_changes(collection)
            if collection.watch is None:
                self._list(collection)
        return self._may_watch

    def _list(self, collection: FollowedCollection) -> None:
        """List a collection and watch it from there. ReadingError."""
        self._changes += 1
        found = read_collection(self._client, collection.served)
        collection.objects = {key_of(item): without_field_owners(item) for item in found.items}
        collection.resource, collection.sorted = found.resource, False
        collection.refused = found.refused
        if found.resource is None:
            return  # the cluster does not serve it; asked again at the next reading
        try:
            collection.watch = self._client.watch(found.resource, revision=found.revision)
        except ApiError as error:
            self._lose(collection, error)
        else:
            collection.watch.notify(self._tell)

    def _take_changes(self, collection: FollowedCollection) -> None:
        watch = collection.watch
        if watch is None or collection.resource is None:
            return
        try:
            while (event := watch.next(0)) is not None:
                if event.type == "ERROR":
                    raise ApiError.from_status(event.object)
                if event.type == "BOOKMARK":
                    continue
                self._changes += 1
                key = key_of(event.object)
                if event.type == "DELETED":
                    collection.objects.pop(key, None)
                    continue
                collection.sorted = collection.sorted and key in collection.objects
                item = in_hub(event.object, collection.resource, collection.served.kind)
                collection.objects[key] = without_field_owners(item)
        except ApiError as error:
            self._lose(collection, error)

    def _lose(self, collection: FollowedCollection, error: ApiError) -> None:
        """Note that a watch has ended: a list puts it right, unless watching is forbidden."""
        self._changes += 1
        if collection.watch is not None:
            collection.watch.close()
            collection.watch = None
        if error.code == 403:
            self._may_watch = False
            self._close()

    def _check(self) -> None:
        now = self._clock.now()
        if now - self._checked < CHECK_EVERY:
            return
        try:
            classes = next(each for each in self._collections if each.served.resource == CLASSES)
            self._client.list(classes.resource or CLASSES)
        except ApiError as error:
            raise unreadable(f"cannot list {CLASSES.plural}: {error.message}", error) from error
        self._checked = now

    def _tell(self) -> None:
        for tell in self._listeners:
            tell()

    def _close(self) -> None:
        self._open = False
        for collection in self._collections:
            if collection.watch is not None:
                collection.watch.close()
                collection.watch = None
            collection.objects = {}


def _in_order(collection: FollowedCollection) -> Sequence[JsonDict]:
    """Return the objects in the order of a list."""
    if not collection.sorted:
        collection.objects = dict(sorted(collection.objects.items()))
        collection.sorted = True
    return list(collection.objects.values())
