"""Stages of a life as data: a scenario may name its own before and after a run."""

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation import dispatch
from scenarios_on_cluster import load

STAGES = """
lifecycle:
  start: [{name: network, delay: 2s}, {name: image, delay: 5s}]
  release: [{name: unmount, delay: 1s}, {name: report, delay: 3s}]
"""


@pytest.mark.parametrize("scheduler", ["firstfit", "dralab"])
def test_a_pod_goes_through_every_stage_of_its_life(tmp_path, scheduler):
    scenario = load(
        tmp_path,
        "fleet: {nodes: [{name: n, cpu: 1}]}\n"
        "workload: {pods: [{name: p, count: 2, duration: 10s, cpu: 1}]}\n"
        f"scheduler: {scheduler}\n{STAGES}",
    )
    tasks = dispatch.begin(scenario).go().tasks
    lives = [
        tuple(t // SECOND for t in (task.bound, task.started, task.ended))
        for task in sorted(tasks, key=lambda task: task.bound)
    ]
    # The second has the node when the first has left it: 7 s to start, 10 s of run, 4 s to leave.
    assert lives == [(0, 7, 17), (21, 28, 38)]
