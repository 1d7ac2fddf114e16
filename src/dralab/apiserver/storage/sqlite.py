"""A store on disk: the memory store, with its log in one SQLite file.

Reads and watches come from memory. A batch of writes is one transaction (group commit), and is
answered after its commit in both modes of durability. One table holds the log; the newest row of
a key is the object. A row is deleted once the history no longer needs it, in the transactions
that are made anyway (compaction in one long transaction stalls writers: rancher/k3s#1311).
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal

from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.memory import WINDOW, MemoryStore
from dralab.apiserver.storage.objects import Change, Key, Stored

# fsync: a commit has reached the disk. relaxed: a commit survives the end of the process, killed
# or not, but perhaps not a power cut; the file stays sound in any case.
Durability = Literal["fsync", "relaxed"]

FILE: Final = "store.db"
APPLICATION_ID: Final = 0x44524C42  # "DRLB": tells `file`, and us, whose database it is
FORMAT: Final = 1
SWEEP: Final = 256  # rows that the history no longer needs, deleted at a time
# What SQLite has written aside is brought home after so many bytes by a thread of its own, which
# keeps nobody waiting, and after so many by the writer, where that thread cannot keep up.
CHECKPOINT: Final = 16 * 1024 * 1024
CHECKPOINT_AT_LAST: Final = 64 * 1024 * 1024

SCHEMA: Final = """
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteStore(MemoryStore):
    """The `Store` of `dralab up`: a directory with one SQLite file and a lock."""

    def __init__(
        self, directory: Path, *, durability: Durability = "fsync", window: int = WINDOW
    ) -> None:
        super().__init__(window=window)
        self.directory = directory
        self._swept: list[tuple[int]] = []
        self._floors: dict[str, int] = {}
        self._lock_file = _locked(directory)
        try:
            with _told_as_unavailable(directory / FILE):
                self._db = _connect(directory / FILE)
                mode = "FULL" if durability == "fsync" else "NORMAL"
                self._db.execute(f"PRAGMA synchronous={mode}")
                self._db.execute("PRAGMA wal_autocheckpoint=0")
                self._load()
            self._written = 0
            self._checkpoints = _Checkpoints(directory / FILE)
        except BaseException:
            os.close(self._lock_file)
            raise

    def close(self) -> None:
        """Write what is left to write and let go of the directory."""
        with self.lock:
            if self._closed:
                return
            super().close()
            self._checkpoints.stop()
            with _told_as_unavailable(self.directory / FILE):
                self._db.close()
            os.close(self._lock_file)

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision, on disk too."""
        with self.lock:
            super().compact(revision)
            with self._transaction():
                self._sweep(len(self._swept))

    def _persist(self, changes: Sequence[Change]) -> None:
        rows = [_row(change) for change in changes]
        with self._transaction():
            self._db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            if len(self._swept) >= SWEEP:
                self._sweep(SWEEP * 4)
        self._written += sum(len(row[-1]) for row in rows)
        if self._written > CHECKPOINT:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._written = 0
        if (self.directory / f"{FILE}-wal").stat().st_size > CHECKPOINT_AT_LAST:
            # Two at a time would refuse each other: what the thread has begun is awaited.
            with self._checkpoints.busy, contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        else:
            self._checkpoints.due.set()

    def _forgotten(self, change: Change) -> None:
        self._floors[change.key.resource] = change.revision
        self._outdated(change)

    def _outdated(self, change: Change) -> None:
        # The state before served only to undo this change; of a deletion nothing is left.
        if change.before is not None:
            self._swept.append((change.before.revision,))
        if change.after is None:
            self._swept.append((change.revision,))

    def _sweep(self, most: int) -> None:
        self._db.executemany("DELETE FROM log WHERE revision = ?", self._swept[:most])
        self._db.executemany("INSERT OR REPLACE INTO floors VALUES (?, ?)", self._floors.items())
        _remember(self._db, revision=self._revision, compacted=self._compacted)
        del self._swept[:most]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        swept = list(self._swept)
        with _told_as_unavailable(self.directory / FILE):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._swept = swept
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _load(self) -> None:
        facts = dict(self._db.execute("SELECT name, value FROM facts"))
        self._compacted = facts.get("compacted", 0)
        floors = dict(self._db.execute("SELECT resource, revision FROM floors"))
        for resource, floor in floors.items():
            collection = self._collection(resource)
            collection.floor = max(collection.floor, floor)
        for row in self._db.execute("SELECT * FROM log ORDER BY revision"):
            self._replay(row)
        self._revision = max(self._revision, facts.get("revision", 1))

    def _replay(self, row: tuple[int, str, str, str, int, int, bytes]) -> None:
        revision, resource, namespace, name, created, deleted, value = row
        key = Key(resource, namespace, name)
        collection = self._collection(resource)
        before = collection.find(key)
        state = Stored(key, None, revision, created, value)
        if deleted:
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


class _Checkpoints:
    """Brings home what SQLite has written aside, while the store goes on writing."""

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
            # The writer meets an error too, and tells.
            with self.busy, contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def back_up(directory: Path, target: Path) -> int:
    """Copy the store of a directory, in use or not, to a file; return its revision.

    StorageUnavailable where either cannot be used, or where the target exists.
    """
    source = directory / FILE
    if not source.exists():
        raise StorageUnavailable(f"{directory} holds no store: there is no {FILE} in it")
    if target.exists():
        raise StorageUnavailable(f"{target} exists already; name another file")
    with (
        _told_as_unavailable(source),
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as db,
    ):
        _check(db, source)
        with _told_as_unavailable(target), closing(sqlite3.connect(target)) as copy:
            db.backup(copy)
            return _revision_of(copy)


# Clients may have seen revisions that the copy does not know. Like etcdutl's --bump-revision
# with --mark-compacted, a restored store begins far ahead and sends watchers to list again.
LEAP: Final = 1_000_000


def restore(source: Path, directory: Path) -> int:
    """Make a store from a copy, in a directory that holds none; return its revision.

    StorageUnavailable where either cannot be used, or where there is a store already.
    """
    target = directory / FILE
    if not source.is_file():
        raise StorageUnavailable(f"there is no file {source}")
    lock = _locked(directory)
    try:
        if target.exists():
            raise StorageUnavailable(f"{directory} holds a store already; name another directory")
        unfinished = directory / f"{FILE}.restoring"
        unfinished.unlink(missing_ok=True)
        with (
            _told_as_unavailable(source),
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as db,
        ):
            _check(db, source)
            with _told_as_unavailable(target), closing(sqlite3.connect(unfinished)) as copy:
                db.backup(copy)
                revision = _revision_of(copy) + LEAP
                with copy:
                    _remember(copy, revision=revision, compacted=revision)
        unfinished.replace(target)
        return revision
    finally:
        os.close(lock)


def _revision_of(db: sqlite3.Connection) -> int:
    newest = db.execute("SELECT max(revision) FROM log").fetchone()[0] or 1
    known = db.execute("SELECT value FROM facts WHERE name = 'revision'").fetchone()
    return max(newest, known[0] if known else 1)


def _remember(db: sqlite3.Connection, **facts: int) -> None:
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", sorted(facts.items()))


def _row(change: Change) -> tuple[int, str, str, str, int, int, bytes]:
    state = change.after or change.departed
    return (change.revision, *change.key, state.created, int(change.after is None), state.encoded)


def _connect(path: Path) -> sqlite3.Connection:
    # Secrets are among the objects: the file is its owner's alone.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        if path.stat().st_size:
            _check(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA.strip().split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={FORMAT}")
            db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StorageUnavailable(f"{path} is a database, but not one of dralab")
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        raise StorageUnavailable(
            f"{path} has format {found}; this dralab reads formats up to {FORMAT}: use a newer one"
        )


def _locked(directory: Path) -> int:
    """Return the lock of a directory, made if needed: one server at a time."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise StorageUnavailable(f"cannot use the data directory {directory}: {why}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageUnavailable(
            f"the data directory {directory} is in use by another server"
        ) from error
    return handle


@contextmanager
def _told_as_unavailable(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageUnavailable(f"cannot use {path}: {error}") from error
    except OSError as error:
        raise StorageUnavailable(f"cannot use {path}: {error.strerror or error}") from error
