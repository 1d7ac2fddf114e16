"""batkube's jobs: as its translation has them, and by dralab's own scheduler beside the cluster."""

from pathlib import Path

import pytest

import stockparts
from dralab.simulation.reproductions import batkube
from dralab.simulation.reproductions.registry import named

CASES = {case.name: case for case in batkube.REPRODUCTION.cases}


def test_a_log_becomes_pods_on_six_cores_of_at_most_an_hour(tmp_path):
    log = tmp_path / "log.swf"
    rows = [(7, 1000, 90, 1024), (8, 1060, 9000, 512), (9, 1200, 30, 20)]
    log.write_text(
        "\n".join(f"{job} {at} -1 {run} {procs}" + " -1" * 13 for job, at, run, procs in rows)
    )
    assert batkube._pods("kit", log) == [
        {"name": "job-7", "at": "0s", "duration": "90s", "cpu": 5.9},
        {"name": "job-8", "at": "60s", "duration": "3600s", "cpu": 3.0},
        {"name": "job-9", "at": "200s", "duration": "30s", "cpu": 0.117},
    ]


def test_each_case_names_the_files_that_it_needs():
    assert CASES["cluster/kit"].data == ("kube-scheduler", "KIT-10-80.swf")
    assert CASES["cluster/burst"].data == ("kube-scheduler",)
    assert CASES["dralab/kit"].data == ("KIT-10-80.swf",)
    assert CASES["dralab/burst"].data == ()
    assert "batkube/spaced-160" not in CASES, "batkube crashed on it"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("burst", [(2390, "agrees"), (1065.6, "agrees"), (2220, "agrees")]),
        ("spaced-170", [(2460, "agrees"), (144, "agrees"), (300, "differs")]),
        ("spaced-160", [(2330, "agrees"), (86.4, "agrees"), (180, "differs")]),
    ],
)
def test_the_own_scheduler_is_as_near_to_the_cluster_as_the_page_says(workload, expected):
    rows = list(named("batkube").selected([f"dralab/{workload}"])[0].run([], 0))
    assert [(round(row.ours, 6), row.verdict) for row in rows] == expected
    assert all(bool(row.why) == (row.verdict == "differs") for row in rows)


@pytest.mark.conformance
@stockparts.needs(stockparts.NEWEST)
@pytest.mark.parametrize("name", ["cluster/burst", "cluster/kit", "batkube/burst", "batkube/kit"])
def test_the_unmodified_kube_scheduler_agrees_with_the_cluster_and_with_batkube(testdata, name):
    program = Path(stockparts.found(stockparts.NEWEST))
    case = CASES[name]
    paths = [program if each == "kube-scheduler" else testdata("swf", each) for each in case.data]
    assert [row.verdict for row in case.run(paths, 0)] == ["agrees"] * 3
