"""The store of one request: it writes only if nothing that it has read has changed.

Nothing is locked meanwhile, here or in other servers: etcd compares what was read with what is
there, in the transaction of the first write. Objects are compared by their revision (0: there was
none), lists by that no key of theirs was written since.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, Protocol

from dralab.apiserver.storage.errors import KeyExists, KeyMissing, RevisionConflict
from dralab.apiserver.storage.etcd.commits import Range
from dralab.apiserver.storage.etcd.layout import Layout, end_of
from dralab.apiserver.storage.etcd.revisions import revision_of
from dralab.apiserver.storage.objects import Key, Stored
from dralab.apiserver.storage.optimistic import Changed, OptimisticStore
from dralab.apiserver.storage.store import Store
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

# etcd --max-txn-ops is 128. A request that reads more is compared by what it read first.
MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Guards:
    """What a request has read: versions of objects, and of the store for lists."""

    objects: Mapping[Key, int]
    lists: Mapping[tuple[str, str], int]

    def compared(self, layout: Layout, written: Key) -> tuple[dict[bytes, int], dict[Range, int]]:
        """Return the revisions of etcd that a write compares: of all keys and ranges read before.

        That of the key it writes is left to the writer.
        """
        ranges: dict[Range, int] = {}
        for (resource, namespace), version in islice(self.lists.items(), MOST):
            start = layout.collection(resource, namespace)
            ranges[start, end_of(start)] = revision_of(version)
        others = ((key, version) for key, version in self.objects.items() if key != written)
        keys = {
            layout.path(key): revision_of(version)
            for key, version in islice(others, MOST - len(ranges))
        }
        return keys, ranges

    def changed(self, key: Key) -> Changed:
        """Return the error that makes the request be retried."""
        return Changed(key)


class GuardedStore(Store, Protocol):
    """A store whose writes can be made to depend on what a request has read."""

    def create(self, key: Key, value: JsonDict, guards: Guards | None = None) -> Stored:
        """Store a new object. KeyExists, Damaged; Changed with guards."""
        ...

    def update(
        self,
        key: Key,
        value: JsonDict,
        *,
        expect: int | None = None,
        guards: Guards | None = None,
    ) -> Stored:
        """Replace an object. KeyMissing, RevisionConflict, Damaged; Changed with guards."""
        ...

    def delete(
        self,
        key: Key,
        value: JsonDict | None = None,
        *,
        expect: int | None = None,
        guards: Guards | None = None,
    ) -> Stored:
        """Remove an object. KeyMissing, RevisionConflict; Changed with guards."""
        ...


class EtcdView(OptimisticStore):
    """The `Store` of one request."""

    def __init__(self, store: GuardedStore) -> None:
        super().__init__(store)
        self.etcd = store

    def create(self, key: Key, value: JsonDict) -> Stored:
        """Store a new object. KeyExists, Damaged, Changed."""
        return self._write(lambda guards: self.etcd.create(key, value, guards))

    def update(self, key: Key, value: JsonDict, *, expect: int | None = None) -> Stored:
        """Replace an object. KeyMissing, RevisionConflict, Damaged, Changed."""
        seen = expect or self._seen(key)
        return self._write(lambda guards: self.etcd.update(key, value, expect=seen, guards=guards))

    def delete(
        self, key: Key, value: JsonDict | None = None, *, expect: int | None = None
    ) -> Stored:
        """Remove an object and return its last state. KeyMissing, RevisionConflict, Changed."""
        seen = expect or self._seen(key)
        return self._write(lambda guards: self.etcd.delete(key, value, expect=seen, guards=guards))

    def _seen(self, key: Key) -> int | None:
        """Return the revision that the request has read before its first write."""
        return None if self.lock.writes else self._objects.get(key)

    def _write(self, write: Callable[[Guards], Stored]) -> Stored:
        """Make the first write depend on all that was read; later ones compare their own key."""
        if self.lock.writes:
            try:
                return write(Guards({}, {}))
            except (KeyMissing, RevisionConflict) as error:
                raise Changed(error.key) from error
        self._check()
        try:
            stored = write(Guards(self._objects, self._lists))
        except (KeyExists, KeyMissing, RevisionConflict):
            self._check()  # it may be by what others have just written
            raise
        self.lock.writes = True
        return stored
