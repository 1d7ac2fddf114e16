"""Two reports compared: what differs is counted, drawn, and nothing else."""

import json

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.reports import difference, gantt

SCENARIO = (
    "fleet: {nodes: [{name: n, count: 2, cpu: 2}]}\n"
    "workload: {pods: [{name: p, count: 6, cpu: 1, duration: 20s, every: 1s}, "
    "{name: big, cpu: 2, duration: 20s, at: 3s}]}\n"
)


def call(*arguments):
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


@pytest.fixture
def reports(tmp_path):
    for name, scheduler in (("a", "firstfit"), ("b", "worstfit"), ("c", "firstfit")):
        path = tmp_path / "s.yaml"
        path.write_text(SCENARIO + f"scheduler: {scheduler}\n")
        assert call("run", path, "--write", tmp_path / name).exit_code == 0
    return tmp_path


def test_a_run_does_not_differ_from_its_own_repetition(reports):
    done = call("compare", reports / "a", reports / "c")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["tasks"] == {
        "same": 7, "earlier": 0, "later": 0, "elsewhere": 0, "only_in_first": 0,
        "only_in_second": 0,
    }  # fmt: skip
    assert not any(row["difference"] for row in found["numbers"].values())


def test_what_differs_is_counted_and_drawn(reports):
    done = call("compare", reports / "a", reports / "b", "--write", reports / "page.html")
    assert done.exit_code == 1
    counts = json.loads(done.stdout)["tasks"]
    assert counts["same"] < 7
    assert counts["elsewhere"] > 0
    first, second = difference.read(reports / "a"), difference.read(reports / "b")
    chart = difference.page(first, second).charts[0]
    drawn = {(chart["tasks"][task][0], chart["tasks"][task][1]) for *_, task in chart["rects"]}
    names = {name for name in first.tasks if not first.tasks[name].same_as(second.tasks[name])}
    assert drawn == {(name, group) for name in names for group in (0, 1)}
    text = (reports / "page.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")
    table = call("compare", reports / "a", reports / "b", "-o", "table")
    assert "elsewhere" in table.stdout


def test_many_differences_are_how_much_more_of_each_node_was_held(reports, monkeypatch):
    monkeypatch.setattr(gantt, "MOST_RECTS", 2)
    first, second = difference.read(reports / "a"), difference.read(reports / "b")
    chart = difference.page(first, second).charts[0]
    assert (chart["kind"], chart["rows"]) == ("heat", ["n-0", "n-1"])
    values = [value for row in chart["values"] for value in row]
    assert min(values) < 0 < max(values)
    same = difference.page(first, first).charts[0]
    assert same["kind"] == "gantt"
    assert same["rects"] == []


def test_a_task_of_one_run_alone_is_counted(reports):
    path = reports / "b" / "tasks.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    counts = json.loads(call("compare", reports / "a", reports / "b").stdout)["tasks"]
    assert (counts["only_in_first"], counts["only_in_second"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("tasks.csv", lambda text: text.replace("started", "began", 1), "tasks.csv:1: the header"),
        ("tasks.csv", lambda text: text.replace("0.000000", "soon", 1), "tasks.csv:2: submitted: "),
        ("summary.json", lambda text: text[:-5], "summary.json: is not a summary"),
        ("summary.json", lambda _: "[]", "summary.json: is not a summary"),
    ],
)
def test_a_report_that_cannot_be_read_is_named(reports, name, change, problem):
    path = reports / "b" / name
    path.write_text(change(path.read_text()))
    done = call("compare", reports / "a", reports / "b")
    assert done.exit_code == 2
    assert problem in done.stderr
    path.unlink()
    assert "cannot be read" in call("compare", reports / "a", reports / "b").stderr


def test_lanes_are_in_the_order_of_their_numbers():
    names = ["n-10", "n-2/gpu1", "n-2", "a"]
    assert sorted(names, key=gantt.natural) == ["a", "n-2", "n-2/gpu1", "n-10"]
