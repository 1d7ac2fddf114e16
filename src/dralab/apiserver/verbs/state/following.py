"""Observers of a shared store: notified by the store of what any server writes.

Observers that only remember are notified as the store takes a change in, so that their state is
as new as what can be read. Those that may write have a thread of their own, as a write waits for
the store; two servers may do the same then, and the second finds it done.
"""

import logging
import threading
from collections import deque
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.guarded import released
from dralab.apiserver.signals import Signal
from dralab.apiserver.storage import Change, StorageError, Store, Stored
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)

TRIES: Final = 5  # of an observer whose object another server writes, too
SETTLED: Final = 10.0  # seconds for observers to handle a write


class Following:
    """Notifies the observers of `rules` of writes to a shared store."""

    def __init__(self, store: Store, rules: Rules) -> None:
        self.store = store
        self.rules = rules
        self._waiting: deque[Change] = deque()
        self._moved = threading.Condition(store.lock)  # type: ignore[arg-type]  # an RLock
        self._taken = self._done = 0
        self._settling: deque[tuple[int, Signal]] = deque()
        self._thread: threading.Thread | None = None
        self._over = False
        store.follow(self._take)

    def settle(self, hub: str) -> None:
        """Wait until the observers that may write have handled every write, their own included."""
        if not self.rules.writers(hub) or self._is_own_thread():
            return
        for _ in range(2):
            done = Signal()
            with self._moved:
                if self._done >= self._taken:
                    return
                self._settling.append((self._taken, done))
            with released(self.store.lock):
                done.wait(SETTLED)

    def close(self) -> None:
        """End the thread."""
        with self._moved:
            self._over = True
            self._moved.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _take(self, change: Change) -> None:
        hub = change.key.resource
        self.rules.tell(hub, _value(change.before), _value(change.after))
        if self.rules.writers(hub):
            self._waiting.append(change)
            self._taken += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="dralab-following", daemon=True
                )
                self._thread.start()
            self._moved.notify_all()

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._over or bool(self._waiting))
                if self._over:
                    return
                change = self._waiting.popleft()
            for observer in self.rules.writers(change.key.resource):
                for _ in range(TRIES):
                    try:
                        with self.store.lock:
                            observer(_value(change.before), _value(change.after))
                        break
                    except (ApiError, StorageError) as error:
                        logger.info("%s: %s; tried again", "/".join(change.key), error)
                    except Exception:
                        logger.exception("what follows %s failed", change)
                        break
                    try:
                        self.store.refresh()
                    except StorageError as error:
                        logger.warning("%s", error)
            with self._moved:
                self._done += 1
                while self._settling and self._settling[0][0] <= self._done:
                    self._settling.popleft()[1].give()


def _value(stored: Stored | None) -> JsonDict | None:
    return None if stored is None else stored.value
