"""The messages between machines and scheduler: Batsim's messages as values.

All that happens at one instant comes in one `BatchEvents`: ends before submissions before calls.
The same values travel inside one process and, as JSON, over ZeroMQ (`protocol`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dralab.simulation.platforms.platform import Platform
from dralab.simulation.workloads.jobs import Job, Workload

JobState = Literal[
    "COMPLETED_SUCCESSFULLY",
    "COMPLETED_FAILED",
    "COMPLETED_WALLTIME_REACHED",
    "COMPLETED_KILLED",
    "REJECTED",
]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that ran is over; `machines` is the set it held."""

    job: Job
    state: JobState
    code: int
    machines: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEvents:
    """Everything that happened at one instant."""

    now: int
    ended: tuple[JobEnd, ...] = ()
    killed: tuple[tuple[Job, float], ...] = ()
    submitted: tuple[Job, ...] = ()
    called: tuple[int, ...] = ()
    unavailable: int = 0
    available: int = 0
    switched: tuple[tuple[int, int], ...] = ()
    unknown: tuple[Mapping[str, Any], ...] = ()
    answers: tuple[float, ...] = ()
    no_more_jobs: bool = False
    no_more_events: bool = False


@dataclass(frozen=True, slots=True)
class StartJob:
    """Run a job on these machines, from `at` on (None: now)."""

    job: Job
    machines: int
    at: int | None = None
    mapping: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RejectJob:
    """Never run this job."""

    job: Job
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KillJobs:
    """Stop these jobs where they run, at `at`."""

    keys: tuple[str, ...]
    at: int | None = None


@dataclass(frozen=True, slots=True)
class CallMeLater:
    """Send a message at this time even if nothing happens."""

    when: int


@dataclass(frozen=True, slots=True)
class ResizeJob:
    """Let a job have so many machines; these, where it runs. Batsim has no such message."""

    key: str
    width: int
    machines: int = 0


@dataclass(frozen=True, slots=True)
class SwitchPstate:
    """Put machines into a pstate, at `at`."""

    machines: int
    pstate: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class SetJobMetadata:
    """Set the last column of a job's row."""

    key: str
    metadata: str


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """Add a job (with a profile already known to the workload) at run time, at `at`."""

    job: Job
    at: int | None = None


@dataclass(frozen=True, slots=True)
class RegistrationFinished:
    """No further job will be registered; `again` revokes it."""

    again: bool = False


@dataclass(frozen=True, slots=True)
class RegisterProfile:
    """Add a profile to a workload, which is created if missing."""

    workload: str
    name: str
    profile: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueryEnergy:
    """Ask how many joules were used; the answer comes with the next events."""


@dataclass(frozen=True, slots=True)
class ChangeJobState:
    """Set the state of a job that does not run."""

    key: str
    state: str


Decision = (
    StartJob
    | RejectJob
    | KillJobs
    | ResizeJob
    | CallMeLater
    | SwitchPstate
    | SetJobMetadata
    | RegisterJob
    | RegistrationFinished
    | RegisterProfile
    | QueryEnergy
    | ChangeJobState
)


@dataclass(frozen=True, slots=True)
class SchedulerReply:
    """Decisions in order; `busy_until` is when the scheduler can be asked again."""

    decisions: Sequence[Decision] = ()
    busy_until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationBegins:
    """The first message to a scheduler."""

    platform: Platform
    workloads: Sequence[Workload]
    options: Mapping[str, Any] = field(default_factory=dict)


class JobScheduler(Protocol):
    """Decides which job runs when and where."""

    def begin(self, beginning: SimulationBegins) -> SchedulerReply | None:
        """Receive the number of machines, before anything happens."""
        ...

    def decide(self, news: BatchEvents) -> SchedulerReply:
        """Return decisions about the events."""
        ...

    def end(self, now: int) -> None:
        """Note that the simulation is over."""
        ...
