"""Directories that are removed with their process: at its end, or later if it was killed.

A kept lock says that the process lives, on whatever side of a container it is. `sweep` removes
what has no such lock any more.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final, Self

PREFIX: Final = "dralab-"
# As `tempfile.mkdtemp` makes them; a directory without this file is somebody else's.
NAME: Final = re.compile(rf"{PREFIX}(?:[a-z]+-)?[a-z0-9_]{{8}}")
OWNER: Final = ".owner"
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnedDirectory:
    """A directory of this process, which its user alone may enter."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def new(cls, kind: str = "", parent: Path | None = None) -> Self:
        """Create `dralab-KIND-…`, in the directory for temporary files or in `parent`."""
        sweep(parent)
        prefix = f"{PREFIX}{kind}-" if kind else PREFIX
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Locked before it has its name: nobody else finds it without its lock.
        unnamed = path / f"{OWNER}.new"
        lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(path / OWNER)
        return cls(path, lock)

    def close(self) -> None:
        """Remove it with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(parent: Path | None = None) -> None:
    """Remove the directories of this user whose process has ended."""
    place = Path(tempfile.gettempdir()) if parent is None else parent
    with contextlib.suppress(OSError):
        for name in os.listdir(place):  # noqa: PTH208  # thousands of names of others
            if NAME.fullmatch(name):
                _sweep_one(place / name)


def _sweep_one(path: Path) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        directory = os.open(path, DIRECTORY)
        opened.callback(os.close, directory)
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return
        lock = os.open(OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        opened.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
