"""The context of a component: an engine, a client, caches, queues, events."""

from collections.abc import Callable, Hashable
from copy import copy
from typing import Any, TypeVar

from dralab.kernel.clock import rfc3339
from dralab.kernel.randomness import Randomness
from dralab.runtime.cache import Cache, Caches
from dralab.runtime.client import Client, Resource
from dralab.runtime.engine import Engine
from dralab.runtime.events import EventRecorder
from dralab.runtime.queue import WorkQueue
from dralab.values.records import dataclass

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Course:
    """Whether a manager runs, shared by its copies."""

    started: bool = False
    stopped: bool = False


class Manager:
    """The context of reconcilers that share caches.

    Create what is needed with `cache(...)` and `queue(...)`, then `start`: queues hold their keys
    back until every cache has seen its collection once, so that no decision is based on incomplete
    data. `client_of` gives the clients of users (`acting_as`); without it all have `client`.
    """

    def __init__(
        self,
        engine: Engine,
        client: Client,
        randomness: Randomness,
        *,
        client_of: Callable[[str], Client] | None = None,
    ) -> None:
        self.engine = engine
        self.client = client
        self.randomness = randomness
        self.caches = Caches(engine, client)
        self._queues: list[WorkQueue[Any]] = []
        self._periods: list[tuple[int, Callable[[], None]]] = []
        self._course = _Course()
        self._client_of = client_of
        self.caches.when_synced(self._wake)

    def acting_as(self, user: str) -> "Manager":
        """Return the same manager with another user's client for writes."""
        if self._client_of is None:
            return self
        found = copy(self)
        found.client = self._client_of(user)
        return found

    def now(self) -> str:
        """Return the time as objects carry it."""
        return rfc3339(self.engine.clock.now())

    def cache(
        self, resource: Resource, *, label_selector: str = "", field_selector: str = ""
    ) -> Cache:
        """Return the cache of a collection, shared by all who ask."""
        return self.caches.cache_for(
            resource, label_selector=label_selector, field_selector=field_selector
        )

    def queue(self, name: str, reconcile: Callable[[K], int | None]) -> WorkQueue[K]:
        """Return a queue whose keys are reconciled once the caches are synced."""
        queue = WorkQueue(self.engine, name, reconcile, ready=lambda: self.ready)
        self._queues.append(queue)
        return queue

    def recorder(self, component: str) -> EventRecorder:
        """Return what writes the events of a component."""
        return EventRecorder(self.engine, self.client, component)

    def every(self, period: int, action: Callable[[], None]) -> None:
        """Run `action` each `period` nanoseconds, first one period after the start."""
        self._periods.append((period, action))
        if self._course.started:
            self._repeat(period, action)

    @property
    def ready(self) -> bool:
        """Whether reconcilers may act."""
        return self.caches.synced and not self._course.stopped

    def start(self) -> None:
        """Start the caches; reconciling begins when they are synced."""
        self._course.started = True
        self.caches.start()
        for period, action in self._periods:
            self._repeat(period, action)

    def stop(self) -> None:
        """Stop watching and reconciling."""
        self._course.stopped = True
        self.caches.stop()

    def _wake(self) -> None:
        for queue in self._queues:
            queue.wake()

    def _repeat(self, period: int, action: Callable[[], None]) -> None:
        def run() -> None:
            if self._course.stopped:
                return
            self.engine.after(period, run)
            if self.ready:
                action()

        self.engine.after(period, run)
