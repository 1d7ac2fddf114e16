"""The SQLite file of a store: its format, and rows with checksums.

One table holds the log of writes; the newest row of a key is the object. Each row carries two
sums, `chunks` tells which rows there must be, and `facts` has a sum of the small tables.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import orjson

from dralab.apiserver.storage.errors import StorageUnavailable, StoreDamaged, Undecided
from dralab.apiserver.storage.files import aside, private_file, sync, sync_names
from dralab.apiserver.storage.objects import Change, Key
from dralab.apiserver.storage.sums import CHUNK, Chunks, Tail, Totals, facts_sum, head_sum

APPLICATION_ID: Final = 0x44524C42  # "DRLB": identifies the database to `file`, and to us
FORMAT: Final = 2
SUM: Final = "sum"  # the fact that is the sum of all others, and of the floors
# A larger file is not checked page by page at each start: the checksums of its rows must do.
QUICK: Final = 64 * 1024 * 1024
ADVICE: Final = "see `dralab store check`; `dralab store repair` recovers what can be read"

SCHEMA: Final = """
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    value BLOB NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    body INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE chunks (chunk INTEGER PRIMARY KEY, rows INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
# Format 1 had no sums.
TO_FORMAT_2: Final = """
ALTER TABLE log ADD COLUMN head INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log ADD COLUMN body INTEGER NOT NULL DEFAULT 0;
CREATE TABLE chunks (chunk INTEGER PRIMARY KEY, rows INTEGER NOT NULL, sum INTEGER NOT NULL);
"""
ROOM: Final = 1 << 20  # bytes; a disk or file with less to go is full
WRITE_ERRORS: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})
COLUMNS: Final = "revision, resource, namespace, name, created, deleted, value, head, body"
Fields = tuple[int, str, str, str, int, int, bytes, int, int]


class Row(NamedTuple):
    """One write, as it stands in the log."""

    revision: int
    resource: str
    namespace: str
    name: str
    created: int
    deleted: int
    value: bytes
    head: int
    body: int

    @property
    def key(self) -> Key:
        """The object that the row is a state of."""
        return Key(self.resource, self.namespace, self.name)

    @property
    def knows_its_object(self) -> bool:
        """Whether the head has its checksum."""
        try:
            return self.head == head_sum(*self[:6])
        except (TypeError, ValueError):
            return False

    @property
    def is_whole(self) -> bool:
        """Whether the value has its checksum."""
        return isinstance(self.value, bytes) and self.body == crc32(self.value)


def row_of(change: Change) -> Fields:
    """Return the row of a change, as a plain tuple: every write makes one."""
    state = change.after
    deleted = 0
    if state is None:
        state, deleted = change.departed, 1
    revision, created, value = change.revision, state.created, state.encoded
    resource, namespace, name = change.key
    head = head_sum(revision, resource, namespace, name, created, deleted)
    return revision, resource, namespace, name, created, deleted, value, head, crc32(value)


def connect(path: Path, *, synchronous: str = "FULL") -> sqlite3.Connection:
    """Open a database that exists. StoreDamaged, StorageUnavailable."""
    with reported_as_unavailable(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            check_format(db, path)
            _begin_log(db, path)
            db.execute(f"PRAGMA synchronous={synchronous}")
            upgrade(db)
        except BaseException:
            db.close()
            raise
    return db


def _begin_log(db: sqlite3.Connection, path: Path) -> None:
    """Switch SQLite to write-ahead logging, and check it: SQLite reports no failure."""
    if db.execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
        raise StorageUnavailable(f"cannot use {path}: SQLite cannot write a log beside it")


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database, in use or not, to look at it. StoreDamaged, StorageUnavailable."""
    with reported_as_unavailable(path):
        address = f"{path.absolute().as_uri()}?mode=ro"
        db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
        try:
            db.execute("BEGIN")  # one state for all that is read
            check_format(db, path)
            yield db
        finally:
            db.close()


@contextmanager
def made(path: Path) -> Iterator[sqlite3.Connection]:
    """Create a database under a new name, atomically.

    What is written inside is part of it. It is private from its first byte, and on the disk before
    it gets its name. Until then it is in a directory of its own: where others may write beside it,
    they could make links for SQLite to follow.
    """
    place = path.with_name(f"{path.name}.unfinished")
    unfinished = place / path.name
    try:
        with reported_as_unavailable(path):
            _remove(place)
            place.mkdir(mode=0o700)
            private_file(unfinished)
            db = sqlite3.connect(unfinished, isolation_level=None)
            try:
                yield db
                db.execute("PRAGMA journal_mode=DELETE")
            finally:
                db.close()
            sync(unfinished)
            for stale in aside(path):  # SQLite would take it for a part of the new database
                stale.unlink(missing_ok=True)
            unfinished.replace(path)
            sync_names(path)
    finally:
        with suppress(OSError):  # the next attempt removes it
            _remove(place)


def _remove(place: Path) -> None:
    """Remove the leftovers of an attempt: a directory, or a file of older versions. OSError."""
    if not place.is_symlink() and place.is_dir():
        for left in place.iterdir():
            left.unlink()
        place.rmdir()
        return
    for old in (place, *aside(place)):
        old.unlink(missing_ok=True)


def lay_out(db: sqlite3.Connection) -> None:
    """Make the tables of a new database."""
    db.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA.strip().split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute(f"PRAGMA user_version={FORMAT}")
    remember(db, {}, {})
    db.execute("COMMIT")


def check_format(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not ours, or newer than this program. StorageUnavailable."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StorageUnavailable(f"{path} is a database, but not dralab's")
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        raise StorageUnavailable(
            f"{path} has format {found}; this dralab reads formats up to {FORMAT}: use a newer one"
        )


def check_pages(db: sqlite3.Connection, path: Path) -> None:
    """Check all pages, unless there are too many. StoreDamaged."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    size = db.execute("PRAGMA page_size").fetchone()[0]
    if pages * size > QUICK:
        return
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreDamaged(f"{path} is damaged: {' '.join(found.split())}; {ADVICE}")


def upgrade(db: sqlite3.Connection) -> None:
    """Give the rows of format 1 their checksums; a value that is not JSON gets a wrong one."""
    if db.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
        return
    db.execute("BEGIN IMMEDIATE")
    for statement in TO_FORMAT_2.strip().split(";\n"):
        db.execute(statement)
    chunks = Chunks()
    for (revision,) in db.execute("SELECT revision FROM log ORDER BY revision").fetchall():
        row = next(rows(db, of=f"WHERE revision = {revision:d}"))
        head, body = head_sum(*row[:6]), crc32(row.value)
        try:
            orjson.loads(row.value)
        except orjson.JSONDecodeError:
            body ^= 1
        db.execute("UPDATE log SET head = ?, body = ? WHERE revision = ?", (head, body, revision))
        chunks.add(revision, head)
    db.execute(f"PRAGMA user_version={FORMAT}")
    record_all(db, chunks)
    db.execute("COMMIT")


def rows(db: sqlite3.Connection, *, of: str = "") -> Iterator[Row]:
    """Yield the log in order; `of` is a condition."""
    query = f"SELECT {COLUMNS} FROM log {of} ORDER BY revision"  # noqa: S608 - our own text
    return map(Row._make, db.execute(query))


def totals(db: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return the totals that the chunks must have."""
    return {chunk: (count, total) for chunk, count, total in db.execute("SELECT * FROM chunks")}


def facts_of(db: sqlite3.Connection, path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the facts and the compacted revisions. StoreDamaged."""
    facts = dict(db.execute("SELECT name, value FROM facts"))
    floors = dict(db.execute("SELECT resource, revision FROM floors"))
    if facts.pop(SUM, None) != facts_sum(facts, floors):
        raise StoreDamaged(f"{path} is damaged: the start of its history is unreadable; {ADVICE}")
    return facts, floors


def remember(db: sqlite3.Connection, facts: dict[str, int], floors: dict[str, int]) -> None:
    """Write the facts and the floors."""
    known = {**facts, SUM: facts_sum(facts, floors)}
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", sorted(known.items()))
    db.executemany("INSERT OR REPLACE INTO floors VALUES (?, ?)", sorted(floors.items()))


def write(db: sqlite3.Connection, added: Sequence[Fields], chunks: Chunks) -> None:
    """Append rows to the log; `chunks` counts them."""
    db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", added)
    for row in added:
        chunks.add(row[0], row[7])


def counted(db: sqlite3.Connection) -> Chunks:
    """Return the totals of the existing rows."""
    chunks = Chunks()
    for revision, head in db.execute("SELECT revision, head FROM log ORDER BY revision"):
        chunks.add(revision, head)
    return chunks


def record(
    db: sqlite3.Connection, chunks: Chunks, facts: dict[str, int], floors: dict[str, int]
) -> None:
    """Write the totals of chunks that are complete or have lost rows, the facts and the floors.

    `facts` has the `revision` at which the transaction ends.
    """
    changed = chunks.to_record(facts["revision"])
    chunks.times += 1  # also where the transaction fails: it need only be another number
    remember(db, {**facts, "recorded": chunks.until, "times": chunks.times}, floors)
    db.executemany("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", [c for c in changed if c[1]])
    if gone := [c[:1] for c in changed if not c[1]]:
        db.executemany("DELETE FROM chunks WHERE chunk = ?", gone)


def record_all(db: sqlite3.Connection, chunks: Chunks, **facts: int) -> None:
    """Write the totals of all chunks, for a database that will be read without its mark."""
    chunks.settle()
    known = dict(db.execute("SELECT name, value FROM facts WHERE name <> ?", (SUM,))) | facts
    until = max(chunks.known, default=-1) + 1
    db.execute("DELETE FROM chunks")
    db.executemany(
        "INSERT INTO chunks VALUES (?, ?, ?)",
        [(chunk, *totals) for chunk, totals in chunks.known.items()],
    )
    floors = dict(db.execute("SELECT resource, revision FROM floors"))
    remember(db, {**known, "recorded": until}, floors)


def missing(
    found: Chunks, wanted: dict[int, Totals], facts: dict[str, int], tail: Tail | None
) -> list[str]:
    """Return sentences about chunks with missing rows.

    `found` is what the rows add up to, `wanted` what was recorded, `tail` what the others add up
    to by the mark of the same revision. That does not count where the server died after a
    recording and before it noted the mark.
    """
    said = []
    recorded = found.recorded = facts.get("recorded", 0)
    found.times = facts.get("times", 0)
    if tail is not None and tail[0] == found.times and tail != found.tail():
        rest = found.tail()[1]
        said.append(f"of the last rows {tail[1]} must be there, and {rest} are, or other ones")
    for chunk in sorted(found.known.keys() | wanted.keys()):
        has, must = found.known.get(chunk, (0, 0)), wanted.get(chunk, (0, 0))
        if has == must or chunk >= recorded:
            continue
        where = f"revisions {chunk * CHUNK} to {(chunk + 1) * CHUNK - 1}"
        said.append(f"of {where} {must[0]} rows were written, and {has[0]} other ones are there")
        if has[0] != must[0]:
            said[-1] = f"of {where} {must[0]} rows were written, and {has[0]} are there"
    return said


def commit(db: sqlite3.Connection, path: Path) -> None:
    """Commit a transaction. sqlite3.Error: nothing was written; Undecided: it may have been.

    A write that failed may be in the log whole: all of it, or what is missing was there from an
    earlier round of the log. Then the transaction would be found after a restart, although it was
    refused. So another one that changes nothing is written over it.
    """
    try:
        db.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_IOERR_FSYNC or code & 0xFF not in WRITE_ERRORS:
            raise
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            # SQLite writes a page that was changed and changed back, but none that was not changed.
            db.execute("INSERT INTO facts VALUES ('', 0)")
            db.execute("DELETE FROM facts WHERE name = ''")
            db.execute("COMMIT")
        except sqlite3.DatabaseError:
            # A log that cannot grow ends with what is torn, and that is not read.
            if not isinstance(DiskFull.or_not(path, code & 0xFF, error), DiskFull):
                raise Undecided(f"the disk of {path} did not take a write: {error}") from error
        raise


@contextmanager
def reported_as_unavailable(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and the system into one line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise StoreDamaged(f"cannot use {path}: {error}; {ADVICE}") from error
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
            # All of it is in the file, and may be found there after a restart.
            raise Undecided(f"the disk of {path} did not confirm a write: {error}") from error
        raise DiskFull.or_not(path, code, error) from error
    except sqlite3.Error as error:
        raise StorageUnavailable(f"cannot use {path}: {error}") from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        kind = DiskFull if full else StorageUnavailable
        raise kind(f"cannot use {path}: {error.strerror or error}") from error


class DiskFull(StorageUnavailable):
    """The disk is full."""

    @classmethod
    def or_not(cls, path: Path, code: int, error: sqlite3.Error) -> StorageUnavailable:
        """Return the error of a result code; a full disk may be reported as a failed write."""
        text = f"cannot use {path}: {error}"
        if code == sqlite3.SQLITE_FULL:
            return cls(text)
        if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
            try:
                found = os.statvfs(path.parent)
            except OSError:
                return StorageUnavailable(text)
            if found.f_bavail * found.f_frsize < ROOM or _is_at_its_limit(path):
                return cls(text)
        return StorageUnavailable(text)


def _is_at_its_limit(path: Path) -> bool:
    """Whether the database or its log may not grow: RLIMIT_FSIZE, as `ulimit -f` sets it."""
    try:
        import resource
    except ImportError:  # not on this system
        return False
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return False
    files = (path, path.with_name(path.name + "-wal"))
    return any(file.exists() and file.stat().st_size + ROOM > limit for file in files)
