"""A user's policy for rigid jobs: Batsim's protocol as it is, or the methods of every engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, NoneType
from typing import Any

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    Decision,
    JobScheduler,
    ResizeJob,
    SchedulerReply,
    SimulationBegins,
)
from dralab.simulation.engines.batch.schedulers import QueueingScheduler
from dralab.simulation.host_sets import lowest, members
from dralab.simulation.policies.protocol import (
    PolicyNode,
    PolicyTask,
    StateReaders,
    TaskFacts,
    read_only,
)
from dralab.simulation.policies.user_policy import UserPolicy
from dralab.simulation.workloads.jobs import Delay, Job


def scheduler_of(policy: UserPolicy) -> JobScheduler:
    """Return the scheduler of jobs that a user's policy is."""
    return DecidingScheduler(policy) if "decide" in policy.asked else OwnScheduler(policy)


class DecidingScheduler:
    """Gives everything that happens to `decide`; `begin` and `end` may be missing."""

    def __init__(self, policy: UserPolicy) -> None:
        self.policy = policy

    def begin(self, beginning: SimulationBegins) -> SchedulerReply | None:
        """Tell of the machines."""
        return self._reply("begin", beginning)

    def decide(self, news: BatchEvents) -> SchedulerReply:
        """Return what the policy decides."""
        return self._reply("decide", news) or SchedulerReply()

    def end(self, now: int) -> None:
        """Tell that it is over."""
        self._ask("end", now)

    def _reply(self, method: str, given: Any) -> SchedulerReply | None:
        """Return an answer if it is one. InputError."""
        answer = self._ask(method, given)
        if answer is None:
            return None
        wanted = "a SchedulerReply, or None"
        if not isinstance(answer, SchedulerReply):
            raise self.policy.wrong(method, wanted, answer)
        decisions: Any = answer.decisions
        busy: Any = answer.busy_until
        odd = (
            [each for each in decisions if not isinstance(each, Decision)]
            if isinstance(decisions, Sequence)
            else [decisions]
        )
        if odd:
            raise self.policy.wrong(method, f"{wanted}, with a list of decisions", odd[0])
        if not isinstance(busy, (int, NoneType)):
            raise self.policy.wrong(method, f"{wanted}, with busy_until in nanoseconds", busy)
        return answer

    def _ask(self, method: str, given: Any) -> Any:
        return self.policy.ask(method, given) if hasattr(self.policy.user, method) else None


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job with the machines that it has now."""

    job: Job
    machines: int
    started: int


class OwnScheduler(QueueingScheduler):
    """Starts the jobs that fit, in the order and on the machines that a policy wants.

    A job that does not fit holds up none behind it; where a policy wants it to, its `place` returns
    None for them.
    """

    needs_walltime = False

    def __init__(self, policy: UserPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.now = 0
        self.running: dict[str, RunningJob] = {}
        self.places: list[PolicyNode] = []
        self.lengths: dict[str, float | None] = {}

    def begin(self, beginning: SimulationBegins) -> None:
        """Start with all machines free."""
        super().begin(beginning)
        self.places = [
            PolicyNode(name=host.name, labels=MappingProxyType(host.properties))
            for host in beginning.platform.compute
        ]
        for workload in beginning.workloads:
            for job in workload.jobs:
                profile = workload.profiles[job.profile]
                length = profile.duration / SECOND if isinstance(profile, Delay) else None
                self.lengths[job.key] = length
        self.policy.see(
            StateReaders(
                now=lambda: self.now / SECOND,
                waiting=lambda: map(self._task, self.queue.values()),
                running=lambda: (self._task(each.job) for each in self.running.values()),
                nodes=lambda: self._nodes(self.usable),
            )
        )

    def job_ended(self, job: Job, now: int) -> None:
        """Forget it."""
        del now
        self.running.pop(job.key, None)

    def act(self, news: BatchEvents, fresh: list[Job]) -> None:
        """Start what may start, and give running jobs the machines that they get now."""
        del fresh
        self.now, asked = news.now, self.policy.asked
        waiting = list(self.queue.values())
        if "order" in asked:
            waiting.sort(key=lambda job: self.policy.rank(self._task(job)))
        # Machines that running jobs give up are there for those that wait; these come before any
        # running job that wants more.
        self._resize_running(shrink=True)
        for job in waiting:
            if not self.usable:
                break
            self._try(job)
        self._resize_running(shrink=False)

    def _try(self, job: Job) -> None:
        width = self._width(job, job.width) if "resize" in self.policy.asked else job.width
        if width > self.usable.bit_count():
            return
        machines = self._machines(job, width)
        if machines is None:
            return
        if width != job.width:
            self.decisions.append(ResizeJob(job.key, width))
        self.start(job, machines)
        self.running[job.key] = RunningJob(job, machines, self.now)

    def _width(self, job: Job, width: int) -> int:
        """Return how many machines a policy wants a job to have."""
        wanted = f"a number from 1 to {self.width}, or None"
        found = self.policy.number("resize", wanted, (1, self.width), self._task(job))
        return width if found is None else found

    def _resize_running(self, *, shrink: bool) -> None:
        if "resize" in self.policy.asked:
            for each in list(self.running.values()):
                had = each.machines.bit_count()
                more = self._width(each.job, had) - had
                if more < 0 if shrink else more > 0:
                    self._resize(each, had, more)

    def _resize(self, running: RunningJob, had: int, more: int) -> None:
        if more > self.usable.bit_count():
            wanted = f"at most the {self.usable.bit_count()} free machines more than {had}"
            raise self.policy.wrong("resize", wanted, had + more)
        if more > 0:
            taken = lowest(self.usable, more)
            machines = running.machines | taken
            self.free &= ~taken
        else:
            machines = lowest(running.machines, had + more)
            self.free |= running.machines & ~machines
        self.running[running.job.key] = replace(running, machines=machines)
        self.decisions.append(ResizeJob(running.job.key, machines.bit_count(), machines))

    def _machines(self, job: Job, width: int) -> int | None:
        """Return the machines that a policy wants for a job; None: it shall wait."""
        asked, usable = self.policy.asked, self.usable
        if "place" in asked:
            return self._placed(job, width)
        if "prefer" not in asked:
            return lowest(usable, width)
        task = self._task(job)
        liked = [
            (-liking, index)
            for index in members(usable)
            if (liking := self.policy.liking(task, self.places[index])) is not None
        ]
        best = sorted(liked)[:width]
        return sum(1 << index for _, index in best) if len(best) == width else None

    def _placed(self, job: Job, width: int) -> int | None:
        wanted = f"{width} of the machines it was given, or None"
        given = tuple(self._nodes(self.usable))
        names = self.policy.names("place", wanted, self._task(job), given)
        if names is None:
            return None
        found = [index for index in members(self.usable) if self.places[index].name in names]
        if len(found) != width or len(names) != width:
            raise self.policy.wrong("place", wanted, names)
        return sum(1 << index for index in found)

    def _nodes(self, machines: int) -> Iterator[PolicyNode]:
        return (self.places[index] for index in members(machines))

    def _task(self, job: Job) -> PolicyTask:
        running = self.running.get(job.key)
        machines = job.width if running is None else running.machines.bit_count()
        return PolicyTask(key=job.key, machines=machines, facts=lambda: self._facts(job, running))

    def _facts(self, job: Job, running: RunningJob | None) -> TaskFacts:
        length = self.lengths.get(job.key)
        longest = float("inf") if length is None else length
        return TaskFacts(
            name=job.id,
            user=job.user,
            arrives=job.submitted / SECOND,
            duration=length,
            estimate=longest if job.walltime is None else job.walltime / SECOND,
            started=None if running is None else running.started / SECOND,
            served=0.0 if running is None else (self.now - running.started) / SECOND,
            nodes=()
            if running is None
            else tuple(each.name for each in self._nodes(running.machines)),
            body=read_only(job.source) if job.source else None,
        )
