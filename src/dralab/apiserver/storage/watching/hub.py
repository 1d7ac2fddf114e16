"""The hub: receives every batch of changes from the store and passes it to the watchers."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeVar

from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.metrics.families import ServerMetrics
from dralab.apiserver.storage import Change, Store, Stored
from dralab.apiserver.storage.watching.groups import Groups, pieces_of
from dralab.apiserver.storage.watching.interfaces import Spelling, Watching
from dralab.apiserver.storage.watching.subscription import Piece, Subscription
from dralab.kernel.clock import SECOND, Clock
from dralab.values.records import dataclass

Item = TypeVar("Item")

# k8s.io/apiserver sends a bookmark about once a minute.
BOOKMARK_EVERY: Final = 60 * SECOND
INITIAL_RUN: Final = 64  # initial events made at a time,
INITIAL_WEIGHT: Final = 256 * 1024  # and bytes of their objects, but for the last


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """The limits on watchers, and on unread bytes before slow watchers are cut off.

    Watchers share what they have not read, so all of them together hold at most `total` bytes.
    """

    watchers: int = 20_000
    each: int = 64 * 1024 * 1024
    total: int = 256 * 1024 * 1024


class TooManyWatchers(Exception):  # noqa: N818 - becomes the Status reason TooManyRequests
    """The server already serves as many watches as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"too many watches: the limit is {self.limit}"


class Hub:
    """All watches of one store."""

    def __init__(self, store: Store, clock: Clock, limits: WatchLimits | None = None) -> None:
        self.store = store
        self.metrics = ServerMetrics()
        self.clock = clock
        self.limits = limits or WatchLimits()
        self.announced = store.revision
        self.held = 0  # bytes that at least one watcher has yet to read
        self.watchers = 0
        self._groups: dict[str, Groups] = {}
        # Watches that are over, and whose clients have yet to read their last events.
        self._unread: dict[Subscription[Any], None] = {}
        self._stop = store.subscribe(self._deliver)

    def open(self, wanted: Watching, spelling: Spelling[Item]) -> Subscription[Item]:
        """Start a watch: its initial objects, then every change after its revision.

        A revision in the future simply waits. Compacted where the changes have been forgotten;
        TooManyWatchers.
        """
        with self.store.lock:
            if self.watchers >= self.limits.watchers:
                raise TooManyWatchers(self.limits.watchers)
            missed = self.store.changes(wanted.since, wanted.resource)
            made = _Counted(self, wanted, spelling)
            made.since = max(wanted.since, self.announced)
            made.bookmarked = self.clock.now()
            made.initial = _initial(made, missed, self.metrics)
            self._groups.setdefault(wanted.resource, Groups()).add_watcher(made)
            self.watchers += 1
            return made

    def tick(self) -> None:
        """Send the bookmarks that are due; call it every few seconds."""
        with self.store.lock:
            now = self.clock.now()
            self._bookmark(
                watch
                for watch in self._all()
                if watch.wanted.bookmarks and now - watch.bookmarked >= BOOKMARK_EVERY
            )

    def bookmark(self, watch: Subscription[Any]) -> None:
        """Send one watcher a bookmark if requested, shortly before its timeout."""
        with self.store.lock:
            if watch.wanted.bookmarks and watch.cut is None:
                self._bookmark([watch])

    def close(self) -> None:
        """End all watches: what has come can still be read."""
        with self.store.lock:
            self._stop()
            for watch in self._all():
                watch.finish()

    # --- within ---------------------------------------------------------------------------

    def watches(self) -> list[tuple[tuple[str, str, str], int]]:
        """Return how many watches are open, by collection, version and scope."""
        found: Counter[tuple[str, str, str]] = Counter()
        with self.store.lock:
            for watch in self._all():
                wanted = watch.wanted
                scope = (
                    "resource" if wanted.name else "namespace" if wanted.namespace else "cluster"
                )
                found[wanted.resource, wanted.version, scope] += 1
        return list(found.items())

    def _all(self) -> list[Subscription[Any]]:
        return [member for groups in self._groups.values() for member in groups.members()]

    def _bookmark(self, due: Iterable[Subscription[Any]]) -> None:
        memo: dict[Hashable, list[Piece[Any]]] = {}
        for watch in due:
            watch.bookmarked = self.clock.now()
            revision = max(self.announced, watch.since)
            # Nothing new since it began (k8s.io/apiserver `storage/cacher`, cacheWatcher.process).
            if revision == watch.since:
                continue
            spelling = watch.spelling
            place = (revision, spelling) if spelling.shared else (revision, id(spelling))
            pieces = memo.get(place)
            if pieces is None:
                pieces = memo[place] = pieces_of([spelling.bookmark(revision)])
            for piece in pieces:
                self._push(watch, piece)

    @guarded_by("store.lock")
    def _deliver(self, changes: Sequence[Change]) -> None:
        self.announced = changes[-1].revision
        by_resource: dict[str, list[Change]] = {}
        for change in changes:
            by_resource.setdefault(change.key.resource, []).append(change)
        for resource, own in by_resource.items():
            groups = self._groups.get(resource)
            self.metrics.changed(resource, len(own), watched=groups is not None)
            if groups is None:
                continue
            for member, pieces in groups.deliveries(own, self.metrics):
                for piece in pieces:
                    self._push(member, piece)

    def _push(self, member: Subscription[Item], piece: Piece[Item]) -> None:
        if member.cut is not None:
            return
        if not piece.holders:
            self.held += piece.weight
        member.push(piece)
        if member.weight > self.limits.each:
            member.end(f"the watcher reads too slowly: {member.weight} bytes are queued for it")
        while self.held > self.limits.total:
            # First those that are over: whoever never reads must not have others cut off.
            slowest = max(self._unread or self._all(), key=lambda watch: watch.weight)
            slowest.end(f"the watcher reads too slowly: {slowest.weight} bytes are queued for it")

    def leave(self, watch: Subscription[Any]) -> None:
        """Forget a watcher that has ended, except what it still has to read."""
        self.watchers -= 1
        if watch.pieces:
            self._unread[watch] = None
        groups = self._groups[watch.wanted.resource]
        groups.remove(watch)
        if not groups:
            del self._groups[watch.wanted.resource]

    def forget_unread(self, watch: Subscription[Any]) -> None:
        """Forget a watcher that has read everything, or is gone."""
        self._unread.pop(watch, None)


class _Counted(Subscription[Item]):
    """A subscription whose unread bytes the hub counts, once for all who share them."""

    def __init__(self, hub: Hub, wanted: Watching, spelling: Spelling[Item]) -> None:
        super().__init__(hub.store.lock, wanted, spelling, hub.leave)
        self.hub = hub

    def release_piece(self, piece: Piece[Item]) -> None:
        super().release_piece(piece)
        if not piece.holders:
            self.hub.held -= piece.weight
        if not self.pieces:
            self.hub.forget_unread(self)


def _initial(
    watch: Subscription[Item], missed: Sequence[Change], metrics: ServerMetrics
) -> Iterator[Piece[Item]] | None:
    """Return the initial events of a watch, created lazily.

    It does not count against the watcher's limit, and its objects are shared by reference.
    """
    wanted = watch.wanted
    if not wanted.initial and not wanted.initial_end and not missed:
        return None
    pieces = _run(watch, missed, metrics)
    if watch.spelling.shared:
        return pieces
    # A spelling with its own state (a Table sends its columns once) spells its first event
    # before any that comes later.
    return chain(list(islice(pieces, 1)), pieces)


def _run(
    watch: Subscription[Item], missed: Sequence[Change], metrics: ServerMetrics
) -> Iterator[Piece[Item]]:
    wanted, spelling = watch.wanted, watch.spelling
    initial = wanted.initial
    for run in _runs(initial):
        items = [spelling.event("ADDED", stored) for stored in run]
        metrics.sent_to(wanted.resource, wanted.version, items, 1)
        yield from pieces_of(items)
    if wanted.initial_end:
        yield from pieces_of([spelling.bookmark(wanted.since, initial_end=True)])
    for start in range(0, len(missed), INITIAL_RUN):
        seen = [wanted.seen(change) for change in missed[start : start + INITIAL_RUN]]
        items = [spelling.event(*event) for event in seen if event is not None]
        metrics.sent_to(wanted.resource, wanted.version, items, 1)
        yield from pieces_of(items)


def _runs(initial: Sequence[Stored]) -> Iterator[list[Stored]]:
    """Yield objects in runs that are encoded quickly."""
    run: list[Stored] = []
    weight = 0
    for stored in initial:
        run.append(stored)
        weight += len(stored.encoded)
        if len(run) == INITIAL_RUN or weight > INITIAL_WEIGHT:
            yield run
            run, weight = [], 0
    if run:
        yield run
