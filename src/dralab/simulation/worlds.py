"""Which world runs a scenario: rigid jobs and pods in `batch` and `pods`, a cluster in `inside`."""

from dataclasses import replace
from pathlib import Path

from dralab.simulation.inside.run import InsideRun
from dralab.simulation.results import Result
from dralab.simulation.scenarios import ignored
from dralab.simulation.scenarios.execute import Run
from dralab.simulation.scenarios.scenario import EXTERNAL, OWN, Scenario


def measured(scenario: Scenario, result: Result) -> Result:
    """Return a result of which only what the scenario wants is measured."""
    left_out = (
        ignored.notes(scenario.fleet, scenario.work, external=True)
        if scenario.scheduler == EXTERNAL
        else ()
    )
    return replace(result, interval=scenario.measured, notes=[*result.notes, *left_out])


def begin(scenario: Scenario, resume: Path | None = None) -> Run | InsideRun:
    """Return a run that has not begun, or goes on from a checkpoint.

    InputError: workload and scheduler do not go together, or the checkpoint is of another run.
    """
    world: type[Run | InsideRun] = InsideRun if scenario.scheduler == OWN else Run
    return world(scenario) if resume is None else world.resumed(scenario, resume)
