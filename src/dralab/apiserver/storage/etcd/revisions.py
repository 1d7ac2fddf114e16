"""Resource versions over etcd: etcd's revision, and the place of the key in it.

A transaction gives one revision to all that it writes. Clients continue watches after the last
resource version they have seen, so each change needs one of its own. The place follows from the
key alone: every server finds the same for what it reads, at any time.
"""

from typing import Final
from zlib import crc32

BITS: Final = 12
LAST: Final = (1 << BITS) - 1  # of no key: it stands behind all of them


def place(path: bytes) -> int:
    """Return the place of a key in each revision; keys with the same one are written apart."""
    return crc32(path) % LAST


def version_of(revision: int, path: bytes) -> int:
    """Return the resource version of a key that etcd wrote or deleted at a revision.

    >>> version_of(7, b"/registry/pods/default/a") < whole(7) < version_of(8, b"/")
    True
    """
    return revision << BITS | place(path)


def whole(revision: int) -> int:
    """Return the resource version of the state after all of a revision."""
    return revision << BITS | LAST


def revision_of(version: int) -> int:
    """Return etcd's revision of a resource version; 0 of 0.

    >>> revision_of(version_of(7, b"x")), revision_of(whole(7)), revision_of(0)
    (7, 7, 0)
    """
    return version >> BITS
