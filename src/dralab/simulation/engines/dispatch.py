"""Which world runs a scenario: rigid jobs and pods in `batch` and `pods`, a cluster in `inside`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dralab.simulation.engines import ignored
from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.simulation.engines.execute import Run
from dralab.simulation.results.result import Result
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import EXTERNAL, OWN


def measured(scenario: Scenario, result: Result) -> Result:
    """Return a result of which only what the scenario wants is measured."""
    left_out = (
        ignored.notes_outside(scenario.fleet, scenario.work)
        if scenario.scheduler == EXTERNAL
        else ()
    )
    notes = [*result.notes, *left_out, *_never_started(result)]
    return replace(result, interval=scenario.measured, notes=notes)


def _never_started(result: Result) -> Iterator[str]:
    """Yield what is to be said of pods that wait in the end."""
    waiting = [task for task in result.tasks if task.started is None and task.state == "Pending"]
    if waiting and result.complete and result.scheduler != EXTERNAL:
        first = min(waiting, key=lambda task: (task.submitted, task.id))
        many = f"{len(waiting)} tasks were" if len(waiting) > 1 else "1 task was"
        yield f"{many} never started, {first.id} the first of them: {first.reason}"


def begin(scenario: Scenario, resume: Path | None = None) -> Run | ClusterRun:
    """Return a run that has not begun, or goes on from a checkpoint.

    InputError: workload and scheduler do not go together, or the checkpoint is of another run.
    """
    world: type[Run | ClusterRun] = ClusterRun if scenario.scheduler == OWN else Run
    return world(scenario) if resume is None else world.resumed(scenario, resume)
