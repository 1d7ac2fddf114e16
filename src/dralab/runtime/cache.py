"""Caches: collections held in memory, kept up to date by a list and then a watch.

After `Expired` a cache lists again and reports the differences to its subscribers, so they see
every existing and every deleted object exactly once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from dralab.api.status import ApiError
from dralab.objects.metadata import (
    NamespacedName,
    is_deleting,
    key_of,
    revision_of,
    without_field_owners,
)
from dralab.runtime.client import Client, Resource, Watch, WatchEvent
from dralab.runtime.engine import Engine
from dralab.runtime.resources import versions_of
from dralab.values.json_types import JsonDict

Change = Callable[[JsonDict | None, JsonDict | None], None]
Index = Callable[[JsonDict], Iterable[str]]

FIRST_RETRY: Final = 100_000_000
LONGEST_RETRY: Final = 30_000_000_000


class Follower(Protocol):
    """Follows a collection in the order of the server's writes.

    Subscribers of a cache may hear of an own write before those that the server made first;
    a follower hears of it in its place.
    """

    def listed(self, items: Sequence[JsonDict], revision: str) -> None:
        """Take over the whole collection as of a revision; earlier changes are unknown."""
        ...

    def changed(self, event: WatchEvent) -> None:
        """Handle the next change."""
        ...

    def caught_up(self) -> None:
        """Note that the cache has taken all that has arrived so far."""
        ...


class Cache:
    """One collection, or the part of it that a selector names.

    Objects belong to the cache: read them, copy before you edit. `reduced` says what is kept of
    each: its metadata at least as far as name, namespace, uid and resourceVersion.
    """

    def __init__(
        self,
        engine: Engine,
        client: Client,
        resource: Resource,
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_synced: Callable[[], None] = lambda: None,
        reduced: Callable[[JsonDict], JsonDict] = without_field_owners,
    ) -> None:
        self._reduced = reduced
        self._versions = versions_of(resource)
        self.resource = self._versions[0]
        self.synced = False
        self._engine = engine
        self._client = client
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._on_synced = on_synced
        self._objects: dict[NamespacedName, JsonDict] = {}
        self._indexes: dict[str, tuple[Index, dict[str, dict[NamespacedName, JsonDict]]]] = {}
        self._subscribers: list[Change] = []
        self._followers: list[Follower] = []
        self._watch: Watch | None = None
        self._started = False
        self._noted = False
        self._retries = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[JsonDict]:
        """Yield the objects in the order in which the cache first saw them."""
        return iter(list(self._objects.values()))

    def get(self, key: NamespacedName) -> JsonDict | None:
        """Return an object, or None if there is none."""
        return self._objects.get(key)

    def namespace(self, namespace: str) -> list[JsonDict]:
        """Return the objects of one namespace, by name."""
        return [self._objects[key] for key in sorted(self._objects) if key.namespace == namespace]

    def index(self, name: str, values: Index) -> None:
        """Keep an index: `find(name, v)` returns the objects for which `values` yields v."""
        if name in self._indexes:
            return
        table: dict[str, dict[NamespacedName, JsonDict]] = defaultdict(dict)
        self._indexes[name] = (values, table)
        for key, obj in self._objects.items():
            for value in values(obj):
                table[value][key] = obj

    def find(self, index: str, value: str) -> list[JsonDict]:
        """Return the objects that an index has under a value, by key."""
        found = self._indexes[index][1].get(value)
        return [found[key] for key in sorted(found)] if found else []

    def subscribe(self, change: Change) -> None:
        """Call `change(old, new)` for every change; existing objects count as new."""
        self._subscribers.append(change)
        for obj in list(self._objects.values()):
            change(None, obj)

    def subscribe_each(self, heard: Callable[[JsonDict], object]) -> None:
        """Call `heard(obj)` for every change, with an object as it is, or as it was at its end."""

        def changed(old: JsonDict | None, new: JsonDict | None) -> None:
            heard(new if new is not None else old or {})

        self.subscribe(changed)

    def follow(self, follower: Follower) -> None:
        """Tell a follower of a list and of all changes after it."""
        self._followers.append(follower)
        self.refresh()

    def start(self) -> None:
        """Begin to list and watch; does nothing the second time."""
        if not self._started:
            self._started = True
            self._engine.soon(self._relist)

    def stop(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def refresh(self) -> None:
        """List again, because the watch lags behind."""
        if self._watch is not None:
            self.stop()
            self._engine.soon(self._relist)

    def learn(self, obj: JsonDict) -> None:
        """Add the result of this client's write before the watch reports it."""
        held = self._objects.get(key_of(obj))
        if held is None or revision_of(held) < revision_of(obj):
            self._put(obj)

    def learn_deletion(self, obj: Mapping[str, Any], now: str) -> None:
        """Record that an object is being deleted, before the watch reports it."""
        key = key_of(obj)
        held = self._objects.get(key)
        if held is not None and not is_deleting(held):
            self._put({**held, "metadata": {**held["metadata"], "deletionTimestamp": now}})

    def drain(self) -> None:
        """Take every change that has arrived."""
        self._noted = False
        watch = self._watch
        if watch is None:
            return
        try:
            while (event := watch.next(0)) is not None:
                if event.type in {"ADDED", "MODIFIED", "DELETED"}:
                    for follower in self._followers:
                        follower.changed(event)
                if event.type == "DELETED":
                    self._remove(event.object)
                elif event.type in {"ADDED", "MODIFIED"}:
                    self.learn(event.object)
                elif event.type == "ERROR":
                    raise ApiError.from_status(event.object)
        except ApiError:
            # Whatever the reason, a list puts it right: Expired most of all.
            self.stop()
            self._engine.soon(self._relist)
        for follower in self._followers:
            follower.caught_up()

    def _relist(self) -> None:
        selectors = {
            "label_selector": self._label_selector,
            "field_selector": self._field_selector,
        }
        try:
            listing = self._client.list(self.resource, **selectors)
            watch = self._client.watch(self.resource, revision=listing.revision, **selectors)
        except ApiError as error:
            if error.code == 404:
                after = self._versions.index(self.resource) + 1
                self.resource = self._versions[after % len(self._versions)]
                if after < len(self._versions):
                    self._relist()
                    return
                # A server without this kind: an empty collection, which may appear later.
                self._mark_synced()
            delay = min(FIRST_RETRY << min(self._retries, 20), LONGEST_RETRY)
            self._retries += 1
            self._engine.after(delay, self._relist)
            return
        self._retries = 0
        self._watch = watch
        for follower in self._followers:
            follower.listed(listing.items, listing.revision)
        present = {key_of(obj) for obj in listing.items}
        # A list is the truth, also where its revisions are lower: the server may have begun again.
        for key, obj in list(self._objects.items()):
            if key not in present:
                self._remove(obj)
        for obj in listing.items:
            held = self._objects.get(key_of(obj))
            if held is None or revision_of(held) != revision_of(obj):
                self._put(obj)
        for follower in self._followers:
            follower.caught_up()
        watch.notify(self._note)
        self._mark_synced()

    def _mark_synced(self) -> None:
        if not self.synced:
            self.synced = True
            self._on_synced()

    def _note(self) -> None:
        # Called from any thread, for every change: one event of the engine takes them all.
        if not self._noted:
            self._noted = True
            self._engine.soon(self.drain)

    def _put(self, obj: JsonDict) -> None:
        key = key_of(obj)
        obj = self._reduced(obj)
        old = self._objects.get(key)
        if old is not None and old["metadata"].get("uid") != obj["metadata"].get("uid"):
            # Deleted and made again between two looks: subscribers hear of both.
            self._remove(old)
            old = None
        self._objects[key] = obj
        for values, table in self._indexes.values():
            if old is not None:
                self._unindex(key, old, values, table)
            for value in values(obj):
                table[value][key] = obj
        for change in self._subscribers:
            change(old, obj)

    def _remove(self, obj: JsonDict) -> None:
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None or (
            old["metadata"].get("uid") != obj["metadata"].get("uid")
            and revision_of(old) > revision_of(obj)
        ):
            return
        del self._objects[key]
        for values, table in self._indexes.values():
            self._unindex(key, old, values, table)
        for change in self._subscribers:
            change(old, None)

    @staticmethod
    def _unindex(
        key: NamespacedName,
        obj: JsonDict,
        values: Index,
        table: dict[str, dict[NamespacedName, JsonDict]],
    ) -> None:
        for value in values(obj):
            entries = table.get(value)
            if entries is not None:
                entries.pop(key, None)
                if not entries:
                    del table[value]


class Caches:
    """The caches of one component, each collection once."""

    def __init__(self, engine: Engine, client: Client) -> None:
        self._engine = engine
        self._client = client
        self._caches: dict[tuple[Resource, str, str], Cache] = {}
        self._started = False
        self._unseen = 0  # caches that have not seen their collection: asked for at every turn
        self._listeners: list[Callable[[], None]] = []

    def cache_for(
        self, resource: Resource, *, label_selector: str = "", field_selector: str = ""
    ) -> Cache:
        """Return the cache of a collection; the same one for the same question."""
        name = (resource, label_selector, field_selector)
        cache = self._caches.get(name)
        if cache is None:
            cache = Cache(
                self._engine,
                self._client,
                resource,
                label_selector=label_selector,
                field_selector=field_selector,
                on_synced=self._on_synced,
            )
            self._caches[name] = cache
            self._unseen += 1
            if self._started:
                cache.start()
        return cache

    def has(self, resource: Resource) -> bool:
        """Return whether a whole collection is cached."""
        return (resource, "", "") in self._caches

    @property
    def synced(self) -> bool:
        """Whether every cache has seen its collection once."""
        return self._started and not self._unseen

    def when_synced(self, action: Callable[[], None]) -> None:
        """Call `action` whenever the last of the caches has become synced."""
        self._listeners.append(action)

    def start(self) -> None:
        """Start them all."""
        self._started = True
        for cache in list(self._caches.values()):
            cache.start()

    def stop(self) -> None:
        """Stop them all."""
        for cache in list(self._caches.values()):
            cache.stop()

    def drain(self) -> None:
        """Take every change that has arrived, in all of them."""
        for cache in list(self._caches.values()):
            cache.drain()

    def _on_synced(self) -> None:
        self._unseen -= 1
        if self.synced:
            for action in list(self._listeners):
                action()
