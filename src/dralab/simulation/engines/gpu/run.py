"""A scenario's pods on nodes with GPUs, placed by a built-in policy or a user's.

A checkpoint is the simulation itself.
"""

from dataclasses import replace
from pathlib import Path

from dralab.simulation import checkpoints
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.gpu import result
from dralab.simulation.engines.gpu.engine import PodSimulation
from dralab.simulation.engines.gpu.preference import PreferencePolicy
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.results.result import Result
from dralab.simulation.scenario import custom
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario


class GpuRun:
    """One run."""

    def __init__(self, scenario: Scenario, resume: Path | None = None) -> None:
        self.scenario = scenario
        self.complete = False
        self.simulation = (
            simulation_of(scenario)
            if resume is None
            else checkpoints.read(resume, digest(scenario), PodSimulation)
        )

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Continue the run."""
        total = len(self.simulation.tasks)

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, total)

        self.complete = self.simulation.run(tell, stop)
        return self.result()

    def result(self) -> Result:
        """Return the result so far."""
        scenario = self.scenario
        found = result.of_pods(self.simulation, name=scenario.name, complete=self.complete)
        notes = unsupported.notes(scenario.fleet, scenario.work)
        return replace(found, notes=[*found.notes, *notes])

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        checkpoints.write(path, digest(self.scenario), self.simulation)


def simulation_of(scenario: Scenario) -> PodSimulation:
    """Return a simulation that has not begun; InputError for what no built-in policy can have."""
    file, name = scenario.file, scenario.scheduler
    unsupported.refuse(file, scenario.fleet, scenario.conditions)
    unsupported.refuse_rules(scenario)
    policy = None
    if custom.is_file(name):
        policy = PreferencePolicy(custom.load_class(name, file)())
    return PodSimulation(
        scenario.fleet.as_nodes(), scenario.pods(), name, scenario.conditions, policy
    )
