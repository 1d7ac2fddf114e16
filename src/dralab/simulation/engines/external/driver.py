"""What both ways to drive external schedulers share: their report, their decisions, their end.

`pacing` waits in real time until the schedulers are silent; `conductor` owns their clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dralab.simulation.engines.external.activity import Activity
from dralab.simulation.engines.external.decisions import DecisionWatch
from dralab.simulation.engines.external.served_cluster import ServedCluster
from dralab.simulation.errors import DecisionError

# More often than that at one instant, deleting what comes again cannot be meant.
ROUNDS: Final = 1000
DELETES_FOREVER: Final = "the scheduler deletes pods as fast as they are created again"


@dataclass(slots=True)
class DriverReport:
    """What happened besides the tasks.

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
    """The run leaves off here; `why` is empty if the user asked for it."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class ClockedRun:
    """One run against a cluster whose clock is ours.

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
        """Wait until the schedulers look at pods and have nothing to do; DecisionError.

        `reads` is how many lists or watches of pods there have to be: one for each of them.
        """
        raise NotImplementedError

    def meet_again(self, reads: int) -> None:
        """Some were started again: wait until they look at pods, too."""
        self.meet(reads)

    def drive(self, progress: Callable[[int, int], None] | None) -> None:
        """Let the run happen; Stopped where it leaves off early."""
        raise NotImplementedError

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Run to the end; False if it left off earlier: `report.ended` says why."""
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
        """Let go of the server, if it was held."""

    def finish(self) -> None:
        """Take in what was still decided before the schedulers ended; the numbers of the run."""
        self.take_in()
        self.report.requests = self.activity.requests
        self.report.event_writes = self.activity.event_writes
        self.report.renewals = self.activity.renewals
        self.decisions.stop()

    def look(self) -> None:
        """Look after the user's wish to stop, and after schedulers that have ended."""
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
        """Do the same while no program has asked for pods yet: then nothing can be kept."""
        if trouble := self.trouble():
            raise DecisionError(f"did not ask for pods: {trouble}")
        if self._stop():
            raise Stopped

    def is_somebodys(self, key: str) -> bool:
        """Whether a pod names a scheduler that takes part."""
        name = self.served.pods[key].pod.scheduler
        return not name or name in self.names

    def await_fresh(self, before: set[str]) -> None:
        """Wait for answers about the pods that have come since; with the store's lock held."""
        fresh = self.served.fresh - before
        nobodys = {key for key in fresh if not self.is_somebodys(key)}
        self.report.nobodys += sorted(nobodys - set(self.report.nobodys))
        self.decisions.expect(self.decisions.awaited | (fresh - nobodys))

    def take_in(self) -> bool:
        """Let the served follow what was decided; return whether anything was."""
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
        """Pods were bound that could have been bound in an earlier step."""
        raise NotImplementedError
