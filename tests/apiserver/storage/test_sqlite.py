"""What is particular to the store on disk."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from dralab.apiserver.storage import Compacted, Key, StorageUnavailable
from dralab.apiserver.storage.copies import back_up, restore
from dralab.apiserver.storage.files import FILE
from dralab.apiserver.storage.sqlite import LEAP, SqliteStore
from waiting import until


def pod(name: str) -> Key:
    return Key("pods", "default", name)


def fill(store: SqliteStore, count: int = 3) -> None:
    for index in range(count):
        store.create(pod(f"p{index}"), {"metadata": {}, "spec": index})


def specs(store: SqliteStore) -> list[int]:
    return [item.value["spec"] for item in store.list("pods").items]


def rows(directory: Path) -> int:
    db = sqlite3.connect(directory / FILE)
    found: int = db.execute("SELECT count(*) FROM log").fetchone()[0]
    db.close()
    return found


def test_everything_is_there_after_a_restart_the_past_included(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    fill(store)
    old = store.revision
    store.update(pod("p0"), {"metadata": {}, "spec": "new"})
    store.delete(pod("p1"))
    store.close()
    again = SqliteStore(tmp_path)
    assert again.revision == old + 2
    assert specs(again) == ["new", 2]
    assert [item.value["spec"] for item in again.list("pods", revision=old).items] == [0, 1, 2]
    updated, deleted = again.changes(old, "pods")
    assert updated.before is not None
    assert updated.before.value["spec"] == 0
    assert deleted.departed.value["metadata"]["resourceVersion"] == str(again.revision)
    again.close()


def test_revisions_do_not_go_back_when_all_has_been_deleted_and_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    fill(store)
    for index in range(3):
        store.delete(pod(f"p{index}"))
    last = store.revision
    store.compact(last)
    store.close()
    assert rows(tmp_path) == 0
    again = SqliteStore(tmp_path)
    assert (again.revision, again.compacted) == (last, last)
    with pytest.raises(Compacted):
        again.changes(last - 1, "pods")
    again.close()


def test_the_file_forgets_what_the_history_forgets(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, durability="relaxed", window=10)
    fill(store, 1)
    for index in range(3_000):
        store.update(pod("p0"), {"metadata": {}, "spec": index})
    store.close()
    assert rows(tmp_path) < 1_000
    again = SqliteStore(tmp_path, window=10)
    assert specs(again) == [2_999]
    assert len(again.changes(again.revision - 10, "pods")) == 10
    with pytest.raises(Compacted):
        again.changes(again.revision - 2_000, "pods")
    again.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    fill(store)
    assert [file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077] == []
    store.close()


@pytest.mark.thorough
def test_what_is_written_aside_comes_home(tmp_path: Path) -> None:
    """Many large writes in a row: the file beside the store stays of bounded size."""
    store = SqliteStore(tmp_path, durability="relaxed")
    for number in range(120):
        with store.batch():
            for index in range(10):
                key, body = pod(f"{number}-{index}"), {"metadata": {}, "spec": "x" * 100_000}
                store.create(key, body)
        assert (tmp_path / f"{FILE}-wal").stat().st_size < 120_000_000
    store.close()
    again = SqliteStore(tmp_path)
    assert again.count("pods") == 1_200
    again.close()


def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(StorageUnavailable, match="in use by another server"):
        SqliteStore(tmp_path)
    store.close()
    SqliteStore(tmp_path).close()


def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_bytes(b"a love letter" * 100)
    before = file.read_bytes()
    with pytest.raises(StorageUnavailable, match=f"cannot use {file}: file is not a database"):
        SqliteStore(tmp_path)
    assert file.read_bytes() == before
    file.unlink()
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE holidays (day)")
    other.close()
    with pytest.raises(StorageUnavailable, match="not dralab's"):
        SqliteStore(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("PRAGMA user_version=9")
    db.close()
    with pytest.raises(StorageUnavailable, match="has format 9; this dralab reads formats up to 2"):
        SqliteStore(tmp_path)


def test_a_directory_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailable, match=r"cannot use the data directory .*/file/data: "):
        SqliteStore(tmp_path / "file" / "data")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_told_in_one_line(tmp_path: Path) -> None:
    place = tmp_path / "locked"
    place.mkdir(mode=0o500)
    with pytest.raises(StorageUnavailable, match="permission denied"):
        SqliteStore(place)


def test_a_copy_is_made_while_the_store_is_in_use(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    fill(store)
    copy = tmp_path / "copy.db"
    assert back_up(tmp_path / "data", copy) == store.revision
    fill_after = store.create(pod("later"), {"metadata": {}, "spec": 9})
    store.close()
    revision = restore(copy, tmp_path / "new")
    again = SqliteStore(tmp_path / "new")
    assert specs(again) == [0, 1, 2]
    assert again.revision == revision == fill_after.revision - 1 + LEAP
    with pytest.raises(Compacted):
        again.changes(fill_after.revision, "pods")
    assert again.create(pod("after"), {"metadata": {}, "spec": 4}).revision == revision + 1
    again.close()


def test_copies_overwrite_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    fill(store)
    store.close()
    (tmp_path / "there").write_text("precious")
    with pytest.raises(StorageUnavailable, match="already exists"):
        back_up(tmp_path / "data", tmp_path / "there")
    with pytest.raises(StorageUnavailable, match="contains no store"):
        back_up(tmp_path / "nothing", tmp_path / "copy")
    back_up(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(StorageUnavailable, match="already contains a store"):
        restore(tmp_path / "copy", tmp_path / "data")
    with pytest.raises(StorageUnavailable, match="there is no file"):
        restore(tmp_path / "missing", tmp_path / "other")
    with pytest.raises(StorageUnavailable, match="not a database"):
        restore(tmp_path / "there", tmp_path / "other")
    assert (tmp_path / "there").read_text() == "precious"


def test_any_thread_may_write(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    writer = threading.Thread(target=fill, args=(store,))
    writer.start()
    writer.join()
    assert specs(store) == [0, 1, 2]
    store.close()
    again = SqliteStore(tmp_path)
    assert specs(again) == [0, 1, 2]
    again.close()


def test_the_log_is_moved_into_the_database_while_the_store_is_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    fill(store, 200)
    before = (tmp_path / FILE).stat().st_size
    store._checkpoints.due.set()
    until(lambda: (tmp_path / FILE).stat().st_size > before)  # in a thread of its own, soon
    store.close()
