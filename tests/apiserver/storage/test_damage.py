"""What the disk has changed is noticed, named, and never served."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dralab.apiserver.storage import (
    Compacted,
    Damaged,
    Key,
    StorageUnavailable,
    StoreDamaged,
)
from dralab.apiserver.storage import files as files_module
from dralab.apiserver.storage.copies import back_up, restore
from dralab.apiserver.storage.files import FILE, MARK, RevisionMark
from dralab.apiserver.storage.inspection import check, repair
from dralab.apiserver.storage.sqlite import LEAP, SqliteStore


def pod(name: str) -> Key:
    return Key("pods", "default", name)


def filled(directory: Path, count: int = 3) -> int:
    """Make a store of pods; return its revision."""
    store = SqliteStore(directory)
    for index in range(count):
        store.create(pod(f"p{index}"), {"metadata": {}, "spec": f"value of {index}"})
    store.close()
    return store.revision


def edit(directory: Path, statement: str) -> None:
    """Change a database behind the store's back."""
    with closing(sqlite3.connect(directory / FILE)) as db, db:
        db.execute(statement)


def served(store: SqliteStore) -> dict[str, str]:
    return {item.key.name: item.value["spec"] for item in store.list("pods").items}


FLIP = """
    UPDATE log SET value = CAST(replace(value, 'value of 1', 'value of 7') AS BLOB)
    WHERE name = 'p1' AND revision = 3
"""


def test_a_flipped_value_is_not_served_and_all_others_are(tmp_path: Path) -> None:
    filled(tmp_path)
    edit(tmp_path, FLIP)
    store = SqliteStore(tmp_path)
    assert served(store) == {"p0": "value of 0", "p2": "value of 2"}
    assert store.damaged("pods") == [pod("p1")]
    for use in (
        lambda: store.get(pod("p1")),
        lambda: store.create(pod("p1"), {"metadata": {}}),
        lambda: store.update(pod("p1"), {"metadata": {}}),
    ):
        with pytest.raises(Damaged, match=r"pods/default/p1 is damaged.*at revision 3"):
            use()
    store.close()


def test_a_damaged_object_can_be_deleted_and_made_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    edit(tmp_path, FLIP)
    store = SqliteStore(tmp_path)
    store.delete(pod("p1"))
    assert not store.damaged("pods")
    assert store.get(pod("p1")) is None
    store.create(pod("p1"), {"metadata": {}, "spec": "new"})
    store.close()
    assert check(tmp_path) == []
    again = SqliteStore(tmp_path)
    assert served(again)["p1"] == "new"
    again.close()


def test_a_deletion_that_could_not_be_written_leaves_the_object_damaged(tmp_path: Path) -> None:
    filled(tmp_path)
    edit(tmp_path, FLIP)
    store = SqliteStore(tmp_path)
    store._db.execute("PRAGMA query_only=1")
    with pytest.raises(StorageUnavailable):
        store.delete(pod("p1"))
    store._db.execute("PRAGMA query_only=0")
    assert store.damaged("pods") == [pod("p1")]
    store.delete(pod("p1"))
    store.close()
    assert check(tmp_path) == []


def test_damaged_history_is_forgotten_and_the_object_stays(tmp_path: Path) -> None:
    filled(tmp_path)
    store = SqliteStore(tmp_path)
    store.update(pod("p1"), {"metadata": {}, "spec": "new"})
    store.close()
    edit(tmp_path, FLIP)
    again = SqliteStore(tmp_path)
    assert served(again)["p1"] == "new"
    with pytest.raises(Compacted):
        again.changes(2, "pods")
    again.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET name = 'p9' WHERE name = 'p1'",
        "UPDATE log SET revision = 77 WHERE name = 'p1'",
        "UPDATE log SET deleted = 1 WHERE name = 'p1'",
        "UPDATE log SET head = head + 1 WHERE name = 'p1'",
        "DELETE FROM log WHERE name = 'p1'",
        "UPDATE facts SET value = 9",
        "INSERT INTO floors VALUES ('pods', 2)",
    ],
)
def test_what_cannot_be_put_down_to_one_object_stops_the_start(
    tmp_path: Path, statement: str
) -> None:
    filled(tmp_path)
    edit(tmp_path, statement)
    with pytest.raises(StoreDamaged, match=r"is damaged: .*dralab store repair"):
        SqliteStore(tmp_path)
    assert check(tmp_path) != []


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits_are_never_served_as_the_truth(tmp_path: Path, seed: int) -> None:
    """Eight of them, anywhere in the file: each object is whole, or named, or nothing starts."""
    filled(tmp_path, 60)
    truth = {f"p{index}": f"value of {index}" for index in range(60)}
    data = bytearray((tmp_path / FILE).read_bytes())
    chance = random.Random(seed)
    for _ in range(8):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    (tmp_path / FILE).write_bytes(data)
    try:
        store = SqliteStore(tmp_path)
    except StorageUnavailable:
        return
    shown, named = served(store), {key.name for key in store.damaged("pods")}
    store.close()
    assert shown.items() <= truth.items()
    assert shown.keys() | named == truth.keys()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (empty, "is empty, but it contained a store at revision 41"),
        (Path.unlink, "is gone, but it contained a store at revision 41"),
        (halve, "dralab store"),
    ],
)
def test_a_store_that_was_cut_or_has_vanished_is_refused(
    tmp_path: Path, harm: Callable[[Path], None], words: str
) -> None:
    filled(tmp_path, 40)
    harm(tmp_path / FILE)
    with pytest.raises(StoreDamaged, match=words):
        SqliteStore(tmp_path)
    assert check(tmp_path) != []


def test_a_log_beside_the_store_that_was_cut_is_noticed(tmp_path: Path) -> None:
    """A kill leaves the last writes in the file beside; half of it is gone at the next start."""
    store = SqliteStore(tmp_path / "alive")
    for index in range(40):
        store.create(pod(f"p{index}"), {"metadata": {}, "spec": index})
    shutil.copytree(tmp_path / "alive", tmp_path / "killed")
    store.close()
    halve(tmp_path / "killed" / f"{FILE}-wal")
    with pytest.raises(StoreDamaged, match=r"but writes up to 41 were answered"):
        SqliteStore(tmp_path / "killed")
    found = repair(tmp_path / "killed")
    assert found.revision == 41 + LEAP
    again = SqliteStore(tmp_path / "killed")
    assert again.revision == 41 + LEAP
    again.close()


def test_an_older_copy_in_the_place_of_the_store_is_noticed(tmp_path: Path) -> None:
    filled(tmp_path)
    old = (tmp_path / FILE).read_bytes()
    store = SqliteStore(tmp_path)
    store.create(pod("later"), {"metadata": {}, "spec": 1})
    store.close()
    (tmp_path / FILE).write_bytes(old)
    with pytest.raises(StoreDamaged, match="replaced by an older one"):
        SqliteStore(tmp_path)


def test_after_a_power_cut_a_relaxed_store_may_lose_its_end_and_gives_no_revision_twice(
    tmp_path: Path,
) -> None:
    last = filled(tmp_path)
    known = RevisionMark(revision=last + 5, boot="another", durability="relaxed", closed=False)
    (tmp_path / MARK).write_bytes(known.written())
    store = SqliteStore(tmp_path, durability="relaxed")
    assert store.revision == last + 5 + LEAP
    with pytest.raises(Compacted):
        store.changes(last, "pods")
    assert len(served(store)) == 3
    store.close()


def test_a_store_notes_that_it_was_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[bool] = []
    monkeypatch.setattr(
        files_module.MarkFile,
        "note",
        lambda _, revision, tail, *, closed=False: noted.append(closed),
    )
    store = SqliteStore(tmp_path, durability="relaxed")
    store.create(pod("a"), {"metadata": {}, "spec": 1})
    assert noted == [False, False]
    store.close()
    assert noted == [False, False, True]


@pytest.mark.parametrize(
    ("boot", "durability", "closed", "excused"),
    [
        ("another", "relaxed", False, True),
        ("-", "relaxed", False, True),
        ("this", "relaxed", False, False),
        ("another", "relaxed", True, False),
        ("another", "fsync", False, False),
    ],
)
def test_only_a_relaxed_store_that_a_power_cut_ended_may_have_lost_its_end(
    monkeypatch: pytest.MonkeyPatch, boot: str, durability: str, closed: bool, excused: bool
) -> None:
    monkeypatch.setattr(files_module, "boot_id", lambda: "this")
    mark = RevisionMark(revision=5, boot=boot, durability=durability, closed=closed)  # type: ignore[arg-type]
    assert mark.excuses_loss() is excused


def test_after_a_power_cut_an_fsync_store_may_lose_nothing(tmp_path: Path) -> None:
    last = filled(tmp_path)
    known = RevisionMark(revision=last + 5, boot="another", durability="fsync", closed=False)
    (tmp_path / MARK).write_bytes(known.written())
    with pytest.raises(StoreDamaged, match="were answered"):
        SqliteStore(tmp_path)


@pytest.mark.parametrize("file", [FILE, f"{FILE}-wal"])
def test_a_store_that_vanishes_while_it_is_used_takes_no_more_writes(
    tmp_path: Path, file: str
) -> None:
    store = SqliteStore(tmp_path)
    store.create(pod("kept"), {"metadata": {}, "spec": "kept"})
    (tmp_path / file).unlink()
    with pytest.raises(StorageUnavailable, match="was deleted or replaced while the server ran"):
        store.create(pod("lost"), {"metadata": {}, "spec": "lost"})
    assert served(store) == {"kept": "kept"}
    store.close()


def test_a_copy_that_is_damaged_is_not_restored(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    back_up(tmp_path / "data", tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as db, db:
        db.execute(FLIP)
    with pytest.raises(StoreDamaged, match="copy is damaged: revision 3: pods/default/p1"):
        restore(tmp_path / "copy", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_damaged_store_is_not_backed_up(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    edit(tmp_path / "data", FLIP)
    with pytest.raises(StoreDamaged, match="nothing was copied"):
        back_up(tmp_path / "data", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_backup_takes_the_place_of_a_store_that_vanished(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    back_up(tmp_path / "data", tmp_path / "copy")
    store = SqliteStore(tmp_path / "data")
    for index in range(5):
        store.update(pod("p0"), {"metadata": {}, "spec": index})
    store.close()
    (tmp_path / "data" / FILE).unlink()
    assert restore(tmp_path / "copy", tmp_path / "data") == store.revision + LEAP
    again = SqliteStore(tmp_path / "data")
    assert served(again)["p0"] == "value of 0"
    again.close()


def test_repair_keeps_what_is_whole_names_what_is_not_and_keeps_the_old_file(
    tmp_path: Path,
) -> None:
    last = filled(tmp_path)
    edit(tmp_path, FLIP)
    found = repair(tmp_path)
    assert (found.objects, found.lost, found.unknown) == (2, [pod("p1")], 0)
    assert found.old.exists()
    assert check(tmp_path) == []
    store = SqliteStore(tmp_path)
    assert served(store) == {"p0": "value of 0", "p2": "value of 2"}
    assert store.revision == last + LEAP
    store.close()


@pytest.mark.parametrize("seed", range(10))
def test_repair_goes_around_pages_that_are_torn(tmp_path: Path, seed: int) -> None:
    filled(tmp_path, 300)
    data = bytearray((tmp_path / FILE).read_bytes())
    page = 4096 * random.Random(seed).randrange(5, len(data) // 4096)
    data[page : page + 4096] = bytes(4096)
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(StoreDamaged):
        SqliteStore(tmp_path)
    found = repair(tmp_path)
    assert check(tmp_path) == []
    store = SqliteStore(tmp_path)
    shown = served(store)
    store.close()
    assert len(shown) == found.objects
    assert all(value == f"value of {name[1:]}" for name, value in shown.items())


def test_repair_leaves_a_store_in_use_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(StorageUnavailable, match="in use by another server"):
        repair(tmp_path)
    store.close()


def test_a_store_without_sums_gets_them_and_its_broken_values_are_named(tmp_path: Path) -> None:
    """Format 1, as earlier versions wrote it."""
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute("PRAGMA application_id=1146244162")
        db.execute("PRAGMA user_version=1")
        db.execute(
            "CREATE TABLE log (revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, "
            "namespace TEXT NOT NULL, name TEXT NOT NULL, created INTEGER NOT NULL, "
            "deleted INTEGER NOT NULL, value BLOB NOT NULL)"
        )
        db.execute("CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL)")
        db.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        whole = b'{"metadata":{},"spec":"whole"}'
        db.execute("INSERT INTO log VALUES (2, 'pods', 'default', 'a', 2, 0, ?)", (whole,))
        db.execute("INSERT INTO log VALUES (3, 'pods', 'default', 'b', 3, 0, ?)", (whole[:9],))
    store = SqliteStore(tmp_path)
    assert served(store) == {"a": "whole"}
    assert store.damaged("pods") == [pod("b")]
    store.close()


def test_no_file_of_a_store_or_a_copy_is_anybody_elses(tmp_path: Path) -> None:
    """Whatever the umask: Secrets are among the objects."""
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "data")
        store.create(pod("a"), {"metadata": {}, "spec": 1})
        back_up(tmp_path / "data", tmp_path / "copy.db")
        live = [path.name for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077]
        store.close()
        restore(tmp_path / "copy.db", tmp_path / "new")
        edit(tmp_path / "data", "UPDATE log SET value = '{}'")
        repair(tmp_path / "data")
    finally:
        os.umask(before)
    open_to_others = [path.name for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077]
    assert live == open_to_others == []


def test_a_second_server_is_refused_whatever_was_deleted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(StorageUnavailable, match="in use by another server"):
        SqliteStore(tmp_path)
    store.close()
