"""`dralab.simulate`: what it takes, and a run as data."""

import linecache
import os
import signal
import subprocess
import sys
import threading

import pytest

import dralab
from dralab.kernel.clock import SECOND, ManualClock
from dralab.lab.progress import ProgressLine

SCENARIO = {
    "name": "small",
    "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 8, "gpus": 2, "model": "A"}]},
    "workload": {
        "pods": [{"name": "p", "count": 6, "cpu": 1, "gpus": 1, "duration": "10m", "every": "1m"}]
    },
}


def test_a_mapping_is_a_scenario_and_its_numbers_have_a_meaning():
    run = dralab.simulate(SCENARIO, scheduler="fgd", seed=3)
    assert run.complete
    assert run.summary["ended"] == 6
    assert run.summary["wait_max"] > 0
    assert "seconds from submission to start" in run.meaning("wait_mean")
    assert run.nodes == ["n-0", "n-1"]
    assert len(run.tasks) == 6
    assert run.tasks["id"][0] == "p-0"
    assert {"time", "waiting", "running"} <= set(run.samples.columns)
    assert "6 of 6 tasks ended" in repr(run)
    assert "<table>" in run._repr_html_()
    with pytest.raises(KeyError, match="'waits' is not one of id, user"):
        run.tasks["waits"]


def test_the_same_seed_gives_the_same_run():
    one, other = (dralab.simulate(SCENARIO, scheduler="random", seed=5) for _ in range(2))
    assert one.tasks.rows == other.tasks.rows


def test_a_workload_alone_needs_a_fleet(tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("; MaxProcs: 4\n1 0 -1 60 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n")
    run = dralab.simulate(log, fleet={"hosts": 4}, scheduler="easy")
    assert run.summary["ended"] == 1
    with pytest.raises(dralab.InputError, match="fleet"):
        dralab.simulate(log, scheduler="easy")


def test_a_fleet_beside_a_scenario_is_refused():
    with pytest.raises(ValueError, match="fleet: is for a workload alone: a DataFrame"):
        dralab.simulate(SCENARIO, fleet={"hosts": 4})


def test_rows_of_a_data_frame_are_pods():
    class Frame:
        def to_dict(self, how):
            assert how == "records"
            return [
                {"name": "a", "cpu": 1, "gpus": 1, "duration": 60, "at": 0, "queue": float("nan")},
                {"cpu": 1, "gpus": 2, "duration": 60, "at": 5},
            ]

    run = dralab.simulate(Frame(), fleet=SCENARIO["fleet"])
    assert run.summary["ended"] == 2
    assert run.tasks["id"] == ["a", "pod-1"]


LARGE = {"name": "p", "duration": 1}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"pods": [LARGE | {"count": 10**9}]},
            "pods.0..count: must be at most 5000000 and is 1000",
        ),
        ({"pods": [LARGE | {"count": 10**18}]}, "pods.0..count: must be a number, below 1e.18"),
        (
            {"pods": [LARGE | {"count": 3_000_000}, LARGE | {"name": "q", "count": 3_000_000}]},
            "pods.1..count: makes 6000000 pods: there may be 5000000",
        ),
        (
            {
                "generate": {
                    "count": 10,
                    "arrivals": {"every": "1s"},
                    "duration": 1,
                    "pods": [{"gang": 4_000_000}],
                }
            },
            "generate.pods.0..gang: of 10 gangs: there may be 5000000 pods",
        ),
    ],
)
def test_a_workload_that_would_fill_the_memory_is_refused(monkeypatch, change, problem):
    monkeypatch.delattr("dralab.simulation.scenario.workload.Pod")  # before one is made
    with pytest.raises(dralab.InputError, match=problem):
        dralab.simulate({"fleet": SCENARIO["fleet"], "workload": change})


@pytest.mark.parametrize(
    ("fleet", "problem"),
    [
        ({"nodes": [{"cpu": 1, "count": 10**9}]}, "nodes.0..count: must be at most 1000000"),
        ({"nodes": [{"cpu": 1, "gpus": 10**9}]}, "nodes.0..gpus: must be at most 10000"),
        ({"shape": {"name": "h100", "nodes": 10**9}}, "shape.nodes: must be at most 100000"),
        ({"shape": {"name": "dgxa100", "gpus": 10**9}}, "shape.gpus: must be at most 10000"),
    ],
)
def test_a_fleet_that_would_fill_the_memory_is_refused(fleet, problem):
    with pytest.raises(dralab.InputError, match=problem):
        dralab.simulate({"fleet": fleet, "workload": {"pods": [LARGE]}})


def test_a_snapshot_is_simulated_as_what_waits_in_it(tmp_path):
    from builders import pod, worker
    from dralab.api.snapshots.files import written

    path = tmp_path / "monday.snapshot"
    path.write_bytes(
        written([{"apiVersion": "v1", **worker("n")}, {"apiVersion": "v1", **pod("p")}])
    )
    (task,) = dralab.simulate(path).tasks
    assert (task["id"], task["bound"], task["places"]) == ("p", 0.0, "n")


def test_a_scenario_that_was_loaded_runs_as_it_is(tmp_path):
    from dralab.lab.runs import load

    assert dralab.simulate(load(SCENARIO)).summary["ended"] == 6
    with pytest.raises(ValueError, match="a Scenario is whole"):
        dralab.simulate(load(SCENARIO), seed=1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"scenario": 7}, "scenario: 7 is not a file, a mapping, or a DataFrame"),
        ({"seed": "1"}, "seed: '1' is not a whole number"),
        ({"scheduler": 3}, "scheduler: 3 is not a name or a class"),
    ],
)
def test_what_is_of_the_wrong_type_is_named(given, problem):
    with pytest.raises(TypeError, match=problem):
        dralab.simulate(**({"scenario": SCENARIO} | given))


def test_a_missing_amount_is_told_as_missing():
    nodes = {"fleet": {"nodes": [{"name": "n"}]}}
    with pytest.raises(dralab.InputError, match="cpu: must be given as a quantity"):
        dralab.simulate(SCENARIO | nodes)


def test_a_mistake_in_a_mapping_names_its_field():
    with pytest.raises(
        dralab.InputError, match=r"^scenario: workload\.pods\[0\]\.cpus: is unknown; known: at"
    ):
        dralab.simulate(SCENARIO | {"workload": {"pods": [{"name": "p", "cpus": 1}]}})


@pytest.mark.thorough
def test_reports_and_pictures_are_written(tmp_path):
    run = dralab.simulate(SCENARIO)
    names = {path.name for path in run.report(tmp_path / "out")}
    assert {"report.html", "tasks.csv", "summary.json"} <= names
    pytest.importorskip("matplotlib")
    figure = run.plot(tmp_path / "run.svg")
    assert len(figure.axes) == 4
    assert (tmp_path / "run.svg").read_text().startswith("<?xml")


def test_progress_is_told():
    seen = []
    dralab.simulate(SCENARIO, progress=lambda *each: seen.append(each))
    assert seen[-1][1:] == (6, 6)


def test_ctrl_c_ends_a_run_and_keeps_what_is_done():
    many = {**SCENARIO, "workload": {"pods": [{**SCENARIO["workload"]["pods"][0], "count": 2000}]}}
    pressed = []

    def press(*_):
        if not pressed:
            pressed.append(os.kill(os.getpid(), signal.SIGINT))

    run = dralab.simulate(many, progress=press)
    assert not run.complete
    assert 0 < run.summary["ended"] < 2000


def test_a_simulation_runs_from_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(dralab.simulate(SCENARIO)))
    thread.start()
    thread.join()
    assert found[0].complete


def test_progress_is_shown_after_two_seconds_where_somebody_looks(capsys):
    clock = ManualClock(0)
    line = ProgressLine("week", clock, shown=True)
    clock.advance(SECOND)
    line.show("early")
    clock.advance(2 * SECOND)
    line.show("5 of 9 tasks over")
    line.show("at once again")
    line.close()
    assert capsys.readouterr().err == "\rweek: 5 of 9 tasks over\r" + " " * 23 + "\r"
    quiet = ProgressLine("week", clock, shown=False)
    clock.advance(9 * SECOND)
    quiet.show("5 of 9")
    quiet.close()
    assert capsys.readouterr().err == ""


def test_tables_become_data_frames():
    pd = pytest.importorskip("pandas")
    run = dralab.simulate(SCENARIO)
    assert list(run.tasks.to_pandas().columns) == list(run.tasks.columns)
    frame = run.samples.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == len(run.samples)
    assert dralab.simulate(
        pd.DataFrame(SCENARIO["workload"]["pods"]), fleet=SCENARIO["fleet"]
    ).complete


def test_a_notebook_shows_a_mistake_and_not_where_it_was_found():
    with pytest.raises(dralab.InputError) as caught:
        dralab.simulate({**SCENARIO, "scheduler": "nothing"})
    assert caught.value._render_traceback_() == [f"InputError: {caught.value}"]


def test_import_alone_reads_no_module_of_the_laboratory():
    code = "import sys, dralab; print([m for m in sys.modules if m.startswith('dralab.')])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in dralab.__all__:
        assert getattr(dralab, name).__doc__, name
    assert set(dralab.__all__) <= set(dir(dralab))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dralab.nothing  # noqa: B018


class Fullest(dralab.Policy):
    def prefer(self, pod, node):
        return None if pod.name == "p-0" and node.name == "n-0" else -sum(node.gpus)


def test_a_class_is_a_scheduler_and_sees_the_whole_task():
    run = dralab.simulate(SCENARIO, scheduler=Fullest)
    assert run.result.scheduler == "Fullest"
    places = dict(zip(run.tasks["id"], run.tasks["places"], strict=True))
    assert places["p-0"].startswith("n-1")
    assert places["p-1"].startswith("n-1")
    assert run.notes == []


def test_a_mistake_of_a_policy_names_its_line():
    class Wrong(dralab.Policy):
        def prefer(self, pod, node):
            return node.colour

    with pytest.raises(dralab.InputError) as caught:
        dralab.simulate(SCENARIO, scheduler=Wrong)
    found = caught.value
    assert found.file == __file__
    assert linecache.getline(__file__, found.line).strip() == "return node.colour"
    assert found.where == "Wrong.prefer"
    assert "colour" in found.problem


def test_a_policy_decides_something():
    class Nothing(dralab.Policy):
        pass

    with pytest.raises(dralab.InputError, match="Nothing defines none of order, prefer"):
        dralab.simulate(SCENARIO, scheduler=Nothing)
