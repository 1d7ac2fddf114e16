"""Trainings in rounds: epochs, batches, restarts, and what is believed of their speed."""

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.attained_service import AttainedService, Queue
from dralab.simulation.engines.fast.free_nodes import FreeNodes
from dralab.simulation.engines.fast.marginal_gains import MarginalGains
from dralab.simulation.engines.fast.rounds import GpuSlice, RoundRules, RoundSimulation
from dralab.simulation.engines.fast.training import Training, TrainingRun, split
from dralab.simulation.workloads.training_profiles import read_profile

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,8,1.0,0.0
1,16,2.0,0.0
2,8,1.0,0.25
2,16,2.0,0.25
11,8,2.0,1.0
11,16,3.0,1.0
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,4,8,4.0,3.0
4,4,16,5.0,3.0
4,8,8,4.0,3.0
4,8,16,5.0,3.0
"""


@pytest.fixture
def profile(tmp_path):
    """Return a model with two epochs of 100 steps; without noise, large batches gain nothing."""
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "placements.csv").write_text(PLACEMENTS)
    (folder / "scalability.csv").write_text(SCALABILITY)
    for batch, noise in (8, 0.0), (32, 0.0):
        lines = [f"{progress},{progress},1.0,{noise}" for progress in (100, 200)]
        (folder / f"validation-{batch}.csv").write_text(
            "\n".join(["progress,iteration,grad_sqr,grad_var", *lines])
        )
    return read_profile(folder, epochs=2)


def training(profile, **more):
    options = {"name": "a", "arrives": 0, "batch": 8, "restart": 10 * SECOND, **more}
    return Training(profiles={"": profile}, of_a_node={"": 2}, **options)


def ends(policy, gpus, *trainings, rounds=60):
    """Return when trainings end, in seconds, and the last of their records."""
    run = RoundSimulation(
        trainings, {"": gpus}, policy, RoundRules(length=rounds * SECOND), progress=TrainingRun
    )
    run.go()
    return [record.ended / SECOND for record in run.records], run.records[-1]


def test_a_training_loads_and_makes_its_epochs(profile):
    # 10 s to load and 200 steps of 1 s.
    assert ends(Queue(), 1, training(profile))[0] == [210]


def test_a_batch_that_no_gpu_holds_is_computed_in_parts(profile):
    assert split(32, 1, 16, 8) == (16, 2)
    assert split(16, 1, 16, 8) == (8, 2)
    assert split(16, 2, 16, 8) == (8, 1)
    # Without noise a large batch makes no more progress: 200 steps of 2 + 2 s.
    assert ends(Queue(), 1, training(profile, batch=32))[0] == [810]


def test_who_loses_its_gpus_loads_again_on_the_next(profile):
    policy = AttainedService((60,), nodes=FreeNodes(1, 1))
    found, last = ends(policy, 1, training(profile), training(profile, name="b", arrives=SECOND))
    assert last.restarts == 1
    # Each has a round, and sinks; the first goes on at 120 s, the other one in the round at 300 s.
    assert found == [280, 460]


def test_gpus_of_one_node_are_faster_than_those_of_two(profile):
    on_one = training(profile, batch=16, gpus=2)
    assert on_one.speed(GpuSlice("", 2), 0) == 1.0
    assert on_one.speed(GpuSlice("", 2, nodes=(0, 1)), 0) == 0.5


def test_the_next_gpu_goes_to_whom_it_saves_most(profile):
    pytest.importorskip("scipy", reason="interpolation between nodes needs SciPy")
    short, long = training(profile, batch=16), training(profile, batch=32, name="b")
    run = RoundSimulation(
        [short, long],
        {"": 3},
        MarginalGains(FreeNodes(2, 2)),
        RoundRules(length=SECOND),
        progress=TrainingRun,
    )
    for each in (short, long):
        run.active.append(TrainingRun(each, len(run.active)))
    # One more GPU saves 1 of 2 s for the one, and 2 of 4 s for the other.
    given = [(grant.jobs[0].number, grant.gpus) for grant in run.policy.grants(run)]
    assert given == [(0, 1), (1, 2)]


def test_between_measured_batches_a_step_is_interpolated(profile):
    assert profile.time((1,), 12) == (1.5, 0.0)
    assert profile.time((1,), 17) is None
    assert profile.iteration(20, 0) == 100


def test_between_numbers_of_nodes_a_step_is_interpolated(profile):
    pytest.importorskip("scipy", reason="interpolation between nodes needs SciPy")
    assert profile.time((1, 1, 1, 1), 8) == pytest.approx((4.0, 3.0))
    assert 2.0 < profile.time((1, 1, 1), 8).step < 4.0
