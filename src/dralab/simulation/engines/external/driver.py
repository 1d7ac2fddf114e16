"""Shared by both ways to drive external schedulers: report, decisions, end.

`pacing` waits in real time until the schedulers are silent; `conductor` owns their clock.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dralab.apiserver.http.messages import Answer, HttpRequest
from dralab.apiserver.storage import Change, Store
from dralab.kernel.clock import SECOND, WallClock
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.external.served_cluster import ServedCluster


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
        """Expect first answers about these pods; needs the store's lock."""
        self.awaited = keys
        self._asked = self.last = self.clock.now()

    @property
    def any(self) -> bool:
        """Whether there are new decisions."""
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


# What a scheduler writes besides its decisions, in its own time: events long after the decision (in
# batches, as series), and the proof that it leads. Neither is a sign of work.
EVENTS: Final = "events"
LEADING: Final = frozenset({"leases", "configmaps", "endpoints"})
# What every client asks.
DISCOVERY: Final = frozenset({"version", "openapi", "healthz", "livez", "readyz"})
LOOK: Final = 0.002  # seconds between looks; being woken by each request costs the server more


class Activity:
    """Watches requests; `wait` waits for a condition or for silence."""

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
        """Note a request that was answered."""
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
        """Restart the count of silence, and of a poller's rounds."""
        self.last = self.touched = self.clock.now()
        # The round that is under way may have begun before it: a whole one has to follow.
        self._writes_at_round = -1
        self.quiet_rounds = 0

    def silence(self) -> float:
        """Return for how many seconds the schedulers have been silent."""
        return (self.clock.now() - self.last) / SECOND

    def stir(self) -> None:
        """Restart the count of silence for an activity that is not a request."""
        self.last = self.clock.now()

    def unheard(self) -> float:
        """Return for how many seconds there was no request at all."""
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


# More often than that at one instant, deleting what comes again cannot be meant.
ROUNDS: Final = 1000
DELETES_FOREVER: Final = "the scheduler deletes pods as fast as they are created again"


@dataclass(slots=True)
class DriverReport:
    """The report of a run besides its tasks.

    `clock` says how time was kept; empty where real silence was waited for, then `why_no_clock`
    may say why. `crept` are nanoseconds that passed since a program polled the clock. `clock_notes`
    are what the clock said of the programs: a call that runs in real time, a refused connection.
    """

    steps: int = 0
    requests: int = 0
    event_writes: int = 0
    renewals: int = 0
    late_binds: int = 0
    # Pods without a first answer, and pods that had room and were not bound in time.
    unanswered: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    nobodys: list[str] = field(default_factory=list)
    quiet_period: float = 0.0
    restarts: int = 0
    polls: bool = False
    terse: bool = False
    ended: str = ""
    clock: bool = False
    why_no_clock: str = ""
    jumps: int = 0
    crept: int = 0
    clock_notes: list[str] = field(default_factory=list)


class Stopped(Exception):  # noqa: N818 - no error: the run leaves off
    """The run stops here; `why` is empty if the user asked for it."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class ClockedRun:
    """One run against a cluster under our clock.

    `trouble` says what became of a scheduler that ended, `revive` starts it again, up to `restarts`
    times. `names` are the scheduler names that are answered to.
    """

    def __init__(
        self,
        served: ServedCluster,
        *,
        scheduler_name: str,
        schedulers: int,
        restarts: int,
        everyone: bool = False,
    ) -> None:
        self.served = served
        self.schedulers = schedulers
        self.restarts = restarts
        self.names: set[str] = {scheduler_name}
        self.activity = Activity()
        self.decisions = DecisionWatch(served.store, everyone=everyone)
        self.report = DriverReport()
        self.trouble: Callable[[], str] = lambda: ""
        self.revive: Callable[[], int] | None = None
        self._stop: Callable[[], bool] = lambda: False
        served.cluster.server.observers.append(self.activity.observe)

    def meet(self, reads: int | None = None) -> None:
        """Wait until the schedulers watch pods and are idle; DecisionError.

        `reads` is how many lists or watches of pods there have to be: one for each of them.
        """
        raise NotImplementedError

    def meet_again(self, reads: int) -> None:
        """Wait until restarted schedulers watch pods, too."""
        self.meet(reads)

    def drive(self, progress: Callable[[int, int], None] | None) -> None:
        """Run the simulation; Stopped if it ends early."""
        raise NotImplementedError

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Run to the end; False if stopped earlier: `report.ended` says why."""
        if stop is not None:
            self._stop = stop
        try:
            self.meet()
            self.drive(progress)
        except Stopped as stopped:
            self.report.ended = stopped.why
            return False
        return True

    def release(self) -> None:
        """Release the server, if it was held."""

    def finish(self) -> None:
        """Handle the last decisions before the schedulers ended; record the run's numbers."""
        self.take_in()
        self.report.requests = self.activity.requests
        self.report.event_writes = self.activity.event_writes
        self.report.renewals = self.activity.renewals
        self.decisions.stop()

    def look(self) -> None:
        """Check for a stop request, and for schedulers that have ended."""
        if self._stop():
            raise Stopped
        trouble = self.trouble()
        if not trouble:
            return
        if self.revive is None or self.report.restarts >= self.restarts:
            raise Stopped(trouble)
        self.report.restarts += 1
        # Counted before it starts: it may be quicker than we are.
        reads = self.activity.pod_reads
        self.meet_again(reads + self.revive())
        self.activity.touch()

    def look_while_meeting(self) -> None:
        """Do the same while no program watches pods yet: then nothing can be saved."""
        if trouble := self.trouble():
            raise DecisionError(f"did not ask for pods: {trouble}")
        if self._stop():
            raise Stopped

    def is_somebodys(self, key: str) -> bool:
        """Whether a pod names one of the schedulers."""
        name = self.served.pods[key].pod.scheduler
        return not name or name in self.names

    def await_fresh(self, before: set[str]) -> None:
        """Expect answers about new pods; needs the store's lock."""
        fresh = self.served.fresh - before
        nobodys = {key for key in fresh if not self.is_somebodys(key)}
        self.report.nobodys += sorted(nobodys - set(self.report.nobodys))
        self.decisions.expect(self.decisions.awaited | (fresh - nobodys))

    def take_in(self) -> bool:
        """Apply the decisions to the cluster; return whether there were any."""
        decisions = self.decisions
        if not decisions.any:
            return False
        late, before = 0, set(self.served.fresh)
        with self.served.together():
            for key, uid, node in decisions.take_created():
                self.served.adopt(key, uid, node)
            for key, uid, grace in decisions.take_deleted():
                self.served.delete(key, uid, grace)
            for key, node in decisions.take_bound():
                was_late = self.served.bind(key, node)
                late += was_late
                if not was_late and key in self.report.passed_over:
                    self.report.passed_over.remove(key)
            decisions.awaited = {key for key in decisions.awaited if self.served.waits(key)}
            self.await_fresh(before)
            # A polling scheduler has to see nothing of this: its round continues.
            if not self.activity.polls:
                self.activity.touch()
        if late:
            self.was_late(late)
        return True

    def was_late(self, late: int) -> None:
        """Count pods that could have been bound in an earlier step."""
        raise NotImplementedError
