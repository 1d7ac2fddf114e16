"""The built-in schedulers of rigid jobs.

- `fcfs`: strictly in order; the head blocks everything behind it.
- `easy`: EASY back-filling that knows machines, leftmost first (batsched's `easy_bf`).
- `easy-counting`: EASY back-filling that only counts processors, as the textbook has it.
- `easy-sjbf`: the same, but back-filling tries the shortest job first (Tsafrir et al.).
- `conservative`: every job has a reservation (batsched's `conservative_bf`).
- `conservative-counting`: the same, but reservations only count processors (Feitelson and Weil).

A job wider than the machines, or without walltime where a reservation needs one, is rejected.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from dralab.simulation.engines.batch.availability import (
    Availability,
    CountedAvailability,
    Reservation,
)
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    Decision,
    JobScheduler,
    RejectJob,
    SchedulerReply,
    SimulationBegins,
    StartJob,
)
from dralab.simulation.engines.batch.waiting_jobs import NEVER, WaitingJobs
from dralab.simulation.host_sets import all_machines, lowest
from dralab.simulation.workloads.jobs import Job

WIDE: Final = "asks for more machines than there are"
ENDLESS: Final = "has no walltime, which back-filling needs"


class QueueingScheduler(ABC):
    """The base class: queue, free machines, and the rejection of jobs that can never run."""

    needs_walltime = True

    def __init__(self) -> None:
        self.width = 0
        self.free = 0
        self.unavailable = 0
        # Ordered, since a plain dict finds its first item slowly once many have been removed.
        self.queue: OrderedDict[str, Job] = OrderedDict()
        self.decisions: list[Decision] = []

    def begin(self, beginning: SimulationBegins) -> None:
        """Start with all machines free."""
        self.width = beginning.platform.width
        self.free = all_machines(self.width)

    def end(self, now: int) -> None:  # noqa: B027 - nothing to close
        """Do nothing."""

    def decide(self, news: BatchEvents) -> SchedulerReply:
        """Handle the events and let the policy act."""
        self.decisions = []
        self.unavailable = (self.unavailable | news.unavailable) & ~news.available
        for ended in news.ended:
            self.free |= ended.machines
            self.job_ended(ended.job, news.now)
        fresh = [job for job in news.submitted if self._accepts(job)]
        self.queue.update((job.key, job) for job in fresh)
        self.act(news, fresh)
        return SchedulerReply(self.decisions)

    def _accepts(self, job: Job) -> bool:
        reason = ""
        if job.width > self.width:
            reason = WIDE
        elif job.walltime is None and self.needs_walltime:
            reason = ENDLESS
        if reason:
            self.decisions.append(RejectJob(job, reason))
        return not reason

    def start(self, job: Job, machines: int) -> None:
        """Run a queued job now."""
        del self.queue[job.key]
        self.free &= ~machines
        self.decisions.append(StartJob(job, machines))

    @property
    def usable(self) -> int:
        """Machines that are free and available."""
        return self.free & ~self.unavailable

    def job_ended(self, job: Job, now: int) -> None:  # noqa: B027 - not every policy keeps books
        """A job that ran has ended."""

    @abstractmethod
    def act(self, news: BatchEvents, fresh: list[Job]) -> None:
        """Start what the policy allows."""


class Fcfs(QueueingScheduler):
    """First come, first served; the first job that does not fit blocks the rest."""

    needs_walltime = False

    def act(self, news: BatchEvents, fresh: list[Job]) -> None:  # noqa: ARG002 - the policy's shape
        """Start from the head until one does not fit."""
        for job in list(self.queue.values()):
            if job.width > self.usable.bit_count():
                return
            self.start(job, lowest(self.usable, job.width))


class CountingEasy(QueueingScheduler):
    """EASY by counting: no back-filled job may delay the head of the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: dict[str, tuple[int, int]] = {}

    def job_ended(self, job: Job, now: int) -> None:  # noqa: ARG002 - the policy's shape
        """Forget when it was expected to end."""
        self.expected.pop(job.key, None)

    def act(self, news: BatchEvents, fresh: list[Job]) -> None:  # noqa: ARG002 - the policy's shape
        """Start the head while it fits, then jobs that do not delay it."""
        waiting = iter(list(self.queue.values()))
        for head in waiting:
            if head.width > self.usable.bit_count():
                shadow, extra = self._shadow(head)
                for job in self.candidates(waiting):
                    if self.usable == 0:
                        break
                    if job.width > self.usable.bit_count():
                        continue
                    if news.now + _walltime(job) <= shadow:
                        self._start_now(job, news.now)
                    elif job.width <= extra:
                        extra -= job.width
                        self._start_now(job, news.now)
                return
            self._start_now(head, news.now)

    def candidates(self, waiting: Iterable[Job]) -> Iterable[Job]:
        """Return the jobs behind the head in the order in which they are back-filled."""
        return waiting

    def _start_now(self, job: Job, now: int) -> None:
        self.expected[job.key] = (now + _walltime(job), job.width)
        self.start(job, lowest(self.usable, job.width))

    def _shadow(self, head: Job) -> tuple[float, int]:
        """Return when the head can start, and how many processors are left then."""
        count, shadow = self.usable.bit_count(), float("inf")
        for end, width in sorted(self.expected.values()):
            if end > shadow:
                break
            count += width
            if count >= head.width:
                shadow = end
        return shadow, max(0, count - head.width)


class ShortestFirstEasy(CountingEasy):
    """EASY by counting that back-fills the job with the shortest walltime first."""

    def candidates(self, waiting: Iterable[Job]) -> Iterable[Job]:
        """Return the jobs by their walltimes; equal ones in the order of the queue."""
        return sorted(waiting, key=_walltime)


class _Reserving(QueueingScheduler):
    """Schedulers that plan ahead with an `Availability`."""

    plan_of: type[Availability] = Availability

    def __init__(self) -> None:
        super().__init__()
        self.plan = self.plan_of(0)
        self.held: dict[str, Reservation] = {}
        self.reserved: dict[str, Reservation] = {}

    def begin(self, beginning: SimulationBegins) -> None:
        """Plan with all machines."""
        super().begin(beginning)
        self.plan = self.plan_of(self.free)

    def job_ended(self, job: Job, now: int) -> None:
        """Release the rest of its reserved walltime."""
        placement = self.held.pop(job.key, None)
        if placement is not None:
            # Machines that broke meanwhile are not free.
            usable = placement.machines & ~self.unavailable
            self.plan.cancel(replace(placement, machines=usable), now)

    def renew(self, news: BatchEvents) -> bool:
        """Cut the plan at now; return whether machines changed, which voids reservations."""
        self.plan.cut(news.now)
        if not (news.unavailable or news.available):
            return False
        self.plan = self.plan_of(all_machines(self.width) & ~self.unavailable, news.now)
        self.reserved = {}
        for placement in self.held.values():
            if placement.end > news.now:
                self.plan.reserve(Reservation(news.now, placement.end, placement.machines))
        return True

    def place(self, job: Job) -> bool:
        """Place a job again; start it and return True if its time is now."""
        placement = self.plan.reserve_earliest(job.width, _walltime(job))
        if placement.start != self.plan.now:
            self.reserved[job.key] = placement
            return False
        machines = self.plan.machines_of(placement, self.usable)
        self.held[job.key] = replace(placement, machines=machines)
        self.start(job, machines)
        return True

    def release_reservation(self, job: Job) -> None:
        """Give up the reservation of a job, where it has one."""
        placement = self.reserved.pop(job.key, None)
        if placement is not None:
            self.plan.cancel(placement, self.plan.now)

    def fits_ever(self, job: Job) -> bool:
        """Return whether enough machines would be available if all were free."""
        return job.width <= self.width - self.unavailable.bit_count()


class Easy(_Reserving):
    """EASY back-filling with machines: only the head of the queue has a reservation.

    Without one, a job can start now if its width is free for its walltime; so `waiting` names the
    next one that can, and nobody asks the others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting = WaitingJobs()

    def start(self, job: Job, machines: int) -> None:
        """Run a queued job now."""
        super().start(job, machines)
        self.waiting.remove(job)

    def act(self, news: BatchEvents, fresh: list[Job]) -> None:
        """Start heads; keep the reservation of the waiting one; back-fill the rest."""
        for job in fresh:
            self.waiting.add(job, min(_walltime(job), NEVER - 1))
        changed = self.renew(news)
        if news.ended or changed:
            self._refill()
            return
        head = self._advance_head()
        for job in fresh:
            if not self.usable:
                break
            if job.key in self.queue and job is not head:
                self._try(job)

    def _head(self) -> Job | None:
        """Return the first job of the queue."""
        return next(iter(self.queue.values()), None)

    def _advance_head(self) -> Job | None:
        """Start jobs from the first on; return the first that has to wait, with a reservation."""
        while (job := self._head()) is not None:
            if job.key in self.reserved or not (self.fits_ever(job) and self.place(job)):
                return job
        return None

    def _refill(self) -> None:
        """Start heads, and behind the one that waits each job that can start, in order."""
        if not self.usable:
            self._advance_head()
            return
        head = self._head()
        if head is not None:
            self.release_reservation(head)
        if self._advance_head() is None:
            return
        widths = tuple(self.waiting.widths())
        number = -1
        while self.usable and (longest := self.plan.startable(widths)):
            found = self.waiting.next_one(number, longest)
            if found is None:
                return
            number, job = found
            self._try(job)

    def _try(self, job: Job) -> bool:
        """Start a job if it can start now; otherwise leave the plan unchanged."""
        if job.width > self.usable.bit_count():
            return False
        if self.place(job):
            return True
        self.release_reservation(job)
        return False


class Conservative(_Reserving):
    """Conservative back-filling: no job is ever delayed by one that came after it."""

    def act(self, news: BatchEvents, fresh: list[Job]) -> None:
        """Place the new jobs; if a job ended, place all queued jobs again, in order."""
        changed = self.renew(news)
        for job in list(self.queue.values()) if news.ended or changed else fresh:
            self.release_reservation(job)
            if self.fits_ever(job):
                self.place(job)


class CountingConservative(Conservative):
    """Conservative back-filling whose reservations only count processors."""

    plan_of = CountedAvailability


def _walltime(job: Job) -> int:
    if job.walltime is None:
        raise ValueError(f"job {job.id} has no walltime")
    return job.walltime


SCHEDULERS: Final[Mapping[str, Callable[[], JobScheduler]]] = {
    "fcfs": Fcfs,
    "easy": Easy,
    "easy-counting": CountingEasy,
    "easy-sjbf": ShortestFirstEasy,
    "conservative": Conservative,
    "conservative-counting": CountingConservative,
}
