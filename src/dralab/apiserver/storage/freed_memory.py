"""Gives the memory of deleted objects back to the system.

The C library keeps what is freed between things that stay: after 15,000 pods were deleted, half of
the process was such gaps. What remains after a deletion is mostly the history that watches may
begin with (`storage.memory.WINDOW` changes of each collection), for eight minutes (`OldHistory`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from dralab.apiserver.storage import Store
from dralab.apiserver.storage.objects import Change, forget_values
from dralab.kernel.clock import SECOND, Clock

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


KEPT: Final = 480 * SECOND
STEP: Final = 30 * SECOND  # the age of a change is known that exactly
AT_A_TIME: Final = 2_000  # changes: some milliseconds


class OldHistory:
    """Deletes history that is too old for new watches: records revisions by time.

    A store keeps the last changes of each collection whatever their age (`storage.memory.WINDOW`).
    kube-apiserver compacts every five minutes what is older than five minutes, so its watches and
    the pages of its lists can begin with what is five to ten minutes old (k8s.io/apiserver
    `storage/etcd3/compact.go`). Here it is eight for each change. Call `forget` now and then.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._seen: deque[tuple[int, int]] = deque()
        self._until = 0

    def forget(self) -> int:
        """Forget changes older than KEPT, at most AT_A_TIME; return how many."""
        now = self._clock.now()
        if not self._seen or now - self._seen[-1][0] >= STEP:
            self._seen.append((now, self._store.revision))
        while self._seen[0][0] < now - KEPT:
            self._until = self._seen.popleft()[1]
        return self._store.forget(self._until, AT_A_TIME)
