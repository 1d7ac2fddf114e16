"""`dralab.campaign`: grids from Python, means with their intervals, differences in pairs."""

import pytest

import dralab

SCENARIO = {
    "name": "small",
    "fleet": {"nodes": [{"name": "n", "count": 3, "cpu": 8, "gpus": 2, "model": "A"}]},
    "workload": {
        "generate": {
            "count": 30,
            "arrivals": {"process": "poisson", "over": "1h"},
            "duration": {"distribution": "exponential", "mean": "10m"},
            "pods": [{"cpu": 1, "gpus": 1}, {"cpu": 1, "gpus": 2}],
        }
    },
}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    found = dralab.campaign(SCENARIO, ["firstfit", "fgd"], seeds=range(4), folder=folder, workers=1)
    return found, folder


def test_every_combination_is_a_row(grid):
    found, _ = grid
    keys = list(
        zip(found.runs["scenario"], found.runs["scheduler"], found.runs["seed"], strict=True)
    )
    assert keys == [("small", name, seed) for name in ("firstfit", "fgd") for seed in range(4)]
    assert repr(found) == "<Grid of 8 runs>"


def test_means_and_differences_are_over_the_seeds(grid):
    found, _ = grid
    mean = next(row for row in found.mean_ci("wait_mean") if row["scheduler"] == "fgd")
    waits = [row["wait_mean"] for row in found.runs if row["scheduler"] == "fgd"]
    assert mean["mean"] == pytest.approx(sum(waits) / 4)
    assert mean["ci95"] > 0
    (gap,) = found.compare("wait_mean")
    first = [row["wait_mean"] for row in found.runs if row["scheduler"] == "firstfit"]
    pairs = [b - a for a, b in zip(first, waits, strict=True)]
    assert gap["difference"] == pytest.approx(sum(pairs) / 4)
    assert found.compare("wait_mean", baseline="fgd")["difference"] == [-gap["difference"]]


def test_what_is_unknown_is_refused_with_what_there_is(grid):
    found, _ = grid
    with pytest.raises(KeyError, match="'waiting' is not a number of a run; known: tasks"):
        found.mean_ci("waiting")
    with pytest.raises(KeyError, match="'easy' is not one of fgd, firstfit"):
        found.compare("wait_mean", baseline="easy")
    with pytest.raises(ValueError, match="engine: 'cloud' is not one of processes, dask"):
        dralab.campaign(SCENARIO, ["fgd"], engine="cloud")
    with pytest.raises(TypeError, match="not classes"):
        dralab.campaign(SCENARIO, [dict])
    with pytest.raises(ValueError, match="needs the address"):
        dralab.campaign(SCENARIO, ["fgd"], engine="dask")
    with pytest.raises(ValueError, match="at least one scenario"):
        dralab.campaign([], ["fgd"])


def test_finished_runs_are_kept_and_the_report_is_written(grid, tmp_path):
    _, folder = grid
    seen = []
    again = dralab.campaign(
        SCENARIO, ["firstfit", "fgd"], seeds=range(4), folder=folder,
        progress=lambda *each: seen.append(each),
    )  # fmt: skip
    assert seen == [(8, 8, 8)]
    again.report(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "difference_ci95" in (tmp_path / "out" / "campaign.csv").read_text().splitlines()[0]
    assert '"errors"' in page
