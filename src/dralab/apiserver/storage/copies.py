"""Backup and restore of a store. An incomplete copy is rejected."""

import os
import sqlite3
from pathlib import Path

from dralab.apiserver.storage import database
from dralab.apiserver.storage.errors import StorageUnavailable, StoreDamaged
from dralab.apiserver.storage.files import FILE, MARK, RevisionMark, check_files, locked
from dralab.apiserver.storage.inspection import problems, revision_of
from dralab.apiserver.storage.sqlite import LEAP


def back_up(directory: Path, target: Path) -> int:
    """Copy the store of a directory, in use or not, to a file; return its revision.

    StorageUnavailable where either cannot be used, or where the target exists; StoreDamaged where
    the store is not whole. The target is private.
    """
    source = directory / FILE
    if not source.exists():
        raise StorageUnavailable(f"{directory} contains no store: there is no {FILE} in it")
    check_files(source)
    if os.path.lexists(target):
        raise StorageUnavailable(f"{target} already exists; choose another file")
    with database.made(target) as copy:
        with database.read_only(source) as db:
            db.backup(copy)
        _check(copy, source)
        database.record_all(copy, database.counted(copy))
        return revision_of(copy)


def restore(source: Path, directory: Path) -> int:
    """Make a store from a copy, in a directory that holds none; return its revision.

    StorageUnavailable where either cannot be used, or where there is a store already;
    StoreDamaged where the copy is not whole. Then nothing has changed.
    """
    target = directory / FILE
    if not source.is_file():
        raise StorageUnavailable(f"there is no file {source}")
    lock = locked(directory)
    try:
        if os.path.lexists(target):
            raise StorageUnavailable(
                f"{directory} already contains a store; choose another directory"
            )
        lost = RevisionMark.read(directory)  # left by a store that has vanished
        with database.made(target) as copy:
            with database.read_only(source) as db:
                db.backup(copy)
            _check(copy, source)
            revision = max(revision_of(copy), lost.revision if lost else 0) + LEAP
            chunks = database.counted(copy)
            database.record_all(copy, chunks, revision=revision, compacted=revision)
            (directory / MARK).unlink(missing_ok=True)
        return revision
    finally:
        os.close(lock)


def _check(copy: sqlite3.Connection, source: Path) -> None:
    with database.reported_as_unavailable(source):
        database.upgrade(copy)
        found = problems(copy, source)
    if found:
        raise StoreDamaged(f"{source} is damaged: {found[0]}; nothing was copied")
