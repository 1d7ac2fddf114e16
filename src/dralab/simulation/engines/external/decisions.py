"""A scheduler's decisions, detected in the store: any request that changes an object counts.

Called in the writer's thread, read from the driver's.
"""

import threading
from collections.abc import Sequence

from dralab.apiserver.storage import Change, Store
from dralab.kernel.clock import SECOND, WallClock


class DecisionWatch:
    """Pods that were created, bound, deleted or answered by someone other than the driver's thread.

    With `everyone`, by that thread too, where controllers run in it. `awaited` are the pods that a
    first answer is waited for: a binding, a condition that says why not, or any other change of the
    pod.
    """

    def __init__(self, store: Store, *, everyone: bool = False) -> None:
        self.clock = WallClock()
        self.everyone = everyone
        self.awaited: set[str] = set()
        self.answers = self.refusals = 0
        self.deletions = 0
        # When the last answer came, and how long (seconds) the first one to a step took at most.
        self.last = 0
        self.latency = 0.0
        self._bound: list[tuple[str, str]] = []
        self._deleted: list[tuple[str, str, int | None]] = []
        self._created: list[tuple[str, str, str]] = []
        self._asked: int | None = None
        self._own = threading.get_ident()
        self.stop = store.subscribe(self._note)

    def expect(self, keys: set[str]) -> None:
        """Wait for first answers about these pods from now on; with the store's lock held."""
        self.awaited = keys
        self._asked = self.last = self.clock.now()

    @property
    def any(self) -> bool:
        """Whether there is something to take."""
        return bool(self._bound or self._deleted or self._created)

    def take_bound(self) -> list[tuple[str, str]]:
        """Return the binds since the last call: pod and node."""
        found, self._bound = self._bound, []
        return found

    def take_created(self) -> list[tuple[str, str, str]]:
        """Return the pods that were created since the last call: pod, uid, node if it has one."""
        found, self._created = self._created, []
        return found

    def take_deleted(self) -> list[tuple[str, str, int | None]]:
        """Return the deletions since the last call: pod, uid, seconds of grace; None: gone."""
        found, self._deleted = self._deleted, []
        return found

    def _note(self, changes: Sequence[Change]) -> None:
        if threading.get_ident() == self._own and not self.everyone:
            return
        for change in changes:
            if change.key.resource == "pods":
                self._pod(change)

    def _pod(self, change: Change) -> None:
        key = f"{change.key.namespace}/{change.key.name}"
        before = None if change.before is None else change.before.value
        after = None if change.after is None else change.after.value
        if after is None:
            if before is not None:
                self._deleted.append((key, str(before["metadata"]["uid"]), None))
                self.deletions += 1
        elif before is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
            node = str(after["spec"].get("nodeName") or "")
            self._created.append((key, str(after["metadata"]["uid"]), node))
            return
        else:
            node, metadata = after["spec"].get("nodeName"), after["metadata"]
            if node and not before["spec"].get("nodeName"):
                self._bound.append((key, str(node)))
            elif "deletionTimestamp" in metadata and "deletionTimestamp" not in before["metadata"]:
                grace = int(metadata.get("deletionGracePeriodSeconds") or 0)
                self._deleted.append((key, str(metadata["uid"]), grace))
                self.deletions += 1
        if key in self.awaited:
            self.awaited.discard(key)
            self.answers += 1
            self.refusals += not change.after or not change.after.value["spec"].get("nodeName")
            self.last = self.clock.now()
            if self._asked is not None:
                self.latency = max(self.latency, (self.last - self._asked) / SECOND)
                self._asked = None
