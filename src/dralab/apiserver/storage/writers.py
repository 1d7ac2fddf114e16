"""The releases of Kubernetes that have written the objects of a store.

The note is a file beside those of a store, and a key of the servers' own in an etcd. Without one
all objects were written by a server without a release of its own.
"""

import os
from pathlib import Path
from typing import Final, Protocol

from dralab.files.reading import open_own, read_own

FILE: Final = "store.releases"
KEY: Final = "releases"
NO_RELEASE: Final = "none"


class Notes(Protocol):
    """A store that keeps servers' notes, such as one in an etcd."""

    def own(self, name: str) -> bytes:
        """Return a note; empty if there is none."""
        ...

    def put_own(self, name: str, value: bytes) -> None:
        """Write a note."""
        ...


def writers_of(place: Path | Notes) -> frozenset[str]:
    """Return the releases that have written; "" stands for a server with all API versions."""
    try:
        note = read_own(place / FILE) if isinstance(place, Path) else place.own(KEY)
    except OSError:
        note = b""
    text = note.decode("ascii", errors="replace") or NO_RELEASE
    return frozenset("" if name == NO_RELEASE else name for name in text.split())


def note_writers(place: Path | Notes, releases: frozenset[str]) -> None:
    """Note which releases have written. OSError, StorageUnavailable."""
    note = (" ".join(sorted(name or NO_RELEASE for name in releases)) + "\n").encode()
    if not isinstance(place, Path):
        place.put_own(KEY, note)
        return
    handle = open_own(place / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(handle, "wb") as file:
        file.write(note)
