"""evalys, an independent reader, finds in our files what we say of them."""

import json
import warnings

import pytest
from click.testing import CliRunner

from dralab.cli.main import main

JOBS = {
    "nb_res": 8,
    "jobs": [
        {"id": "1", "subtime": 0, "res": 2, "walltime": 100, "profile": "long"},
        {"id": "2", "subtime": 0, "res": 7, "walltime": 100, "profile": "short"},
        {"id": "3", "subtime": 3, "res": 3, "walltime": 100, "profile": "short"},
        {"id": "4", "subtime": 4, "res": 1, "walltime": 2, "profile": "short"},
    ],
    "profiles": {"long": {"type": "delay", "delay": 10}, "short": {"type": "delay", "delay": 5}},
}


@pytest.mark.conformance
@pytest.mark.parametrize("scheduler", ["fcfs", "easy", "easy-counting", "conservative"])
@pytest.mark.filterwarnings("ignore")
def test_evalys_finds_the_same_waits_use_and_queue(tmp_path, scheduler):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jobset = pytest.importorskip("evalys.jobset", reason="evalys is not installed")
    (tmp_path / "jobs.json").write_text(json.dumps(JOBS))
    done = CliRunner().invoke(
        main,
        ["simulate", "run", str(tmp_path / "jobs.json"), "--scheduler", scheduler,
         "--export", str(tmp_path / "run"), "--write", str(tmp_path / "report")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    ours = json.loads((tmp_path / "report" / "summary.json").read_text())["metrics"]
    read = jobset.JobSet.from_csv(str(tmp_path / "run_jobs.csv"), resource_bounds=(0, 7))
    assert len(read.df) == 4
    assert read.df.waiting_time.mean() == pytest.approx(ours["wait_mean"])
    assert read.df.turnaround_time.max() == pytest.approx(ours["turnaround_max"])
    assert read.mean_utilisation() / 8 == pytest.approx(ours["utilisation_machines"])
    queue = read.queue.load
    area = sum(
        asked * (later - when)
        for asked, when, later in zip(queue, queue.index, queue.index[1:], strict=False)
    )
    assert area / ours["makespan"] == pytest.approx(ours["mean_waiting_processors"])
