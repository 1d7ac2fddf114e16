"""The results of a simulation on the page, whole and damaged."""

import orjson
import pytest

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation.results import outputs
from dralab.simulation.results.outputs import read_run
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.web.run_desk import RunDesk


def task(name, started, ended, *lanes):
    when = [None if time is None else time * SECOND for time in (started, ended)]
    state = "succeeded" if ended else "running" if started is not None else "waiting"
    return Task(name, "ann", state, 0, when[0], when[0], when[1], 1, lanes)


def result(samples=3):
    return Result(
        name="day",
        scheduler="fifo",
        seed=7,
        tasks=[task("a", 0, 60, 0), task('b,"<b>', 60, None, 0, 1), task("c", None, None)],
        samples=[StateSample(at * SECOND, 1, 2, 1000, 500, 0.0) for at in range(samples)],
        lanes=["n1/gpu0", "n1/gpu1"],
        capacity={"gpu": 2000},
        end=120 * SECOND,
    )


@pytest.fixture
def folder(tmp_path):
    outputs.write(result(), tmp_path, parquet=False)
    return tmp_path


def run(folder):
    return orjson.loads(RunDesk(folder).run())


def test_a_run_is_read_as_it_was_written(folder):
    found = run(folder)
    assert found["summary"]["scheduler"] == "fifo"
    assert found["lanes"] == ["n1/gpu0", "n1/gpu1"]
    tasks = found["tasks"]
    assert tasks["id"] == ["a", 'b,"<b>', "c"]
    assert tasks["started"] == [0.0, 60.0, None]
    assert tasks["ended"] == [60.0, None, None]
    assert tasks["places"] == [[0], [0, 1], []]
    samples = found["samples"]
    assert samples["columns"]["gpu"] == [500] * 3
    assert [found["states"][at] for at in tasks["state"]] == ["succeeded", "running", "waiting"]
    assert found["summary"]["capacity"] == {"gpu": 2000}
    assert found["problems"] == []
    assert orjson.loads(RunDesk(folder).about())["kind"] == "run"


def test_many_samples_are_thinned_and_the_last_one_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("dralab.web.run_desk.MOST_SAMPLES", 20)
    outputs.write(result(50), tmp_path, parquet=False)
    samples = run(tmp_path)["samples"]
    assert len(samples["columns"]["time"]) <= 21
    assert samples["of"] == 50
    assert samples["columns"]["time"][-1] == 49


def test_tasks_and_lanes_beyond_the_limits_are_counted_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("dralab.web.run_desk.MOST_TASKS", 2)
    monkeypatch.setattr("dralab.web.run_desk.MOST_LANES", 1)
    outputs.write(result(), tmp_path, parquet=False)
    found = run(tmp_path)
    assert (found["tasks"]["of"], found["tasks"]["id"]) == (3, ["a", 'b,"<b>'])
    assert (found["lanes"], found["tasks"]["places"]) == (["n1/gpu0"], [[0], [0]])


@pytest.mark.parametrize("name", ["tasks.csv", "samples.csv"])
def test_a_table_that_is_cut_loses_its_last_row_and_says_so(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-5])
    found = run(folder)
    assert found["problems"] == [f"{name} is cut: its last row is left out"]
    assert len(found["tasks"]["id"]) == (2 if name == "tasks.csv" else 3)
    assert len(found["samples"]["columns"]["time"]) == (2 if name == "samples.csv" else 3)


@pytest.mark.parametrize("name", ["tasks.csv", "samples.csv"])
@pytest.mark.parametrize("content", [None, b"", b"\x00\xff\n", b"id,state\n"])
def test_a_table_that_is_none_leaves_the_rest(folder, name, content):
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    found = run(folder)
    assert len(found["problems"]) == 1
    assert found["problems"][0].startswith(name)
    assert found["summary"]["name"] == "day"


def test_a_row_of_nonsense_is_left_out_with_its_line(folder):
    path = folder / "tasks.csv"
    lines = path.read_text().splitlines()
    lines.insert(2, "x,y")
    lines.append(lines[1].replace("60.0", "soon"))
    path.write_text("\n".join(lines) + "\n")
    found = run(folder)
    assert found["tasks"]["id"] == ["a", 'b,"<b>', "c"]
    assert [each.partition(":")[0] for each in found["problems"]] == ["tasks.csv"] * 2


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"{}"])
def test_a_folder_without_a_summary_is_refused(folder, content):
    path = folder / "summary.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"summary\.json"):
        read_run(folder)
