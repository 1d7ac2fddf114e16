"""The storage interface of the verbs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dralab.apiserver.metrics.meters import Histograms
from dralab.apiserver.storage.objects import Change, Key, Listing, Stored
from dralab.values.json_types import JsonDict

Listener = Callable[[Sequence[Change]], None]
Filter = Callable[[Stored], bool]
Follower = Callable[[Change], None]


class StoreView(Protocol):
    """The objects of a store as one request reads and writes them.

    Synchronous; every method takes `lock`, so threads may share a store. Values handed in belong
    to the store from then on, values handed out may not be changed. Errors: `storage.errors`.
    """

    @property
    def shared(self) -> bool:
        """Whether other servers write to it, too: then a write waits for the network."""
        ...

    @property
    def wrote(self) -> bool:
        """Whether there was a write, in the store of one request."""
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock for reading or writing in several steps; re-entrant."""
        ...

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        ...

    def get(self, key: Key) -> Stored | None:
        """Return the object, or None. Damaged."""
        ...

    def damaged(self, resource: str, namespace: str = "") -> Sequence[Key]:
        """Return the objects of a collection that cannot be read, sorted; lists leave them out."""
        ...

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
        """Return objects in key order, as of now or as of an older revision.

        `after` is the (namespace, name) of the last object of the page before; give `revision`
        of the first page with it, and all pages show one state. `where` filters before `limit`
        counts. Compacted or FutureRevision where the revision cannot be shown.
        """
        ...

    def count(self, resource: str, namespace: str = "") -> int:
        """Return how many objects there are."""
        ...

    def create(self, key: Key, value: JsonDict) -> Stored:
        """Store a new object; its `metadata.resourceVersion` is set. KeyExists, Damaged."""
        ...

    def update(self, key: Key, value: JsonDict, *, expect: int | None = None) -> Stored:
        """Replace an object, at revision `expect` if given.

        KeyMissing, RevisionConflict, Damaged.
        """
        ...

    def delete(
        self, key: Key, value: JsonDict | None = None, *, expect: int | None = None
    ) -> Stored:
        """Remove an object and return its last state, at the revision of the removal.

        `value` is the last state to show watchers where it differs from the one stored. An
        object that cannot be read goes too: its last state is its name, and no watcher hears of
        it. KeyMissing, RevisionConflict.
        """
        ...

    def changes(self, since: int, resource: str) -> Sequence[Change]:
        """Return the announced changes of a collection after a revision, in order. Compacted."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Group the writes inside: seen by reads at once, durable and announced at the end.

        Not a transaction: an exception inside keeps what was written before it. If the medium
        fails at the end, StorageUnavailable is raised and none of the writes has happened.
        """
        ...


class Loop(Protocol):
    """The part of an asyncio loop that a store of several servers needs."""

    def is_running(self) -> bool:
        """Whether it calls anything at all."""
        ...

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> object:
        """Call something when there is something to read."""
        ...

    def remove_reader(self, fd: Any) -> bool:
        """Call it no more."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
        """Call something in the loop's thread."""
        ...


class Store(StoreView, Protocol):
    """Objects with one revision for all of them, and the log of their changes.

    The protocol is cut along what etcd can do: compare-and-swap on the revision of one key,
    ranges at a revision, watches from a revision, compaction.
    """

    @property
    def connected(self) -> bool:
        """Whether the store sees what other servers write."""
        ...

    @property
    def compacted(self) -> int:
        """Reads and watches of older revisions are refused."""
        ...

    @property
    def measured(self) -> Sequence[Histograms]:
        """How long calls of other servers took; None if it makes none."""
        ...

    def resources(self) -> Sequence[str]:
        """Return the collections that hold objects, sorted."""
        ...

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every batch of changes once it is durable; return how to stop.

        It is called with the lock held, in the thread of the writer: hand over and return. One of
        a shared store may not write.
        """
        ...

    def follow(self, follower: Follower) -> None:
        """Call `follower` with each change of a shared store in order, from any server.

        Before the batch is announced, with the lock held; it may not write.
        """
        ...

    def when_undone(self, load: Callable[[], None]) -> None:
        """Call `load` when writes were taken back, with the lock held; it may not write.

        What is derived from objects is made anew then, before anyone else can read.
        """
        ...

    def refresh(self) -> None:
        """Make reads see everything that any server has acknowledged by now. StorageUnavailable."""
        ...

    def read_in(self, loop: Loop | None) -> None:
        """Have a loop take in what other servers write, or none; to be called in its thread."""
        ...

    def view(self) -> StoreView:
        """Return the store of one request that computes outside of the lock (`optimistic`)."""
        ...

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision; current objects stay."""
        ...

    def forget(self, revision: int, most: int) -> int:
        """Forget changes up to a revision, but no more than `most`; return how many.

        Unlike `compact` it leaves watches alone that miss nothing by it: those of collections
        that have not changed since.
        """
        ...

    def close(self) -> None:
        """Close files; further writes are refused."""
        ...


def follow(
    store: Store,
    resources: Sequence[str],
    put: Callable[[Key, Mapping[str, Any] | None], None],
) -> None:
    """Call `put` with the objects of some collections, and with each change; None: it is gone."""
    wanted = frozenset(resources)

    def tell(changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.resource in wanted:
                put(change.key, None if change.after is None else change.after.value)

    with store.lock:
        store.subscribe(tell)
        for resource in resources:
            for stored in store.list(resource).items:
                put(stored.key, stored.value)
