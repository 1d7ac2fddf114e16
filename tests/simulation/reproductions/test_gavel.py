"""Gavel's workload as its authors draw it, and its accidents."""

import os
from itertools import islice
from pathlib import Path

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.share_policies import AlloX, Fifo, InParts, MinMakespan
from dralab.simulation.engines.fast.time_shares import TrainingJob
from dralab.simulation.reproductions.gavel import experiment, workload
from dralab.simulation.reproductions.gavel.published import SPEEDS
from dralab.simulation.reproductions.registry import named

GPUS = {"v100": 1, "p100": 1, "k80": 1}


def one_a_second(kind, gpus):
    """Return the speed of every job."""
    return 1.0


def job(number, work, *, gpus=1, speed=one_a_second):
    """Return a job that is there at the beginning."""
    return TrainingJob(
        name=str(number), kind="LM", arrives=0, work=work, gpus=gpus, throughputs=speed
    )


def test_jobs_are_drawn_as_the_authors_draw_them():
    """Kinds, GPUs, seconds on a V100 and arrivals, from the authors' generator with seed 0."""
    found = list(islice(workload.drawn(one_a_second, 0, every=3600, several=True), 6))
    assert [(each.kind, each.gpus) for each in found] == [
        ("ResNet-18 (batch size 64)", 8),
        ("Transformer (batch size 16)", 1),
        ("Recommendation (batch size 2048)", 1),
        ("Recommendation (batch size 8192)", 1),
        ("LM (batch size 5)", 4),
        ("Transformer (batch size 64)", 1),
    ]
    assert [each.work for each in found] == pytest.approx(
        [
            68344.35010595,
            31016.60914593,
            2146.60883744,
            7386.67481975,
            6858.69820697,
            445845.3266746,
        ]
    )
    assert [each.arrives / SECOND for each in found] == pytest.approx(
        [0, 978.344291641, 3807.099310116, 5470.170782626, 8804.271777973, 12342.178657896]
    )


def test_jobs_of_one_gpu_are_drawn_from_all_kinds():
    found = list(islice(workload.drawn(one_a_second, 1, every=60), 400))
    assert {each.gpus for each in found} == {1}
    assert {each.kind for each in found} == {kind for kind, _ in workload.TEMPLATES}


def test_the_older_list_of_kinds_has_one_at_another_place():
    """`job_table.py` of the authors before and after their commit 19a0dd2."""
    older, newer = list(workload.OLDER_TEMPLATES), list(workload.TEMPLATES)
    assert (older.index(("A3C", False)), newer.index(("A3C", False))) == (14, 24)
    assert [each for each in older if each[0] != "A3C"] == [
        each for each in newer if each[0] != "A3C"
    ]


def test_a_run_by_hand():
    """Two jobs of 400 and 100 steps on one GPU, by FIFO: the second begins with the second round.

    The first round lasts 360 s, the next one 40 s; then the second job runs for 100 s, but its
    share is computed 32 minutes after the one at time 0, or at once while that is the only one.
    """
    found = experiment.run(
        Fifo(), [job(0, 400), job(1, 100)], {"v100": 1}, seed=0, watched=range(2)
    )
    assert found.completion == (400 + 500) / 2
    assert found.makespan == 500
    assert found.utilization == 1.0


def test_a_job_with_fewer_steps_left_than_gpus_is_given_up():
    """364 steps: 360 in the first round, and with 8 GPUs 4 are never counted."""
    found = experiment.run(
        Fifo(), [job(0, 364, gpus=8), job(1, 10)], {"v100": 8}, seed=0, watched=range(2)
    )
    assert found.dropped == 1
    assert found.completion == 360 + 5 * 4 + 10


def test_parts_have_their_own_jobs_and_gpus():
    """With one GPU of each part, no job gets more than the whole of it."""
    jobs = [job(number, 1000) for number in range(6)]
    halves = InParts([MinMakespan(least=True), MinMakespan(least=True)], chance=FirstsThenOthers())
    found = experiment.run(halves, jobs, {"v100": 2}, seed=0, watched=range(6))
    assert 3000 <= found.makespan <= 3000 + 360


class FirstsThenOthers:
    """Puts jobs into parts 0 and 1 in turn."""

    def __init__(self):
        self.last = 1

    def randrange(self, count):
        self.last = 1 - self.last
        return self.last


def test_the_same_seed_gives_the_same_numbers():
    def run():
        jobs = islice(workload.drawn(one_a_second, 3, every=1000), 8)
        return experiment.run(AlloX(), jobs, GPUS, seed=3, watched=range(8))

    assert run() == run()


@pytest.mark.conformance
def test_the_sample_of_the_readme_is_met():
    """Needs the authors' table of speeds, in the directory that GAVEL_DATA names."""
    path = Path(os.environ.get("GAVEL_DATA", ".")) / SPEEDS
    if not path.is_file():
        pytest.skip(f"GAVEL_DATA names no directory with {SPEEDS}")
    [case] = named("gavel").selected(["readme/42"])
    rows = list(case.run([path], 0))
    assert [row.verdict for row in rows] == ["agrees"] * 4
