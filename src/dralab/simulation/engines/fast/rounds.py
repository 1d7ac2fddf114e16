"""Jobs in rounds of time slices: before each round a policy says who runs, and on which GPUs.

The model behind schedulers of training clusters, such as Gavel's. A job has an amount of work, and
a speed on each type of GPU. One that gets no slice keeps what it has done, as in a checkpoint; one
that starts or changes its GPUs first loads it. One whose node goes down goes back to its last
checkpoint, and waits for the next round. Times are nanoseconds since the run began.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.round_outages import NOTHING, RoundOutages
from dralab.simulation.lifecycle.model import whole_parts


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
    def gpus(self) -> int:
        """How many GPUs it asks for."""

    @property
    def least(self) -> int:
        """How few GPUs it can use."""

    @property
    def most(self) -> int:
        """How many GPUs it can use."""

    def runs_on(self, model: str) -> bool:
        """Whether it can run on a type of GPU."""

    @property
    def checkpoint(self) -> int:
        """After how much work it writes a checkpoint, besides that when it gives up its GPUs."""

    def loading(self, done: float) -> int:
        """Return how long it takes to begin on other GPUs, after so many steps."""

    def speed(self, gpus: GpuSlice, done: float) -> float:
        """Return its steps per second after so many; 0: it cannot run there."""


Job = TypeVar("Job", bound=RoundJob)


@dataclass(slots=True, eq=False)
class JobProgress(Generic[Job]):
    """What became of a job so far.

    It `ran` for so long, and `loaded` checkpoints in a part of it; `served` is the time times GPUs.
    On the GPUs that it has it began at `begun` steps, `starts` for so long, and `worked` since.
    `wasted` is the time of runs that were lost with their nodes, less what checkpoints kept.
    """

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
    ran: int = 0
    loaded: int = 0
    begun: float = 0.0
    starts: int = 0
    worked: int = 0
    wasted: int = 0

    @property
    def left(self) -> float:
        """How many steps are left."""
        return self.job.work - self.done

    @property
    def most(self) -> int:
        """How many GPUs it can use."""
        return self.job.most

    def model_among(self, free: Mapping[str, int], gpus: int) -> str | None:
        """Return the type with so many free GPUs that it has, or else is fastest on."""
        models = [model for model, left in free.items() if gpus <= left and self.job.runs_on(model)]
        if self.gpus is not None and self.gpus.model in models:
            return self.gpus.model
        speeds = {model: self.job.speed(GpuSlice(model, gpus), self.done) for model in models}
        return max(models, key=speeds.__getitem__, default=None)

    def saves(self, gpus: GpuSlice, more: GpuSlice) -> float:
        """Return how many seconds the rest would be shorter with other GPUs."""
        slow, fast = self.job.speed(gpus, self.done), self.job.speed(more, self.done)
        return (1 / slow - 1 / fast) * self.left if slow and fast else 0.0

    def needs(self, gpus: GpuSlice) -> int:
        """Return how long it takes until it is over on some GPUs."""
        loading = self.job.loading(self.done) if self.gpus != gpus else 0
        return loading + round(self.left / self.job.speed(gpus, self.done) * SECOND)

    def run(self, gpus: GpuSlice, now: int, length: int, *, whole: bool) -> tuple[float, int]:
        """Return the steps that it does in a round of a length, and how long they take."""
        begins = self.gpus != gpus
        loading = min(self.job.loading(self.done), length) if begins else 0
        if begins:
            self.begin()
        self.load(loading)
        if self.started is None:
            self.started = now
        elif begins:
            self.restarts += 1
        speed = self.job.speed(gpus, self.done)
        steps = speed * (length - loading) / SECOND
        steps = min(float(int(steps)) if whole else steps, self.left)
        time = loading + (round(steps / speed * SECOND) if speed else 0)
        self.gpus = gpus
        self.worked += time - loading
        self.count(time, gpus)
        return steps, time

    def begin(self) -> None:
        """Begin on other GPUs: what is done so far is in a checkpoint."""
        self.begun, self.starts, self.worked = self.done, 0, 0

    def load(self, time: int) -> None:
        """Count the time in which it starts on its GPUs."""
        self.loaded += time
        self.starts += time

    def lose(self) -> None:
        """Go back to the last checkpoint, as a node of its GPUs went down."""
        kept = whole_parts(self.worked, self.job.checkpoint)
        self.go_back(kept)
        self.loaded -= self.starts
        self.wasted += self.starts + self.worked - kept
        self.gpus = None

    def go_back(self, kept: int) -> None:
        """Undo all that it did on its GPUs but so much of the time."""
        if self.worked:
            self.done = self.begun + (self.done - self.begun) * (kept / self.worked)

    def count(self, time: int, gpus: GpuSlice) -> None:
        """Count a round in which it had GPUs for so long."""
        self.rounds += 1
        self.ran += time
        self.served += time * gpus.number

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


class RoundPolicy(Generic[Job]):
    """Who runs in a round."""

    def arrived(self, job: JobProgress[Job]) -> None:
        """Note a new job."""

    def grants(self, run: "RoundSimulation[Job]") -> Sequence[Grant[Job]]:
        """Return who runs in the round that begins; the other active jobs wait."""
        raise NotImplementedError

    def ran(self, grant: Grant[Job], time: int) -> None:
        """Note that a grant was used for so long (0: in vain); jobs may have ended in it."""

    def holds(self) -> int | None:
        """Return how long the last grants hold, if no job comes or ends; None: for ever."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules:
    """How rounds go.

    A round lasts `length`, or if not `fixed`, until its jobs have used their grants. With a length
    of 0 it lasts until a job comes or ends, or the grants no longer hold. None is longer than
    `until`. Of a slice only `whole` steps are done, but for the last ones of a job. Jobs that share
    GPUs may stop `together`.
    """

    length: int
    fixed: bool = True
    whole: bool = False
    together: bool = False
    until: int | None = None


class NoProgressError(ValueError):
    """No job gets GPUs, and none will arrive: the `waiting` ones."""

    def __init__(self, waiting: Sequence[str]) -> None:
        super().__init__(waiting)
        self.waiting = waiting

    def __str__(self) -> str:
        names = ", ".join(self.waiting[:3])
        return f"no job gets GPUs, and none will arrive; waiting: {names}"


@dataclass(slots=True)
class RoundSimulation(Generic[Job]):
    """One run; `jobs` come in the order of their arrival, and may go on without end.

    `following` is the next that arrives; `progress` makes the record of a job. With `outages`,
    nodes go down and come back, and `capacity` is what is up; rounds must be fixed or of length 0.
    """

    jobs: Iterable[Job]
    capacity: Mapping[str, int]
    policy: RoundPolicy[Job]
    rules: RoundRules
    now: int = 0
    following: Job | None = None
    progress: Callable[[Job, int], JobProgress[Job]] = JobProgress
    outages: RoundOutages | None = None
    records: list[JobProgress[Job]] = field(default_factory=list)
    active: list[JobProgress[Job]] = field(default_factory=list)
    _to_come: Iterator[Job] = field(init=False)

    def __post_init__(self) -> None:
        self._to_come = iter(self.jobs)
        self.following = next(self._to_come, None)

    def down(self, model: str) -> AbstractSet[int]:
        """Return the numbers of the nodes of a model that are down."""
        return NOTHING if self.outages is None else self.outages.down[model]

    def go(self, enough: Callable[[], bool] = lambda: False) -> bool:
        """Run until every job is over, or before a round there is `enough`: then return False.

        NoProgressError.
        """
        while not enough():
            while self.following is not None and self.following.arrives <= self.now:
                self._admit(self.following)
                self.following = next(self._to_come, None)
            if not self.active and self.following is None:
                return True
            if self.outages is not None:
                self.outages.happen(self.now)
                self.capacity = dict(self.outages.capacity)
            able = self.active and any(self.capacity.values())
            grants = self.policy.grants(self) if able else ()
            self._release_others(grants)
            if grants:
                self._run(grants)
            elif (change := self._next_change()) is not None:
                self.now = self._start_after(change)
            else:
                raise NoProgressError([each.job.name for each in self.active])
        return False

    def _next_change(self) -> int | None:
        """Return when a job arrives, or a node goes down or comes back while jobs wait."""
        arrival = None if self.following is None else self.following.arrives
        outage = self.outages.next_time() if self.outages is not None and self.active else None
        return min((each for each in (arrival, outage) if each is not None), default=None)

    def _start_after(self, when: int) -> int:
        """Return the first time at which a round can begin and `when` has passed."""
        length = self.rules.length
        whole = self.rules.fixed and length
        return self.now + -(-(when - self.now) // length) * length if whole else when

    def _admit(self, job: Job) -> None:
        record = self.progress(job, len(self.records))
        self.records.append(record)
        self.active.append(record)
        self.policy.arrived(record)

    def _release_others(self, grants: Sequence[Grant[Job]]) -> None:
        served = {job.number for grant in grants for job in grant.jobs}
        for record in self.active:
            if record.number not in served:
                record.gpus = None

    def _run(self, grants: Sequence[Grant[Job]]) -> None:
        self._check(grants)
        begin, longest, length = self.now, 0, self.length_of(grants)
        broke = {} if self.outages is None else self.outages.happen(begin + length)
        for grant in grants:
            down = [broke[at] for node in grant.nodes if (at := (grant.model, node)) in broke]
            slot = min(down, default=begin + length) - begin
            slices = (
                job.run(grant.of(job), begin, slot, whole=self.rules.whole) for job in grant.jobs
            )
            steps, times = zip(*slices, strict=True)
            time = max(times)
            longest = max(longest, time)
            useful = self.counts(grant, steps)
            for job, done, own in zip(grant.jobs, steps, times, strict=True):
                job.done += done if useful else 0
                if job.left <= 0 or job.dropped:
                    job.ended = begin + (time if self.rules.together else own)
                elif down:
                    job.lose()
            self.policy.ran(grant, time if useful else 0)
        self.now = begin + (length if self.rules.fixed else longest)
        self.active = [record for record in self.active if record.ended is None]

    def length_of(self, grants: Sequence[Grant[Job]]) -> int:
        """Return how long a round with these grants lasts."""
        times = [self.rules.length]
        if not self.rules.length:
            times = [job.needs(grant.of(job)) for grant in grants for job in grant.jobs]
            if self.following is not None:
                times.append(self.following.arrives - self.now)
            if (holds := self.policy.holds()) is not None:
                times.append(holds)
            if self.outages is not None and (change := self.outages.next_time()) is not None:
                times.append(change - self.now)
        if self.rules.until is not None:
            times.append(self.rules.until - self.now)
        return min(times)

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
