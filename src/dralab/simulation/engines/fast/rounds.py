"""Jobs in rounds of time slices: before each round a policy says who runs, and on which GPUs.

The model behind schedulers of training clusters, such as Gavel's. A job has an amount of work, and
a speed on each type of GPU. One that gets no slice keeps what it has done, as in a checkpoint; one
that starts or changes its GPUs first loads it. Times are nanoseconds since the run began.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from dralab.kernel.clock import SECOND


class GpuSlice(NamedTuple):
    """GPUs of one type that a job has for a round, `beside` jobs of these kinds.

    `nodes` has the node of each GPU, where the policy chooses nodes.
    """

    model: str
    number: int = 1
    beside: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()


class RoundJob(Protocol):
    """A job of a workload."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """What others that share its GPUs notice of it, such as the model that it trains."""

    @property
    def arrives(self) -> int:
        """When it arrives."""

    @property
    def work(self) -> float:
        """How much there is to do, in steps."""

    @property
    def restart(self) -> int:
        """How long it takes to load a checkpoint."""

    def speed(self, gpus: GpuSlice, done: float) -> float:
        """Return its steps per second after so many; 0: it cannot run there."""


Job = TypeVar("Job", bound=RoundJob)


@dataclass(slots=True, eq=False)
class JobProgress(Generic[Job]):
    """What became of a job so far; `served` is the time that it had, times its GPUs."""

    job: Job
    number: int
    done: float = 0.0
    gpus: GpuSlice | None = None
    started: int | None = None
    ended: int | None = None
    dropped: bool = False
    rounds: int = 0
    restarts: int = 0
    served: int = 0

    @property
    def left(self) -> float:
        """How many steps are left."""
        return self.job.work - self.done

    def run(self, gpus: GpuSlice, now: int, length: int, *, whole: bool) -> tuple[float, int]:
        """Return the steps that it does in a round of a length, and how long they take."""
        begins = self.gpus != gpus
        loading = min(self.job.restart, length) if begins else 0
        if self.started is None:
            self.started = now
        elif begins:
            self.restarts += 1
        speed = self.job.speed(gpus, self.done)
        steps = speed * (length - loading) / SECOND
        steps = min(float(int(steps)) if whole else steps, self.left)
        time = loading + (round(steps / speed * SECOND) if speed else 0)
        self.gpus = gpus
        self.rounds += 1
        self.served += time * gpus.number
        return steps, time

    @property
    def completion(self) -> int | None:
        """How long it took from its arrival to its end; None: it has not finished."""
        return None if self.ended is None or self.dropped else self.ended - self.job.arrives


@dataclass(frozen=True, slots=True)
class Grant(Generic[Job]):
    """GPUs for one round, for one job or several that share them."""

    jobs: tuple[JobProgress[Job], ...]
    model: str
    gpus: int = 1
    nodes: tuple[int, ...] = ()

    def of(self, job: JobProgress[Job]) -> GpuSlice:
        """Return what one of the jobs has."""
        if len(self.jobs) == 1:
            return GpuSlice(self.model, self.gpus, nodes=self.nodes)
        beside = tuple(each.job.kind for each in self.jobs if each is not job)
        return GpuSlice(self.model, self.gpus, beside, self.nodes)


class RoundPolicy(Protocol[Job]):
    """Who runs in a round."""

    def arrived(self, job: JobProgress[Job]) -> None:
        """Note a new job."""

    def grants(self, run: "RoundSimulation[Job]") -> Sequence[Grant[Job]]:
        """Return who runs in the round that begins; the other active jobs wait."""

    def ran(self, grant: Grant[Job], time: int) -> None:
        """Note that a grant was used for so long (0: in vain); jobs may have ended in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules:
    """How rounds go.

    A round lasts `length`, or if not `fixed`, until its jobs have used their grants. Of a slice
    only `whole` steps are done, but for the last ones of a job. Jobs that share GPUs may stop
    `together`.
    """

    length: int
    fixed: bool = True
    whole: bool = False
    together: bool = False


@dataclass(slots=True)
class RoundSimulation(Generic[Job]):
    """One run; `jobs` come in the order of their arrival, and may go on without end.

    `following` is the next that arrives; `progress` makes the record of a job.
    """

    jobs: Iterable[Job]
    capacity: Mapping[str, int]
    policy: RoundPolicy[Job]
    rules: RoundRules
    now: int = 0
    following: Job | None = None
    progress: Callable[[Job, int], JobProgress[Job]] = JobProgress
    records: list[JobProgress[Job]] = field(default_factory=list)
    active: list[JobProgress[Job]] = field(default_factory=list)

    def go(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Run until every job is over, or a round has ended with `enough`."""
        to_come = iter(self.jobs)
        self.following = next(to_come, None)
        while not enough():
            while self.following is not None and self.following.arrives <= self.now:
                self._admit(self.following)
                self.following = next(to_come, None)
            if not self.active and self.following is None:
                return
            grants = self.policy.grants(self) if self.active else ()
            if grants:
                self._run(grants)
            elif self.following is not None:
                self.now = self._start_after(self.following.arrives)
            else:
                names = ", ".join(each.job.name for each in self.active[:3])
                raise ValueError(f"no job gets GPUs, and none will arrive; waiting: {names}")

    def _start_after(self, when: int) -> int:
        """Return the first time at which a round can begin and `when` has passed."""
        length = self.rules.length
        return self.now + -(-(when - self.now) // length) * length if self.rules.fixed else when

    def _admit(self, job: Job) -> None:
        record = self.progress(job, len(self.records))
        self.records.append(record)
        self.active.append(record)
        self.policy.arrived(record)

    def _run(self, grants: Sequence[Grant[Job]]) -> None:
        self._check(grants)
        begin, longest, length = self.now, 0, self.length_of(grants)
        served = {job.number for grant in grants for job in grant.jobs}
        for record in self.active:
            if record.number not in served:
                record.gpus = None
        for grant in grants:
            slices = (
                job.run(grant.of(job), begin, length, whole=self.rules.whole) for job in grant.jobs
            )
            steps, times = zip(*slices, strict=True)
            time = max(times)
            longest = max(longest, time)
            useful = self.counts(grant, steps)
            for job, done, own in zip(grant.jobs, steps, times, strict=True):
                job.done += done if useful else 0
                if job.left <= 0 or job.dropped:
                    job.ended = begin + (time if self.rules.together else own)
            self.policy.ran(grant, time if useful else 0)
        self.now = begin + (length if self.rules.fixed else longest)
        self.active = [record for record in self.active if record.ended is None]

    def length_of(self, grants: Sequence[Grant[Job]]) -> int:
        """Return how long a round with these grants lasts."""
        del grants
        return self.rules.length

    def counts(self, grant: Grant[Job], steps: Sequence[float]) -> bool:
        """Whether the steps of a slice count; here they always do."""
        del grant, steps
        return True

    def _check(self, grants: Sequence[Grant[Job]]) -> None:
        """Raise ValueError if a policy grants more GPUs than there are."""
        granted: Counter[str] = Counter()
        for grant in grants:
            granted[grant.model] += grant.gpus
        for model, number in granted.items():
            if number > self.capacity.get(model, 0):
                known = self.capacity.get(model, 0)
                raise ValueError(f"{number} GPUs of type {model} are granted; there are {known}")
