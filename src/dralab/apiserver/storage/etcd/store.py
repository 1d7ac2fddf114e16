"""A store in etcd: the memory store fed by a watch, with writes as etcd transactions.

Reads and watches come from memory. A write is one transaction that compares the revision of its
key. Memory changes in etcd's order, whichever server wrote: a write of this server is taken in
at once if its revision is the next, and else when the watch has brought what came before. Source of
the scheme: k8s.io/apiserver `storage/etcd3`, `storage/cacher`.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from dralab.apiserver.guarded import released
from dralab.apiserver.metrics.families import ETCD_SECONDS, collection
from dralab.apiserver.metrics.meters import Histograms, now
from dralab.apiserver.signals import Signal
from dralab.apiserver.storage.errors import (
    KeyExists,
    KeyMissing,
    RevisionConflict,
    StorageUnavailable,
    TooLarge,
    Undecided,
)
from dralab.apiserver.storage.etcd import contents
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.address import EtcdAddress
from dralab.apiserver.storage.etcd.client import EtcdClient, EtcdRefused, EtcdWatch
from dralab.apiserver.storage.etcd.commits import Commits, Range, Write
from dralab.apiserver.storage.etcd.compaction import Compactor
from dralab.apiserver.storage.etcd.layout import Layout, raw_of
from dralab.apiserver.storage.etcd.leases import EventLease
from dralab.apiserver.storage.etcd.revisions import revision_of, version_of, whole
from dralab.apiserver.storage.etcd.views import EtcdView, Guards
from dralab.apiserver.storage.memory import WINDOW, MemoryStore
from dralab.apiserver.storage.objects import Change, Key, Stored, stamped
from dralab.apiserver.storage.store import Follower, Loop
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)

EVENT_TTL: Final = 3600  # seconds: kube-apiserver --event-ttl
SOON: Final = 0.002  # seconds after which a member is asked how far its watch is,
BEHIND: Final = 0.1  # seconds between such questions,
ASKED: Final = 50  # and how many there are
AGAIN: Final = 0.1  # seconds before a broken watch is begun again
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
        self._waiters: list[tuple[int, int, Signal]] = []
        self._turn = 0
        # The last states that deleters here gave, by key and the revision they saw.
        self._farewells: dict[tuple[Key, int], JsonDict] = {}
        # What writers here are about to write, by path: as it is stored, and as JSON.
        self._written: dict[bytes, tuple[bytes, JsonDict]] = {}
        # Transactions of this server that wait for what came before them, by revision.
        self._ahead: dict[int, Sequence[Write]] = {}
        self._reached = 0  # the revision of etcd up to which all changes have been taken in
        self._commits = Commits(partial(self._client.call, "txn"), self._client.wait)
        self._calls = Histograms(
            "etcd_request_duration_seconds",
            "How long etcd took for a write.",
            ("group", "operation", "resource"),
            ETCD_SECONDS,
        )
        self.measured = (self._calls,)
        self._telling = 0  # the thread that takes in changes
        self._watch: EtcdWatch | None = None
        self._events: list[pb.Event] = []  # of a response that comes in parts
        self._missed = False  # whether changes were compacted before they came
        self._connected = True  # or no watch is open, and memory is stale
        self._over = threading.Event()
        try:
            contents.check_version(self._client.version(), str(address))
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
        self._client.compact(revision_of(revision))

    def refresh(self) -> None:
        """Make reads see all that any server has acknowledged by now. StorageUnavailable.

        A linearizable read tells etcd's revision, and the watch catches up with that.
        """
        with released(self.lock):
            revision = self._header()
        self._await(revision, asking=True)

    def view(self) -> EtcdView:
        """Return the store of one request; it writes only if nothing that it read has changed."""
        return EtcdView(self)

    def read_in(self, loop: Loop | None) -> None:
        """Have a server's loop take in etcd's answers and changes; to be called in its thread."""
        self._client.read_in(loop, self._hear)

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

        def made(version: int) -> Stored:
            return self.layout.written(key, value, raw, version, created or version)

        def after(revision: int) -> None:
            version = version_of(revision, path)
            self._change(key, version, made(version))

        what = pb.RequestOp(request_put=put)
        self._written[path] = raw, value
        try:
            write = self._transact(key, seen, guards, what, size=len(raw), after=after)
        except EtcdRefused as error:
            if LEASE_OVER not in error.details:
                raise
            self._lease.renew()
            put.lease = self._lease.of(key)
            what = pb.RequestOp(request_put=put)
            write = self._transact(key, seen, guards, what, size=len(raw), after=after)
        finally:
            self._written.pop(path, None)
        found = write.found
        if write.revision:
            self._arrive(write)
            version = version_of(write.revision, path)
        elif (
            write.repeated
            and found is not None
            and found.value == raw
            and found.mod_revision > revision_of(seen)
        ):
            # An earlier try of this call has happened, though its answer was lost.
            self._await(found.mod_revision)
            version = version_of(found.mod_revision, path)
            created = version_of(found.create_revision, path)
        else:
            self._look_again(key, guards)
            return None
        with self.lock:
            # The watch may have delivered it first: that is the state others have seen.
            current = self._collection(key.resource).find(key)
        return current if current is not None and current.revision == version else made(version)

    def _remove(self, key: Key, seen: int, guards: Guards | None) -> int | None:
        """Delete an object that was last written at `seen`; None if it was not."""
        path = self.layout.path(key)

        def after(revision: int) -> None:
            self._change(key, version_of(revision, path), None)

        what = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=path))
        write = self._transact(key, seen, guards, what, size=0, after=after)
        if write.revision:
            self._arrive(write)
            return version_of(write.revision, path)
        if write.repeated:
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

    def _transact(
        self,
        key: Key,
        seen: int,
        guards: Guards | None,
        what: pb.RequestOp,
        *,
        size: int,
        after: Callable[[int], None],
    ) -> Write:
        if threading.get_ident() == self._telling:
            raise RuntimeError("an observer of a shared store may not write to it")
        path = self.layout.path(key)
        keys: dict[bytes, int] = {}
        ranges: dict[Range, int] = {}
        if guards is not None:
            keys, ranges = guards.compared(self.layout, key)
        keys[path] = revision_of(seen)
        group, resource = collection(key.resource)
        doing = "delete" if not what.HasField("request_put") else "update" if seen else "create"
        began = now()
        try:
            # Others go on meanwhile: what was read is compared by etcd, not held still by the lock.
            with released(self.lock):
                write = Write(
                    path=path, what=what, keys=keys, ranges=ranges, size=size, after=after
                )
                self._commits.carry_out(write)
            self._calls.since((group, doing, resource), began)
        except EtcdRefused as error:
            if TOO_LARGE in error.details:
                raise TooLarge(key, error.details) from error
            raise
        except StorageUnavailable as error:
            raise Undecided(str(error)) from error
        return write

    def _look_again(self, key: Key, guards: Guards | None) -> None:
        """Read what others have written; Changed if the request can be retried."""
        self.refresh()
        if guards is not None:
            raise guards.changed(key)

    def _conflict(self, key: Key, seen: int) -> KeyMissing | RevisionConflict:
        with self.lock:
            current = self._collection(key.resource).find(key)
            return KeyMissing(key) if current is None else RevisionConflict(key, seen, current)

    def _arrive(self, write: Write) -> None:
        """Apply the transaction of a write of this server, in its turn. Undecided."""
        revision, together = write.revision, write.together
        write.together = ()  # else they would hold each other
        with self.lock:
            if revision > self._reached:
                self._ahead[revision] = together
                self._take_in(())  # unless something else comes first
        self._await(revision)

    def _reach(self, revision: int) -> None:
        """Record that all changes up to a revision of etcd have been taken in."""
        self._reached = max(self._reached, revision)
        self._revision = max(self._revision, whole(self._reached))
        if self._ahead:
            for passed in [each for each in self._ahead if each <= self._reached]:
                del self._ahead[passed]

    # --- watching ---------------------------------------------------------------------------

    def _await(self, revision: int, *, asking: bool = False) -> None:
        """Wait until the watch has delivered a revision. Undecided: it does not.

        With `asking`, the revision may be of a key that the watch does not look at.
        """
        if self._reached >= revision:
            return
        reached = Signal()  # before the lock is held
        with self.lock:
            if self._reached >= revision:
                return
            self._turn += 1
            heapq.heappush(self._waiters, (revision, self._turn, reached))
        with released(self.lock):
            for pause in (SOON, *[BEHIND] * ASKED):
                if self._client.wait(reached, pause) or self._closed:
                    return
                # A member that is behind does not answer, so it is asked again.
                if asking and self._watch is not None:
                    self._watch.ask_progress()
        raise Undecided(f"{self.address} did not report revision {revision} in time")

    def _awaken(self) -> None:
        while self._waiters and (self._closed or self._waiters[0][0] <= self._reached):
            heapq.heappop(self._waiters)[2].give()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                if self._missed:
                    self._reload()
                    self._missed = False
                layout, since = self.layout, self._reached + 1
                watch = self._client.watch(layout.start, layout.end, since)
                with self.lock:
                    self._watch, self._events = watch, []
                self._follow_watch(watch)
            except StorageUnavailable as error:
                logger.warning("the watch of %s: %s", self.address, error)
            self._connected = False
            self._over.wait(AGAIN)
        with self.lock:
            self._awaken()

    def _follow_watch(self, watch: EtcdWatch) -> None:
        while not (watch.is_over or self._over.is_set()):
            watch.wait()
            self._hear()

    def _hear(self) -> None:
        """Apply what the watch has brought; end it if changes are missing."""
        with self.lock:
            watch = self._watch
            if watch is None or not watch.has_news:
                return
            try:
                for response in watch.responses():
                    self._hear_response(watch, response)
            except Exception:
                logger.exception("the watch of %s failed", self.address)
                self._missed = True
                watch.close()

    def _hear_response(self, watch: EtcdWatch, response: pb.WatchResponse) -> None:
        self._connected = True
        if response.compact_revision or response.canceled:
            if response.compact_revision:
                self._missed = True
            else:
                logger.warning("the watch of %s ends: %s", self.address, response.cancel_reason)
            watch.close()
            return
        self._events += response.events
        if not response.fragment:
            events, self._events = self._events, []
            # The header's revision may be ahead of the changes, but for progress.
            reached = 0 if events or response.created else response.header.revision
            self._take_in(events, reached)

    def _take_in(self, events: Sequence[pb.Event], reached: int = 0) -> None:
        """Apply changes, then this server's own that follow, and announce all of them."""
        with self.lock:
            outer, self._telling = self._telling, threading.get_ident()
            before = self._reached
            try:
                with self.batch():
                    for event in events:
                        if event.kv.mod_revision > before:
                            self._take(event)
                    self._reach(events[-1].kv.mod_revision if events else reached)
                    while together := self._ahead.pop(self._reached + 1, None):
                        for write in together:
                            write.after(self._reached + 1)
                        self._reach(self._reached + 1)
            finally:
                self._telling = outer
                self._awaken()

    def _take(self, event: pb.Event) -> None:
        kv = event.kv
        key = self.layout.key(kv.key)
        if key is None:
            return
        there = event.type == pb.Event.PUT
        stored = self._stored(key, kv) if there else None
        version = version_of(kv.mod_revision, kv.key)
        self._change(key, version, stored)
        if there and stored is None:
            self._damaged[key] = version
            logger.warning("%s: %s cannot be read", self.address, "/".join(key))

    def _stored(self, key: Key, kv: pb.KeyValue) -> Stored | None:
        """Return the object that a key has, not decoded again if a writer here knows it."""
        raw, value = self._written.get(kv.key, (b"", {}))
        if not raw or raw != kv.value:
            return self.layout.stored(key, kv)
        # Its writer may yet write it again, with another revision.
        own = {**value, "metadata": {**value["metadata"]}}
        version = version_of(kv.mod_revision, kv.key)
        return self.layout.written(key, own, raw, version, version_of(kv.create_revision, kv.key))

    def _change(self, key: Key, revision: int, stored: Stored | None) -> None:
        """Replace an object; None if it is deleted."""
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
        for kv, at in contents.everything(self._client, self.layout):
            revision = at
            key = self.layout.key(kv.key)
            if key is None:
                continue
            stored = self.layout.stored(key, kv)
            if stored is None:
                logger.warning("%s: %s cannot be read", self.address, "/".join(key))
                self._damaged[key] = version_of(kv.mod_revision, kv.key)
            else:
                self._collection(key.resource).put(stored)
        self._begin(revision or self._header())

    def _begin(self, revision: int) -> None:
        """Let the history begin at a revision."""
        self._reached = revision
        self._revision = self._compacted = whole(revision)
        for each in self._collections.values():
            each.floor = self._revision

    def own(self, name: str) -> bytes:
        """Return what servers have written under a name of their own; empty if nothing."""
        found = self._client.range(pb.RangeRequest(key=self.layout.own(name))).kvs
        return bytes(found[0].value) if found else b""

    def put_own(self, name: str, value: bytes) -> None:
        """Write under a name of the servers' own. StorageUnavailable."""
        put = pb.PutRequest(key=self.layout.own(name), value=value)
        self._client.transact(pb.TxnRequest(success=[pb.RequestOp(request_put=put)]))

    def _header(self) -> int:
        request = pb.RangeRequest(key=self.layout.own("none"), count_only=True)
        return int(self._client.range(request).header.revision)

    def _reload(self) -> None:
        """Announce what changed while no watch was open, as far as known."""
        found = list(contents.everything(self._client, self.layout))
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
        for kv, _ in found:
            if kv.mod_revision > self._reached:
                created = version_of(kv.create_revision, kv.key)
                if had.get(kv.key, created) != created:
                    events.append(contents.deletion(kv.key, kv.mod_revision))
                events.append(pb.Event(type=pb.Event.PUT, kv=kv))
        events += [contents.deletion(path, revision) for path in had if path not in there]
        events.sort(key=lambda event: version_of(event.kv.mod_revision, event.kv.key))
        self._take_in(events, revision)
