"""Drives schedulers that run in real time: delivers events, waits for answers and silence.

Used where there is no virtual clock for programs (`conductor` where there is).

A step is over as soon as no further decision is possible: every new pod has its answer, and no node
has room for a waiting pod. If one has, the driver waits for silence. A bind is *late* if the
scheduler could have made it in an earlier step: the pod existed, and its node had room before the
current step began. Late binds mean that silence was taken for an answer too early; each doubles the
waiting time, and their number is reported.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.external.driver import (
    DELETES_FOREVER,
    ROUNDS,
    ClockedRun,
    Stopped,
)
from dralab.simulation.engines.external.served_cluster import ServedCluster

# Where nothing can come of a step any more, this part of the quiet period is waited for all the
# same: a component other than the scheduler may react to what has happened.
BRIEF: Final = 0.1
# After so many answers the scheduler is known: silence of this many times what its first answer to
# a step took at most, and of a second at least, means that no answer will come.
KNOWN: Final = 5
PAUSES: Final = 20.0
SHORT: Final = 1.0
# A scheduler that neither answers nor asks for so many steps is waited for briefly, then taken for
# gone.
DEAF: Final = 3
GONE: Final = 30
# After so many times the answer_timeout even a scheduler that never falls silent is not waited for.
RESTLESS: Final = 6
# So many pods of higher priority for which none was deleted: this scheduler does not preempt.
VAIN: Final = 5
# Before the run ends, this many answer timeouts are waited for a bind: kube-scheduler's back-off is
# up to 10 s, and looked at once a second.
LAST: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingOptions:
    """How to pace simulated time to a scheduler: fields of `external:`, in real seconds."""

    quiet_period: float
    answer_timeout: float
    bind_grace: float
    start_timeout: float
    start_quiet_period: float
    scheduler_name: str
    polls: bool
    overcommit: bool
    claims: bool
    wait_for_rejections: bool
    strict: bool
    restarts: int


class Pacer(ClockedRun):
    """One run paced by silence.

    `at_work` says whether a scheduler could run but does not (where we started it, and can know).
    """

    def __init__(
        self, served: ServedCluster, options: PacingOptions, *, schedulers: int = 1
    ) -> None:
        super().__init__(
            served,
            scheduler_name=options.scheduler_name,
            schedulers=schedulers,
            restarts=options.restarts,
        )
        self.options = options
        self.activity.polls = options.polls
        self.report.quiet_period = options.quiet_period
        self.at_work: Callable[[], bool] = lambda: False
        self._bind_grace = options.bind_grace
        self._given_up: set[str] = set()
        self._asked_at = 0
        self._idle = threading.Event()
        self._deaf = self._vain = 0

    def meet(self, reads: int | None = None) -> None:
        """Wait until the schedulers watch pods and are silent; DecisionError."""
        options, activity = self.options, self.activity
        reads, met = self.schedulers if reads is None else reads, 0

        def ready(silence: float) -> bool:
            nonlocal met
            if activity.pod_reads >= reads:
                met = met or activity.clock.now()
                if silence >= options.start_quiet_period:
                    return True
                # A scheduler that lists again and again is never silent.
                return activity.clock.now() - met > RESTLESS * options.start_quiet_period * SECOND
            self.look_while_meeting()
            return False

        activity.polls = False  # until it is known: silence includes that of lists
        if not activity.wait(ready, options.start_timeout):
            raise DecisionError(f"did not ask for pods in {options.start_timeout:g} s")
        activity.polls = options.polls or not activity.pod_watches
        self.report.polls = activity.polls

    def drive(self, progress: Callable[[int, int], None] | None) -> None:
        """Run the simulation, step by step."""
        served, agenda = self.served, self.served.agenda
        until, ended = served.how.until, served.how.ended
        # Where a run continues from a checkpoint there may be pods that wait: as good as new ones.
        self._step(None, {key for keys in served.capacity.waiting.values() for key in keys})
        while not served.lives.finished:
            self.look()
            if ended is not None and served.lives.over >= ended:
                break
            when = agenda.next_time()
            if until is not None and (when is None or when > served.begin + until):
                agenda.happen(served.begin + until)
                break
            if when is None:
                # Nothing will happen by itself: time stands still, nothing can be late, and a
                # scheduler that backs off gets its time.
                if not self._expecting() or not self._heard(LAST * self.options.answer_timeout):
                    # What it still has to say of pods that wait is the reason that is told.
                    self._heard(self.report.quiet_period)
                    break
                self._hear_out()
                continue
            self._step(when)
            if progress is not None:
                progress(when - served.begin, served.lives.over)
        self.look()

    # --- a step -------------------------------------------------------------------------------

    def _step(self, when: int | None, fresh: Iterable[str] = ()) -> None:
        """Deliver the events of one instant, and wait for the schedulers' reactions."""
        served = self.served
        self.report.steps += when is not None
        served.capacity.remember()
        served.fresh = set(fresh)
        with served.together():
            if when is not None:
                served.agenda.happen(when)
            self.await_fresh(set(fresh))
            self.activity.touch()
        self._hear_out()

    def _hear_out(self) -> None:
        """Wait for answers, and let bound pods start, until nothing more can follow."""
        for _ in range(ROUNDS):
            if self.activity.polls:
                self._hear_a_poller()
            else:
                self._wait_for_answers()
                self.take_in()
                self._wait_for_binds()
            if not self.decisions.awaited:
                break
        else:
            raise Stopped(DELETES_FOREVER)
        self.served.sample()

    def _hear_a_poller(self) -> None:
        """Wait for a whole round of lists without a write, or until nothing more can follow."""
        activity, decisions = self.activity, self.decisions
        while decisions.awaited or self._expecting():
            if not self._wait(
                lambda _: decisions.any or activity.quiet_rounds > 0, self._answers_no_more
            ):
                self._give_answers_up(deaf=True)
                return
            self._deaf = 0
            if not self.take_in():
                break
        decisions.awaited = set()

    def _wait_for_answers(self) -> None:
        """Wait until each new pod has an answer; record those without one."""
        activity, decisions = self.activity, self.decisions
        requests = activity.requests
        while decisions.awaited:
            if not self._wait(self._answered, self._answers_no_more):
                break
            if decisions.awaited and not self.take_in():
                # Of a pod that has room nowhere this scheduler says nothing.
                decisions.awaited = set()
        else:
            self._deaf = 0
            return
        if not self.served.capacity.placeable() & decisions.awaited and not decisions.refusals:
            self.report.terse = True
        self._give_answers_up(deaf=activity.requests == requests)

    def _answered(self, silence: float) -> bool:
        """Whether no pod awaits an answer, or there are new decisions."""
        decisions = self.decisions
        if not decisions.awaited:
            return True
        if self._knows_room():
            if decisions.any:
                return self._has_paused(silence)
            return not self.served.capacity.placeable() & decisions.awaited
        if not self._is_silent(silence):
            return False
        terse = self.report.terse and not decisions.refusals
        return decisions.any or (terse and not self.served.capacity.placeable() & decisions.awaited)

    def _knows_room(self) -> bool:
        """Whether a pod without room may be left to the scheduler, without an answer.

        It has refused pods, and never overfilled a node; and no pod could be deleted for one. So
        that pod will not be bound before room comes: time need not wait for hundreds of refusals.
        """
        if self.options.wait_for_rejections or self.options.overcommit or self.served.over_capacity:
            return False
        return self.decisions.refusals > 0 and not self._outranked()

    def _give_answers_up(self, *, deaf: bool) -> None:
        """Record the pods without an answer; `deaf`: the scheduler made no request at all."""
        awaited, self.decisions.awaited = self.decisions.awaited, set()
        if self.report.terse:
            awaited &= self.served.capacity.placeable()
        self.report.unanswered += sorted(awaited - set(self.report.unanswered))
        self._deaf = self._deaf + 1 if deaf else 0
        if self._deaf >= GONE:
            raise Stopped("the scheduler is silent")

    def _answers_no_more(self) -> bool:
        """Whether to stop waiting for answers."""
        activity, decisions = self.activity, self.decisions
        limit = self.options.answer_timeout
        if activity.polls:
            return activity.unheard() > (min(limit, SHORT) if self._deaf >= DEAF else limit)
        if decisions.answers >= KNOWN:
            limit = min(limit, max(SHORT, PAUSES * decisions.latency))
        if self._deaf >= DEAF:
            limit = min(limit, SHORT)
        if self._is_restless():
            return True
        return activity.silence() > limit and self._is_silent(activity.silence())

    def _is_restless(self) -> bool:
        """Whether requests keep coming without effect for too long."""
        activity = self.activity
        since = activity.clock.now() - max(activity.touched, self.decisions.last)
        return since > RESTLESS * self.options.answer_timeout * SECOND

    def _wait_for_binds(self) -> None:
        """Let bound pods start, until no waiting pod has room or the scheduler is silent."""
        while not self.decisions.awaited:
            if self._is_idle():
                # A component that is not a scheduler may react to what has happened, too.
                self._wait(self._has_paused, self._is_restless)
                if not self.take_in():
                    return
                continue
            self._wait(self._spoke_or_silent, self._is_restless)
            if self.take_in():
                continue
            # Where there is room for a pod that waits, the scheduler may just be slow: more silence
            # is asked for, once a pod.
            expected = self._expecting(surely=True) - self._given_up
            if not expected or not self._wait_for_bind_of(expected):
                return

    def _is_idle(self) -> bool:
        """Whether nothing can be bound, even by deleting pods."""
        if self.options.overcommit or self._outranked():
            return False
        return not self._expecting()

    def _wait_for_bind_of(self, expected: set[str]) -> bool:
        """Wait for a decision about pods that could be placed; False if none came."""
        if self._heard(self._bind_grace):
            return True
        self._given_up |= expected
        placeable = self.served.capacity.placeable() & expected
        self.report.passed_over += sorted(placeable - set(self.report.passed_over))
        self._vain += not placeable
        return False

    def _spoke_or_silent(self, silence: float) -> bool:
        """Whether the schedulers have decided something and paused, or are silent."""
        return self._has_paused(silence) if self.decisions.any else self._is_silent(silence)

    def _has_paused(self, silence: float) -> bool:
        return silence >= BRIEF * self.report.quiet_period

    def _is_silent(self, silence: float) -> bool:
        """Whether the schedulers are silent: no requests, none in transit, no runnable thread."""
        activity = self.activity
        if silence < self.report.quiet_period:
            return False
        if self._asked_at != activity.last:
            # What it has sent may wait in a socket: the server may be what is slow.
            self._asked_at, self._idle = activity.last, threading.Event()
            self.served.cluster.when_idle(self._idle.set)
        if not self._idle.is_set():
            return False
        # One that never sleeps is believed for as long as one that is hoped for.
        if activity.unheard() < self._bind_grace and self.at_work():
            activity.stir()
            return False
        return True

    def _expecting(self, *, surely: bool = False) -> set[str]:
        """Return the waiting pods that could be bound, or that others could be deleted for."""
        served = self.served
        found = served.capacity.placeable(surely=surely)
        preempts = self.decisions.deletions > 0 or self._vain < VAIN
        if preempts and self._outranked():
            others = served.capacity.after_evicting(served.evictable()) - found
            # A pod that has been promised a node has had its answer.
            found |= {key for key in others if not served.is_nominated(key)}
        return {key for key in found if self.is_somebodys(key)}

    def _outranked(self) -> bool:
        """Whether some waiting pod has a higher priority than a running one."""
        served = self.served
        highest = max((needs.priority for needs in served.capacity.waiting), default=None)
        return highest is not None and any(
            task.needs.priority < highest for task in served.lives.running.values()
        )

    def _heard(self, seconds: float) -> bool:
        """Wait for a decision; False after `seconds`, or more if the schedulers are busy."""
        began = self.activity.clock.now()

        def enough() -> bool:
            waited = (self.activity.clock.now() - began) / SECOND
            if waited > RESTLESS * seconds:
                return True
            return waited > seconds and self._is_silent(self.activity.silence())

        return self._wait(lambda _: self.decisions.any, enough)

    def _wait(
        self, done: Callable[[float], bool], enough: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait until `done(silence)`; False if `enough` is true before."""
        looks = 0

        def over(silence: float) -> bool:
            nonlocal looks
            looks += 1
            if looks % 25 == 0:
                self.look()
            return done(silence) or enough()

        self.activity.wait(over, float("inf"))
        return done(self.activity.silence())

    def was_late(self, late: int) -> None:
        """Count late binds, and wait longer from now on."""
        report = self.report
        report.late_binds += late
        report.quiet_period *= 2
        self._bind_grace *= 2
        self._given_up.clear()
        if self.options.strict:
            raise DecisionError(
                f"{late} late binds: repeat with a longer quiet_period "
                f"(now {report.quiet_period:g} s)"
            )
