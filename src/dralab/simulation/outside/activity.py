"""What a scheduler does, seen at the server: when it was last active, what it answered, its binds.

Called from the server's thread, read from the driver's.
"""

import threading
from collections.abc import Callable
from typing import Final

import orjson

from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse
from dralab.kernel.clock import SECOND, WallClock

# Schedulers post events long after the decision (in batches, as series): they are no sign of work.
EVENTS: Final = "events"
# After so many times the patience even a scheduler that never falls silent is not waited for.
RESTLESS: Final = 6


class Activity:
    """Watches requests; `wait` is how the driver waits for silence."""

    def __init__(self, *, polls: bool = False) -> None:
        self.polls = polls
        self.clock = WallClock()
        self.requests = 0
        self.event_writes = 0
        self.last = self.clock.now()
        self.answered: set[str] = set()
        self.bound: list[tuple[str, str]] = []
        self.seen: set[str] = set()
        self.writes = 0
        self.rounds = 0
        self._writes_at_round = -1
        self._lock = threading.Lock()

    def observe(self, request: HttpRequest, answer: Answer) -> None:
        """Take note of a request that was answered."""
        parts = request.path.strip("/").split("/")
        with self._lock:
            self.requests += 1
            if EVENTS in parts:
                self.event_writes += request.method != "GET"
                return
            if request.method == "GET":
                # Who polls is never silent: only what it writes counts.
                if not self.polls:
                    self.last = self.clock.now()
                self._read(parts)
            else:
                self.last = self.clock.now()
                self.writes += 1
                self._written(request, parts, answer)

    def _read(self, parts: list[str]) -> None:
        for kind in ("pods", "nodes"):
            # .../pods, not .../pods/NAME: a list or a watch.
            if parts[-1] == kind:
                self.seen.add(kind)
                if kind == "pods":
                    self.rounds += self.writes == self._writes_at_round
                    self._writes_at_round = self.writes

    def _written(self, request: HttpRequest, parts: list[str], answer: Answer) -> None:
        good = isinstance(answer, HttpResponse) and answer.status < 300
        if good and request.method == "POST" and parts[-1] == "bindings":
            # The old way: a Binding is created in the namespace, its name is the pod's.
            key = f"{parts[-2]}/{_field(request.body, 'metadata')}"
            self.answered.add(key)
            self.bound.append((key, _field(request.body, "target")))
        if not good or "pods" not in parts:
            return
        index = parts.index("pods")
        if len(parts) != index + 3 or parts[index - 2] != "namespaces":
            return
        key, what = f"{parts[index - 1]}/{parts[index + 1]}", parts[index + 2]
        if what == "binding" and request.method == "POST":
            self.answered.add(key)
            self.bound.append((key, _field(request.body, "target")))
        elif what == "status":
            self.answered.add(key)

    def take_bound(self) -> list[tuple[str, str]]:
        """Return the binds since the last call: pod and node."""
        with self._lock:
            found, self.bound = self.bound, []
        return found

    def touch(self) -> None:
        """Count the silence from now."""
        with self._lock:
            self.last = self.clock.now()

    def wait(self, done: Callable[[], bool], settle: float, patience: float) -> bool:
        """Wait until `done()` and `settle` seconds of silence; False after `patience` seconds."""
        began = self.clock.now()
        # Woken by time, not by each request: waking costs the server more than looking costs us.
        pause = threading.Event()
        while True:
            with self._lock:
                now = self.clock.now()
                silent = (now - self.last) / SECOND
                if silent >= settle and done():
                    return True
                waited = (now - began) / SECOND
                if waited > patience and (silent >= settle or waited > RESTLESS * patience):
                    return False
            pause.wait(max(0.005, min(0.05, settle - silent)))


def _field(body: bytes, part: str) -> str:
    try:
        return str(orjson.loads(body)[part]["name"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # Written in protobuf: the driver reads the node from the pod.
        return ""
