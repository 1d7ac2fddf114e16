"""`dralab.campaign`: grids from Python, means with their intervals, differences in pairs."""

import signal
import threading

import pytest

import dralab
from dralab.simulation.policies.shipping import fingerprint, shipped

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
    with pytest.raises(ValueError, match="scenarios: two have one name"):
        dralab.campaign([SCENARIO, SCENARIO], ["fgd"])
    with pytest.raises(ValueError, match=r"name: '\.\./x' cannot be the name of a file"):
        dralab.campaign({**SCENARIO, "name": "../x"}, ["fgd"])
    with pytest.raises(ValueError, match="needs the address"):
        dralab.campaign(SCENARIO, ["fgd"], engine="dask")
    with pytest.raises(TypeError, match="seeds: 'a' is not a whole number"):
        dralab.campaign(SCENARIO, ["fgd"], seeds=["a"])
    with pytest.raises(ValueError, match="workers: 0 is less than 1"):
        dralab.campaign(SCENARIO, ["fgd"], workers=0)
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


WEIGHT = 2


class Fullest(dralab.Policy):
    def prefer(self, task, node):
        return -WEIGHT * sum(node.gpus)


def emptiest(weight):
    class Emptiest(dralab.Policy):
        def prefer(self, task, node):
            return weight * sum(node.gpus)

    return Emptiest


def test_classes_are_compared_with_names(tmp_path):
    pytest.importorskip("cloudpickle", reason="the extra workers is not installed")
    given = ["firstfit", Fullest, emptiest(1)]
    found = dralab.campaign(SCENARIO, given, seeds=range(2), folder=tmp_path, workers=1)
    assert set(found.runs["scheduler"]) == {"firstfit", "Fullest", "Emptiest"}
    kept = []
    dralab.campaign(
        SCENARIO, given, seeds=range(2), folder=tmp_path, progress=lambda *each: kept.append(each)
    )
    assert kept == [(6, 6, 6)]
    other = dralab.campaign(
        SCENARIO, [emptiest(-1)], seeds=range(2), folder=tmp_path, workers=1,
        progress=lambda *each: kept.append(each),
    )  # fmt: skip
    assert kept[1] == (0, 0, 2)
    assert len(other.runs) == 2
    with pytest.raises(ValueError, match="two classes have one name"):
        dralab.campaign(SCENARIO, [emptiest(1), emptiest(2)])


@pytest.mark.thorough
def test_classes_run_in_worker_processes(tmp_path):
    pytest.importorskip("cloudpickle", reason="the extra workers is not installed")
    one, other = (
        dralab.campaign(
            SCENARIO, [Fullest, emptiest(1)], seeds=range(2), folder=tmp_path / str(n), workers=n
        )
        for n in (1, 2)
    )
    assert one.runs.rows == other.runs.rows


@pytest.mark.conformance
def test_classes_run_on_dask(tmp_path):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(n_workers=2, processes=True, dashboard_address=None) as cluster:
        far = dralab.campaign(
            SCENARIO, [Fullest, emptiest(1)], seeds=range(2), folder=tmp_path / "far",
            engine="dask", address=cluster.scheduler_address,
        )  # fmt: skip
    near = dralab.campaign(SCENARIO, [Fullest, emptiest(1)], seeds=range(2), workers=1)
    assert far.runs.rows == near.runs.rows


def test_the_fingerprint_of_a_class_is_that_of_its_code(monkeypatch):
    pytest.importorskip("cloudpickle", reason="the extra workers is not installed")
    assert fingerprint(emptiest(1)) == fingerprint(emptiest(1))
    assert fingerprint(emptiest(1)) != fingerprint(emptiest(2))
    assert fingerprint(Fullest) != fingerprint(emptiest(1))
    before = fingerprint(Fullest)
    monkeypatch.setitem(globals(), "WEIGHT", 3)
    assert fingerprint(Fullest) != before
    assert shipped(Fullest) == shipped(Fullest)
    assert shipped(Fullest).load() is Fullest


@pytest.fixture
def _interruptible():
    """Hear Ctrl-C, whatever the tests before have done with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_keeps_what_is_done(tmp_path):
    def press(done, kept, runs):
        if done == 3:
            signal.raise_signal(signal.SIGINT)  # taken before this returns

    found = dralab.campaign(
        SCENARIO, ["firstfit"], seeds=range(9), folder=tmp_path, workers=1, progress=press
    )
    assert not found.complete
    assert 3 <= len(found.runs) < 9
    assert "stopped early" in repr(found)
    assert dralab.campaign(
        SCENARIO, ["firstfit"], seeds=range(9), folder=tmp_path, workers=1
    ).complete


def test_a_campaign_runs_from_a_thread():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(dralab.campaign(SCENARIO, ["fgd"], seeds=[1], workers=1))
    )
    thread.start()
    thread.join()
    assert len(found[0].runs) == 1


def test_means_are_drawn_with_their_intervals_and_units(grid, tmp_path):
    pytest.importorskip("matplotlib")
    figure = grid[0].plot("wait_mean", tmp_path / "waits.svg")
    (axis,) = figure.axes
    assert axis.get_ylabel() == "wait_mean (s)"
    assert {text.get_text() for text in axis.get_legend().get_texts()} == {"firstfit", "fgd"}
    assert all(each.errorbar is not None for each in axis.containers if hasattr(each, "errorbar"))
    assert (tmp_path / "waits.svg").read_text().startswith("<?xml")


def test_one_scheduler_and_one_seed_may_come_alone():
    found = dralab.campaign(SCENARIO, "firstfit", seeds=3, workers=1)
    assert list(found.runs["seed"]) == [3]
