"""Reproductions of schedulers for trainings: small traces by hand, and whole ones where they are."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.reproductions import sia, tiresias

HAVE = "DRALAB_REPRODUCTIONS"


@pytest.fixture
def trace(tmp_path):
    """Return a trace of three jobs for four GPUs, and the service of some others."""
    jobs, needs = tmp_path / "jobs.csv", tmp_path / "needs.csv"
    jobs.write_text("job_id,num_gpu,submit_time,duration\na,4,0,2000\nb,4,10,100\nc,1,20,50\n")
    needs.write_text("duration\n100\n200\n9000\n")
    return jobs, needs


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("fifo", {"a": 2000, "b": 2100, "c": 2150}),
        ("fjf", {"a": 2000, "b": 2100, "c": 2150}),
        ("sjf", {"a": 2050, "b": 2150, "c": 70}),
        ("shortest", {"a": 2150, "b": 160, "c": 70}),
        ("dlas", {"a": 2000, "b": 2100, "c": 2150}),
        # 3,250 GPU seconds are 813 s of four GPUs. When c comes, at 20 s, the rest is taken to be
        # (3250 - 20) / 4 = 807 s, as there.
        ("dlas-gpu", {"a": 2150, "b": 927, "c": 977}),
    ],
)
def test_a_schedule_by_hand(trace, schedule, expected):
    found = tiresias.ends(*trace, schedule, gpus=4)
    assert {name: end for name, (_, end) in found.items()} == expected


def test_every_published_number_has_its_schedule():
    assert tiresias.PUBLISHED.keys() == tiresias.SCHEDULES.keys()
    assert {model for model, _ in sia.LARGEST_LOCAL} <= sia.COSTS.keys()


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["tiresias", "pollux", "sia"])
def test_published_numbers_come_out_again(name):
    folder = Path(os.environ.get(HAVE, "")) / name
    if HAVE not in os.environ or not folder.is_dir():
        pytest.skip(f"{HAVE} names no directory with {name}/, the data that its page lists")
    found = CliRunner().invoke(main, ["reproduce", name, "--data", str(folder)])
    assert found.exit_code == 0, found.output
