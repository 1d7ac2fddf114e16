"""A store in etcd: the memory store fed by a watch, with writes as etcd transactions.

Reads and watches come from memory. A write is one transaction that compares the revision of its
key. Memory changes in etcd's order, whichever server wrote: a write of this server is taken in
at once if its revision is the next, and else when the watch has brought what came before. Source of
the scheme: k8s.io/apiserver `storage/etcd3`, `storage/cacher`.
"""

import heapq
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from dralab.apiserver.storage.errors import (
    KeyExists,
    KeyMissing,
    RevisionConflict,
    StorageUnavailable,
    TooLarge,
    Undecided,
)
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.address import EtcdAddress
from dralab.apiserver.storage.etcd.client import Called, EtcdClient, EtcdRefused
from dralab.apiserver.storage.etcd.compaction import Compactor
from dralab.apiserver.storage.etcd.layout import Layout, raw_of
from dralab.apiserver.storage.etcd.leases import EventLease
from dralab.apiserver.storage.etcd.views import EtcdView, Guards
from dralab.apiserver.storage.memory import WINDOW, MemoryStore
from dralab.apiserver.storage.objects import Change, Key, Stored, stamped
from dralab.apiserver.storage.store import Follower
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)

EVENT_TTL: Final = 3600  # seconds: kube-apiserver --event-ttl
PAGE: Final = 500  # objects read at a time at the start
SOON: Final = 0.01  # seconds after which a member is asked how far its watch is,
BEHIND: Final = 0.1  # seconds between such questions,
ASKED: Final = 50  # and how many there are
AGAIN: Final = 0.1  # seconds before a broken watch is begun again
# Before these, a member could say that all had been sent when it had not (etcd#15220).
PROGRESS_SINCE: Final = {(3, 4): 25, (3, 5): 8}
TOO_LARGE: Final = "request is too large"
LEASE_OVER: Final = "lease not found"


class EtcdStore(MemoryStore):
    """The `Store` of servers that share an etcd. Events end `event_ttl` seconds after a write."""

    shared = True

    def __init__(
        self, address: EtcdAddress, *, window: int = WINDOW, event_ttl: int = EVENT_TTL
    ) -> None:
        super().__init__(window=window)
        self.address = address
        self.layout = Layout(address.prefix)
        self._client = EtcdClient(address)
        self._followers: list[Follower] = []
        self._waiters: list[tuple[int, int, threading.Condition]] = []
        self._turn = 0
        # The last states that deleters here gave, by key and the revision they saw.
        self._farewells: dict[tuple[Key, int], JsonDict] = {}
        # Writes of this server that wait for what came before them, by revision.
        self._ahead: dict[int, tuple[Key, Stored | None]] = {}
        self._telling = 0  # the thread that takes in changes
        self._watch: Any = None
        self._connected = True  # or no watch is open, and memory is stale
        self._over = threading.Event()
        try:
            _check_version(self._client.version(), str(address))
            self._load()
            self._lease = EventLease(self._client, event_ttl)
            self._compactor = Compactor(self._client, self._lease.renew)
            self._thread = threading.Thread(target=self._run, name="dralab-etcd", daemon=True)
            self._thread.start()
        except BaseException:
            self._client.close()
            raise

    @property
    def connected(self) -> bool:
        """Whether a watch of etcd is open."""
        return self._connected

    def close(self) -> None:
        """End the watch; further writes are refused."""
        with self.lock:
            if self._closed:
                return
            super().close()
            self._over.set()
            watch = self._watch
        self._compactor.stop()
        if watch is not None:
            watch.close()
        self._client.close()
        self._thread.join()

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision, in etcd too. FutureRevision."""
        super().compact(revision)
        self._client.compact(revision)

    def refresh(self) -> None:
        """Have reads see all that any server has acknowledged by now. StorageUnavailable.

        A linearizable read tells etcd's revision, and the watch catches up with that.
        """
        self._await(self._header(), asking=True)

    def view(self) -> EtcdView:
        """Return the store of one request, which writes only if what it read is still so."""
        return EtcdView(self)

    def follow(self, follower: Follower) -> None:
        """Call `follower` with each change, in order, before its batch is announced.

        It is called with the lock held, in the thread of the watch: it may not write.
        """
        with self.lock:
            self._followers.append(follower)

    # --- writing --------------------------------------------------------------------------

    def create(self, key: Key, value: JsonDict, guards: Guards | None = None) -> Stored:
        """Store a new object. KeyExists, Damaged; Changed, Undecided with guards."""
        with self.lock:
            self._next_revision()
            current = self._collection(key.resource).find(key)
            if current is not None:
                raise KeyExists(key, current)
            self._check_readable(key)
        made = self._put(key, value, 0, guards)
        if made is None:
            with self.lock:
                current = self._collection(key.resource).find(key)
                if current is not None:
                    raise KeyExists(key, current)
            return self.create(key, value, guards)
        return made

    def update(
        self,
        key: Key,
        value: JsonDict,
        *,
        expect: int | None = None,
        guards: Guards | None = None,
    ) -> Stored:
        """Replace an object as this store has seen it last, or at revision `expect`.

        KeyMissing, RevisionConflict, Damaged; Changed with guards.
        """
        with self.lock:
            self._next_revision()
            current = self._expected(self._collection(key.resource), key, expect)
        made = self._put(key, value, current.revision, guards, created=current.created)
        if made is None:
            raise self._conflict(key, current.revision)
        return made

    def delete(
        self,
        key: Key,
        value: JsonDict | None = None,
        *,
        expect: int | None = None,
        guards: Guards | None = None,
    ) -> Stored:
        """Remove an object as this store has seen it last. KeyMissing, RevisionConflict."""
        with self.lock:
            self._next_revision()
            seen = self._damaged.get(key)
            current = None
            if seen is None:
                current = self._expected(self._collection(key.resource), key, expect)
                seen = current.revision
                if value is not None:
                    self._farewells[key, seen] = value
        try:
            revision = self._remove(key, seen, guards)
        finally:
            self._farewells.pop((key, seen), None)
        if revision is None:
            raise self._conflict(key, seen)
        created = revision if current is None else current.created
        last = {"metadata": {"name": key.name}} if current is None else current.value
        return Stored(key, stamped(last if value is None else value, revision), revision, created)

    def _put(
        self, key: Key, value: JsonDict, seen: int, guards: Guards | None, *, created: int = 0
    ) -> Stored | None:
        """Write an object that was last written at `seen`; None if it was not."""
        path, raw = self.layout.path(key), raw_of(key, value)
        self.layout.check(key, raw)
        put = pb.PutRequest(key=path, value=raw, lease=self._lease.of(key))
        try:
            called = self._transact(key, seen, guards, pb.RequestOp(request_put=put))
        except EtcdRefused as error:
            if LEASE_OVER not in error.details:
                raise
            self._lease.renew()
            put.lease = self._lease.of(key)
            called = self._transact(key, seen, guards, pb.RequestOp(request_put=put))
        if called.answer.succeeded:
            revision = int(called.answer.header.revision)
            made = self.layout.written(key, value, raw, revision, created or revision)
            return self._arrive(key, revision, made)
        found = called.answer.responses[0].response_range.kvs
        if called.repeated and found and found[0].value == raw and found[0].mod_revision > seen:
            # An earlier try of this call has happened, though its answer was lost.
            kv = found[0]
            made = self.layout.written(key, value, raw, kv.mod_revision, kv.create_revision)
            return self._arrive(key, kv.mod_revision, made)
        self._look_again(key, guards)
        return None

    def _remove(self, key: Key, seen: int, guards: Guards | None) -> int | None:
        """Delete an object that was last written at `seen`; None if it was not."""
        delete = pb.DeleteRangeRequest(key=self.layout.path(key))
        called = self._transact(key, seen, guards, pb.RequestOp(request_delete_range=delete))
        if called.answer.succeeded:
            revision = int(called.answer.header.revision)
            self._arrive(key, revision, None)
            return revision
        if called.repeated:
            self.refresh()
            with self.lock:
                for change in reversed(self._collection(key.resource).log):
                    before = change.before
                    if before is not None and change.key == key and before.revision == seen:
                        if change.after is None:
                            return change.revision  # an earlier try of this call, or as good
                        break
        self._look_again(key, guards)
        return None

    def _transact(self, key: Key, seen: int, guards: Guards | None, what: pb.RequestOp) -> Called:
        if threading.get_ident() == self._telling:
            raise RuntimeError("an observer of a shared store may not write to it")
        path = self.layout.path(key)
        compares = [pb.Compare(target=pb.Compare.MOD, key=path, mod_revision=seen)]
        if guards is not None:
            compares += guards.compares(self.layout, key)
        look = pb.RequestOp(request_range=pb.RangeRequest(key=path))
        request = pb.TxnRequest(compare=compares, success=[what], failure=[look])
        try:
            return self._client.transact(request)
        except EtcdRefused as error:
            if TOO_LARGE in error.details:
                raise TooLarge(key, error.details) from error
            raise
        except StorageUnavailable as error:
            raise Undecided(str(error)) from error

    def _look_again(self, key: Key, guards: Guards | None) -> None:
        """See what others have written; Changed where a request can be thought of again."""
        self.refresh()
        if guards is not None:
            raise guards.changed(key)

    def _conflict(self, key: Key, seen: int) -> KeyMissing | RevisionConflict:
        with self.lock:
            current = self._collection(key.resource).find(key)
            return KeyMissing(key) if current is None else RevisionConflict(key, seen, current)

    def _arrive(self, key: Key, revision: int, stored: Stored | None) -> Stored | None:
        """Take in a write of this server, in its turn: None is a deletion. Return it."""
        with self.lock:
            if revision == self._revision + 1:
                with self._taking():
                    self._change(key, revision, stored)
            elif revision > self._revision:
                self._ahead[revision] = key, stored
                try:
                    self._await(revision)
                finally:
                    self._ahead.pop(revision, None)
            # The watch may have delivered it first: that is the state others have seen.
            current = self._collection(key.resource).find(key)
            return current if current is not None and current.revision == revision else stored

    # --- watching ---------------------------------------------------------------------------

    def _await(self, revision: int, *, asking: bool = False) -> None:
        """Wait until the watch has delivered a revision. Undecided: it does not.

        With `asking`, the revision may be of a key that the watch does not look at.
        """
        with self.lock:
            if self._revision >= revision:
                return
            condition = threading.Condition(self.lock)
            self._turn += 1
            heapq.heappush(self._waiters, (revision, self._turn, condition))
            for pause in (SOON, *[BEHIND] * ASKED):
                if condition.wait_for(lambda: self._revision >= revision or self._closed, pause):
                    return
                # A member that is behind does not answer, so it is asked again.
                if asking and self._watch is not None:
                    self._watch.ask_progress()
        raise Undecided(f"{self.address} did not report revision {revision} in time")

    def _awaken(self) -> None:
        while self._waiters and (self._closed or self._waiters[0][0] <= self._revision):
            heapq.heappop(self._waiters)[2].notify_all()

    def _run(self) -> None:
        lost = False  # whether changes were compacted before they came
        while not self._over.is_set():
            try:
                if lost:
                    self._reload()
                    lost = False
                layout, since = self.layout, self._revision + 1
                self._watch = watch = self._client.watch(layout.start, layout.end, since)
                if self._over.is_set():
                    watch.close()
                lost = self._follow_watch(watch)
            except StorageUnavailable as error:
                logger.warning("the watch of %s: %s", self.address, error)
            except Exception:
                logger.exception("the watch of %s failed", self.address)
                lost = True
            self._connected = False
            self._over.wait(AGAIN)
        with self.lock:
            self._awaken()

    def _follow_watch(self, watch: Any) -> bool:
        """Take in a watch's changes until it ends; return whether something is missing."""
        events: list[pb.Event] = []
        for response in watch:
            self._connected = True
            if response.compact_revision:
                return True
            if response.canceled:
                logger.warning("the watch of %s ends: %s", self.address, response.cancel_reason)
                return False
            events += response.events
            if not response.fragment:
                # The header's revision may be ahead of the changes, but for progress.
                reached = 0 if events or response.created else response.header.revision
                self._take_in(events, reached)
                events = []
        return False

    def _take_in(self, events: Sequence[pb.Event], reached: int) -> None:
        with self.lock:
            before = self._revision
            with self._taking():
                for event in events:
                    if event.kv.mod_revision > before:
                        self._take(event)
                if events:
                    reached = events[-1].kv.mod_revision
                self._revision = max(self._revision, reached)

    @contextmanager
    def _taking(self) -> Iterator[None]:
        """Take in changes; then what comes next of this server's own, and tell of all."""
        outer, self._telling = self._telling, threading.get_ident()
        try:
            with self.batch():
                yield
                while found := self._ahead.pop(self._revision + 1, None):
                    self._change(found[0], self._revision + 1, found[1])
        finally:
            self._telling = outer
            self._awaken()

    def _take(self, event: pb.Event) -> None:
        kv = event.kv
        key = self.layout.key(kv.key)
        if key is None:
            return
        stored = None
        if event.type == pb.Event.PUT:
            stored = self.layout.stored(key, kv)
            if stored is None:
                logger.warning("%s: %s cannot be read", self.address, "/".join(key))
        self._change(key, kv.mod_revision, stored)
        if event.type == pb.Event.PUT and stored is None:
            self._damaged[key] = kv.mod_revision

    def _change(self, key: Key, revision: int, stored: Stored | None) -> None:
        """Put an object in the place of what was there; None where it is gone."""
        self._damaged.pop(key, None)
        collection = self._collection(key.resource)
        current = collection.find(key)
        departed = None
        if stored is None:
            self._revision = revision
            if current is None:
                return
            last = self._farewells.get((key, current.revision), current.value)
            departed = Stored(key, stamped(last, revision), revision, current.created).settle()
        change = Change(key, revision, current, stored, departed)
        self._write(collection, change)
        for follower in self._followers:
            follower(change)

    def _load(self) -> None:
        revision = 0
        for kv, now in self._everything():
            revision = now
            key = self.layout.key(kv.key)
            if key is None:
                continue
            stored = self.layout.stored(key, kv)
            if stored is None:
                logger.warning("%s: %s cannot be read", self.address, "/".join(key))
                self._damaged[key] = kv.mod_revision
            else:
                self._collection(key.resource).put(stored)
        self._begin(revision or self._header())

    def _begin(self, revision: int) -> None:
        """Have the history begin at a revision."""
        self._revision = revision
        self._compacted = revision
        for collection in self._collections.values():
            collection.floor = revision

    def _header(self) -> int:
        request = pb.RangeRequest(key=self.layout.own("none"), count_only=True)
        return int(self._client.range(request).header.revision)

    def _everything(self) -> Iterator[tuple[pb.KeyValue, int]]:
        """Yield all keys as of one revision, and that."""
        request = pb.RangeRequest(key=self.layout.start, range_end=self.layout.end, limit=PAGE)
        while True:
            page = self._client.range(request)
            request.revision = request.revision or page.header.revision
            for kv in page.kvs:
                yield kv, request.revision
            if not page.more:
                return
            request.key = page.kvs[-1].key + b"\0"

    def _reload(self) -> None:
        """Announce what changed while no watch was open, as far as it is still known."""
        found = list(self._everything())
        revision = found[0][1] if found else self._header()
        there = {kv.key for kv, _ in found}
        with self.lock:
            had = {
                self.layout.path(stored.key): stored.created
                for collection in self._collections.values()
                for space in collection.spaces.values()
                for stored in space.objects.values()
            }
        events = []
        for kv in sorted((kv for kv, _ in found), key=lambda kv: kv.mod_revision):
            if kv.mod_revision > self._revision:
                if had.get(kv.key, kv.create_revision) != kv.create_revision:
                    events.append(_deletion(kv.key, kv.mod_revision))
                events.append(pb.Event(type=pb.Event.PUT, kv=kv))
        events += [_deletion(path, revision) for path in had if path not in there]
        self._take_in(events, revision)


def _deletion(path: bytes, revision: int) -> pb.Event:
    return pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=path, mod_revision=revision))


def _check_version(version: str, address: str) -> None:
    """Refuse an etcd with a bug in the progress of watches. StorageUnavailable."""
    parts = version.split(".")
    try:
        major, minor, patch = int(parts[0]), int(parts[1]), int(parts[2].split("-")[0])
    except (IndexError, ValueError) as error:
        raise StorageUnavailable(
            f"{address} has the version {version!r}, which is unknown"
        ) from error
    if (major, minor) < (3, 4) or patch < PROGRESS_SINCE.get((major, minor), 0):
        raise StorageUnavailable(
            f"{address} has version {version}: 3.4.25, 3.5.8 or a later one is needed"
        )
