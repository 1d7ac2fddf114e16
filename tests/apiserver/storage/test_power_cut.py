"""What the promises of both durabilities are worth when the power fails.

The disk keeps every byte that was synced and any part of the others, sector by sector. In fsync
mode each commit syncs the file beside the database; in relaxed mode only a checkpoint does.
"""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dralab.apiserver.storage import Key
from dralab.apiserver.storage.files import FILE, MARK, Durability, RevisionMark
from dralab.apiserver.storage.sqlite import LEAP, SqliteStore

SECTOR = 512
WAL = f"{FILE}-wal"
BATCHES = 40
# Each instant opens a store. The thousand of them are among the slow tests.
INSTANTS = [
    pytest.param(range(20), id="some"),
    pytest.param(range(20, 1020), id="many", marks=pytest.mark.conformance),
]
State = dict[str, int]


class Disk:
    """What was on the disk, and what the store held, after each batch."""

    def __init__(self, place: Path, durability: Durability, chance: random.Random) -> None:
        self.durability = durability
        self.files: list[dict[str, bytes]] = []
        self.states: list[State] = []
        self.revisions: list[int] = []
        self.marks: list[RevisionMark] = []
        store = SqliteStore(place, durability=durability, window=30)
        self._keep(place, store)
        for number in range(BATCHES):
            with store.batch():
                for _ in range(chance.randint(1, 12)):
                    _write(store, chance, number)
            self._keep(place, store)
        store.close()

    def _keep(self, place: Path, store: SqliteStore) -> None:
        self.files.append({name: (place / name).read_bytes() for name in (FILE, WAL)})
        mark = RevisionMark.read(place)
        assert mark is not None
        self.marks.append(replace(mark, boot="before"))
        self.states.append(state_of(store))
        self.revisions.append(store.revision)

    def after_cut(self, place: Path, batch: int, chance: random.Random) -> None:
        """Write what a power cut leaves while the batch after `batch` is written."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        before, now = self.files[batch], self.files[min(batch + 1, BATCHES)]
        synced = before[WAL] if self.durability == "fsync" else self.files[0][WAL]
        (place / FILE).write_bytes(before[FILE])
        (place / WAL).write_bytes(torn(synced, now[WAL], chance))
        (place / MARK).write_bytes(self.marks[batch].written())


def torn(synced: bytes, written: bytes, chance: random.Random) -> bytes:
    """Return the file with a part of what was written and not synced."""
    found = bytearray(synced.ljust(chance.choice([len(synced), len(written)]), b"\0"))
    for start in range(0, len(found), SECTOR):
        if chance.random() < chance.choice([0.5, 0.95]):
            found[start : start + SECTOR] = written[start : min(start + SECTOR, len(found))]
    return bytes(found)


def _write(store: SqliteStore, chance: random.Random, number: int) -> None:
    key = Key("pods", "default", f"p{chance.randrange(15)}")
    value = {"metadata": {}, "spec": number, "much": "x" * chance.randrange(6_000)}
    if store.get(key) is None:
        store.create(key, value)
    elif chance.random() < 0.3:
        store.delete(key)
    else:
        store.update(key, value)


def state_of(store: SqliteStore) -> State:
    return {item.key.name: item.value["spec"] for item in store.list("pods").items}


@pytest.mark.parametrize("seeds", INSTANTS)
def test_with_fsync_a_power_cut_loses_nothing_that_was_answered(
    tmp_path: Path, seeds: range
) -> None:
    disk = Disk(tmp_path / "data", "fsync", random.Random(0))
    for seed in seeds:
        chance = random.Random(seed)
        batch = chance.randrange(BATCHES)
        disk.after_cut(tmp_path / "cut", batch, chance)
        store = SqliteStore(tmp_path / "cut")
        # The batch that nobody had an answer to may have been written, whole.
        assert (store.revision, state_of(store)) in [
            (disk.revisions[each], disk.states[each]) for each in (batch, batch + 1)
        ], seed
        store.close()


@pytest.mark.parametrize("seeds", INSTANTS)
def test_relaxed_a_power_cut_leaves_a_state_that_was_and_gives_no_revision_twice(
    tmp_path: Path, seeds: range
) -> None:
    disk = Disk(tmp_path / "data", "relaxed", random.Random(0))
    lost = 0
    for seed in seeds:
        chance = random.Random(seed)
        batch = chance.randrange(BATCHES)
        disk.after_cut(tmp_path / "cut", batch, chance)
        store = SqliteStore(tmp_path / "cut", durability="relaxed")
        assert state_of(store) in disk.states[: batch + 2], seed
        lost += state_of(store) != disk.states[batch]
        assert store.revision >= disk.revisions[batch] + LEAP
        store.close()
    assert lost, "no cut lost anything: the simulated disk is too kind"
