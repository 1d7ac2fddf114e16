"""Rigid jobs: a number of machines, a profile, and a walltime limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Sharing = Literal["each", "total", "total-v4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A delay, in nanoseconds."""

    duration: int
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTask:
    """Flops per machine, and bytes from each (row) to each (column); both may be empty."""

    cpu: tuple[float, ...] = ()
    com: tuple[float, ...] = ()
    code: int = 0

    @property
    def width(self) -> int:
        """The number of machines that it is for."""
        return len(self.cpu) if self.cpu else round(len(self.com) ** 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Homogeneous:
    """The same flops on each machine and the same bytes between each ordered pair.

    `sharing`: `each` amounts hold per machine and pair; `total` divides them (v5: by n and by
    n(n-1)); `total-v4` divides both by n, as version 4 documents it.
    """

    cpu: float = 0.0
    com: float = 0.0
    sharing: Sharing = "each"
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """Other profiles one after the other, the whole `repeat` times."""

    parts: tuple[str, ...]
    repeat: int = 1
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bytes read from and written to a storage host; per machine, or in all where `spread`."""

    read: float = 0.0
    write: float = 0.0
    storage: str = "pfs"
    spread: bool = True
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Bytes from one storage host to another."""

    size: float
    source: str
    target: str
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTrace:
    """Per rank: (usage from 0 to 1, flop) one after the other."""

    ranks: tuple[tuple[tuple[float, float], ...], ...]
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmpiTrace:
    """Per rank: the actions of an MPI program, `("compute", 1e9)`, `("send", 3, 1e6)`."""

    ranks: tuple[tuple[tuple[str, int, float], ...], ...]
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerMessage:
    """v4's `send` or `recv`: a message to or from the scheduler, which takes no time."""

    code: int = 0


Profile = (
    Delay
    | ParallelTask
    | Homogeneous
    | Composed
    | Storage
    | Staging
    | UsageTrace
    | SmpiTrace
    | SchedulerMessage
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job. Times are nanoseconds; `walltime` None means that nothing limits it."""

    id: str
    workload: str = "w0"
    submitted: int
    width: int
    walltime: int | None = None
    profile: str
    source: Mapping[str, Any] = field(default_factory=dict, compare=False)
    user: str = ""

    @property
    def key(self) -> str:
        """The id by which Batsim's protocol knows it: `w0!17` (the first version: `17`)."""
        return f"{self.workload}!{self.id}" if self.workload else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in the order of their file, the profiles they name, and the machines it was made for.

    `skipped` entries were broken; of `dropped` ones, by reason, a job was never to be made.
    """

    name: str = "w0"
    jobs: tuple[Job, ...]
    profiles: Mapping[str, Profile]
    machines: int
    source: str = ""
    skipped: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    profile_sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
