"""Rigid jobs: so many machines, for as long as their profile says, at most for their walltime."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dralab.simulation.workloads.profiles import Profile


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
