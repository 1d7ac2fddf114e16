"""Selects the engine for a scenario, and the notes of every result."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from dralab.runtime.garbage import rare_collections
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.batch import run as batch
from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.engines.fast.round_run import RoundRun
from dralab.simulation.engines.fast.run import FastRun
from dralab.simulation.engines.fast.ticks import TickRun
from dralab.simulation.engines.placement import PlacementRun
from dralab.simulation.engines.scenario_run import ScenarioRun
from dralab.simulation.policies.chance import unseeded
from dralab.simulation.results.result import Result
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import EXTERNAL, OWN, TICKS


def measured(scenario: Scenario, result: Result) -> Result:
    """Return a result with only the measurements that the scenario selects."""
    left_out = (
        unsupported.notes_outside(scenario.fleet, scenario.work)
        if scenario.scheduler == EXTERNAL
        else ()
    )
    uses = map(str, unseeded(scenario.policy_class())) if scenario.is_own else ()
    ignored = getattr(scenario.autoscaler, "ignored", ())
    notes = [*result.notes, *uses, *ignored, *left_out, *_never_started(result)]
    return replace(result, interval=scenario.measured, notes=notes)


def _never_started(result: Result) -> Iterator[str]:
    """Yield notes about pods that are still waiting at the end."""
    waiting = [task for task in result.tasks if task.started is None and task.state == "Pending"]
    if waiting and result.complete and result.scheduler != EXTERNAL:
        first = min(waiting, key=lambda task: (task.submitted, task.id))
        many = f"{len(waiting)} tasks were" if len(waiting) > 1 else "1 task was"
        yield f"{many} never started, {first.id} the first of them: {first.reason}"


@rare_collections()
def begin(
    scenario: Scenario,
    resume: Path | None = None,
    *,
    command: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ScenarioRun:
    """Return a new run, or one resumed from a checkpoint.

    `command` replaces that of the scenario's external scheduler; `say` hears where it is served.
    InputError: workload and scheduler do not go together, or the checkpoint is of another run.
    """
    if scenario.work.inflate is not None:
        return PlacementRun(scenario, resume)
    if scenario.in_rounds:
        return RoundRun(scenario, resume)
    unsupported.refuse_trainings(scenario)
    runs_fast = scenario.runs_in == "fast" and scenario.scheduler not in {OWN, EXTERNAL, *TICKS}
    if not runs_fast and not scenario.is_batch:
        unsupported.refuse_lives(scenario)
    if scenario.scheduler == OWN or (scenario.is_own and scenario.runs_in == "cluster"):
        return ClusterRun(scenario) if resume is None else ClusterRun.resumed(scenario, resume)
    if scenario.scheduler == EXTERNAL:
        return ExternalRun(scenario, resume, command=command, say=say)
    if scenario.scheduler in TICKS or (scenario.is_own and scenario.runs_in == "ticks"):
        return TickRun(scenario, resume)
    if scenario.is_batch:
        return batch.scenario_run(scenario, resume)
    return FastRun(scenario, resume)
