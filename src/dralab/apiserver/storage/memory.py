"""A store in memory: the current state, and recent changes to reconstruct older revisions."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from threading import RLock
from typing import Final

import orjson

from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.metrics.meters import Histograms
from dralab.apiserver.storage.collection import Collection, chosen
from dralab.apiserver.storage.errors import (
    Compacted,
    Damaged,
    FutureRevision,
    KeyExists,
    KeyMissing,
    RevisionConflict,
    StorageUnavailable,
    Unstorable,
)
from dralab.apiserver.storage.objects import Change, Key, Listing, Stored, stamped
from dralab.apiserver.storage.optimistic import OptimisticStore
from dralab.apiserver.storage.store import Filter, Follower, Listener, Loop, StoreView
from dralab.values.json_types import JsonDict

# Changes kept per collection. kube-apiserver keeps five minutes of etcd history and a window of
# at least 100 and at most 102,400 events per collection; this is some seconds of its top speed.
WINDOW: Final = 10_000


class MemoryStore:
    """The `Store` of embedded clusters; the base of those that also write to a medium."""

    shared = False
    measured: Sequence[Histograms] = ()

    @property
    def connected(self) -> bool:
        """Whether the store sees all writes: there are no other servers."""
        return True

    def __init__(self, *, window: int = WINDOW) -> None:
        self.lock = RLock()
        self.window = window
        self._revision = 1
        self._compacted = 0
        self._aged = 0  # states before this revision are too old to be listed
        self._collections: dict[str, Collection] = {}
        self._damaged: dict[Key, int] = {}  # and the revision at which it was written
        self._listeners: list[Listener] = []
        self._loads: list[Callable[[], None]] = []
        self._open: list[Change] = []
        self._depth = 0
        self._closed = False

    @property
    def wrote(self) -> bool:
        """Whether anything was written."""
        return self._revision > 1

    @property
    def revision(self) -> int:
        """The revision of the last write; 1 before the first."""
        return self._revision

    @property
    def compacted(self) -> int:
        """The highest revision that was compacted on demand."""
        return self._compacted

    def get(self, key: Key) -> Stored | None:
        """Return the object, or None. Damaged."""
        with self.lock:
            collection = self._collections.get(key.resource)
            found = None if collection is None else collection.find(key)
            if found is None and self._damaged:
                self._check_readable(key)
            return found

    def damaged(self, resource: str, namespace: str = "") -> Sequence[Key]:
        """Return the objects of a collection that cannot be read, sorted."""
        if not self._damaged:
            return ()
        with self.lock:
            return sorted(
                key
                for key in self._damaged
                if key.resource == resource and namespace in {"", key.namespace}
            )

    def list(
        self,
        resource: str,
        namespace: str = "",
        *,
        revision: int | None = None,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
        where: Filter | None = None,
    ) -> Listing:
        """Return a page of a collection; see `Store.list`."""
        with self.lock:
            shown = self._revision if revision is None else revision
            if shown > self._revision:
                raise FutureRevision(shown, self._revision)
            collection = self._collections.get(resource)
            if shown < self._aged:
                raise Compacted(shown, self._aged)
            if shown != self._revision:
                self._check_floor(collection, shown)
                collection = collection.at(shown) if collection is not None else None
            if collection is None:
                return Listing([], shown)
            found = collection.page(namespace, shown, after, limit if where is None else None)
        # Outside of the lock: looking into objects takes long.
        return found if where is None else chosen(found, where, limit)

    def count(self, resource: str, namespace: str = "") -> int:
        """Return how many objects there are."""
        with self.lock:
            collection = self._collections.get(resource)
            return 0 if collection is None else collection.count(namespace)

    def resources(self) -> Sequence[str]:
        """Return the collections that hold objects, sorted."""
        with self.lock:
            return sorted(name for name, found in self._collections.items() if found.spaces)

    def create(self, key: Key, value: JsonDict) -> Stored:
        """Store a new object; its `metadata.resourceVersion` is set. KeyExists."""
        with self.lock:
            collection = self._collection(key.resource)
            current = collection.find(key)
            if current is not None:
                raise KeyExists(key, current)
            self._check_readable(key)
            revision = self._next_revision()
            value["metadata"]["resourceVersion"] = str(revision)
            stored = _settled(Stored(key, value, revision, revision))
            self._write(collection, Change(key, revision, None, stored))
            return stored

    def update(self, key: Key, value: JsonDict, *, expect: int | None = None) -> Stored:
        """Replace an object, at revision `expect` if given. KeyMissing, RevisionConflict."""
        with self.lock:
            collection = self._collection(key.resource)
            current = self._expected(collection, key, expect)
            revision = self._next_revision()
            value["metadata"]["resourceVersion"] = str(revision)
            stored = _settled(Stored(key, value, revision, current.created))
            self._write(collection, Change(key, revision, current, stored))
            return stored

    def delete(
        self, key: Key, value: JsonDict | None = None, *, expect: int | None = None
    ) -> Stored:
        """Remove an object; return its last state. KeyMissing, RevisionConflict."""
        with self.lock:
            collection = self._collection(key.resource)
            if key in self._damaged:
                return self._erase(collection, key)
            current = self._expected(collection, key, expect)
            revision = self._next_revision()
            last = stamped(current.value if value is None else value, revision)
            departed = _settled(Stored(key, last, revision, current.created))
            self._write(collection, Change(key, revision, current, None, departed))
            return departed

    def changes(self, since: int, resource: str) -> Sequence[Change]:
        """Return the announced changes of a collection after a revision. Compacted."""
        with self.lock:
            collection = self._collections.get(resource)
            self._check_floor(collection, since)
            found = [] if collection is None else collection.since(since)
            if found and self._open:
                announced = self._open[0].revision
                found = [change for change in found if change.revision < announced]
            return found

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every batch of changes once it is durable; return how to stop."""

        def stop() -> None:
            with self.lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        with self.lock:
            self._listeners.append(listener)
        return stop

    def follow(self, follower: Follower) -> None:
        """Do nothing: all writes come from this server's own verbs."""

    def when_undone(self, load: Callable[[], None]) -> None:
        """Call `load` when writes were taken back, with the lock held."""
        self._loads.append(load)

    def refresh(self) -> None:
        """Do nothing: reads see every write."""

    def read_in(self, loop: Loop | None) -> None:
        """Do nothing: there are no other servers."""

    def view(self) -> StoreView:
        """Return the store of one request that computes outside of the lock."""
        return OptimisticStore(self)

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision. FutureRevision."""
        with self.lock:
            if revision > self._revision:
                raise FutureRevision(revision, self._revision)
            if self._open:  # what may yet be undone is not forgotten
                revision = min(revision, self._open[0].revision - 1)
            self._compacted = max(self._compacted, revision)
            for collection in self._collections.values():
                for change in collection.trim(revision):
                    self._forgotten(change)

    def forget(self, revision: int, most: int) -> int:
        """Forget changes up to a revision, but no more than `most`; return how many.

        States before that revision are listed no more, also where nothing has changed since: etcd
        compacts its whole history. A watch that misses nothing may still begin there.
        """
        forgotten = 0
        with self.lock:
            self._aged = max(self._aged, revision)
            if self._open:  # what may yet be undone is not forgotten
                revision = min(revision, self._open[0].revision - 1)
            for collection in self._collections.values():
                for change in islice(collection.shrink(revision), most - forgotten):
                    self._forgotten(change)
                    forgotten += 1
        return forgotten

    def batch(self) -> AbstractContextManager[None]:
        """Group the writes inside; see `Store.batch`."""
        return _HeldWrites(self)

    def begin_batch(self) -> None:
        """Hold the lock, and collect writes until the end of the batch."""
        self.lock.__enter__()
        self._depth += 1

    def end_batch(self) -> None:
        """Store the collected writes, if this is the outermost batch."""
        try:
            self._depth -= 1
            if self._depth == 0 and self._open:
                self._flush()
        finally:
            self.lock.__exit__(None, None, None)

    def close(self) -> None:
        """Refuse further writes."""
        with self.lock:
            self._closed = True

    # --- for the stores that also write to a medium ---------------------------------------

    def _allow(self, change: Change) -> None:
        """Raise StorageUnavailable if a change must not be tried."""

    def _persist(self, changes: Sequence[Change]) -> None:
        """Make changes durable, or raise StorageUnavailable and leave the medium untouched."""

    def _forgotten(self, change: Change) -> None:
        """Note that a change left the history."""

    # --- within ---------------------------------------------------------------------------

    def _collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(self.window, self._compacted)
        return found

    @guarded_by("lock")
    def _expected(self, collection: Collection, key: Key, expect: int | None) -> Stored:
        current = collection.find(key)
        if current is None:
            self._check_readable(key)
            raise KeyMissing(key)
        if expect is not None and current.revision != expect:
            raise RevisionConflict(key, expect, current)
        return current

    def _check_readable(self, key: Key) -> None:
        written = self._damaged.get(key)
        if written is not None:
            raise Damaged(key, written)

    @guarded_by("lock")
    def _erase(self, collection: Collection, key: Key) -> Stored:
        """Delete what cannot be read."""
        revision = self._next_revision()
        metadata = {"name": key.name, "resourceVersion": str(revision)}
        if key.namespace:
            metadata["namespace"] = key.namespace
        departed = Stored(key, {"metadata": metadata}, revision, revision).settle()
        change = Change(key, revision, None, None, departed)
        change.erased = self._damaged[key]
        self._write(collection, change)
        return departed

    def _check_floor(self, collection: Collection | None, revision: int) -> None:
        floor = self._compacted if collection is None else max(self._compacted, collection.floor)
        if revision < floor:
            raise Compacted(revision, floor)

    @guarded_by("lock")
    def _next_revision(self) -> int:
        if self._closed:
            raise StorageUnavailable("the store is closed")
        return self._revision + 1

    @guarded_by("lock")
    def _write(self, collection: Collection, change: Change) -> None:
        self._allow(change)
        self._revision = change.revision
        if change.erased:
            del self._damaged[change.key]
        elif change.after is None:
            collection.drop(change.key)
        else:
            collection.put(change.after)
        collection.log.append(change)
        self._open.append(change)
        if self._depth == 0:
            self._flush()

    @guarded_by("lock")
    def _flush(self) -> None:
        self._depth += 1  # what a listener writes is announced after what it was told about
        try:
            while self._open:
                changes, self._open = self._open, []
                self._commit(changes)
                for listener in tuple(self._listeners):
                    listener(changes)
        finally:
            self._depth -= 1

    @guarded_by("lock")
    def _commit(self, changes: Sequence[Change]) -> None:
        try:
            self._persist(changes)
        except StorageUnavailable:
            for change in reversed(changes):
                self._collections[change.key.resource].undo(change)
                if change.erased:
                    self._damaged[change.key] = change.erased
            self._revision = changes[0].revision - 1
            for load in self._loads:
                load()
            raise
        for resource in {change.key.resource: None for change in changes}:
            for change in self._collections[resource].shrink():
                self._forgotten(change)


class _HeldWrites:
    """A batch of a store; each request has one, and a generator would take twice the time."""

    __slots__ = ("_store",)

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.begin_batch()

    def __exit__(self, *_: object) -> None:
        self._store.end_batch()


def _settled(stored: Stored) -> Stored:
    """Return an object with its JSON: one that cannot be encoded would break every list."""
    try:
        return stored.settle()
    except orjson.JSONEncodeError as error:
        raise Unstorable(stored.key, str(error).lower()) from error
