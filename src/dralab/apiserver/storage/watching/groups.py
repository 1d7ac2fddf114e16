"""Watchers of one collection, grouped by selection and indexed by the exact value they ask for."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar

from dralab.apiserver.metrics.families import ServerMetrics
from dralab.apiserver.storage import Change, Stored
from dralab.apiserver.storage.watching.interfaces import EventType, Spelling
from dralab.apiserver.storage.watching.subscription import Piece, Subscription
from dralab.values.json_types import JsonDict

Item = TypeVar("Item")
Event = tuple[EventType, Stored]
Memo = dict[Hashable, Any]

# A slow watcher holds one piece of its stream in the transport; more stays shared in the hub.
PIECE: Final = 64 * 1024
WEIGHT: Final = 512  # of an item that is not a text: a guess, as good as any bound


class Groups:
    """The watchers of one collection.

    Watchers who ask for one name, one value of a field or one namespace are found by it: a change
    costs nothing for the thousand that watch the pods of other nodes.
    """

    def __init__(self) -> None:
        self._all: dict[Hashable, _Group] = {}
        self._plain: dict[Hashable, _Group] = {}
        self._indexes: dict[str, _Index] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def members(self) -> Iterator[Subscription[Any]]:
        """Yield all watchers."""
        for group in self._all.values():
            yield from group.members

    def add_watcher(self, watch: Subscription[Any]) -> None:
        """Take in a watcher."""
        place = _place(watch)
        group = self._all.get(place)
        if group is None:
            group = self._all[place] = _Group(watch)
            asked = _asked(watch)
            if asked is None:
                self._plain[place] = group
            else:
                aspect, read, value = asked
                index = self._indexes.setdefault(aspect, _Index(read))
                index.groups.setdefault(value, {})[place] = group
        group.members[watch] = None

    def remove(self, watch: Subscription[Any]) -> None:
        """Forget a watcher."""
        place = _place(watch)
        group = self._all[place]
        del group.members[watch]
        if group.members:
            return
        del self._all[place]
        asked = _asked(watch)
        if asked is None:
            del self._plain[place]
            return
        aspect, _, value = asked
        groups = self._indexes[aspect].groups
        del groups[value][place]
        if not groups[value]:
            del groups[value]
        if not groups:
            del self._indexes[aspect]

    def deliveries(
        self, changes: Sequence[Change], metrics: ServerMetrics
    ) -> Iterator[tuple[Subscription[Any], list[Piece[Any]]]]:
        """Yield the deliveries of a batch: watchers and their pieces."""
        memo: Memo = {}
        concerned = list(self._plain.values())
        for index in self._indexes.values():
            concerned += index.concerned(changes)
        for group in concerned:
            yield from group.deliveries(changes, memo, metrics)


class _Index:
    """Groups by the value that they ask for."""

    def __init__(self, read: Callable[[Stored], str]) -> None:
        self.read = read
        self.groups: dict[str, dict[Hashable, _Group]] = {}

    def concerned(self, changes: Sequence[Change]) -> "Iterator[_Group]":
        values = {
            self.read(state)
            for change in changes
            for state in (change.before, change.after)
            if state is not None
        }
        for value in sorted(values):
            yield from tuple(self.groups.get(value, {}).values())


def _asked(watch: Subscription[Any]) -> tuple[str, Callable[[Stored], str], str] | None:
    """Return the exact condition of a watcher: the aspect, its reader, its value."""
    wanted = watch.wanted
    if wanted.name:
        return "the name", lambda stored: stored.key.name, wanted.name
    if wanted.exact is not None:
        field, get, value = wanted.exact
        return field, _of_value(get), value
    if wanted.namespace:
        return "the namespace", lambda stored: stored.key.namespace, wanted.namespace
    return None


def _of_value(get: Callable[[JsonDict], str]) -> Callable[[Stored], str]:
    return lambda stored: get(stored.value)


class _Group:
    """Watchers with the same selection and encoding."""

    __slots__ = ("members", "spelling", "wanted")

    def __init__(self, watch: Subscription[Any]) -> None:
        self.wanted = watch.wanted
        self.spelling = watch.spelling
        self.members: dict[Subscription[Any], None] = {}

    def deliveries(
        self, changes: Sequence[Change], memo: Memo, metrics: ServerMetrics
    ) -> Iterator[tuple[Subscription[Any], list[Piece[Any]]]]:
        """Yield the deliveries; watchers that are up to date get the same pieces."""
        events = [event for change in changes if (event := self.wanted.seen(change)) is not None]
        if not events:
            return
        spelling, first = self.spelling, events[0][1].revision
        items = [_item(spelling, event, memo) for event in events]
        metrics.sent_to(self.wanted.resource, self.wanted.version, items, len(self.members))
        shared = pieces_of(items)
        for member in tuple(self.members):
            if member.since < first:
                yield member, shared
            else:
                # It began at a revision that lies ahead, or within this batch.
                own = zip(events, items, strict=True)
                yield member, pieces_of([item for (_, s), item in own if s.revision > member.since])


def _place(watch: Subscription[Any]) -> Hashable:
    """Return the key that watches must share to share their pieces."""
    if not watch.spelling.shared:
        return id(watch)
    wanted = watch.wanted
    return wanted.namespace, wanted.name, wanted.accepts, watch.spelling


def _item(spelling: Spelling[Item], event: Event, memo: Memo) -> Item:
    kind, stored = event
    if not spelling.shared:
        return spelling.event(kind, stored)
    place = (stored.revision, kind, spelling)
    found: Item | None = memo.get(place)
    if found is None:
        found = memo[place] = spelling.event(kind, stored)
    return found


def pieces_of(items: Sequence[Item]) -> list[Piece[Item]]:
    """Return items in pieces; lines of text are joined to some 64 KiB each."""
    if not items:
        return []
    if not isinstance(items[0], bytes):
        return [Piece(items, WEIGHT * len(items))]
    found: list[Piece[Any]] = []
    run: list[Any] = []
    weight = 0
    for line in items:
        size = len(line)  # type: ignore[arg-type]  # a spelling's items are all of one type
        if run and weight + size > PIECE:
            found.append(Piece((b"".join(run),), weight))
            run, weight = [], 0
        run.append(line)
        weight += size
    found.append(Piece((b"".join(run),), weight))
    return found
