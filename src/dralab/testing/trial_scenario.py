"""A scenario of trials as a value: programs, what runs beside them, the user's script, the limits.

Reading one from a file is left to `scenario`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dralab.api.releases import MIXED
from dralab.kernel.clock import SECOND
from dralab.testing.faults import DEFAULT_MOST, FAULTS
from dralab.testing.history import TrialHistory
from dralab.testing.process import ProgramSpec
from dralab.values.json_types import JsonDict

MINUTE: Final = 60 * SECOND
# (objects by kind, history) -> what is wrong, empty where nothing is
HistoryCheck = Callable[[Sequence[JsonDict], TrialHistory], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """The bounds of one trial: simulated time in nanoseconds, events, real seconds, bytes.

    `quiet`: for so long nothing may change before the trial is judged. `settle`: so long after
    the last fault that has to be so.
    """

    quiet: int = 60 * SECOND
    settle: int = 30 * MINUTE
    steps: int = 500_000
    wall: float = 60.0
    memory: int = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParts:
    """What runs beside the programs, without faults: controllers by name, and nodes.

    `controllers` None stands for all of them. Programs under test are left out. `version` is the
    release of Kubernetes that the server is of, such as "1.34".
    """

    controllers: Sequence[str] | None = None
    scheduler: bool = True
    nodes: int = 0
    drivers: Sequence[str] = ()
    version: str = MIXED


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """One step of the user: `verb` is apply, patch, scale, delete; `after` the step before.

    A patch may be one of a `subresource`, such as `status` or `approval`.
    """

    verb: str
    after: int
    objects: Sequence[JsonDict] = ()
    target: JsonDict = field(default_factory=dict)
    patch: JsonDict = field(default_factory=dict)
    subresource: str = ""

    def __str__(self) -> str:
        if self.verb == "apply":
            names = [f"{o.get('kind')} {o['metadata']['name']}" for o in self.objects]
            return f"apply {', '.join(names)}"
        name = self.target.get("name") or self.target.get("selector", "")
        part = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb}{part} {self.target.get('kind')} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInvariant:
    """An expression that is true of every object of a kind: always, or when all is quiet."""

    name: str
    api_version: str
    kind: str
    expression: str
    always: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryInvariant:
    """A function of the final objects and the history that returns violations."""

    name: str
    check: HistoryCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialScenario:
    """Everything in a trial that does not depend on the seed."""

    name: str
    programs: Sequence[ProgramSpec]
    manifests: Sequence[JsonDict] = ()
    script: Sequence[ScriptStep] = ()
    cluster: ClusterParts = ClusterParts()
    allowed: Sequence[str] = tuple(FAULTS)
    most: int = DEFAULT_MOST
    invariants: Sequence[ObjectInvariant] = ()
    checks: Sequence[HistoryInvariant] = ()
    ignore: Sequence[str] = ()
    limits: TrialLimits = TrialLimits()
    digest: str = ""
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def commands(self) -> bool:
        """Whether the program is a process."""
        return any(program.command for program in self.programs)

    @property
    def cached_lists(self) -> list[str]:
        """The programs whose first lists may be old."""
        return [program.name for program in self.programs if program.cached_lists]
