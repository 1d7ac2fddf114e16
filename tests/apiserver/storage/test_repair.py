"""What a check tells of a damaged store, and what a repair finds in it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dralab.apiserver.storage import Key, StorageUnavailable, StoreDamaged
from dralab.apiserver.storage.files import FILE, MARK
from dralab.apiserver.storage.inspection import check, repair
from dralab.apiserver.storage.sqlite import LEAP, SqliteStore


def pod(name: str) -> Key:
    return Key("pods", "default", name)


def filled(directory: Path, count: int) -> int:
    """Make a store of pods, the first at revision 2; return its revision."""
    store = SqliteStore(directory, durability="relaxed")
    for index in range(count):
        store.create(pod(f"p{index}"), {"metadata": {}})
    store.close()
    return store.revision


def edit(directory: Path, statement: str, *values: int) -> None:
    """Change a database behind the store's back."""
    with closing(sqlite3.connect(directory / FILE)) as db, db:
        db.execute(statement, values)


LAST = 768  # at which a chunk has just begun: each has 256 revisions


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "DELETE FROM log WHERE revision IN (256, 257)",
            "of revisions 256 to 511 256 rows were written, and 254 are there",
        ),
        (
            "DELETE FROM log WHERE revision = 5",
            "of revisions 0 to 255 254 rows were written, and 253 are there",
        ),
        (
            "UPDATE log SET head = head + 1 WHERE revision = 5",
            "of revisions 0 to 255 254 rows were written, and 254 other ones are there",
        ),
        (
            "DELETE FROM log WHERE revision < 256",
            "of revisions 0 to 255 254 rows were written, and 0 are there",
        ),
        (
            "DELETE FROM log WHERE revision = 768",
            "of the last rows 1 must be there, and 0 are, or other ones",
        ),
    ],
)
def test_a_check_says_which_rows_are_missing(tmp_path: Path, statement: str, said: str) -> None:
    assert filled(tmp_path, LAST - 1) == LAST
    assert check(tmp_path) == []
    edit(tmp_path, statement)
    assert said in check(tmp_path)
    with pytest.raises(StoreDamaged, match=r"is damaged: .*dralab store repair"):
        SqliteStore(tmp_path)


def test_a_check_names_a_row_that_is_not_read_by_its_revision_or_its_object(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    edit(tmp_path, "UPDATE log SET head = 0 WHERE revision = 3")
    edit(tmp_path, "UPDATE log SET body = 0 WHERE revision = 4")
    found = check(tmp_path)
    assert found[:2] == [
        "revision 3: unknown object",
        "revision 4: pods/default/p2 cannot be read",
    ]
    assert "of the last rows 4 must be there, and 4 are, or other ones" in found[2]
    assert len(found) == 3


def test_a_check_says_where_there_is_no_store_or_none_any_more(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"contains no store: there is no store\.db in it"):
        check(tmp_path)
    last = filled(tmp_path, 2)
    (tmp_path / FILE).unlink()
    assert check(tmp_path) == [f"{tmp_path / FILE} is missing; it was at revision {last}"]


def test_a_check_looks_at_all_but_the_end_of_a_store_in_use(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    for index in range(3):
        store.create(pod(f"p{index}"), {"metadata": {}})
        assert check(tmp_path) == []
    store.close()


def test_a_check_without_a_mark_still_looks_at_the_rows(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    (tmp_path / MARK).unlink()
    assert check(tmp_path) == []
    edit(tmp_path, "UPDATE log SET body = 0 WHERE revision = 3")
    assert check(tmp_path) == ["revision 3: pods/default/p1 cannot be read"]


def test_a_repair_counts_rows_of_unknown_objects(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    edit(tmp_path, "UPDATE log SET head = 0 WHERE revision IN (3, 5)")
    found = repair(tmp_path)
    assert (found.objects, found.lost, found.unknown) == (3, [], 2)


def test_a_repair_counts_rows_that_are_missing(tmp_path: Path) -> None:
    filled(tmp_path, LAST - 1)
    edit(tmp_path, "DELETE FROM log WHERE revision IN (3, 5, 7)")
    assert repair(tmp_path).unknown == 3 - 1, "the last chunk has one row, which is not recorded"


def test_a_repair_leaves_out_an_object_whose_last_state_is_lost_or_its_deletion(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path)
    for name in ("deleted", "lost", "kept"):
        store.create(pod(name), {"metadata": {}, "spec": "old"})
    store.delete(pod("deleted"))
    for name in ("lost", "kept"):
        store.update(pod(name), {"metadata": {}, "spec": "new"})
    store.close()
    edit(tmp_path, "UPDATE log SET body = 0 WHERE revision IN (5, 6)")
    found = repair(tmp_path)
    assert (found.objects, found.lost, found.unknown) == (1, [pod("lost")], 0)
    again = SqliteStore(tmp_path)
    assert [item.value["spec"] for item in again.list("pods").items] == ["new"]
    again.close()


@pytest.mark.parametrize("last", [1, 4, 9])
def test_a_repaired_store_begins_beyond_every_revision_that_was_known(
    tmp_path: Path, last: int
) -> None:
    """Of the rows, of the mark, and of the facts, each may have the highest."""
    known = filled(tmp_path, 3)
    (tmp_path / MARK).unlink()
    edit(tmp_path, "INSERT OR REPLACE INTO facts VALUES ('revision', ?)", last)
    assert repair(tmp_path).revision == max(known, last) + LEAP


def test_each_damaged_database_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    names = [repair(tmp_path).old.name for _ in range(3)]
    assert names == [f"{FILE}.damaged-{number}" for number in (1, 2, 3)]
    assert all((tmp_path / name).exists() for name in names)


def test_a_store_without_objects_is_repaired_too(tmp_path: Path) -> None:
    filled(tmp_path, 0)
    found = repair(tmp_path)
    assert (found.objects, found.lost, found.unknown) == (0, [], 0)
    assert found.revision == 1 + LEAP


def test_nothing_is_recovered_from_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="nothing can be recovered"):
        repair(tmp_path)
    filled(tmp_path, 1)
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(StorageUnavailable, match="nothing can be recovered"):
        repair(tmp_path)
