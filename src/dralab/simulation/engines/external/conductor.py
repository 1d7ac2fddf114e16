"""Drives schedulers under our clock, which advances when nothing is left to do.

That means for every thread of every program, the server, and the sockets between them. Then the
clock jumps to the next event of the simulation, or to the next instant that a program waits for. A
decision cannot come late: the clock stands still until it is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.external.clocked_processes import ServerTurns
from dralab.simulation.engines.external.driver import (
    DELETES_FOREVER,
    ROUNDS,
    ClockedRun,
    Stopped,
)
from dralab.simulation.engines.external.served_cluster import ServedCluster
from dralab.simulation.engines.external.strides import Strides
from dralab.virtualtime import Supervisor

# For so long after the last write it is waited whether a controller creates another pod.
REACTION: Final = 60 * SECOND
# Bookmarks wake every informer, though its watch never breaks here.
TICK: Final = 600 * SECOND
# Real seconds between looks at the user's wish to stop, while programs compute.
LOOK: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ConductorOptions:
    """How to drive programs under the clock: fields of `external:`, which says what they mean."""

    scheduler_name: str
    warm_up: float
    timer_slack: float
    skip_idle_timers: bool
    rest: float
    restarts: int
    instant_timeout: float


class Conductor(ClockedRun):
    """One run whose programs are under `supervisor`; used from the thread that made that.

    `creates_pods`: there are controllers that may create pods at any time.

    The clock shows an earlier time than that of the run's begin, for the programs to start in; or
    the time at which a run is resumed.
    """

    def __init__(
        self,
        served: ServedCluster,
        options: ConductorOptions,
        supervisor: Supervisor,
        *,
        schedulers: int = 1,
    ) -> None:
        super().__init__(
            served,
            scheduler_name=options.scheduler_name,
            schedulers=schedulers,
            restarts=options.restarts,
            everyone=True,
        )
        self.options = options
        self.supervisor = supervisor
        self.report.clock = True
        self.creates_pods = False
        self.start_controllers: Callable[[], None] = lambda: None
        self._slack = int(options.timer_slack * SECOND)
        self.strides: Strides | None = None
        if options.skip_idle_timers:
            self.strides = Strides(served.agenda.now())
        self._rest = int(options.rest * SECOND)
        self._writes = 0
        self._written = served.agenda.now()  # when a program wrote last
        self._meeting = False
        self._ticked = served.agenda.now()
        self._server = ServerTurns(served.cluster)
        supervisor.trust_local_peers()

    # --- the run --------------------------------------------------------------------------------

    def meet(self, reads: int | None = None) -> None:
        """Let the programs start, until they watch pods; DecisionError."""
        reads = self.schedulers if reads is None else reads
        end = max(self.served.begin, self.served.agenda.now())
        started = self.served.agenda.now() == end  # a run that is resumed
        self._meeting = True
        try:
            self._settle()
            while (when := self.supervisor.next_deadline()) is not None and when <= end:
                self._advance_programs(when, end)
            self._advance_programs(end, end)
        finally:
            self._meeting = False
        if self.activity.pod_reads < reads and not started:
            raise DecisionError(
                f"did not ask for pods in {self.options.warm_up:g} s of its clock (warm_up)"
            )

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Run to the end; False if stopped earlier. The server runs freely before and after."""
        try:
            return super().run(progress, stop)
        finally:
            # How programs end after that takes real time.
            self.report.jumps, self.report.crept = self.supervisor.jumps, self.supervisor.crept
            self.release()

    def release(self) -> None:
        """Let the server run freely; call it too if the run never began, before the server ends."""
        self._server.close()

    def meet_again(self, reads: int) -> None:
        """Continue: a restarted scheduler starts while the clock stands still."""

    def drive(self, progress: Callable[[int, int], None] | None) -> None:
        """Run the simulation, from instant to instant."""
        served, agenda = self.served, self.served.agenda
        until, ended = served.how.until, served.how.ended
        limit = None if until is None else served.begin + until
        self._written = agenda.now()
        with served.together():
            self.start_controllers()
        self._settle()
        while not self._is_over():
            self.look()
            if ended is not None and served.lives.over >= ended:
                break
            event, deadline = agenda.next_time(), self.supervisor.next_deadline()
            when = min((one for one in (event, deadline) if one is not None), default=None)
            if limit is not None and (when is None or when > limit):
                self._advance_programs(limit, limit)
                agenda.happen(limit)
                break
            if when is None or (event is None and when > self._written + self._rest):
                break
            if event is None or (deadline is not None and deadline <= event):
                ends = [one for one in (event, limit) if one is not None]
                self._stride(when, ends)
            else:
                self._happen(event)
            if progress is not None:
                progress(agenda.now() - served.begin, served.lives.over)
        self._settle()

    def _stride(self, deadline: int, ends: Sequence[int]) -> None:
        """Advance to a program's deadline, or further if nothing is to decide; TimerMattered."""
        strides, to, before = self.strides, deadline, self._asked()
        if strides is not None:
            if any(self.served.capacity.waiting.values()):
                strides.stop()
            end = min([*ends, self._ticked + TICK, self._written + self._rest])
            to = strides.next(self.served.agenda.now(), deadline, end)
        self._advance_programs(to, min(ends, default=None))
        if strides is not None:
            strides.went(late=to > deadline, asked=self._asked() != before)

    def _asked(self) -> int:
        """Return the number of requests; events are posted long after what they tell."""
        return self.activity.requests - self.activity.event_writes

    def _is_over(self) -> bool:
        """Whether every pod has ended, and no program is about to create others."""
        entries = self.served.agenda.entries
        if not self.served.lives.finished or any(entry.what == "bring" for entry in entries()):
            return False
        if not self.creates_pods:
            return True
        if self.served.how.until is not None:
            return False
        return self.served.agenda.now() > self._written + REACTION

    def _happen(self, when: int) -> None:
        """Run the simulation's events of one instant, and the programs' reactions."""
        served = self.served
        self.report.steps += 1
        if self.strides is not None:
            self.strides.stop()
        served.fresh = set()
        with served.together():
            self.supervisor.advance(when)
            served.agenda.happen(when)
            self._tick(when)
            self.await_fresh(set())
        self._settle()
        served.sample()

    def _advance_programs(self, when: int, end: int | None) -> None:
        """Advance to a program's timer, or with slack to a later one, at most to `end`."""
        now = self.served.agenda.now()
        if self._slack:
            when = -(-when // self._slack) * self._slack
        when = max(when if end is None else min(when, end), now)
        self.supervisor.advance(when, late=bool(self._slack or self.strides))
        self.served.agenda.events.clock.advance_to(when)
        with self.served.together():
            self._tick(when)
        self._settle()

    def _tick(self, now: int) -> None:
        """Send heartbeats and bookmarks, and delete expired objects."""
        self.served.beat(now)
        if now - self._ticked >= TICK:
            self._ticked = now
            self.served.cluster.server.tick()

    # --- the present instant --------------------------------------------------------------------

    def _settle(self) -> None:
        """Let all programs finish the work of this instant."""
        agenda = self.served.agenda
        for _ in range(ROUNDS):
            self._wait_idle()
            if self.decisions.any:
                self.take_in()
            elif self._meeting or not self.creates_pods or agenda.next_time() != agenda.now():
                break
            else:  # what controllers of ours make of it
                with self.served.together():
                    agenda.happen(agenda.now())
                self.served.sample()
        else:
            raise Stopped(DELETES_FOREVER)
        if self.activity.writes != self._writes:
            self._writes, self._written = self.activity.writes, self.served.agenda.now()

    def _wait_idle(self) -> None:
        """Wait until programs, server and sockets are idle, all at one instant."""
        waited = 0.0
        while True:
            if not self.supervisor.wait_idle(LOOK):
                waited += LOOK
                self._look()
                if waited > self.options.instant_timeout:
                    self._never_pause()
                continue
            self._look()
            if not self._server.take():
                return
            # What it has sent may be for a thread that waits for its turn, or still on its way.
            self.supervisor.look_again()

    def _never_pause(self) -> None:
        names = ", ".join(sorted(set(self.supervisor.running.values())))
        limit = self.options.instant_timeout
        told = f"{names} did not pause for {limit:g} s at one instant (instant_timeout)"
        raise DecisionError(told) if self._meeting else Stopped(told)

    def _look(self) -> None:
        if self._meeting:
            self.look_while_meeting()
        else:
            self.look()

    def was_late(self, late: int) -> None:
        """Do nothing: the clock stood still from the cause to the bind, so it was not late.

        A scheduler that leaves a pod waiting although a node has room, in a back-off for example,
        binds it when its own clock says so.
        """
