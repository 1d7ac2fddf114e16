"""What a scenario says under `external:`, as the parts of a run take it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, TypeVar

from dralab.kernel.clock import SECOND, WallClock
from dralab.simulation.engines.external.conductor import ConductorOptions
from dralab.simulation.engines.external.pacing import PacingOptions
from dralab.simulation.engines.external.schedulers import SchedulerCommand
from dralab.simulation.scenario.external import STOCK, VIRTUAL
from dralab.simulation.scenario.scenario import Scenario

T = TypeVar("T", PacingOptions, ConductorOptions)
NODE_LIFECYCLE: Final = "node-lifecycle-controller"
HEARTBEAT: Final = 10.0  # the kubelet's default


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCommands:
    """The schedulers to start, none if started by hand; and how they are served."""

    commands: Sequence[SchedulerCommand] = ()
    folder: Path = Path()
    port: int = 0
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOptions:
    """How time is kept.

    `virtual`: the programs have a virtual clock, where the machine has one. `start` is what the
    clock shows when the run begins, in nanoseconds since the epoch.
    """

    virtual: bool
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Which controllers there are besides the schedulers.

    `own` are those of dralab that run, by kube-controller-manager's names; `stock`: a program has
    some. `heartbeats`: seconds between those of a node, 0 for none.
    """

    own: Sequence[str] = ()
    stock: bool = False
    heartbeats: float = 0.0

    @property
    def jobs(self) -> bool:
        """Whether a controller makes the pods of Jobs."""
        return self.stock or "job-controller" in self.own

    def __bool__(self) -> bool:
        return self.stock or bool(self.own)


def of_kind(kind: type[T], scenario: Scenario) -> T:
    """Return the options of one way to drive schedulers."""
    return kind(**{item.name: scenario.external[item.name] for item in fields(kind)})


def time_of(scenario: Scenario) -> TimeOptions:
    """Return how time is kept."""
    start = scenario.external["start"]
    if start is None:
        now = WallClock().now()
        start = now - now % SECOND
    return TimeOptions(virtual=scenario.external["clock"] == VIRTUAL, start=start)


def controllers_of(scenario: Scenario) -> ControllerOptions:
    """Return which controllers run beside the schedulers."""
    names, beats = scenario.external["controllers"], scenario.external["heartbeats"]
    stock = names == (STOCK,)
    if beats is None:
        beats = HEARTBEAT if stock or NODE_LIFECYCLE in names else 0.0
    return ControllerOptions(own=() if stock else names, stock=stock, heartbeats=beats)


def commands_of(scenario: Scenario, command: str | None = None) -> SchedulerCommands:
    """Return the schedulers of a scenario; `command` replaces those it names."""
    given = scenario.external
    named = {} if command else given["schedulers"]
    if not named:
        words = tuple(shlex.split(command)) if command else given["command"]
        named = {given["scheduler_name"]: words} if words else {}
    commands = [SchedulerCommand(name=name, words=words) for name, words in named.items()]
    return SchedulerCommands(
        commands=commands, folder=scenario.file.parent, port=given["port"], tls=given["tls"]
    )
