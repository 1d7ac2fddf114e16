"""Deletes history that is too old for new watches.

A store keeps the last changes of each collection whatever their age (`storage.memory.WINDOW`): of
50,000 deleted pods, 10,000 deletions with all that was deleted. kube-apiserver compacts every five
minutes what is older than five minutes, so its watches and the pages of its lists can begin with
what is five to ten minutes old (k8s.io/apiserver `storage/etcd3/compact.go`). Here it is eight for
each change.
"""

from collections import deque
from typing import Final

from dralab.apiserver.storage import Store
from dralab.kernel.clock import SECOND, Clock

KEPT: Final = 480 * SECOND
STEP: Final = 30 * SECOND  # the age of a change is known that exactly
AT_A_TIME: Final = 2_000  # changes: some milliseconds


class OldHistory:
    """Records revisions by time; call `forget` now and then."""

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
