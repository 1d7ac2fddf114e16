"""The files beside the database of a store: lock, mark and reserve. All are private.

The store holds Secrets: every file is readable by its owner only, from its creation on.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.sums import Tail
from dralab.files.reading import check_own, open_own, read_own
from dralab.values.records import dataclass

# fsync: a commit has reached the disk. relaxed: a commit survives the end of the process, killed
# or not, but perhaps not a power cut; the file stays sound in any case.
Durability = Literal["fsync", "relaxed"]

FILE: Final = "store.db"
ASIDE: Final = ("-wal", "-shm")  # what SQLite keeps beside a database
JOURNAL: Final = "-journal"  # what it would play back first
MARK: Final = "store.mark"
RESERVE: Final = "store.reserve"
UNKNOWN: Final = "-"

# Enough to checkpoint SQLite's write-ahead log, which is some 16 MiB.
RESERVED: Final = 20 * 1024 * 1024
KEPT: Final = 1024 * 1024  # of it kept for the next start, which writes small files
MARK_SIZE: Final = 192


def private_directory(directory: Path) -> None:
    """Make a directory that its owner alone may look into; leave one that exists as it is."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def private_file(path: Path) -> None:
    """Make an empty file that its owner alone may read. FileExistsError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def aside(database: Path) -> list[Path]:
    """Return the files that SQLite keeps beside a database."""
    return [database.with_name(database.name + ending) for ending in ASIDE]


def check_files(database: Path) -> None:
    """Refuse a database, or a file beside it, that may be another user's. StorageUnavailable."""
    beside = (database.name + JOURNAL, MARK, RESERVE)
    for path in (database, *aside(database), *map(database.with_name, beside)):
        try:
            check_own(path)
        except OSError as error:
            raise StorageUnavailable(f"cannot use {path}: {error.strerror}") from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_names(path: Path) -> None:
    """Sync the name of a file to the disk, and those of the directories above it.

    Goes up as far as the file system and the permissions do. OSError for the first directory.
    """
    folder, *others = path.absolute().parents
    sync(folder)
    device = folder.stat().st_dev
    for each in others:
        if each.stat().st_dev != device or not os.access(each, os.R_OK):
            return
        sync(each)


def locked(directory: Path) -> int:
    """Return the lock of a directory, made if needed: one server at a time.

    The directory itself is locked: a file in it could be deleted, and with it the lock.
    """
    try:
        private_directory(directory)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise StorageUnavailable(f"cannot use the data directory {directory}: {why}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StorageUnavailable(
            f"the data directory {directory} is in use by another server"
        ) from error
    return handle


def boot_id() -> str:
    """Return the boot id of this machine, if the system has one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip() or UNKNOWN
    except (OSError, ValueError):
        return UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionMark:
    """The last acknowledged revision of a store, noted outside of the database.

    A store that ends before its mark has lost its last writes.
    """

    revision: int
    boot: str
    durability: Durability
    closed: bool
    tail: Tail = (0, 0, 0)  # of the chunks that are not recorded in the database

    @classmethod
    def read(cls, directory: Path) -> "RevisionMark | None":
        """Return the mark of a directory; None if there is none that can be read."""
        try:
            text = read_own(directory / MARK)[:MARK_SIZE].decode("ascii")
            told, _, total = text.rstrip().rpartition(" ")
            if int(total) != crc32(told.encode()):
                return None
            boot, durability, state, revision, times, rows, heads = told.split()
            return cls(
                revision=int(revision),
                boot=boot,
                durability="relaxed" if durability == "relaxed" else "fsync",
                closed=state == "closed",
                tail=(int(times), int(rows), int(heads)),
            )
        except (OSError, ValueError):
            return None

    def written(self) -> bytes:
        """Return the mark as it stands in its file."""
        state = "closed" if self.closed else "open"
        return _written(f"{self.boot} {self.durability} {state}", self.revision, self.tail)

    def excuses_loss(self) -> bool:
        """Return whether the last writes may be missing: after a power cut, if `relaxed`."""
        if self.durability == "fsync" or self.closed:
            return False
        return self.boot == UNKNOWN or self.boot != boot_id()


def _written(server: str, revision: int, tail: Tail) -> bytes:
    text = f"{server} {revision} {tail[0]} {tail[1]} {tail[2]}"
    return f"{text} {crc32(text.encode())}".ljust(MARK_SIZE - 1).encode() + b"\n"


class MarkFile:
    """The file of the mark, open for as long as a server runs."""

    def __init__(self, directory: Path, durability: Durability) -> None:
        self._file = open_own(directory / MARK, os.O_RDWR | os.O_CREAT)
        self._server = f"{boot_id()} {durability}"

    def note(self, revision: int, tail: Tail, *, closed: bool = False) -> None:
        """Note that writes up to a revision have been answered.

        Errors are ignored, since the write has happened; a loss might just go unnoticed later.
        """
        server = f"{self._server} {'closed' if closed else 'open'}"
        try:
            os.pwrite(self._file, _written(server, revision, tail), 0)
        except OSError:
            return

    def sync(self, directory: Path) -> None:
        """Sync the mark and its name to the disk. OSError."""
        os.fsync(self._file)
        sync(directory)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Reserve:
    """Reserved disk space that is released when the disk is full, so that deletions still work.

    `released` tells that the disk was full and that there is not room for a new reserve yet.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / RESERVE
        self.released = False
        if free(directory) < KEPT:
            self.release(kept=0)
        else:
            self.regain()

    def release(self, kept: int = KEPT) -> None:
        """Release the space, except a part that the next start may need."""
        self.released = True
        self._shorten(kept)

    def regain(self) -> bool:
        """Reserve the space again; return whether there is any."""
        try:
            handle = open_own(self.path, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(handle).st_size != RESERVED:
                    os.posix_fallocate(handle, 0, RESERVED)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                self.released = True
            self._shorten(KEPT)  # a part of it may have been had
            return False
        self.released = False
        return True

    def _shorten(self, size: int) -> None:
        with contextlib.suppress(OSError):
            handle = open_own(self.path, os.O_RDWR)
            try:
                os.truncate(handle, min(size, os.fstat(handle).st_size))
            finally:
                os.close(handle)


def free(directory: Path) -> int:
    """Return how many bytes may still be written to the disk of a directory."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
