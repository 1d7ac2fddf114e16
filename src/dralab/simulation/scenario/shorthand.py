"""Scenarios that a command or a campaign describes in a few words, without a file of their own."""

from pathlib import Path

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.lifecycle.model import RunConditions
from dralab.simulation.scenario import manifests
from dralab.simulation.scenario.fleet import ScenarioFleet, openb_nodes, simulator_fleet
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import TICKS, TICKS_PREEMPTION
from dralab.simulation.scenario.simulator_config import TickConfig
from dralab.simulation.scenario.workload import ScenarioWorkload, openb_pods


def placement(
    nodes: Path,
    pods: Path,
    *,
    policy: str,
    seed: int,
    inflate: float,
    problems: InputProblems | None = None,
) -> Scenario:
    """Return the placement of an openb trace, each pod once. InputError: the files."""
    problems = InputProblems() if problems is None else problems
    fleet = ScenarioFleet(nodes=tuple(openb_nodes(nodes, problems)))
    work = ScenarioWorkload(pods=tuple(openb_pods(pods, problems)), inflate=inflate)
    if not any(node.gpus for node in fleet.nodes):
        raise InputError(nodes, "no node has a GPU")
    if not work.pods:
        raise InputError(pods, "there are no pods")
    return Scenario(
        name=pods.stem,
        file=pods,
        seed=seed,
        fleet=fleet,
        work=work,
        scheduler=policy,
        conditions=RunConditions(seed=seed),
        external={},
        skipped=len(problems.skipped),
    )


def ticks(config: TickConfig, pods: Path, *, preemption: bool, until: int | None) -> Scenario:
    """Return a run of k8s-cluster-simulator; `until` are seconds. InputError: the file."""
    found, objects = manifests.read(pods, InputProblems())
    fleet = simulator_fleet(config)
    return Scenario(
        name=config.file.stem,
        file=pods,
        seed=0,
        fleet=fleet,
        work=ScenarioWorkload(pods=found, objects=objects),
        scheduler=TICKS_PREEMPTION if preemption else TICKS[0],
        conditions=RunConditions(until=None if until is None else until * SECOND),
        external={},
        tick=fleet.tick,
    )
