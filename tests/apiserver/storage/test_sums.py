"""Whatever is written, deleted and compacted: the sums of a store are those of its rows."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dralab.apiserver.storage import Key, StorageUnavailable, StoreDamaged, database, sums
from dralab.apiserver.storage import sqlite as sqlite_module
from dralab.apiserver.storage.files import FILE
from dralab.apiserver.storage.inspection import check
from dralab.apiserver.storage.sqlite import SqliteStore

SMALL = 4  # revisions of a chunk here


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and portions are small, so that few writes fill many of them."""
    for module in (sums, database):
        monkeypatch.setattr(module, "CHUNK", SMALL)
    monkeypatch.setattr(sqlite_module, "SWEEP", 3)


def act(store: SqliteStore, chance: random.Random) -> None:
    """Do something that a server may do."""
    key = Key(chance.choice(["pods", "nodes"]), "", f"o{chance.randrange(5)}")
    match chance.choice(["write"] * 6 + ["delete"] * 2 + ["batch", "compact", "fail"]):
        case "write":
            (store.update if store.get(key) else store.create)(key, {"metadata": {}})
        case "delete" if store.get(key):
            store.delete(key)
        case "batch":
            with store.batch():
                for _ in range(chance.randrange(SMALL * 2)):
                    other = Key("pods", "", f"o{chance.randrange(5)}")
                    (store.update if store.get(other) else store.create)(other, {"metadata": {}})
        case "compact":
            store.compact(chance.randint(store.compacted, store.revision))
        case "fail":
            before = store.revision
            store._db.execute("PRAGMA query_only=1")
            with pytest.raises(StorageUnavailable):
                (store.update if store.get(key) else store.create)(key, {"metadata": {}})
            store._db.execute("PRAGMA query_only=0")
            assert store.revision == before


def seen(store: SqliteStore) -> list[object]:
    """Return what a store has, its history included."""
    found: list[object] = [store.revision, store.compacted]
    for resource in ("pods", "nodes"):
        found.append([(each.key.name, each.revision) for each in store.list(resource).items])
        floor = store._collection(resource).floor
        found.append([(each.key.name, each.revision) for each in store.changes(floor, resource)])
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_is_killed_is_whole_and_goes_on(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    place = tmp_path / "0"
    store = SqliteStore(place, durability="relaxed", window=4)
    for life in range(1, 5):
        for _ in range(chance.randrange(4, 14)):
            act(store, chance)
        wanted = seen(store)
        following = tmp_path / str(life)
        shutil.copytree(place, following)  # as a kill leaves it
        store.close()
        assert check(place) == check(following) == []
        place = following
        store = SqliteStore(place, durability="relaxed", window=4)
        found = seen(store)
        assert (found[0], found[2], found[4]) == (wanted[0], wanted[2], wanted[4])
        for had, has in ((wanted[3], found[3]), (wanted[5], found[5])):
            assert isinstance(had, list)
            assert isinstance(has, list)
            assert has == had[len(had) - len(has) :]
        rows = store._db.execute("SELECT count(*) FROM log").fetchone()[0]
        # The objects, the window of two collections, what waits to be swept.
        assert rows <= 10 + 2 * (4 + 1) + 2 * SMALL * 2 + 3
    store.close()


@pytest.mark.parametrize("seed", range(2))
def test_any_row_that_is_missing_is_noticed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = SqliteStore(tmp_path / "whole", durability="relaxed", window=4)
    for _ in range(30):
        act(store, chance)
    store.close()
    with closing(sqlite3.connect(tmp_path / "whole" / FILE)) as db:
        revisions = [revision for (revision,) in db.execute("SELECT revision FROM log")]
    for revision in chance.sample(revisions, 5):
        harmed = tmp_path / str(revision)
        shutil.copytree(tmp_path / "whole", harmed)
        with closing(sqlite3.connect(harmed / FILE)) as db, db:
            db.execute("DELETE FROM log WHERE revision = ?", (revision,))
        with pytest.raises(StoreDamaged):
            SqliteStore(harmed)
        assert check(harmed) != []


def test_rows_that_no_history_needs_go_as_soon_as_there_are_a_few(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, durability="relaxed", window=1)
    counts = []
    for _ in range(8):
        key = Key("pods", "", "a")
        (store.update if store.get(key) else store.create)(key, {"metadata": {}})
        counts.append(store._db.execute("SELECT count(*) FROM log").fetchone()[0])
    # The object, the state before it, and up to three that wait.
    assert counts == [1, 2, 3, 4, 5, 3, 4, 5]
    store.close()
