"""The experiment as a run of a scenario: `workload: {openb: pods.csv, inflate: 1.3}`.

There is no time in it. Where times are needed, the first pod arrives after one second, the second
after two, and so on; a pod that has its place keeps it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation import checkpoints
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.lifecycle.model import RunConditions
from dralab.simulation.reproductions.fgd.experiment import (
    PlacementExperiment,
    PlacementMeasure,
    PlacementOutcome,
)
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import PODS
from dralab.simulation.workloads.openb import GpuPod


class PlacementRun:
    """One run. InputError: the scenario has more than nodes, pods and a policy."""

    def __init__(self, scenario: Scenario, resume: Path | None = None) -> None:
        self.scenario = scenario
        self.complete = False
        self.experiment = _experiment(scenario)
        if resume is not None:
            self.experiment.go(most=checkpoints.read(resume, digest(scenario)))

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Place on."""
        self.complete = self.experiment.go(progress, stop)
        return self.result()

    def result(self) -> Result:
        """Return what there is so far."""
        scenario, measures = self.scenario, self.experiment.measures
        pods = self.experiment.queue[: len(measures)]
        return Result(
            name=scenario.name,
            scheduler=scenario.scheduler,
            seed=scenario.seed,
            tasks=[
                _task(number, pod, measure)
                for number, (pod, measure) in enumerate(zip(pods, measures, strict=True), 1)
            ],
            samples=list(_samples(measures)),
            lanes=[node.name for node in scenario.fleet.nodes],
            capacity={"gpu": self.experiment.capacity},
            end=len(measures) * SECOND,
            notes=["pods are placed once, one a second, and never end"],
            complete=self.complete,
            own_numbers=self.outcome().numbers(),
        )

    def outcome(self) -> PlacementOutcome:
        """Return the measures so far."""
        return self.experiment.outcome()

    def save(self, path: Path) -> None:
        """Write a checkpoint: how far it is. Going on places up to there again."""
        checkpoints.write(path, digest(self.scenario), len(self.experiment.measures))


def _experiment(scenario: Scenario) -> PlacementExperiment:
    file, policy, work = scenario.file, scenario.scheduler, scenario.work
    if policy not in PODS:
        known = ", ".join(PODS)
        problem = f"is for built-in policies, {known}; not for {policy!r}"
        raise InputError(file, problem, where="workload.inflate")
    conditions = replace(scenario.conditions, faults=tuple(scenario.conditions.faults))
    if conditions != RunConditions(seed=scenario.seed):
        problem = "places pods once, without time: no faults, queues, lifecycle, order or stop"
        raise InputError(file, problem, where="workload.inflate")
    if not any(node.gpus for node in scenario.fleet.nodes):
        raise InputError(file, "no node has a GPU", where="fleet")
    if not work.pods:
        raise InputError(file, "there are no pods", where="workload")
    return PlacementExperiment(
        scenario.fleet.nodes,
        [GpuPod(pod.name, pod.request, pod.memory) for pod in work.pods],
        policy=policy,
        seed=scenario.seed,
        ratio=work.inflate or 1.0,
        workload=scenario.name,
    )


def _task(number: int, pod: GpuPod, measure: PlacementMeasure) -> Task:
    when = number * SECOND if measure.placed else None
    return Task(
        id=f"{number}-{pod.name}",  # clones have the name of the pod that they are made of
        user="",
        state="Running" if measure.placed else "REJECTED",
        submitted=number * SECOND,
        bound=when,
        started=when,
        ended=None,
        width=max(1, -(-pod.request.cpu // 1000)),
        lanes=(),
        gpu_milli=pod.request.demand,
        reason="" if measure.placed else "fits on no node",
    )


def _samples(measures: Sequence[PlacementMeasure]) -> Iterator[StateSample]:
    placed = 0
    for number, measure in enumerate(measures, 1):
        placed += measure.placed
        yield StateSample(
            number * SECOND, 0, placed, 0, measure.allocated, measure.fragmented,
            refused=number - placed,
        )  # fmt: skip
