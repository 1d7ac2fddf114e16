"""Gives the memory of deleted objects back to the system.

The C library keeps what is freed between things that stay: after 15,000 pods were deleted, half of
the process was such gaps. What remains after a deletion is mostly the history that watches may
begin with (`storage.memory.WINDOW` changes of each collection), for eight minutes (`old_history`).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from dralab.apiserver.storage import Store
from dralab.apiserver.storage.objects import Change, forget_values

DELETED: Final = 1_000  # objects; giving memory back takes some milliseconds


class FreedMemory:
    """Counts deletions; call `give_back` now and then."""

    def __init__(self, store: Store, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or trim_heap
        self._deleted = self._forgotten = 0
        store.subscribe(self._count)

    def _count(self, changes: Sequence[Change]) -> None:
        self._deleted += sum(change.after is None for change in changes)

    def give_back(self, forgotten: int = 0) -> None:
        """Give memory back, if many objects were deleted since the last time.

        Or much history was: `forgotten` counts changes since the last call. Mappings of what is in
        no history any more may lie anywhere between others, so all are made anew.
        """
        self._forgotten += forgotten
        if self._forgotten >= DELETED:
            forget_values()
        elif self._deleted < DELETED:
            return
        self._deleted = self._forgotten = 0
        self._trim()


def trim_heap() -> None:
    """Return the free pages of the C library's heap to the system; nothing without glibc."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes  # only servers that delete much need it

    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found
