"""The watch of a program that is a process, over HTTP: changes may be late or lost.

As with `watch`, order within one kind is kept. A watch that misses changes ends, and asking for it
again from an old revision is answered with 410, as a server does whose history is too short.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from dralab.apiserver.storage import Stored
from dralab.apiserver.storage.watching import Subscription
from dralab.apiserver.storage.watching.interfaces import EventType, Spelling
from dralab.kernel.clock import SECOND
from dralab.runtime.simulated import SimulatedEngine
from dralab.testing import history as kinds
from dralab.testing.history import TrialHistory
from dralab.testing.plan import FaultPlan

LOST: Final = "the connection was lost"


@dataclass(frozen=True, slots=True)
class NotedEvent:
    """An event as it is sent, with what a timeline says of it; bookmarks have no `text`."""

    data: bytes
    text: str = ""
    revision: int = 0


class NotedSpelling:
    """The spelling of another watch, whose events say what they are."""

    shared = False

    def __init__(self, inner: Spelling[bytes], plural: str) -> None:
        self._inner = inner
        self._plural = plural

    def event(self, type: EventType, stored: Stored) -> NotedEvent:
        """Return one change."""
        key = stored.key
        text = f"{type} {self._plural} {key.namespace}/{key.name}".replace(" /", " ")
        return NotedEvent(self._inner.event(type, stored), text, stored.revision)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> NotedEvent:
        """Return a bookmark."""
        return NotedEvent(self._inner.bookmark(revision, initial_end=initial_end))


class WatchingProcess(Protocol):
    """The process that reads a stream."""

    name: str
    program: str
    paused_until: int
    expired: set[str]
    """The collections whose watches cannot go on where they were."""


class StreamSurroundings(Protocol):
    """What a stream needs of a trial."""

    engine: SimulatedEngine
    plan: FaultPlan
    history: TrialHistory
    latency: int


class ProgramStream:
    """A `Source` of bytes: a subscription's events, with injected faults.

    `lag` is the time until which nothing arrives.
    """

    def __init__(
        self,
        around: StreamSurroundings,
        process: WatchingProcess,
        inner: Subscription[NotedEvent],
        plural: str,
        lag: int = 0,
    ) -> None:
        self.cut: str | None = None
        self._around = around
        self._process = process
        self._inner = inner
        self._plural = plural
        self._due = lag
        self._blind = False
        self._noted = False
        self._ended = False
        self._closed = False
        self._arrived: list[bytes] = []
        self._ready: Callable[[], None] = lambda: None
        inner.notify(self._news)

    # --- what the transport asks ------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._closed or self.cut is not None or (self._ended and not self._arrived)

    def take_items(self) -> Sequence[bytes]:
        """Return what has arrived."""
        found, self._arrived = self._arrived, []
        return found

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time something may have arrived; at once where it has."""
        self._ready = ready
        if self._arrived or self.done:
            ready()

    def close(self) -> None:
        """Stop: the program is gone."""
        if not self._closed:
            self._closed = True
            self._inner.close()

    def lose(self) -> None:
        """Break the connection: what is on its way never arrives."""
        if not self._closed and self.cut is None:
            self._inner.close()
            self.cut = LOST
            self._ready()

    # --- on the way -------------------------------------------------------------------------------

    def _news(self) -> None:
        # Called with the store's lock held: only note it.
        if not self._noted:
            self._noted = True
            self._around.engine.soon(self._take)

    def _take(self) -> None:
        self._noted = False
        while items := () if self._closed or self.cut is not None else self._inner.take_items():
            for item in items:
                self._send(item)
        if self._inner.done:
            self._end_at(self._due)

    def _send(self, item: NotedEvent) -> None:
        around, now = self._around, self._around.engine.clock.now()
        if item.text:
            if self._blind:
                self._note(kinds.WITHHELD, "never sees", item)
                return
            fault = around.plan.at_event(self._process.program, self._plural, item.revision)
            if fault is not None:
                around.history.add(self._process.name, kinds.FAULT, fault.text)
                if fault.fault == "hold-watch":
                    self._due = max(self._due, now + fault.duration)
                    text = f"will see in {fault.duration / SECOND:g}s"
                    self._note(kinds.WITHHELD, text, item)
                elif fault.fault == "expire-watch":
                    self._blind = True
                    self._note(kinds.WITHHELD, "never sees", item)
                    around.engine.at(now + fault.duration, self._expire)
                    return
                else:
                    self._end_at(now + around.latency)
        elif self._blind:
            return
        self._due = max(self._due, now + around.latency)
        self._deliver_at(self._due, item)

    def _deliver_at(self, when: int, item: NotedEvent) -> None:
        if when <= self._around.engine.clock.now():
            self._deliver(item)
        else:
            self._around.engine.at(when, partial(self._deliver, item))

    def _deliver(self, item: NotedEvent) -> None:
        if self._closed or self.cut is not None:
            return
        if self._process.paused_until > self._around.engine.clock.now():
            # It does not read; what is in its buffers waits.
            self._due = max(self._due, self._process.paused_until)
            self._around.engine.at(self._process.paused_until, partial(self._deliver, item))
            return
        if item.text:
            self._note(kinds.SEEN, "sees", item)
        self._arrived.append(item.data)
        self._ready()

    def _expire(self) -> None:
        self._process.expired.add(self._plural)
        self.end()

    def _end_at(self, when: int) -> None:
        self._around.engine.at(max(when, self._due, self._around.engine.clock.now()), self.end)

    def end(self) -> None:
        """End it as a server does; what has arrived can still be read."""
        if not self._ended:
            self._ended = True
            self._inner.close()
            self._ready()

    def _note(self, what: str, saw: str, event: NotedEvent) -> None:
        text = f"{saw} {event.text}"
        self._around.history.add(self._process.name, what, text, event.revision)
