"""Stages of a life as data: a scenario may name its own before and after a run."""

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation import dispatch
from dralab.simulation.lifecycle.model import LifeCycle, Pod
from dralab.simulation.lifecycle.tasks import TaskRecord
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.workloads.openb import PodRequest
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
    assert lost_after(LifeCycle(checkpoint=30, restart=2), saved, ran).saved == kept
    assert lost_after(LifeCycle(), 0, ran).saved == 0


def lost_after(life, saved, ran, **pod):
    task = TaskRecord(Pod(name="p", request=PodRequest(0, 0, 0, ""), **pod), saved=saved)
    task.start(0)
    task.lose_run(ran, life)
    return task


def test_a_run_that_goes_on_takes_what_is_left_and_its_restart():
    life = LifeCycle(checkpoint=30, restart=2)
    assert [lost_after(life, saved, 0).left(100, life) for saved in (0, 60)] == [100, 42]


def test_a_run_first_starts_up_and_checkpoints_as_its_pod_says():
    life = LifeCycle(checkpoint=30, restart=2)
    task = lost_after(life, 60, 52, startup=5, checkpoint=20)
    assert (task.saved, task.wasted, task.left(100, life)) == (100, 12, 7)


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
    lost = metrics.metrics_of(result)
    assert lost["redone_hours"] == pytest.approx(10 / 60, abs=1e-3)
    # It holds its node until it is evicted, and is restored for ten minutes.
    assert lost["idle_hours"] == pytest.approx((5 * 60 + 50 + 600) / 3600, abs=2e-3)
    assert lost["lost_hours"] == lost["redone_hours"] + lost["idle_hours"]
