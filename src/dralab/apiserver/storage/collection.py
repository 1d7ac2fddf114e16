"""The objects of one resource in memory, and the log of their changes.

An old revision is shown by taking back the changes that came after it, so a read of the present
costs nothing extra and a read of the past costs as much as happened since.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator

from dralab.apiserver.storage.objects import Change, Key, Listing, Stored
from dralab.apiserver.storage.store import Filter


class _Space:
    """The objects of one namespace, by name and in order."""

    __slots__ = ("names", "objects")

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.names: list[str] = []

    def put(self, stored: Stored) -> None:
        """Add or replace an object."""
        name = stored.key.name
        if name not in self.objects:
            if not self.names or self.names[-1] < name:
                self.names.append(name)
            else:
                insort(self.names, name)
        self.objects[name] = stored

    def drop(self, name: str) -> None:
        """Remove an object."""
        del self.objects[name]
        del self.names[bisect_left(self.names, name)]


class Collection:
    """The objects of one resource and the log of their changes."""

    __slots__ = ("floor", "log", "spaces", "window")

    def __init__(self, window: int, floor: int) -> None:
        self.spaces: dict[str, _Space] = {}
        self.log: deque[Change] = deque()
        self.window = window
        self.floor = floor  # the history after this revision is complete

    def find(self, key: Key) -> Stored | None:
        """Return an object, or None."""
        space = self.spaces.get(key.namespace)
        return None if space is None else space.objects.get(key.name)

    def put(self, stored: Stored) -> None:
        """Add or replace an object."""
        space = self.spaces.get(stored.key.namespace)
        if space is None:
            space = self.spaces[stored.key.namespace] = _Space()
        space.put(stored)

    def drop(self, key: Key) -> None:
        """Remove an object."""
        space = self.spaces[key.namespace]
        space.drop(key.name)
        if not space.names:
            del self.spaces[key.namespace]

    def shrink(self, revision: int = 0) -> Iterator[Change]:
        """Drop changes outside of the window or up to a revision; yield them."""
        while self.log and (len(self.log) > self.window or self.log[0].revision <= revision):
            fallen = self.log.popleft()
            self.floor = fallen.revision
            yield fallen

    def undo(self, change: Change) -> None:
        """Take back the latest change."""
        self.log.pop()
        if change.erased:
            return
        if change.before is None:
            self.drop(change.key)
        else:
            self.put(change.before)

    def since(self, revision: int) -> list[Change]:
        """Return the changes after a revision, in order."""
        if not self.log or self.log[-1].revision <= revision:
            return []
        found = []
        for change in reversed(self.log):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def trim(self, revision: int) -> Iterator[Change]:
        """Forget the changes up to a revision; yield them."""
        self.floor = max(self.floor, revision)
        while self.log and self.log[0].revision <= revision:
            yield self.log.popleft()

    def at(self, revision: int) -> "Collection":
        """Return the collection as it was: unchanged namespaces are shared with this one."""
        before: dict[Key, Stored | None] = {}
        for change in reversed(self.log):
            if change.revision <= revision:
                break
            before[change.key] = change.before
        if not before:
            return self
        old = Collection(self.window, self.floor)
        touched = {key.namespace for key in before}
        old.spaces = {name: space for name, space in self.spaces.items() if name not in touched}
        for name in touched:
            space = _Space()
            if name in self.spaces:
                space.objects = dict(self.spaces[name].objects)
            old.spaces[name] = space
        for key, stored in before.items():
            objects = old.spaces[key.namespace].objects
            if stored is None:
                objects.pop(key.name, None)
            else:
                objects[key.name] = stored
        for name in touched:
            old.spaces[name].names = sorted(old.spaces[name].objects)
        return old

    def count(self, namespace: str) -> int:
        """Return how many objects a namespace has, or all of them."""
        return sum(len(space.names) for _, space in self._pages(namespace))

    def page(
        self, namespace: str, revision: int, after: tuple[str, str] | None, limit: int | None
    ) -> Listing:
        """Return objects in key order, those of one namespace or of all."""
        items: list[Stored] = []
        remaining = 0
        for name, space in self._pages(namespace):
            names, objects = space.names, space.objects
            start = 0
            if after is not None:
                mine, last = name + "/", after[0] + "/"
                if mine < last:
                    continue
                if mine == last:
                    start = bisect_right(names, after[1])
            end = len(names) if limit is None else min(len(names), start + limit - len(items))
            items.extend([objects[n] for n in (names[start:end] if start or limit else names)])
            remaining += len(names) - end
        return Listing(items, revision, remaining, remaining > 0)

    def _pages(self, namespace: str) -> list[tuple[str, _Space]]:
        """Return the namespaces in key order: as etcd sorts "namespace/name"."""
        if namespace:
            space = self.spaces.get(namespace)
            return [] if space is None else [(namespace, space)]
        return sorted(self.spaces.items(), key=_namespace_order)


def chosen(page: Listing, where: Filter, limit: int | None) -> Listing:
    """Return the objects that pass a filter.

    It hides how many of the rest match; whether any does costs a look at the next page.
    """
    items: list[Stored] = []
    for stored in page.items:
        if limit is not None and len(items) == limit:
            return Listing(items, page.revision, None, more=True)
        if where(stored):
            items.append(stored)
    return Listing(items, page.revision)


def _namespace_order(item: tuple[str, _Space]) -> str:
    return item[0] + "/"
