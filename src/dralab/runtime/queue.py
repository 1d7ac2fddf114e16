"""The work queue of a reconciler: no duplicate keys, and exponential back-off after failures."""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from dralab.api.status import ApiError
from dralab.runtime.engine import Engine, TimerHandle

K = TypeVar("K", bound=Hashable)

logger = logging.getLogger(__name__)

# client-go workqueue.DefaultControllerRateLimiter: 5 ms, doubled for each failure, 1000 s at most.
FIRST_DELAY: Final = 5_000_000
LONGEST_DELAY: Final = 1_000_000_000_000


class WorkQueue(Generic[K]):
    """Keys that want to be reconciled, one after the other, as events of an engine.

    `reconcile` looks at the object of a key and does what is missing. It is called with no more
    than a key, at any time, also when there is nothing to do: all knowledge comes from the caches.
    It returns in how many nanoseconds to look again, or None. ApiError: try again after the
    back-off.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        reconcile: Callable[[K], int | None],
        *,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.engine = engine
        self.name = name
        self.failures: dict[K, int] = {}
        self._reconcile = reconcile
        self._ready = ready
        self._order: deque[K] = deque()
        self._waiting: set[K] = set()
        self._timers: dict[K, TimerHandle] = {}
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._order)

    def add(self, key: K) -> None:
        """Queue a key; once, however often it is added."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        self._order.append(key)
        self.wake()

    def add_after(self, key: K, delay: int) -> None:
        """Queue a key in `delay` nanoseconds, or earlier if it was added for an earlier time."""
        if delay <= 0:
            self.add(key)
            return
        when = self.engine.clock.now() + delay
        earlier = self._timers.get(key)
        if earlier is not None:
            if earlier.when <= when:
                return
            earlier.cancel()
        self._timers[key] = self.engine.at(when, lambda: self._due(key))

    def wake(self) -> None:
        """Continue after the caches are synced."""
        if self._order and not self._scheduled and self._ready():
            self._scheduled = True
            self.engine.soon(self._next)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _next(self) -> None:
        if not self._order or not self._ready():
            self._scheduled = False
            return
        key = self._order.popleft()
        self._waiting.discard(key)
        try:
            again = self._reconcile(key)
        except ApiError as error:
            self._retry(key, error)
        except Exception:
            # A defect in one reconciler must not stop the others; the key is retried.
            logger.exception("%s: %s failed to reconcile", self.name, key)
            self._retry(key, None)
        else:
            self.failures.pop(key, None)
            if again is not None:
                self.add_after(key, again)
        # Only now: what the caches were told while the key was in hand comes first.
        self._scheduled = False
        self.wake()

    def _retry(self, key: K, error: ApiError | None) -> None:
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        delay = min(FIRST_DELAY << min(failures, 40), LONGEST_DELAY)
        if error is not None:
            log = logger.debug if error.reason in {"Conflict", "NotFound"} else logger.info
            log("%s: retrying %s in %d ms: %s", self.name, key, delay // 1_000_000, error)
        self.add_after(key, delay)
