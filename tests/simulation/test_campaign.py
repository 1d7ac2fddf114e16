import json

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.campaigns import comparison, grid, work
from dralab.simulation.errors import InputError

SCENARIO = (
    "fleet: {nodes: [{name: n, count: 2, cpu: 8, gpus: 4}]}\nworkload:\n  generate:\n    count: 60\n"
    "    arrivals: {process: poisson, over: 1h}\n    duration: {distribution: exponential, mean: 10m}\n"
    "    pods:\n    - {cpu: 1, gpus: 1}\n    - {cpu: 1, gpus: 2}\nscheduler: fgd\n"
)
GRID = "scenarios: [busy.yaml]\nschedulers: [firstfit, fgd]\nseeds: {from: 1, count: 3}\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "busy.yaml").write_text(SCENARIO)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path


class Counting(work.Processes):
    """One process; counts, and may fail at a run."""

    def __init__(self, fail_at=None):
        super().__init__(1)
        self.ran = []
        self.fail_at = fail_at

    def run(self, cases):
        for case, numbers in super().run(cases):
            if len(self.ran) == self.fail_at:
                raise KeyboardInterrupt
            self.ran.append(case)
            yield case, numbers


def test_a_campaign_that_was_stopped_goes_on_and_repeats_no_finished_run(files):
    campaign = grid.read(files / "grid.yaml")
    assert len(campaign.cases) == 6
    with pytest.raises(KeyboardInterrupt):
        work.run(campaign.cases, files / "out", Counting(fail_at=4))
    second = Counting()
    found = work.run(campaign.cases, files / "out", second)
    assert len(second.ran) == 2
    whole = work.run(campaign.cases, files / "other", Counting())
    assert found == whole
    assert not list((files / "out" / "runs").glob("*.part"))


def test_a_scenario_that_changed_is_run_anew(files):
    campaign = grid.read(files / "grid.yaml")
    work.run(campaign.cases, files / "out", Counting())
    (files / "busy.yaml").write_text(SCENARIO.replace("count: 60", "count: 61"))
    again = Counting()
    work.run(campaign.cases, files / "out", again)
    assert len(again.ran) == 6


def test_the_table_has_means_deviations_and_differences_from_the_baseline(files):
    campaign = grid.read(files / "grid.yaml")
    found = work.run(campaign.cases, files / "out", Counting())
    table = comparison.write(campaign, found, files / "out")
    assert [row["metric"] for row in table[::2]] == list(campaign.compared)
    first, second = table[2], table[3]
    assert (first["scheduler"], first["runs"], first["difference"]) == ("firstfit", 3, None)
    values = [found[case]["wait_mean"] for case in campaign.cases if case.scheduler == "fgd"]
    assert second["mean"] == pytest.approx(sum(values) / 3)
    assert second["difference"] == pytest.approx(second["mean"] - first["mean"])
    assert (files / "out" / "campaign.csv").read_text().startswith("scenario,scheduler,metric")
    assert "report" in (files / "out" / "report.html").name


def test_the_command_runs_a_grid_of_an_openb_trace_too(files):
    (files / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1000,2,T4\n")
    (files / "tiny.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,10,1,500\n"
    )
    (files / "fgd.yaml").write_text(
        "openb: {nodes: nodes.csv, pods: [tiny.csv]}\nschedulers: [random, fgd]\nseeds: [42, 43]\n"
        "compare: [alloc_pct@100]\n"
    )
    done = CliRunner().invoke(
        main, ["campaign", str(files / "fgd.yaml"), "--workers", "1", "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    assert [row["scheduler"] for row in json.loads(done.stdout)] == ["random", "fgd"]


@pytest.mark.conformance
def test_many_processes_give_the_same_as_one(files):
    campaign = grid.read(files / "grid.yaml")
    one = work.run(campaign.cases, files / "one", work.Processes(1))
    assert work.run(campaign.cases, files / "two", work.Processes(2)) == one


@pytest.mark.conformance
def test_a_dask_cluster_gives_the_same_as_one_process(files):
    distributed = pytest.importorskip(
        "distributed", reason="the extra distributed is not installed"
    )
    campaign = grid.read(files / "grid.yaml")
    with distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        far = work.run(campaign.cases, files / "far", work.Dask(cluster.scheduler_address))
    assert far == work.run(campaign.cases, files / "one", work.Processes(1))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GRID.replace("fgd", "magic"), "'magic' is no scheduler"),
        (GRID.replace("busy", "lost"), "there is no file"),
        (GRID.replace("busy.yaml", "../x.yaml"), "outside the folder"),
        (GRID.replace("{from: 1, count: 3}", "[one]"), "whole numbers"),
        (GRID + "baseline: random\n", "none of the schedulers"),
        (GRID + "colour: red\n", "not known"),
        ("schedulers: [fgd]\nseeds: [1]\n", "has 0 runs"),
    ],
)
def test_a_broken_campaign_is_named(files, text, problem):
    (files / "grid.yaml").write_text(text)
    with pytest.raises(InputError, match=problem):
        grid.read(files / "grid.yaml")
