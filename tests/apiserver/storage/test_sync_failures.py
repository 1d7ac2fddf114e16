"""What a store does where the disk does not confirm, or does not let SQLite do its work."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dralab.apiserver.storage import Key, StorageUnavailable, Undecided, database
from dralab.apiserver.storage import files as files_module
from dralab.apiserver.storage.database import reported_as_unavailable
from dralab.apiserver.storage.files import FILE, MARK
from dralab.apiserver.storage.sqlite import SqliteStore


def fail(code: int) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    raise error


@pytest.mark.parametrize(
    ("code", "undecided"),
    [(sqlite3.SQLITE_IOERR_FSYNC, True), (sqlite3.SQLITE_IOERR_WRITE, False)],
)
def test_only_a_sync_that_fails_leaves_it_open_whether_a_write_happened(
    tmp_path: Path, code: int, undecided: bool
) -> None:
    with pytest.raises(StorageUnavailable) as refused, reported_as_unavailable(tmp_path / FILE):
        fail(code)
    assert isinstance(refused.value, Undecided) is undecided


def test_a_database_that_sqlite_cannot_log_beside_is_refused(tmp_path: Path) -> None:
    # SQLite says nothing: it goes on without, as it does in memory.
    with (
        closing(sqlite3.connect(":memory:")) as db,
        pytest.raises(StorageUnavailable, match="SQLite cannot write a log beside it"),
    ):
        database._begin_log(db, tmp_path / FILE)


@pytest.mark.parametrize(("durability", "synced"), [("fsync", False), ("relaxed", True)])
def test_relaxed_the_mark_is_on_the_disk_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, synced: bool
) -> None:
    marks = []
    real = files_module.MarkFile.sync
    monkeypatch.setattr(
        files_module.MarkFile,
        "sync",
        lambda self, place: (marks.append((place / MARK).read_bytes()), real(self, place)),
    )
    store = SqliteStore(tmp_path, durability=durability)  # type: ignore[arg-type]
    store.create(Key("pods", "default", "a"), {"metadata": {}})
    store.close()
    assert [b" relaxed open 1 " in mark for mark in marks] == [True] * synced


class FailingDatabase:
    """A connection whose commits fail with these codes, one after the other."""

    def __init__(self, *codes: int) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER)")
        self.codes = list(codes)
        self.commits = 0
        self.execute("BEGIN")

    @property
    def in_transaction(self) -> bool:
        return self.db.in_transaction

    def execute(self, text: str) -> sqlite3.Cursor:
        if text == "COMMIT":
            self.commits += 1
            if self.codes and (code := self.codes.pop(0)):
                fail(code)
        return self.db.execute(text)


WRITE, FULL, FSYNC = sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC


@pytest.mark.parametrize(
    ("codes", "undecided", "commits"),
    [
        ([WRITE], False, 2),
        ([WRITE, WRITE], True, 2),
        ([WRITE, FSYNC], True, 2),
        ([FULL], False, 2),
        ([FULL, FULL], False, 2),
        ([FSYNC], False, 1),  # `reported_as_unavailable` makes it undecided
        ([sqlite3.SQLITE_BUSY], False, 1),
    ],
)
def test_what_a_failed_write_may_have_left_is_written_over(
    tmp_path: Path, codes: list[int], undecided: bool, commits: int
) -> None:
    db = FailingDatabase(*codes)
    with pytest.raises((Undecided, sqlite3.OperationalError)) as raised:
        database.commit(db, tmp_path / FILE)  # type: ignore[arg-type]
    assert isinstance(raised.value, Undecided) is undecided
    assert db.commits == commits
    assert db.db.execute("SELECT count(*) FROM facts").fetchone() == (0,)
    db.db.close()
