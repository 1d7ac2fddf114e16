"""The watch of a program under test: changes in order, which may be late or lost.

Order within one kind is kept, as on a real server; between kinds nothing is promised.
"""

from collections import deque
from collections.abc import Callable

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import metadata_of
from dralab.runtime.client import Watch, WatchEvent
from dralab.testing import history as kinds
from dralab.testing.surroundings import RequestingProcess, TrialSurroundings


class ProgramWatch:
    """The `Watch` of a program, on the simulated engine; `lag` holds its first events back."""

    def __init__(
        self,
        around: TrialSurroundings,
        process: RequestingProcess,
        inner: Watch,
        plural: str,
        lag: int,
    ) -> None:
        self._around = around
        self._process = process
        self._inner = inner
        self._plural = plural
        self._arrived: deque[WatchEvent] = deque()
        self._ready: Callable[[], None] = lambda: None
        self._ended: ApiError | None = None
        self._closed = False
        self._noted = False
        self._cut = False
        self._due = around.engine.clock.now() + lag
        # Until then changes are lost, and the watch ends.
        self._blind_until = 0
        inner.notify(self._news)

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """Return the next change; None if none comes within `timeout` seconds."""
        if not self._arrived and self._ended is None and timeout != 0:
            self._wait(timeout)
        if self._arrived:
            return self._arrived.popleft()
        if self._ended is not None:
            raise self._ended
        return None

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time `next` may have got something to return."""
        self._ready = ready
        if self._arrived or self._ended is not None:
            ready()

    def close(self) -> None:
        """Stop; further changes are not kept."""
        self._closed = True
        self._inner.close()

    def cut(self, error: ApiError) -> None:
        """End at once, with an error: what is on its way never arrives."""
        if self._closed or self._ended is not None:
            return
        self._inner.close()
        self._cut = True
        self._ended = error
        self._ready()

    def _wait(self, timeout: float | None) -> None:
        """Let time pass until something arrives; None waits for an hour at most."""
        until = self._around.engine.clock.now() + int(
            (3600 if timeout is None else timeout) * SECOND
        )
        while not self._arrived and self._ended is None:
            now = self._around.engine.clock.now()
            if now >= until:
                return
            self._process.wait(min(SECOND // 10, until - now))

    # --- on the way -------------------------------------------------------------------------------

    def _news(self) -> None:
        # Called with the store's lock held: only note it.
        if not self._noted:
            self._noted = True
            self._around.engine.soon(self._take)

    def _take(self) -> None:
        self._noted = False
        while not (self._closed or self._cut):
            try:
                event = self._inner.next(0)
            except ApiError as error:
                self._end_at(self._due, error)
                return
            if event is None:
                return
            self._send(event)

    def _send(self, event: WatchEvent) -> None:
        engine, plan = self._around.engine, self._around.plan
        now = engine.clock.now()
        if self._blind_until:
            self._note(kinds.WITHHELD, "never sees", event)
            return
        fault = plan.at_event(self._process.program, self._plural, revision_of(event))
        if fault is not None:
            self._around.history.add(self._process.name, kinds.FAULT, fault.text)
            if fault.fault == "hold-watch":
                self._due = max(self._due, now + fault.duration)
                self._note(kinds.WITHHELD, f"will see in {fault.duration / SECOND:g}s", event)
            elif fault.fault == "expire-watch":
                self._blind_until = now + fault.duration
                self._note(kinds.WITHHELD, "never sees", event)
                self._end_at(self._blind_until, ApiError("Expired", "too old resource version"))
                return
            else:
                self._end_at(now + self._around.latency, ApiError("Expired", "the watch ended"))
        self._due = max(self._due, now + self._around.latency)
        engine.at(self._due, lambda: self._deliver(event))

    def _deliver(self, event: WatchEvent) -> None:
        if self._closed:
            return
        if self._cut:
            self._note(kinds.WITHHELD, "never sees", event)
            return
        self._note(kinds.SEEN, "sees", event)
        self._arrived.append(event)
        self._ready()

    def _end_at(self, when: int, error: ApiError) -> None:
        def end() -> None:
            if not self._closed and self._ended is None:
                self._ended = error
                self._ready()

        self._around.engine.at(max(when, self._due), end)

    def _note(self, what: str, saw: str, event: WatchEvent) -> None:
        metadata = metadata_of(event.object)
        place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".strip("/")
        text = f"{saw} {event.type} {self._plural} {place}"
        self._around.history.add(self._process.name, what, text, revision_of(event))


def revision_of(event: WatchEvent) -> int:
    """Return the revision of the change that an event shows, 0 if it does not say."""
    return int(metadata_of(event.object).get("resourceVersion") or 0)
