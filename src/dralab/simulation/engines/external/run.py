"""A whole run with an outside scheduler: serve, start it, drive it, stop it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from dralab.cluster import Cluster, Options
from dralab.kernel.clock import ManualClock, from_rfc3339
from dralab.simulation.engines.external import checkpoint, report
from dralab.simulation.engines.external.driver import Driver, Manners
from dralab.simulation.engines.external.schedulers import Command, started
from dralab.simulation.engines.external.submission import Ways
from dralab.simulation.engines.external.world import World
from dralab.simulation.errors import InputError
from dralab.simulation.results.result import Result
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario

START: Final = "2026-01-01T00:00:00Z"
OF_THE_PROCESS: Final = frozenset({"command", "schedulers", "port", "tls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The schedulers to start, or none where someone starts them by hand; how they are served."""

    commands: Sequence[Command] = ()
    folder: Path = Path()
    port: int = 0
    tls: bool = False


def manners_of(scenario: Scenario) -> Manners:
    """Return what the scenario's `external:` says; InputError for what it may not say."""
    known = {item.name for item in fields(Manners)}
    given = {key: value for key, value in scenario.external.items() if key in known}
    unknown = set(scenario.external) - known - OF_THE_PROCESS
    if unknown:
        raise InputError(
            scenario.file,
            f"is not known here; known are {', '.join(sorted(known | OF_THE_PROCESS))}",
            where=f"external.{min(unknown)}",
        )
    for key, value in given.items():
        wanted = type(getattr(Manners(), key))
        right = isinstance(value, (int, float) if wanted is float else wanted)
        if not right or (isinstance(value, bool) and wanted is not bool):
            raise InputError(scenario.file, f"must be a {wanted.__name__}", where=f"external.{key}")
        if isinstance(value, (int, float)) and value < 0:
            raise InputError(scenario.file, "must not be negative", where=f"external.{key}")
    return Manners(**given)  # type: ignore[arg-type]  # checked above


def outside_of(scenario: Scenario, command: str | None = None) -> Outside:
    """Return the schedulers of a scenario; `command` replaces those it names."""
    given = scenario.external
    name = manners_of(scenario).scheduler_name
    commands = []
    if command or "schedulers" not in given:
        words = _words(scenario, command or given.get("command", ()), "external.command")
        commands = [Command(name=name, words=words)] if words else []
    else:
        listed = given["schedulers"]
        if not isinstance(listed, Mapping) or not listed:
            raise InputError(
                scenario.file, "must map names to commands", where="external.schedulers"
            )
        for one, value in listed.items():
            words = _words(scenario, value, f"external.schedulers.{one}")
            commands.append(Command(name=str(one), words=words))
    port, tls = given.get("port", 0), given.get("tls", False)
    if not isinstance(port, int) or not 0 <= port < 65536:
        raise InputError(scenario.file, "must be a port", where="external.port")
    return Outside(commands=commands, folder=scenario.file.parent, port=port, tls=bool(tls))


def _words(scenario: Scenario, given: object, where: str) -> tuple[str, ...]:
    words = shlex.split(given) if isinstance(given, str) else given
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InputError(scenario.file, "must be a text or a list of texts", where=where)
    return tuple(words)


def run(
    scenario: Scenario,
    outside: Outside,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    resume: Path | None = None,
    keep: Path | None = None,
) -> Result:
    """Run a scenario with outside schedulers; DecisionError where they do not play along.

    A run that is stopped, or whose scheduler ends, is written to `keep`; `resume` goes on from such
    a file.
    """
    manners = manners_of(scenario)
    how = scenario.circumstances
    if how.quotas:
        raise InputError(
            scenario.file, "an outside scheduler knows only quotas of its own", where="queues"
        )
    for fault in how.faults:
        if not fault.is_outage:
            raise InputError(
                scenario.file, "under an outside scheduler only whole nodes go down", where="faults"
            )
    marked = digest(scenario)
    saved: Mapping[str, Any] | None = None
    if resume is not None:
        saved = checkpoint.load(resume, marked)
    pods, clock = scenario.pods(), ManualClock(from_rfc3339(START))
    ways = Ways(
        scheduler_name=manners.scheduler_name, claims=manners.claims, overcommit=manners.overcommit
    )
    options = Options(port=outside.port, tls=outside.tls)
    # The ids of new objects must not be those of objects from before the checkpoint.
    seed = 1 + (saved["resumed"] if saved is not None else 0)
    with Cluster(options, clock=clock, seed=seed) as cluster:
        world = World(
            cluster,
            clock,
            nodes=scenario.fleet.as_nodes(),
            pods=pods,
            circumstances=how,
            ways=ways,
            fleet_objects=scenario.fleet.objects,
            arrivals=scenario.work.objects,
        )
        driver = Driver(world, manners, schedulers=max(1, len(outside.commands)))
        if outside.commands:
            driver.names = {command.name for command in outside.commands}
        if saved is None:
            with world.together():
                world.prepare()
        else:
            checkpoint.restore(saved, cluster, world, driver.report)
        say(f"serving {cluster.url}; KUBECONFIG={cluster.kubeconfig}")

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, len(pods))

        with started(outside.commands, outside.folder, cluster) as schedulers:
            driver.trouble, driver.revive = schedulers.trouble, schedulers.revive
            driver.at_work = schedulers.at_work
            complete = driver.run(tell, stop)
        driver.finish()
        if not complete and keep is not None:
            checkpoint.save(keep, marked, world, driver.report)
        return report.result(driver, name=scenario.name, seed=scenario.seed, complete=complete)
