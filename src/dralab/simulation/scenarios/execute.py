"""Running a scenario: to the end, or until someone asks to stop; then it can be gone on with.

A checkpoint is the engine itself.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dralab.simulation import checkpoints
from dralab.simulation.batch.engine import Simulation
from dralab.simulation.pods.engine import PodSimulation
from dralab.simulation.results import Result
from dralab.simulation.scenarios import collect, custom, ignored
from dralab.simulation.scenarios.scenario import Engine, Scenario

Progress = Callable[[int, int, int], None]


def digest(scenario: Scenario) -> str:
    """Return what a run depends on, as a short text: the same text, the same result."""
    fleet = scenario.fleet
    # Labels are sets, and the text of a set has another order in another process.
    nodes = [(replace(node, labels=frozenset()), sorted(node.labels)) for node in fleet.nodes]
    named = {scenario.scheduler, *(name for node in fleet.nodes for name in node.drivers)}
    files = [
        scenario.file.parent / name.rpartition(":")[0]
        for name in sorted(named)
        if custom.is_file(name)
    ]
    parts = (
        scenario.seed, scenario.scheduler, scenario.circumstances, scenario.energy, nodes,
        fleet.platform, fleet.objects, scenario.work,
    )  # fmt: skip
    return checkpoints.digest(parts, files)


class Run:
    """One run of a scenario, step by step."""

    def __init__(self, scenario: Scenario, engine: Engine | None = None) -> None:
        self.scenario = scenario
        self.engine: Engine = scenario.engine() if engine is None else engine
        self.complete = False

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        engine = self.engine
        return len(engine.records) if isinstance(engine, Simulation) else len(engine.runs)

    def go(
        self, progress: Progress | None = None, stop: Callable[[], bool] | None = None
    ) -> Result:
        """Run on; `progress` gets simulated nanoseconds, tasks over, tasks."""
        engine, total, how = self.engine, self.tasks, self.scenario.circumstances

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, total)

        if isinstance(engine, PodSimulation):
            self.complete = engine.run(tell, stop)
        else:
            engine.progress = tell
            self.complete = engine.run(how.until, stop, how.ended)
            engine.progress = None
        return self.result()

    def result(self) -> Result:
        """Return what there is so far."""
        engine, scenario = self.engine, self.scenario
        if isinstance(engine, PodSimulation):
            notes = ignored.notes(scenario.fleet, scenario.work)
            found = collect.of_pods(engine, name=scenario.name, complete=self.complete)
            return replace(found, notes=[*found.notes, *notes])
        return collect.of_jobs(
            engine,
            name=scenario.name,
            scheduler=scenario.scheduler,
            seed=scenario.seed,
            complete=self.complete,
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        checkpoints.write(path, digest(self.scenario), self.engine)

    @classmethod
    def resumed(cls, scenario: Scenario, path: Path) -> "Run":
        """Return a run that goes on from a checkpoint of the same scenario."""
        kind: type[Engine] = Simulation if scenario.is_batch else PodSimulation
        return cls(scenario, checkpoints.read(path, digest(scenario), kind))
