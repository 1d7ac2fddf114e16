"""A store for one request that works without the lock and detects conflicts when it writes.

The request reads without a lock. Its first write takes the lock of the real store, and checks that
everything it read is unchanged: then it writes, and keeps the lock until the step is over;
else `Changed` is raised, nothing was written, and the request can be retried. Source of the
idea: k8s.io/apiserver `storage/etcd3` (GuaranteedUpdate).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dralab.apiserver.guarded import is_held
from dralab.apiserver.storage.errors import Compacted
from dralab.apiserver.storage.objects import Change, Key, Listing, Stored
from dralab.apiserver.storage.store import Filter, Store
from dralab.values.json_types import JsonDict


class Changed(Exception):  # noqa: N818 - a condition to try again upon, which no client sees
    """Objects that a request had read were changed by another before it could write."""


class OptimisticStore:
    """The `StoreView` of one request in one thread.

    `lock` and `batch` hold nothing before the first write. From then on the real store is locked,
    and in a batch, until the outermost of them ends; later ones hold it from their beginning.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = _Steps(store)
        self._objects: dict[Key, int] = {}  # and their revisions; 0: there was none
        self._lists: dict[tuple[str, str], int] = {}  # and as of when

    @property
    def shared(self) -> bool:
        """Whether other servers write to the store, too."""
        return self.store.shared

    @property
    def wrote(self) -> bool:
        """Whether the request has written."""
        return self.lock.writes

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self.store.revision

    def get(self, key: Key) -> Stored | None:
        """Return the object, or None. Damaged."""
        found = self.store.get(key)
        if not self.lock.writes:
            self._objects.setdefault(key, 0 if found is None else found.revision)
        return found

    def damaged(self, resource: str, namespace: str = "") -> Sequence[Key]:
        """Return the objects of a collection that cannot be read, sorted."""
        return self.store.damaged(resource, namespace)

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
        if revision is None:
            self._note_list(resource, namespace)
        return self.store.list(
            resource, namespace, revision=revision, after=after, limit=limit, where=where
        )

    def count(self, resource: str, namespace: str = "") -> int:
        """Return how many objects there are."""
        self._note_list(resource, namespace)
        return self.store.count(resource, namespace)

    def create(self, key: Key, value: JsonDict) -> Stored:
        """Store a new object. KeyExists, Damaged, Changed."""
        with self._writing():
            return self.store.create(key, value)

    def update(self, key: Key, value: JsonDict, *, expect: int | None = None) -> Stored:
        """Replace an object. KeyMissing, RevisionConflict, Damaged, Changed."""
        with self._writing():
            return self.store.update(key, value, expect=expect)

    def delete(
        self, key: Key, value: JsonDict | None = None, *, expect: int | None = None
    ) -> Stored:
        """Remove an object and return its last state. KeyMissing, RevisionConflict, Changed."""
        with self._writing():
            return self.store.delete(key, value, expect=expect)

    def changes(self, since: int, resource: str) -> Sequence[Change]:
        """Return the announced changes of a collection after a revision, in order. Compacted."""
        return self.store.changes(since, resource)

    def batch(self) -> "_Steps":
        """Group the writes inside with those of the step around it."""
        return self.lock

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self.lock:
            if not self.lock.writes:
                self.lock.hold()
                self._check()
                self.lock.writes = True
            yield

    def _note_list(self, resource: str, namespace: str) -> None:
        if not self.lock.writes:
            with self.store.lock:  # a batch of another thread may yet be taken back
                self._lists.setdefault((resource, namespace), self.store.revision)

    def _check(self) -> None:
        """Raise Changed if another request has written what was read."""
        for key, revision in self._objects.items():
            found = self.store.get(key)
            if revision != (0 if found is None else found.revision):
                raise Changed(key)
        for (resource, namespace), revision in self._lists.items():
            try:
                changes = self.store.changes(revision, resource)
            except Compacted as error:
                raise Changed(resource) from error
            if any(namespace in {"", change.key.namespace} for change in changes):
                raise Changed(resource)


class _Steps:
    """The nested steps of one request; the outermost releases what they hold."""

    def __init__(self, store: Store) -> None:
        self.writes = False  # whether the request has begun to write
        self._store = store
        self._depth = 0
        self._held = ExitStack()

    def _is_owned(self) -> bool:
        """Whether this thread holds the lock of the store."""
        return is_held(self._store.lock)

    def hold(self) -> None:
        """Lock the store, and gather what is written to it, until the outermost step ends."""
        self._held.enter_context(self._store.lock)
        self._held.enter_context(self._store.batch())

    def __enter__(self) -> None:
        if self.writes and not self._depth:
            self.hold()
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._held.close()
