import json
import os
import re
import signal
import socket
import subprocess
import sys
from multiprocessing import active_children
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.simulation.engines.external.cases import WATCHING

from dralab.cli.main import main
from dralab.scenarios.errors import InputError
from dralab.simulation.campaigns import comparison, executors, grid
from waiting import until

SCENARIO = (
    "fleet: {nodes: [{name: n, count: 2, cpu: 8, gpus: 4}]}\nworkload:\n  generate:\n    count: 60\n"
    "    arrivals: {process: poisson, over: 1h}\n    duration: {distribution: exponential, mean: 10m}\n"
    "    pods:\n    - {cpu: 1, gpus: 1}\n    - {cpu: 1, gpus: 2}\nscheduler: fgd\n"
)
GRID = "scenarios: [busy.yaml]\nschedulers: [firstfit, fgd]\nseeds: {from: 1, count: 3}\n"


@pytest.fixture(autouse=True)
def _interruptible():
    """Hear Ctrl-C, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "busy.yaml").write_text(SCENARIO)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path


class Counting(executors.ProcessExecutor):
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
        executors.run(campaign.cases, files / "out", Counting(fail_at=4))
    second = Counting()
    found = executors.run(campaign.cases, files / "out", second)
    assert len(second.ran) == 2
    whole = executors.run(campaign.cases, files / "other", Counting())
    assert found == whole
    assert not list((files / "out" / "runs").glob("*.part"))


def test_a_scenario_that_changed_is_run_anew(files):
    campaign = grid.read(files / "grid.yaml")
    executors.run(campaign.cases, files / "out", Counting())
    (files / "busy.yaml").write_text(SCENARIO.replace("count: 60", "count: 61"))
    again = Counting()
    executors.run(campaign.cases, files / "out", again)
    assert len(again.ran) == 6


def test_the_table_has_means_deviations_and_differences_from_the_baseline(files):
    campaign = grid.read(files / "grid.yaml")
    found = executors.run(campaign.cases, files / "out", Counting())
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
        main, ["simulate", "campaign", str(files / "fgd.yaml"), "--workers", "1", "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    assert [row["scheduler"] for row in json.loads(done.stdout)] == ["random", "fgd"]


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.conformance), "2"])
def test_ctrl_c_ends_a_campaign_in_one_line_and_keeps_what_is_done(files, workers):
    folder = files / "out"
    (files / "busy.yaml").write_text(SCENARIO.replace("count: 60", "count: 300"))
    command = [
        "simulate",
        "campaign",
        str(files / "grid.yaml"),
        "--write",
        str(folder),
        "--workers",
        workers,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "dralab", *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: process.poll() is not None or any(folder.glob("runs/*.json")))
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, told = process.communicate(timeout=150)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*.json")}
    assert (process.returncode, told.count("\n")) == (1, 1), told
    assert told.startswith("stopped; finished runs are kept in ")
    assert CliRunner().invoke(main, command).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_workers_do_not_hear_ctrl_c_from_their_start_on(files):
    others = set(active_children())
    answers = executors.ProcessExecutor(2).run(grid.read(files / "grid.yaml").cases)
    next(answers)
    workers = set(active_children()) - others
    assert workers
    for worker in workers:
        status = Path(f"/proc/{worker.pid}/status").read_text()
        ignored = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)
        assert ignored & 1 << signal.SIGINT - 1
    answers.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.conformance
def test_many_processes_give_the_same_as_one(files):
    campaign = grid.read(files / "grid.yaml")
    one = executors.run(campaign.cases, files / "one", executors.ProcessExecutor(1))
    assert executors.run(campaign.cases, files / "two", executors.ProcessExecutor(2)) == one


@pytest.mark.conformance
def test_a_dask_cluster_gives_the_same_as_one_process(files):
    distributed = pytest.importorskip(
        "distributed", reason="the extra distributed is not installed"
    )
    campaign = grid.read(files / "grid.yaml")
    with distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        far = executors.run(
            campaign.cases, files / "far", executors.DaskExecutor(cluster.scheduler_address)
        )
    assert far == executors.run(campaign.cases, files / "one", executors.ProcessExecutor(1))


@pytest.mark.conformance
def test_a_thousand_runs_survive_workers_that_die(files):
    distributed = pytest.importorskip(
        "distributed", reason="the extra distributed is not installed"
    )
    (files / "busy.yaml").write_text(SCENARIO.replace("count: 60", "count: 6"))
    (files / "grid.yaml").write_text(GRID.replace("count: 3", "count: 500"))
    campaign = grid.read(files / "grid.yaml")
    killed = []

    def progress(done, _reused, _all):
        if done in {200, 400, 600}:
            ids = cluster.get_client().run(os.getpid)
            worker = min(set(ids.values()) - set(killed))
            killed.append(worker)
            os.kill(worker, signal.SIGKILL)

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        dask = executors.DaskExecutor(cluster.scheduler_address)
        far = executors.run(campaign.cases, files / "far", dask, progress=progress)

    assert len(killed) == 3
    assert len(far) == 1000
    assert far == executors.run(campaign.cases, files / "near", executors.ProcessExecutor(1))
    written = [(files / name / "runs").iterdir() for name in ("far", "near")]
    first, second = ({each.name: each.read_bytes() for each in folder} for folder in written)
    assert first == second


GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "campaigns.md"
# What a cluster's own tools do, on one machine.
STUBS = {
    "srun": '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "oarsh": '#!/bin/bash\nshift\nexec "$@"\n',
    "hostname": "#!/bin/bash\necho 127.0.0.1\n",
}


@pytest.mark.conformance
@pytest.mark.parametrize("cluster", ["Slurm", "OAR"])
def test_the_scripts_of_the_guide_run_a_campaign(files, cluster):
    pytest.importorskip("distributed", reason="the extra distributed is not installed")
    script = re.search(rf"\*\*{cluster}\*\*.*?```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (files / "script").write_text(script.replace("8786", str(port)).replace("--nworkers -1", ""))
    (files / "nodes").write_text("node-1\nnode-1\n")
    tools = files / "tools"
    tools.mkdir()
    for name, text in STUBS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    with subprocess.Popen(
        ["bash", "script"], cwd=files, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PATH": path, "OAR_NODEFILE": "nodes"},
    ) as process:  # fmt: skip
        try:
            assert process.wait(timeout=120) == 0
        finally:
            # Scheduler and workers go on until the reservation ends.
            os.killpg(process.pid, signal.SIGKILL)
    assert len(list((files / "grid" / "runs").glob("*.json"))) == 6
    assert (files / "grid" / "runs.csv").read_text().count("\n") == 7


@pytest.mark.thorough
def test_a_run_that_fails_loses_no_other(files):
    (files / "other.yaml").write_text(SCENARIO.replace("fgd", "file.py:Bad"))
    (files / "file.py").write_text("class Bad:\n    def prefer(self, pod, node):\n        1 / 0\n")
    (files / "grid.yaml").write_text(GRID.replace("firstfit", "'file.py:Bad'"))
    campaign = grid.read(files / "grid.yaml")
    for workers in (1, 2):
        folder = files / f"out-{workers}"
        with pytest.raises(InputError, match=r"3 of 6 runs failed.*ZeroDivisionError"):
            executors.run(campaign.cases, folder, executors.ProcessExecutor(workers))
        assert len(list((folder / "runs").glob("*.json"))) == 3


def test_a_campaign_may_ask_the_whole_cluster(files):
    (files / "grid.yaml").write_text(
        GRID.replace("firstfit", "dralab").replace("count: 3", "count: 2")
    )
    (files / "busy.yaml").write_text(SCENARIO.replace("count: 60", "count: 10"))
    campaign = grid.read(files / "grid.yaml")
    found = executors.run(campaign.cases, files / "out", executors.ProcessExecutor(1))
    assert {case.scheduler for case in found} == {"dralab", "fgd"}
    assert all(numbers["ended"] == 10 for numbers in found.values())
    comparison.write(campaign, found, files / "out")
    header, *rows = (files / "out" / "runs.csv").read_text().splitlines()
    assert header.startswith("scenario,scheduler,seed,makespan,")
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GRID.replace("fgd", "magic"), "'magic' is not one of the"),
        (GRID.replace("busy", "lost"), "there is no file"),
        (GRID.replace("busy.yaml", "../x.yaml"), "outside the folder"),
        (GRID.replace("{from: 1, count: 3}", "[one]"), "whole numbers"),
        (GRID + "baseline: random\n", "is not one of the schedulers"),
        (GRID + "colour: red\n", "is unknown"),
        (GRID + "compare: [wait]\n", "'wait' is not a metric of a run"),
        ("schedulers: [fgd]\nseeds: [1]\n", "has 0 runs"),
    ],
)
def test_a_broken_campaign_is_named(files, text, problem):
    (files / "grid.yaml").write_text(text)
    with pytest.raises(InputError, match=problem):
        grid.read(files / "grid.yaml")


EVERY_ENGINE = """
schedulers: [easy, firstfit, ticks, dralab, external]
scenarios: [jobs.yaml]
seeds: [1]
"""


def test_a_campaign_runs_every_engine_of_scenarios(tmp_path):
    (tmp_path / "scheduler.py").write_text(WATCHING)
    (tmp_path / "jobs.yaml").write_text(
        "fleet: {nodes: [{name: n, count: 2, cpu: 1}]}\n"
        "workload: {jobs: [{name: j, count: 4, duration: 10s, walltime: 20s}]}\n"
        f"external: {{quiet_period: 0.05, command: [{sys.executable}, scheduler.py, default-scheduler]}}\n"
    )
    (tmp_path / "grid.yaml").write_text(EVERY_ENGINE)
    found = grid.read(tmp_path / "grid.yaml")
    numbers = executors.run(found.cases, tmp_path / "out", executors.ProcessExecutor(1))
    assert {case.scheduler: values["makespan"] for case, values in numbers.items()} == {
        "easy": 20, "firstfit": 20, "ticks": 20, "dralab": 20, "external": 20,
    }  # fmt: skip


def test_a_campaign_refuses_an_external_scheduler_that_nobody_starts(tmp_path):
    (tmp_path / "jobs.yaml").write_text(
        "fleet: {nodes: [{name: n, cpu: 1}]}\nworkload: {jobs: [{name: j, duration: 10s}]}\n"
    )
    (tmp_path / "grid.yaml").write_text(EVERY_ENGINE)
    found = grid.read(tmp_path / "grid.yaml")
    with pytest.raises(InputError, match=r"external\.command: must be given"):
        found.cases[-1].run()
