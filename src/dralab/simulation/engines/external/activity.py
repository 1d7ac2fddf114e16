"""The requests of a scheduler to the server: whether it is working or silent.

Called from the server's thread, read from the driver's.
"""

import threading
from collections.abc import Callable
from typing import Final

from dralab.apiserver.http.messages import Answer, HttpRequest
from dralab.kernel.clock import SECOND, WallClock

# What a scheduler writes besides its decisions, in its own time: events long after the decision (in
# batches, as series), and the proof that it leads. Neither is a sign of work.
EVENTS: Final = "events"
LEADING: Final = frozenset({"leases", "configmaps", "endpoints"})
# What every client asks.
DISCOVERY: Final = frozenset({"version", "openapi", "healthz", "livez", "readyz"})
LOOK: Final = 0.002  # seconds between looks; being woken by each request costs the server more


class Activity:
    """Watches requests; `wait` is how the driver waits for something and for silence."""

    def __init__(self, *, polls: bool = False) -> None:
        self.polls = polls
        self.clock = WallClock()
        self.requests = 0
        self.event_writes = 0
        self.renewals = 0
        # When it was last at work, and when anything at all was heard of it.
        self.last = self.heard = self.touched = self.clock.now()
        self.pod_reads = 0
        self.pod_watches = 0
        self.writes = 0
        self.quiet_rounds = 0
        self._writes_at_round = -1

    def observe(self, request: HttpRequest, answer: Answer) -> None:  # noqa: ARG002 - an observer
        """Take note of a request that was answered."""
        parts = request.path.strip("/").split("/")
        self.requests += 1
        self.heard = self.clock.now()
        if EVENTS in parts:
            self.event_writes += request.method != "GET"
        elif not LEADING.isdisjoint(parts):
            self.renewals += request.method != "GET"
        elif request.method == "GET":
            self._read(request, parts)
        else:
            self.writes += 1
            self.last = self.heard

    def _read(self, request: HttpRequest, parts: list[str]) -> None:
        if parts[0] in DISCOVERY or len(parts) < 3:
            return
        if parts[-1] == "pods":
            self.pod_reads += 1
            if "watch=" in request.query:
                self.pod_watches += 1
            else:
                self.quiet_rounds += self.writes == self._writes_at_round
                self._writes_at_round = self.writes
        # A polling scheduler is never silent: only what it writes counts.
        if not self.polls:
            self.last = self.heard

    def touch(self) -> None:
        """Something has happened: count the silence, and a poller's rounds, from now."""
        self.last = self.touched = self.clock.now()
        # The round that is under way may have begun before it: a whole one has to follow.
        self._writes_at_round = -1
        self.quiet_rounds = 0

    def silence(self) -> float:
        """Return for how many seconds it has not been at work."""
        return (self.clock.now() - self.last) / SECOND

    def stir(self) -> None:
        """It does something that is not a request: count the silence from now."""
        self.last = self.clock.now()

    def unheard(self) -> float:
        """Return for how many seconds nothing was heard of it: no list and no event either."""
        return (self.clock.now() - max(self.touched, self.heard)) / SECOND

    def wait(self, done: Callable[[float], bool], limit: float) -> bool:
        """Wait until `done(silence)`; False after `limit` seconds."""
        began = self.clock.now()
        pause = threading.Event()
        while not done(self.silence()):
            if self.clock.now() - began > limit * SECOND:
                return False
            pause.wait(LOOK)
        return True
