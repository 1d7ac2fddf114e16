"""Checks whether a store is intact, and recovers the readable part of a damaged one."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dralab.apiserver.storage import database
from dralab.apiserver.storage.database import Row, reported_as_unavailable
from dralab.apiserver.storage.errors import StorageUnavailable, StoreDamaged
from dralab.apiserver.storage.files import (
    FILE,
    MARK,
    RevisionMark,
    aside,
    check_files,
    locked,
)
from dralab.apiserver.storage.objects import Key
from dralab.apiserver.storage.sqlite import LEAP
from dralab.apiserver.storage.sums import Chunks, Tail
from dralab.values.records import dataclass

MOST: Final = 100  # problems that are listed one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair: how many objects there are, which ones were lost, and the revision.

    `unknown` counts rows that were lost without a trace of their objects; `old` is where the
    damaged database is now.
    """

    objects: int
    lost: Sequence[Key]
    unknown: int
    revision: int
    old: Path


def check(directory: Path) -> list[str]:
    """Return the errors of the store of a directory, in use or not; nothing if it is whole.

    StorageUnavailable where there is none, or where it cannot be looked at.
    """
    path = directory / FILE
    mark = RevisionMark.read(directory)  # before the database: a server may be writing
    if not path.exists():
        if mark is None:
            raise StorageUnavailable(f"{directory} contains no store: there is no {FILE} in it")
        return [f"{path} is missing; it was at revision {mark.revision}"]
    check_files(path)
    if not path.stat().st_size:
        return [f"{path} is empty"]
    try:
        with database.read_only(path) as db:
            if db.execute("PRAGMA user_version").fetchone()[0] < database.FORMAT:
                raise StorageUnavailable(
                    f"{path} has an older format without checksums: start a server once to upgrade"
                )
            last = revision_of(db)
            again = RevisionMark.read(directory)
            tail = mark.tail if mark and mark == again and mark.revision == last else None
            found = problems(db, path, tail)
    except StoreDamaged as error:
        return [str(error)]
    if mark is not None and not found and mark.revision > last:
        found.append(f"{path} ends at revision {last}; writes up to {mark.revision} were answered")
    return found


def problems(db: sqlite3.Connection, path: Path, tail: Tail | None = None) -> list[str]:
    """Return the errors of a database, in sentences; `tail` is that of its mark."""
    found = [
        " ".join(line.split())
        for (line,) in db.execute(f"PRAGMA quick_check({MOST})")
        if line != "ok"
    ]
    facts: dict[str, int] = {}
    try:
        facts, _ = database.facts_of(db, path)
    except StoreDamaged as error:
        found.append(str(error))
    chunks = Chunks()
    with reported_as_unavailable(path):
        for row in database.rows(db):
            chunks.add(row.revision, row.head)
            if not row.knows_its_object:
                found.append(f"revision {row.revision}: unknown object")
            elif not row.is_whole:
                found.append(f"revision {row.revision}: {'/'.join(row.key)} cannot be read")
        chunks.settle()
        found += database.missing(chunks, database.totals(db), facts, tail)
    return found


def revision_of(db: sqlite3.Connection) -> int:
    """Return the revision of the last write."""
    newest = db.execute("SELECT max(revision) FROM log").fetchone()[0] or 1
    known = db.execute("SELECT value FROM facts WHERE name = 'revision'").fetchone()
    return max(newest, known[0] if known else 1)


def repair(directory: Path) -> Repaired:
    """Rebuild a store from what can be read; the damaged database is kept beside it.

    Objects whose newest state cannot be read are left out: an older one would be served as
    current. History is forgotten, so watchers list again. StorageUnavailable if the store is in
    use, or where nothing of it can be read.
    """
    path = directory / FILE
    lock = locked(directory)
    try:
        check_files(path)
        mark = RevisionMark.read(directory)
        if not path.exists() or not path.stat().st_size:
            raise StorageUnavailable(f"nothing can be recovered from {path}: restore a backup")
        with reported_as_unavailable(path), contextlib.closing(sqlite3.connect(path)) as db:
            database.check_format(db, path)
            newest, lost, unknown, last = _readable(db)
        revision = max(last, mark.revision if mark is not None else 1) + LEAP
        old = _free_name(path)
        repaired = path.with_name(f"{path.name}.repaired")
        with database.made(repaired) as new:
            database.lay_out(new)
            chunks = Chunks()
            new.execute("BEGIN IMMEDIATE")
            database.write(new, [row for row in newest if not row.deleted], chunks)
            database.record_all(new, chunks, revision=revision, compacted=revision)
            new.execute("COMMIT")
        with reported_as_unavailable(path):
            for file, place in zip([path, *aside(path)], [old, *aside(old)], strict=True):
                if file.exists():
                    file.replace(place)
            repaired.replace(path)
            (directory / MARK).unlink(missing_ok=True)
    finally:
        os.close(lock)
    kept = sum(not row.deleted for row in newest)
    return Repaired(objects=kept, lost=lost, unknown=unknown, revision=revision, old=old)


def _readable(db: sqlite3.Connection) -> tuple[list[Row], list[Key], int, int]:
    """Return the newest intact row of each object, the lost objects, and the highest revision."""
    newest: dict[Key, Row] = {}
    unknown = last = 0
    upgraded = db.execute("PRAGMA user_version").fetchone()[0] >= database.FORMAT
    if not upgraded:
        raise StorageUnavailable("the store has an older format: start a server once to upgrade")
    for row in _salvaged(db, 0, _highest(db)):
        if not row.knows_its_object:
            unknown += 1
            continue
        last = max(last, row.revision)
        newest[row.key] = row
    lost = sorted(key for key, row in newest.items() if not row.is_whole and not row.deleted)
    whole = [row for row in newest.values() if row.is_whole]
    with contextlib.suppress(sqlite3.Error):
        known = db.execute("SELECT value FROM facts WHERE name = 'revision'").fetchone()
        last = max(last, known[0] if known else 1)
    with contextlib.suppress(sqlite3.Error):
        wanted = database.totals(db)
        has = db.execute("SELECT count(*) FROM log").fetchone()[0]
        unknown = max(unknown, sum(count for count, _ in wanted.values()) - has)
    return sorted(whole), lost, unknown, last


def _highest(db: sqlite3.Connection) -> int:
    """Return the highest revision that can be found, even if pages are damaged."""
    for query in (
        "SELECT max(revision) FROM log",
        "SELECT (max(chunk) + 1) * 256 FROM chunks",
    ):
        with contextlib.suppress(sqlite3.Error):
            found: int | None = db.execute(query).fetchone()[0]
            if found:
                return found
    return 0


def _salvaged(db: sqlite3.Connection, first: int, last: int) -> Iterator[Row]:
    """Yield the rows between two revisions, in order, skipping damaged pages."""
    waiting = [(first, last)]
    while waiting:
        low, high = waiting.pop()
        try:
            rows = list(database.rows(db, of=f"WHERE revision BETWEEN {low:d} AND {high:d}"))
        except sqlite3.Error:
            if low < high:
                middle = (low + high) // 2
                waiting += [(middle + 1, high), (low, middle)]
            continue
        yield from rows


def _free_name(path: Path) -> Path:
    """Return a name for a damaged database that no file has."""
    number = 1
    while (found := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return found
