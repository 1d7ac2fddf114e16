"""Running a scenario: to the end, or until someone asks to stop; then it can be gone on with.

A checkpoint is the engine itself.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dralab.simulation import checkpoints
from dralab.simulation.engines import collect, ignored
from dralab.simulation.engines.batch.engine import Options, Simulation
from dralab.simulation.engines.batch.messages import Scheduler
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.engines.gpu.engine import PodSimulation
from dralab.simulation.engines.gpu.preference import PreferencePolicy
from dralab.simulation.errors import InputError
from dralab.simulation.results.result import Result
from dralab.simulation.scenario import custom
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import EXTERNAL

Engine = Simulation | PodSimulation
Progress = Callable[[int, int, int], None]


def engine_of(scenario: Scenario) -> Engine:
    """Return the run, not begun; InputError where workload and scheduler do not go together."""
    file, name = scenario.file, scenario.scheduler
    ignored.refuse(file, scenario.fleet, scenario.circumstances, batch=scenario.is_batch)
    if name == EXTERNAL:
        raise InputError(file, "needs an outside scheduler: use --scheduler external")
    if not scenario.is_batch:
        policy = None
        if custom.is_file(name):
            policy = PreferencePolicy(custom.load_class(name, file)())
        return PodSimulation(
            scenario.fleet.as_nodes(), scenario.pods(), name, scenario.circumstances, policy
        )
    if scenario.work.jobs is None:
        raise InputError(file, f"{name!r} schedules rigid jobs, not pods", where="scheduler")
    platform = scenario.fleet.as_platform()
    scheduler: Scheduler = (
        SCHEDULERS[name]() if name in SCHEDULERS else custom.load_class(name, file)()
    )
    return Simulation(
        platform, [scenario.work.jobs], scheduler, options=Options(energy=scenario.energy)
    )


class Run:
    """One run of a scenario, step by step."""

    def __init__(self, scenario: Scenario, engine: Engine | None = None) -> None:
        self.scenario = scenario
        self.engine: Engine = engine_of(scenario) if engine is None else engine
        self.complete = False

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        engine = self.engine
        return len(engine.records) if isinstance(engine, Simulation) else len(engine.tasks)

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
