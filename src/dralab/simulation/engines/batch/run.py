"""A scenario's rigid jobs on machines, placed by a built-in scheduler or a user's.

A checkpoint is the simulation itself.
"""

from pathlib import Path

from dralab.simulation import checkpoints
from dralab.simulation.engines import ignored
from dralab.simulation.engines.batch import result
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.messages import JobScheduler
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.errors import InputError
from dralab.simulation.results.result import Result
from dralab.simulation.scenario import custom
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario


class BatchRun:
    """One run."""

    def __init__(self, scenario: Scenario, resume: Path | None = None) -> None:
        self.scenario = scenario
        self.complete = False
        self.simulation = (
            simulation_of(scenario)
            if resume is None
            else checkpoints.read(resume, digest(scenario), BatchSimulation)
        )

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Run on."""
        how, total = self.scenario.conditions, len(self.simulation.records)

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, total)

        self.simulation.progress = tell
        self.complete = self.simulation.run(how.until, stop, how.ended)
        self.simulation.progress = None
        return self.result()

    def result(self) -> Result:
        """Return what there is so far."""
        return result.of_jobs(
            self.simulation,
            name=self.scenario.name,
            scheduler=self.scenario.scheduler,
            seed=self.scenario.seed,
            complete=self.complete,
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        checkpoints.write(path, digest(self.scenario), self.simulation)


def simulation_of(scenario: Scenario) -> BatchSimulation:
    """Return a simulation that has not begun; InputError: the workload is not one of jobs."""
    file, name = scenario.file, scenario.scheduler
    ignored.refuse(file, scenario.fleet, scenario.conditions, batch=True)
    if scenario.work.jobs is None:
        raise InputError(file, f"{name!r} schedules rigid jobs, not pods", where="scheduler")
    platform = scenario.fleet.as_platform()
    scheduler: JobScheduler = (
        SCHEDULERS[name]() if name in SCHEDULERS else custom.load_class(name, file)()
    )
    return BatchSimulation(
        platform, [scenario.work.jobs], scheduler, options=BatchOptions(energy=scenario.energy)
    )
