"""Which releases of Kubernetes have written the objects of a store, noted beside it.

Without a note all of them were written by a server without a release of its own.
"""

import os
from pathlib import Path
from typing import Final

from dralab.files.reading import open_own, read_own

FILE: Final = "store.releases"
NO_RELEASE: Final = "none"


def writers_of(directory: Path) -> frozenset[str]:
    """Return the releases that have written; "" stands for a server without one of its own."""
    try:
        text = read_own(directory / FILE).decode("ascii", errors="replace")
    except OSError:
        return frozenset({""})
    return frozenset("" if name == NO_RELEASE else name for name in text.split())


def note_writers(directory: Path, releases: frozenset[str]) -> None:
    """Note which releases have written. OSError."""
    text = " ".join(sorted(name or NO_RELEASE for name in releases))
    handle = open_own(directory / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{text}\n")
