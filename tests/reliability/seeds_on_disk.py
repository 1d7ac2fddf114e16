"""The lives of `test_seeds` on the store on disk: run under the failing disk's shim.

python seeds_on_disk.py DIRECTORY FIRST COUNT

DIRECTORY/disk is the failing disk (FAULTY_DIR). Each start of a server has a directory of its own
there, with what the end of the one before has left: all of it after a kill, after a power cut what
was synced and some of the rest. Prints a line of JSON for each life.
"""

import contextlib
import ctypes
import errno
import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from apiserver.storage.faultydisk.journal import Journal
from dralab.apiserver.storage import Change, Key, MemoryStore, StorageUnavailable, sqlite
from dralab.apiserver.storage.files import FILE, MARK
from dralab.apiserver.storage.sqlite import SqliteStore
from reliability.test_seeds import Disk, Row, check, lived

ONCE, TORN = 1, 3  # as in shim.c
KEPT = (FILE, f"{FILE}-wal", MARK)
STARTS = 10  # of a store, while its disk fails
shim = ctypes.CDLL(None)


class FailingDisk(Disk):
    """The disk below a `SqliteStore`; `rows` is what was found on it after each end."""

    def __init__(self, place: Path, seed: int) -> None:
        super().__init__(random.Random(seed + 1), relaxed=seed % 2 == 1)
        self.place = place
        self.number = self.kills = self.losses = 0
        self.store: SqliteStore | None = None
        self._base: dict[str, bytes] = {}
        self._known: dict[int, Row] = {}
        self._told: list[Row] = []
        self._begin()

    @property
    def here(self) -> Path:
        """The directory of the server that runs."""
        return self.place / "disk" / f"d{self.number}"

    def _begin(self) -> None:
        """Record what is done from here on."""
        shim.faulty_arm(0, 0, 0)
        shim.faulty_journal(str(self.place / "journal").encode())

    def open(self) -> MemoryStore:
        if self.store is not None and self.store.directory == self.here:
            # Its server could not write its first objects, and ended.
            with contextlib.suppress(StorageUnavailable):
                self.store.close()
        why = ""
        for _ in range(STARTS):
            try:
                self.store = SqliteStore(self.here, durability=self._durability, window=10_000)
            except StorageUnavailable as error:
                why = str(error)
                continue
            self.store.subscribe(self._tell)
            return self.store
        raise AssertionError(f"the store does not open again: {why}")

    @property
    def _durability(self) -> sqlite.Durability:
        return "relaxed" if self.relaxed else "fsync"

    def _tell(self, changes: Sequence[Change]) -> None:
        self._told += [
            (
                change.key,
                change.revision,
                change.after.created if change.after else 0,
                change.after.encoded if change.after else None,
            )
            for change in changes
        ]

    def disturb(self) -> None:
        """Let one of the next operations fail."""
        chance = self.chance
        how, why = chance.choice([ONCE, TORN]), chance.choice([errno.EIO, errno.ENOSPC])
        shim.faulty_arm(chance.randint(1, 8), how, why)

    def cut_power(self) -> None:
        """End the server: cut the power, or kill it."""
        shim.faulty_arm(0, 0, 0)
        old, store = self.here, self.store
        self.number += 1
        killed = self.chance.random() < 0.3
        if killed:
            self.kills += 1
            self.here.mkdir()
            for name in KEPT:
                if (old / name).exists():
                    shutil.copyfile(old / name, self.here / name)
        else:
            journal = Journal((self.place / "journal").read_bytes(), f"{old.name}/")
            journal.cut(len(journal.steps), self.here, self.chance, self._base)
        if store is not None:
            with contextlib.suppress(StorageUnavailable):
                store.close()
        shutil.rmtree(old)
        self._take_stock(killed=killed)
        self._base = {
            name: (self.here / name).read_bytes() for name in KEPT if (self.here / name).exists()
        }
        self._begin()

    def _take_stock(self, *, killed: bool) -> None:
        """See what is on the disk, and what of what was told is not.

        A store on a full disk forgets its history at once: rows that others follow, and deletions.
        """
        found = self.found()
        newest = {row[0]: row[1] for row in found.values()}
        gone: list[Row] = []
        kept: set[Key] = set()  # with a later row that is there, or was forgotten
        for row in reversed(self._told):
            key, revision, _, encoded = row
            last = newest.get(key, 0)
            if last >= revision or key in kept or (encoded is None and not last):
                kept.add(key)
                self._known[revision] = row
            else:
                gone.append(row)
        self._known |= found
        assert not gone or (self.relaxed and not killed), "fsync loses nothing, nor does a kill"
        self.lost += gone
        self.losses += bool(gone)
        self._told = []

    def found(self) -> dict[int, Row]:
        """Return the rows in the directory, by revision."""
        aside = self.place / "aside"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for name in KEPT[:2]:
            if (self.here / name).exists():
                shutil.copyfile(self.here / name, aside / name)
        if not (aside / FILE).exists():
            return {}
        with contextlib.closing(sqlite3.connect(aside / FILE)) as db:
            rows = db.execute(
                "SELECT revision, resource, namespace, name, created, deleted, value FROM log "
                "ORDER BY revision"
            ).fetchall()
        return {
            revision: (Key(*key), revision, created, None if deleted else bytes(value))
            for revision, *key, created, deleted, value in rows
        }

    def end(self) -> None:
        """Make `rows` of all that was found."""
        shim.faulty_arm(0, 0, 0)
        self._take_stock(killed=True)
        self.rows = [[self._known[revision] for revision in sorted(self._known)]]


def main() -> None:
    place, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    # The writer itself brings home what was written aside, and often: the same order each time.
    sqlite.CHECKPOINT, sqlite.CHECKPOINT_AT_LAST = 40_000, 0  # type: ignore[misc]
    for seed in range(first, first + count):
        (place / "disk").mkdir()
        disk = FailingDisk(place, seed)
        try:
            world = lived(seed, disk)
            disk.end()
            check(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        if disk.store is not None:
            disk.store.close()
        told = {"refusals": world.refusals, "cuts": world.cuts - disk.kills, "kills": disk.kills}
        sys.stdout.write(json.dumps({"seed": seed, "losses": disk.losses, **told}) + "\n")
        shutil.rmtree(place / "disk")


if __name__ == "__main__":
    main()
