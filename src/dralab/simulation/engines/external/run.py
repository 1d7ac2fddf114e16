"""A whole run with an external scheduler: serve, start it, drive it, stop it."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from dralab.cluster import Cluster, Options
from dralab.kernel.clock import ManualClock, from_rfc3339
from dralab.simulation.engines.external import checkpoint, report
from dralab.simulation.engines.external.pacing import Pacer, PacingOptions
from dralab.simulation.engines.external.schedulers import SchedulerCommand, started
from dralab.simulation.engines.external.served_cluster import ServedCluster
from dralab.simulation.engines.external.submission import PodOptions
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.errors import InputError
from dralab.simulation.results.result import Result
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario

START: Final = "2026-01-01T00:00:00Z"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCommands:
    """The schedulers to start, or none where someone starts them by hand; how they are served."""

    commands: Sequence[SchedulerCommand] = ()
    folder: Path = Path()
    port: int = 0
    tls: bool = False


def pacing_of(scenario: Scenario) -> PacingOptions:
    """Return what the scenario's `external:` says; InputError for what it may not say."""
    known = {item.name for item in fields(PacingOptions)}
    given: dict[str, object] = {}
    for key, value in scenario.external.items():
        name = RENAMED.get(key, key)
        if name != key and name in scenario.external:
            raise InputError(
                scenario.file, f"is the old name of `{name}`: give one", where=f"external.{key}"
            )
        given[name] = value
    unknown = set(given) - known - OF_THE_PROCESS
    if unknown:
        raise InputError(
            scenario.file,
            f"is unknown; known: {', '.join(sorted(known | OF_THE_PROCESS))}",
            where=f"external.{min(unknown)}",
        )
    given = {key: value for key, value in given.items() if key in known}
    for key, value in given.items():
        wanted = type(getattr(PacingOptions(), key))
        right = isinstance(value, (int, float) if wanted is float else wanted)
        if not right or (isinstance(value, bool) and wanted is not bool):
            raise InputError(scenario.file, f"must be a {wanted.__name__}", where=f"external.{key}")
        if isinstance(value, (int, float)) and value < 0:
            raise InputError(scenario.file, "must not be negative", where=f"external.{key}")
    return PacingOptions(**given)  # type: ignore[arg-type]  # checked above


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
    if not isinstance(port, int) or not 0 <= port < 65536:
        raise InputError(scenario.file, "must be a port", where="external.port")
    return SchedulerCommands(
        commands=commands, folder=scenario.file.parent, port=port, tls=bool(tls)
    )


def _words(scenario: Scenario, given: object, where: str) -> tuple[str, ...]:
    words = shlex.split(given) if isinstance(given, str) else given
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InputError(scenario.file, "must be a string or a list of strings", where=where)
    return tuple(words)


class ExternalRun:
    """One run with external schedulers; a checkpoint is the objects of the server and the agenda.

    `command` replaces the scenario's; `say` hears where the API is served.
    """

    def __init__(
        self,
        scenario: Scenario,
        resume: Path | None = None,
        *,
        command: str | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.scenario = scenario
        self.options = pacing_of(scenario)
        self.commands = commands_of(scenario, command)
        self.say = say
        _refuse(scenario)
        self._digest = digest(scenario)
        self._resumed = None if resume is None else checkpoint.load(resume, self._digest)
        self._left_off: bytes | None = None

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Serve, start the schedulers, drive them; DecisionError if they do not play along."""
        for warning in old_names(self.scenario):
            self.say(warning)
        clock, saved = ManualClock(from_rfc3339(START)), self._resumed
        serving = Options(port=self.commands.port, tls=self.commands.tls)
        # The ids of new objects must not be those of objects from before the checkpoint.
        seed = 1 + (saved["resumed"] if saved is not None else 0)
        with Cluster(serving, clock=clock, seed=seed) as cluster:
            served = self._served(cluster, clock)
            pacer = Pacer(served, self.options, schedulers=max(1, len(self.commands.commands)))
            if self.commands.commands:
                pacer.names = {command.name for command in self.commands.commands}
            if saved is None:
                with served.together():
                    served.prepare()
            else:
                checkpoint.restore(saved, cluster, served, pacer.report)
            self.say(f"serving {cluster.url}; KUBECONFIG={cluster.kubeconfig}")
            complete = self._drive(pacer, progress, stop)
            if not complete:
                self._left_off = checkpoint.content(self._digest, served, pacer.report)
            return report.result(
                pacer, name=self.scenario.name, seed=self.scenario.seed, complete=complete
            )

    def save(self, path: Path) -> None:
        """Write a checkpoint of a run that left off."""
        if self._left_off is None:
            raise InputError(path, "the run was complete: there is nothing to resume")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._left_off)

    def _served(self, cluster: Cluster, clock: ManualClock) -> ServedCluster:
        scenario, options = self.scenario, self.options
        return ServedCluster(
            cluster,
            clock,
            nodes=scenario.fleet.as_nodes(),
            pods=scenario.pods(),
            conditions=scenario.conditions,
            pod_options=PodOptions(
                scheduler_name=options.scheduler_name,
                claims=options.claims,
                overcommit=options.overcommit,
            ),
            fleet_objects=scenario.fleet.objects,
            arrivals=scenario.work.objects,
        )

    def _drive(self, pacer: Pacer, progress: Progress | None, stop: Stop | None) -> bool:
        """Run the schedulers, and time with them; False if the run left off."""
        total = len(pacer.served.pods)

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, total)

        cluster = pacer.served.cluster
        with started(self.commands.commands, self.commands.folder, cluster) as schedulers:
            pacer.trouble, pacer.revive = schedulers.trouble, schedulers.revive
            pacer.at_work = schedulers.at_work
            complete = pacer.run(tell, stop)
        pacer.finish()
        return complete


def _refuse(scenario: Scenario) -> None:
    """Raise InputError for what nobody can do where an external scheduler decides."""
    how = scenario.conditions
    if how.quotas:
        raise InputError(
            scenario.file, "an external scheduler does not see a scenario's quotas", where="queues"
        )
    for fault in how.faults:
        if not fault.is_outage:
            problem = "an external scheduler supports only outages of whole nodes"
            raise InputError(scenario.file, problem, where="faults")
