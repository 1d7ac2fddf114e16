"""Outages of one node that overlap, in every engine that has outages: `batch` refuses them.

Two outages, 10 to 20 s and 15 to 75 s: a pod that arrives between them starts at 75 s.
"""

import pytest
from tests.simulation.engines.external.cases import WATCHING, ScenarioWriter
from tests.simulation.engines.external.cases import run as run_external

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.scenario.schedulers import ALLOCATION, JOBS, OWN, PODS
from scenarios_on_cluster import load

OVERLAPPING = "faults: [{node: n, at: 10s, for: 10s}, {node: n, at: 15s, for: 60s}]"


def started(result):
    return [task.started // SECOND for task in result.tasks]


@pytest.mark.parametrize("scheduler", [*PODS, *ALLOCATION, OWN])
def test_a_pod_waits_for_the_end_of_the_last_outage(tmp_path, scheduler):
    scenario = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4}]}\n"
        "workload: {pods: [{name: p, at: 21s, duration: 5s, cpu: 1}]}\n"
        f"scheduler: {scheduler}\n{OVERLAPPING}\n",
    )
    assert started(dispatch.begin(scenario).go()) == [75]


def test_a_pod_waits_for_the_end_of_the_last_outage_with_an_external_scheduler(tmp_path):
    scenario = ScenarioWriter(tmp_path)(
        "{name: p, at: 21s, duration: 5s, cpu: 1}",
        nodes="{name: n, cpu: 4}",
        program=WATCHING,
        more=OVERLAPPING,
    )
    result, _ = run_external(scenario)
    assert started(result) == [75]
    assert "late binds: 0" in result.notes


@pytest.mark.parametrize("scheduler", JOBS)
def test_an_engine_without_outages_refuses_them(tmp_path, scheduler):
    scenario = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 4}]}\n"
        "workload: {jobs: [{name: j, at: 21s, duration: 5s}]}\n"
        f"scheduler: {scheduler}\n{OVERLAPPING}\n",
    )
    with pytest.raises(InputError, match="is for pods"):
        dispatch.begin(scenario)
