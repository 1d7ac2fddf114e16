"""Stages of a life as data: a scenario may name its own before and after a run."""

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation import dispatch
from dralab.simulation.lifecycle.model import LifeCycle
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios
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


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "ran", "kept"),
    [(0, 29, 0), (0, 30, 30), (0, 89, 60), (60, 31, 60), (60, 32, 90), (60, 1, 60)],
)
def test_a_checkpoint_keeps_whole_intervals_of_a_run(saved, ran, kept):
    life = LifeCycle(checkpoint=30, restart=2)
    assert life.saved_of(saved, ran) == kept
    assert LifeCycle().saved_of(0, ran) == 0


def test_a_run_that_goes_on_takes_what_is_left_and_its_restart():
    life = LifeCycle(checkpoint=30, restart=2)
    assert (life.left(100, 0), life.left(100, 60)) == (100, 42)


@pytest.mark.parametrize("scheduler", ["dralab", "dralab-fast", "firstfit"])
def test_a_pod_whose_node_breaks_goes_on_from_its_checkpoint(tmp_path, scheduler):
    """70 minutes are done when the node breaks; 60 are kept, and 30 are left with the restart."""
    path = tmp_path / "scenario.yaml"
    path.write_text(
        """
fleet: {nodes: [{name: n, count: 2, cpu: 4}]}
workload: {pods: [{name: p, cpu: 4, duration: 80m}]}
faults: [{node: n-0, at: 70m, for: 10h}]
lifecycle: {checkpoint: 30m, restart: 10m}
scheduler: SCHEDULER
""".replace("SCHEDULER", scheduler)
    )
    run = dispatch.begin(scenarios.load(path))
    result = run.go()
    (task,) = result.tasks
    assert (task.ended - task.started) // 10**9 == 30 * 60
    assert metrics.metrics_of(result)["lost_hours"] == pytest.approx(10 / 60, abs=1e-3)
