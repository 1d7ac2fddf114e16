"""A store on disk: the memory store, with its log in one SQLite file.

Reads and watches come from memory. A batch of writes is one transaction (group commit), and is
answered after its commit in both modes of durability. A row is deleted once the history no longer
needs it, in the transactions that are made anyway (compaction in one long transaction stalls
writers: rancher/k3s#1311).
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.storage import database
from dralab.apiserver.storage.database import DiskFull, Fields, Row, reported_as_unavailable, row_of
from dralab.apiserver.storage.errors import StorageUnavailable, StoreDamaged
from dralab.apiserver.storage.files import (
    FILE,
    KEPT,
    MARK,
    Durability,
    MarkFile,
    Reserve,
    RevisionMark,
    aside,
    check_files,
    free,
    locked,
)
from dralab.apiserver.storage.memory import WINDOW, MemoryStore
from dralab.apiserver.storage.objects import Change, Stored
from dralab.apiserver.storage.sums import Chunks, head_sum

logger = logging.getLogger(__name__)

SWEEP: Final = 256  # rows that the history no longer needs, deleted at a time
# The write-ahead log is checkpointed after so many bytes by a thread of its own, which
# delays no request, and after so many by the writer, if that thread cannot keep up.
CHECKPOINT: Final = 16 * 1024 * 1024
CHECKPOINT_AT_LAST: Final = 64 * 1024 * 1024
# Clients may have seen revisions that a copy does not know, or a store that lost its end. Like
# etcdutl's --bump-revision with --mark-compacted, such a store begins far ahead and sends
# watchers to list again.
LEAP: Final = 1_000_000


class SqliteStore(MemoryStore):
    """The `Store` of `dralab up`: a directory with one SQLite file, which it locks."""

    def __init__(
        self, directory: Path, *, durability: Durability = "fsync", window: int = WINDOW
    ) -> None:
        super().__init__(window=window)
        self.directory = directory
        self.path = directory / FILE
        self._swept: list[tuple[int, int]] = []  # revisions and heads
        self._floors: dict[str, int] = {}
        self._chunks = Chunks()
        self._heads: dict[int, int] = {}  # of the rows of damaged objects, by revision
        self._written = 0
        with contextlib.ExitStack() as undone:
            lock = locked(directory)
            undone.callback(os.close, lock)
            mark = RevisionMark.read(directory)
            check_files(self.path)
            _check_presence(self.path, mark)
            self._reserve = Reserve(directory)
            if not self.path.exists():
                with database.made(self.path) as new:
                    database.lay_out(new)
            synchronous = "FULL" if durability == "fsync" else "NORMAL"
            self._db = database.connect(self.path, synchronous=synchronous)
            undone.callback(self._db.close)
            with reported_as_unavailable(self.path):
                self._db.execute("PRAGMA wal_autocheckpoint=0")
                database.check_pages(self._db, self.path)
                with self.lock:
                    self._load(mark)
                with reported_as_unavailable(directory / MARK):
                    self._mark = MarkFile(directory, durability)
                undone.callback(self._mark.close)
                self._check_end(mark)
                self._mark.note(self._revision, self._chunks.tail())
                if durability == "relaxed":
                    # Without it, a power cut could not be told from damage.
                    self._mark.sync(directory)
                self._checkpoints = _Checkpoints(self.path)
            self._lock = lock
            self._places = self._found()
            self._release = undone.pop_all()

    def close(self) -> None:
        """Write what is left and release the directory."""
        with self.lock:
            if self._closed:
                return
            super().close()
            self._checkpoints.stop()
            with self._release, reported_as_unavailable(self.path):
                self._db.close()
                self._mark.note(self._revision, self._chunks.tail(), closed=True)

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision, on disk too."""
        with self.lock:
            super().compact(revision)
            with self._transaction():
                self._sweep(len(self._swept))
            self._note()

    # --- writing --------------------------------------------------------------------------

    @guarded_by("lock")
    def _persist(self, changes: Sequence[Change]) -> None:
        self._check_places()
        rows = [row_of(change) for change in changes]
        try:
            self._append(rows, changes)
        except DiskFull:
            self._reserve.release()
            if not all(map(_makes_room, changes)):
                raise
            self._append(rows, changes)
        self._note()
        self._written += sum(len(row[6]) for row in rows)
        if self._written > CHECKPOINT:
            self._checkpoint()

    @guarded_by("lock")
    def _append(self, rows: list[Fields], changes: Sequence[Change]) -> None:
        with self._transaction():
            database.write(self._db, rows, self._chunks)
            erased = [change.erased for change in changes if change.erased]
            self._swept[:0] = [(revision, self._heads[revision]) for revision in erased]
            if erased or len(self._swept) >= SWEEP:
                self._sweep(SWEEP * 4)
            elif self._chunks.is_due(rows[0][0], rows[-1][0]):
                self._record()

    @guarded_by("lock")
    def _note(self) -> None:
        self._mark.note(self._revision, self._chunks.tail())

    def _commit(self, changes: Sequence[Change]) -> None:
        super()._commit(changes)
        if self._reserve.released:
            # Room is also freed with the history, and when the log file is reused.
            with contextlib.suppress(StorageUnavailable):
                self.compact(self._revision)
                with self._checkpoints.busy, reported_as_unavailable(self.path):
                    if self._growth() < free(self.directory):
                        self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def _growth(self) -> int:
        """Return by how much the database will grow at the next checkpoint."""
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        size = self._db.execute("PRAGMA page_size").fetchone()[0]
        return int(pages * size - self.path.stat().st_size)

    @guarded_by("lock")
    def _allow(self, change: Change) -> None:
        if self._reserve.released and not _makes_room(change) and not self._has_room():
            raise DiskFull(
                f"the disk of {self.directory} is full: only deletions are accepted until there "
                f"is space"
            )

    def _has_room(self) -> bool:
        """Return whether there is room on the disk again, or within the file."""
        if self._reserve.regain():
            return True
        with reported_as_unavailable(self.path):
            pages = self._db.execute("PRAGMA freelist_count").fetchone()[0]
            size = self._db.execute("PRAGMA page_size").fetchone()[0]
        return bool(pages * size > KEPT)

    def _check_places(self) -> None:
        """Refuse to write to files that were deleted."""
        found = self._found()
        for name, place in self._places.items():
            if found.get(name) != place:
                raise StoreDamaged(
                    f"{self.directory / name} was deleted or replaced while the server ran: stop "
                    "the server, then restore a backup"
                )
        self._places = found

    def _found(self) -> dict[str, int]:
        """Return which files have the names of the database."""
        found = {}
        for name in (FILE, f"{FILE}-wal"):
            try:
                found[name] = os.stat(name, dir_fd=self._lock).st_ino
            except FileNotFoundError:
                continue
        return found

    def _checkpoint(self) -> None:
        self._written = 0
        if aside(self.path)[0].stat().st_size > CHECKPOINT_AT_LAST:
            # Two checkpoints at a time would conflict: wait for the thread's.
            with self._checkpoints.busy, contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        else:
            self._checkpoints.due.set()

    @guarded_by("lock")
    def _forgotten(self, change: Change) -> None:
        self._floors[change.key.resource] = change.revision
        self._outdated(change)

    @guarded_by("lock")
    def _outdated(self, change: Change) -> None:
        # The state before was kept only to undo this change; of a deletion nothing is left.
        before = change.before
        if before is not None:
            head = head_sum(before.revision, *before.key, before.created, 0)
            self._swept.append((before.revision, head))
        if change.after is None:
            head = head_sum(change.revision, *change.key, change.departed.created, 1)
            self._swept.append((change.revision, head))

    @guarded_by("lock")
    def _sweep(self, most: int) -> None:
        gone = self._swept[:most]
        self._db.executemany("DELETE FROM log WHERE revision = ?", [(each[0],) for each in gone])
        for revision, head in gone:
            self._chunks.remove(revision, head)
        self._record()
        del self._swept[:most]

    @guarded_by("lock")
    def _record(self) -> None:
        facts = {"revision": self._revision, "compacted": self._compacted}
        database.record(self._db, self._chunks, facts, self._floors)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        swept = list(self._swept)
        with reported_as_unavailable(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                database.commit(self._db, self.path)
                self._chunks.settle()
            except BaseException:
                self._swept = swept
                self._chunks.discard()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # --- starting -------------------------------------------------------------------------

    def _load(self, mark: RevisionMark | None) -> None:
        facts, self._floors = database.facts_of(self._db, self.path)
        self._compacted = facts.get("compacted", 0)
        for resource, floor in self._floors.items():
            collection = self._collection(resource)
            collection.floor = max(collection.floor, floor)
        broken: list[Row] = []
        for row in database.rows(self._db):
            if not row.knows_its_object:
                raise StoreDamaged(
                    f"{self.path} is damaged: unknown object at revision {row.revision}; "
                    f"{database.ADVICE}"
                )
            self._chunks.add(row.revision, row.head)
            if not row.is_whole:
                broken.append(row._replace(value=b""))
            self._replay(row)
        self._chunks.settle()
        self._revision = max(self._revision, facts.get("revision", 1))
        tail = mark.tail if mark is not None and mark.revision == self._revision else None
        said = database.missing(self._chunks, database.totals(self._db), facts, tail)
        if said:
            raise StoreDamaged(f"{self.path} is damaged: {said[0]}; {database.ADVICE}")
        self._quarantine(broken)

    def _replay(self, row: Row) -> None:
        key, revision = row.key, row.revision
        collection = self._collection(row.resource)
        before = collection.find(key)
        state = Stored(key, None, revision, row.created, row.value)
        if row.deleted:
            change = Change(key, revision, before, None, state)
            if before is not None:
                collection.drop(key)
        else:
            change = Change(key, revision, before, state)
            collection.put(state)
        self._revision = revision
        if revision <= collection.floor:
            self._outdated(change)
            return
        collection.log.append(change)
        for fallen in collection.shrink():
            self._forgotten(fallen)

    def _quarantine(self, broken: Sequence[Row]) -> None:
        """Set aside objects whose values cannot be read, and drop history that contains such."""
        for row in broken:
            collection, key = self._collection(row.resource), row.key
            for change in list(collection.trim(self._revision)):
                self._forgotten(change)
            self._floors[row.resource] = self._revision
            current = collection.find(key)
            if current is not None and current.revision == row.revision:
                collection.drop(key)
                self._damaged[key] = row.revision
                self._heads[row.revision] = row.head
                logger.warning(
                    "%s is damaged: %s cannot be read; delete it, or restore a backup",
                    self.path,
                    "/".join(key),
                )

    def _check_end(self, mark: RevisionMark | None) -> None:
        """Detect missing last writes. StoreDamaged unless a power cut explains them."""
        if mark is None:
            return
        lost = mark.revision > self._revision
        if mark.excuses_loss():
            if lost:
                logger.warning(
                    "%s ends at revision %d, before the power cut it was at %d: with relaxed "
                    "durability the last writes may be lost",
                    self.path,
                    self._revision,
                    mark.revision,
                )
            # More may have been acknowledged than the mark knows. No revision is used twice.
            self._revision = max(mark.revision, self._revision) + LEAP
            self.compact(self._revision)
        elif lost:
            raise StoreDamaged(
                f"{self.path} ends at revision {self._revision}, but writes up to "
                f"{mark.revision} were answered: it was truncated or replaced by an older one; "
                f"{database.ADVICE}"
            )


class _Checkpoints:
    """Checkpoints SQLite's write-ahead log, while the store continues writing."""

    def __init__(self, path: Path) -> None:
        self.due = threading.Event()
        self.busy = threading.Lock()
        self._over = False
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread = threading.Thread(target=self._run, name="dralab-checkpoints", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self.due.set()
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        while True:
            self.due.wait()
            self.due.clear()
            if self._over:
                return
            # The writer gets the same error, and reports it.
            with self.busy, contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _makes_room(change: Change) -> bool:
    """Return whether a change deletes an object, or prepares its deletion."""
    if change.after is None:
        return True
    return "deletionTimestamp" in change.after.value["metadata"]


def _check_presence(path: Path, mark: RevisionMark | None) -> None:
    """Refuse a store that has vanished or was emptied. StoreDamaged."""
    with reported_as_unavailable(path):
        if path.exists():
            if path.stat().st_size:
                return
            what = "is empty"
        elif (path.parent / MARK).exists() or aside(path)[0].exists():
            what = "is gone"
        else:
            return
    known = f" at revision {mark.revision}" if mark is not None else ""
    raise StoreDamaged(
        f"{path} {what}, but it contained a store{known}: restore a backup in another directory, "
        f"or "
        f"delete {path.parent} to start empty"
    )
