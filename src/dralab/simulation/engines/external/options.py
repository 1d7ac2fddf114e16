"""What a scenario says under `external:`."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from dralab.controllers import registry
from dralab.kernel.clock import SECOND, WallClock, from_rfc3339
from dralab.scenarios.errors import InputError
from dralab.simulation.engines.external.conductor import ConductorOptions
from dralab.simulation.engines.external.pacing import PacingOptions
from dralab.simulation.engines.external.schedulers import SchedulerCommand
from dralab.simulation.scenario.scenario import Scenario

# The old names of fields of `external:`, accepted for one version.
RENAMED: Final = {
    "settle": "quiet_period",
    "patience": "answer_timeout",
    "hope": "bind_grace",
    "thorough": "wait_for_rejections",
    "start_settle": "start_quiet_period",
    "start_patience": "start_timeout",
}
OF_THE_PROCESS: Final = frozenset({"command", "schedulers", "port", "tls"})
OF_TIME: Final = frozenset({"clock", "start", "controllers", "heartbeats"})
STOCK: Final = "external"  # a program among the schedulers has the controllers
NODE_LIFECYCLE: Final = "node-lifecycle-controller"
HEARTBEAT: Final = 10.0  # the kubelet's default
VIRTUAL, REAL = "virtual", "real"


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


def pacing_of(scenario: Scenario) -> PacingOptions:
    """Return how to pace schedulers that run in real time; InputError."""
    return PacingOptions(**_given(scenario, PacingOptions()))


def conducting_of(scenario: Scenario) -> ConductorOptions:
    """Return how to conduct schedulers under our clock; InputError."""
    return ConductorOptions(**_given(scenario, ConductorOptions()))


def time_of(scenario: Scenario) -> TimeOptions:
    """Return how time is kept; InputError."""
    clock = scenario.external.get("clock", VIRTUAL)
    if clock not in (VIRTUAL, REAL):  # a list or mapping is not hashable
        raise InputError(
            scenario.file, f"must be {VIRTUAL} or {REAL}, not {clock!r}", where="external.clock"
        )
    start = scenario.external.get("start")
    if start is None:
        now = WallClock().now()
        return TimeOptions(virtual=clock == VIRTUAL, start=now - now % SECOND)
    try:
        return TimeOptions(virtual=clock == VIRTUAL, start=from_rfc3339(str(start)))
    except ValueError:
        raise InputError(
            scenario.file,
            f"{str(start)!r} is not a time such as 2026-01-01T00:00:00Z (in quotes)",
            where="external.start",
        ) from None


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


def controllers_of(scenario: Scenario) -> ControllerOptions:
    """Return which controllers run beside the schedulers; InputError."""
    given = scenario.external.get("controllers", ())
    known = ", ".join(registry.CONTROLLERS)
    stock = given == STOCK
    listed = list(registry.CONTROLLERS) if given == "all" else given
    if not stock and not isinstance(listed, (list, tuple)):
        raise InputError(
            scenario.file,
            f"must be {STOCK}, all, or a list of names: {known}",
            where="external.controllers",
        )
    own = () if stock else tuple(map(str, listed))  # type: ignore[call-overload]  # a list by now
    for name in own:
        if name not in registry.CONTROLLERS:
            raise InputError(
                scenario.file, f"{name!r} is unknown; known: {known}", where="external.controllers"
            )
    needed = stock or NODE_LIFECYCLE in own
    beats = scenario.external.get("heartbeats", HEARTBEAT if needed else 0.0)
    if isinstance(beats, bool) or not isinstance(beats, (int, float)) or beats < 0:
        raise InputError(
            scenario.file, "must be seconds, or 0 for none", where="external.heartbeats"
        )
    return ControllerOptions(own=own, stock=stock, heartbeats=float(beats))


def without_effect(scenario: Scenario, *, virtual: bool) -> Sequence[str]:
    """Return the fields of `external:` without effect with, or without, the virtual clock."""
    own, other = ConductorOptions, PacingOptions
    if not virtual:
        own, other = other, own  # type: ignore[assignment]  # two classes of options
    idle = {item.name for item in fields(other)} - {item.name for item in fields(own)}
    if virtual:
        idle -= OF_PODS
    return sorted(key for key in scenario.external if RENAMED.get(key, key) in idle)


# Fields of PacingOptions that say how pods are played, in either way to keep time.
OF_PODS: Final = frozenset({"overcommit", "claims"})


def _given(scenario: Scenario, defaults: PacingOptions | ConductorOptions) -> dict[str, Any]:
    known = {item.name for one in (PacingOptions, ConductorOptions) for item in fields(one)}
    given: dict[str, object] = {}
    for key, value in scenario.external.items():
        name = RENAMED.get(key, key)
        if name != key and name in scenario.external:
            raise InputError(
                scenario.file, f"is the old name of `{name}`: give one", where=f"external.{key}"
            )
        given[name] = value
    unknown = set(given) - known - OF_THE_PROCESS - OF_TIME
    if unknown:
        raise InputError(
            scenario.file,
            f"is unknown; known: {', '.join(sorted(known | OF_THE_PROCESS | OF_TIME))}",
            where=f"external.{min(unknown)}",
        )
    own = {item.name for item in fields(defaults)}
    given = {key: value for key, value in given.items() if key in own}
    for key, value in given.items():
        wanted = type(getattr(defaults, key))
        right = isinstance(value, (int, float) if wanted is float else wanted)
        if not right or (isinstance(value, bool) and wanted is not bool):
            raise InputError(scenario.file, f"must be a {wanted.__name__}", where=f"external.{key}")
        if isinstance(value, (int, float)) and value < 0:
            raise InputError(scenario.file, "must not be negative", where=f"external.{key}")
    return given


def old_names(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for every field of `external:` that has another name now."""
    for key in scenario.external:
        if key in RENAMED:
            yield f"warning: external.{key} is now external.{RENAMED[key]}"


def commands_of(scenario: Scenario, command: str | None = None) -> SchedulerCommands:
    """Return the schedulers of a scenario; `command` replaces those it names."""
    given = scenario.external
    name = pacing_of(scenario).scheduler_name
    commands = []
    if command or "schedulers" not in given:
        words = _words(scenario, command or given.get("command", ()), "external.command")
        commands = [SchedulerCommand(name=name, words=words)] if words else []
    else:
        listed = given["schedulers"]
        if not isinstance(listed, Mapping) or not listed:
            raise InputError(
                scenario.file, "must map names to commands", where="external.schedulers"
            )
        for one, value in listed.items():
            words = _words(scenario, value, f"external.schedulers.{one}")
            commands.append(SchedulerCommand(name=str(one), words=words))
    port, tls = given.get("port", 0), given.get("tls", False)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 65536:
        raise InputError(scenario.file, "must be a port", where="external.port")
    if not isinstance(tls, bool):
        raise InputError(scenario.file, "must be true or false", where="external.tls")
    return SchedulerCommands(commands=commands, folder=scenario.file.parent, port=port, tls=tls)


def _words(scenario: Scenario, given: object, where: str) -> tuple[str, ...]:
    words = shlex.split(given) if isinstance(given, str) else given
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InputError(scenario.file, "must be a string or a list of strings", where=where)
    return tuple(words)
