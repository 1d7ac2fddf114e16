"""How a full disk is recognized, and the room that is kept for it."""

import errno
import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from dralab.apiserver.storage import Key, StorageUnavailable, database
from dralab.apiserver.storage import files as files_module
from dralab.apiserver.storage import sqlite as sqlite_module
from dralab.apiserver.storage.database import ROOM, DiskFull, reported_as_unavailable
from dralab.apiserver.storage.files import FILE, KEPT, RESERVED, Reserve, sync_names
from dralab.apiserver.storage.sqlite import SqliteStore

resource = pytest.importorskip("resource")
FULL, IOERR = sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR


@pytest.mark.parametrize(
    ("error", "full", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True, "No space left on device"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True, "Disk quota exceeded"),
        (OSError(errno.EIO, "Input/output error"), False, "Input/output error"),
        (OSError("an error without a number"), False, "an error without a number"),
    ],
)
def test_an_error_of_the_system_is_one_line_and_says_if_the_disk_is_full(
    tmp_path: Path, error: OSError, full: bool, words: str
) -> None:
    with pytest.raises(StorageUnavailable) as refused, reported_as_unavailable(tmp_path / FILE):
        raise error
    assert isinstance(refused.value, DiskFull) is full
    assert str(refused.value) == f"cannot use {tmp_path / FILE}: {words}"


@pytest.mark.parametrize(
    ("code", "free", "limit", "full"),
    [
        (FULL, 2 * ROOM, None, True),
        (IOERR, 2 * ROOM, None, False),
        (IOERR, ROOM, None, False),
        (IOERR, ROOM - 1, None, True),
        (sqlite3.SQLITE_CANTOPEN, ROOM - 1, None, True),
        (sqlite3.SQLITE_BUSY, ROOM - 1, None, False),
        # `ulimit -f`: neither the database nor its log may grow beyond.
        (IOERR, 2 * ROOM, ROOM + 9, True),
        (IOERR, 2 * ROOM, ROOM + 10, False),
        (sqlite3.SQLITE_BUSY, 2 * ROOM, 1, False),
    ],
)
def test_a_write_that_failed_without_room_is_one_on_a_full_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    free: int,
    limit: int | None,
    full: bool,
) -> None:
    (tmp_path / f"{FILE}-wal").write_bytes(bytes(10))
    real = os.statvfs(tmp_path)
    numbers = [*real]
    numbers[1], numbers[4] = 1, free  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(numbers))
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit or unlimited, unlimited))
    told = DiskFull.or_not(tmp_path / FILE, code, sqlite3.OperationalError("disk I/O error"))
    assert isinstance(told, DiskFull) is full


def test_room_is_kept_and_released_but_for_what_a_start_needs(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    assert (reserve.path.stat().st_size, reserve.released) == (RESERVED, False)
    reserve.release()
    assert (reserve.path.stat().st_size, reserve.released) == (KEPT, True)
    assert reserve.regain()
    assert (reserve.path.stat().st_size, reserve.released) == (RESERVED, False)


def test_releasing_takes_no_more_room_than_before(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    os.truncate(reserve.path, 10)
    reserve.release()
    assert reserve.path.stat().st_size == 10


@pytest.mark.parametrize(("free", "left"), [(KEPT - 1, 0), (KEPT, RESERVED)])
def test_a_start_on_a_full_disk_uses_all_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, left: int
) -> None:
    Reserve(tmp_path).release()
    monkeypatch.setattr(files_module, "free", lambda _: free)
    again = Reserve(tmp_path)
    assert (again.path.stat().st_size, again.released) == (left, not left)


@pytest.mark.parametrize(
    ("number", "released"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_room_that_cannot_be_had_whole_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, released: bool
) -> None:
    def half(handle: int, _: int, size: int) -> None:
        os.truncate(handle, size // 2)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", half)
    reserve = Reserve(tmp_path)
    assert (reserve.path.stat().st_size, reserve.released) == (KEPT, released)
    assert not reserve.regain()


def write(store: SqliteStore, name: str, size: int = 0) -> None:
    store.create(Key("pods", "default", name), {"metadata": {}, "spec": "x" * size})


def test_within_a_full_disk_there_may_be_room_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was deleted leaves pages that SQLite uses again."""
    store = SqliteStore(tmp_path, window=1)
    write(store, "large", 200_000)
    monkeypatch.setattr(Reserve, "regain", lambda _: False)
    store._reserve.released = True
    with pytest.raises(DiskFull, match="only deletions are accepted until there is space"):
        write(store, "a")
    store.delete(Key("pods", "default", "large"))
    store.compact(store.revision)
    pages = store._db.execute("PRAGMA freelist_count").fetchone()[0]
    monkeypatch.setattr(sqlite_module, "KEPT", pages * 4096)
    with pytest.raises(DiskFull):
        write(store, "a")
    monkeypatch.setattr(sqlite_module, "KEPT", pages * 4096 - 1)
    write(store, "a")
    store.close()


def test_a_deletion_uses_the_room_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)
    for name in ("a", "b"):
        write(store, name)
    real, calls = database.write, []

    def full(*given: object) -> None:
        calls.append(store._reserve.released)
        if not store._reserve.released:
            raise DiskFull("the disk is full")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "write", full)
    monkeypatch.setattr(Reserve, "regain", lambda _: False)
    with pytest.raises(DiskFull):
        write(store, "c")
    store._reserve.released = False
    store.delete(Key("pods", "default", "a"))
    marked = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    store.update(Key("pods", "default", "b"), marked)
    assert calls == [False, False, True, True]
    assert store.count("pods") == 1
    store.close()


@pytest.mark.parametrize(
    ("other_device", "unreadable", "synced"),
    [
        ("", "", ["c", "b", "a"]),
        ("b", "", ["c"]),
        ("a", "", ["c", "b"]),
        ("", "b", ["c"]),
        ("c", "", ["c"]),
        ("", "c", ["c", "b", "a"]),  # what cannot be read is told by the sync itself
    ],
)
def test_names_are_on_the_disk_up_to_where_another_begins(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other_device: str,
    unreadable: str,
    synced: list[str],
) -> None:
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    found: list[str] = []
    real_stat, real_access = Path.stat, os.access
    monkeypatch.setattr(files_module, "sync", lambda path: found.append(path.name))
    monkeypatch.setattr(
        Path,
        "stat",
        lambda path: SimpleNamespace(st_dev=real_stat(path).st_dev + (path.name == other_device)),
    )
    monkeypatch.setattr(
        os, "access", lambda path, mode: path.name != unreadable and real_access(path, mode)
    )
    sync_names(folder / "store.db")
    assert [name for name in found if name in "abc"] == synced


@pytest.mark.parametrize(("spare", "moved"), [(0, False), (1, True)])
def test_on_a_full_disk_history_goes_and_the_log_is_used_again_if_the_file_may_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int, moved: bool
) -> None:
    store = SqliteStore(tmp_path)
    for index in range(30):
        write(store, f"p{index}", 4_000)
    before = (tmp_path / FILE).stat().st_size
    monkeypatch.setattr(sqlite_module, "free", lambda _: store._growth() + spare)
    assert store._growth() > 100_000
    store.delete(Key("pods", "default", "p0"))
    assert store.compacted == 0, "there is room: history is kept"
    store._reserve.released = True
    store.delete(Key("pods", "default", "p1"))
    assert store.compacted == store.revision
    assert ((tmp_path / FILE).stat().st_size > before) is moved
    store.close()


def test_the_log_is_moved_by_its_thread_or_where_it_is_too_late_by_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)
    log = tmp_path / f"{FILE}-wal"
    size = len(store.create(Key("pods", "default", "a"), {"metadata": {}, "spec": ""}).encoded)
    store._written = 0
    monkeypatch.setattr(sqlite_module, "CHECKPOINT", 3 * size)
    due: list[int] = []
    store._checkpoints.due.set = lambda: due.append(store._written)  # type: ignore[method-assign]
    for name in "bcdefghi":
        write(store, name)
    assert due == [0, 0], "after each time more than three such objects"
    monkeypatch.setattr(sqlite_module, "CHECKPOINT_AT_LAST", log.stat().st_size)
    store._checkpoint()
    assert (len(due), log.stat().st_size > 0) == (3, True), "not larger than it may be"
    monkeypatch.setattr(sqlite_module, "CHECKPOINT_AT_LAST", log.stat().st_size - 1)
    store._checkpoint()
    assert (len(due), log.stat().st_size) == (3, 0)
    del store._checkpoints.due.set
    store.close()
