import json
import re
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation import dispatch
from dralab.simulation.reports import gantt as charts
from dralab.simulation.reports import run as reports
from dralab.simulation.reports.page import ReportPage, distinct, thin
from dralab.simulation.results import outputs
from dralab.simulation.results.result import StateSample
from dralab.simulation.scenario import scenario as scenarios

TEXT = (
    "name: <b>week</b>\nfleet: {nodes: [{name: n, count: 3, cpu: 8, gpus: 2}]}\n"
    "workload: {pods: [{name: p, count: 20, every: 5s, duration: 1m, cpu: 1, gpus: 1, user: '</script><i>'}]}\n"
    "scheduler: fgd\n"
)


@pytest.fixture
def result(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    return dispatch.begin(scenarios.load(path)).go()


def data_of(html):
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_the_page_is_one_file_that_loads_nothing_and_runs_no_name_as_html(result):
    html = reports.page(result).html()
    assert not re.search(
        r"""(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)|@import|url\(""", html
    )
    assert "default-src 'none'" in html
    assert html.count("</script>") == 2
    assert "<title>&lt;b>week&lt;/b></title>" in html
    assert data_of(html)["title"] == "<b>week</b>"


def test_every_rectangle_of_the_gantt_is_a_stay_of_a_task_on_a_lane(result):
    chart = charts.gantt(result)
    names = {task.id: task for task in result.tasks}
    assert len(chart["rects"]) == sum(len(task.lanes) for task in result.tasks)
    for lane, start, end, index in chart["rects"]:
        task = names[chart["tasks"][index][0]]
        assert chart["lanes"][lane] in {result.lanes[place] for place in task.lanes}
        assert (start, end) == (task.started / 1e9, task.ended / 1e9)


def test_a_long_series_is_thinned_but_keeps_the_longest_queue_and_the_end():
    samples = [
        StateSample(i * 10, 7777 if i == 4321 else i % 5, 0, 0, 0, 0.0) for i in range(10_000)
    ]
    thinned = thin(samples, 100)
    assert len(thinned) <= 103
    assert max(sample.waiting for sample in thinned) == 7777
    assert thinned[-1] == samples[-1]
    assert thin(samples[:50], 100) == samples[:50]


def test_the_folder_of_a_run_has_every_file_and_the_same_bytes_each_time(result, tmp_path):
    first = [(p.name, p.read_bytes()) for p in reports.write(result, tmp_path / "a")]
    second = [(p.name, p.read_bytes()) for p in reports.write(result, tmp_path / "b")]
    names = {name for name, _ in first}
    assert {"summary.json", "tasks.csv", "samples.csv", "report.html"} <= names
    parquet = find_spec("pyarrow") is not None
    assert ({"tasks.parquet", "samples.parquet"} <= names) is parquet
    assert first == second


def test_tables_can_be_parquet(result, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")
    outputs.write(result, tmp_path, parquet=True)
    table = parquet.read_table(tmp_path / "tasks.parquet")
    assert table.column_names == list(outputs.TASK_COLUMNS)
    assert table.num_rows == len(result.tasks)


def test_what_an_installation_cannot_write_is_refused_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    scenario = tmp_path / "s.yaml"
    scenario.write_text(TEXT)
    for option, extra in (("--parquet", "parquet"), ("--picture=png", "picture")):
        found = CliRunner().invoke(
            main, ["simulate", "run", str(scenario), option, "--write", str(tmp_path / "out")]
        )
        assert found.exit_code == 2
        assert f"pip install '.[{extra}]'" in found.stderr
        assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text(TEXT)
    place = scenario / "below-a-file"
    found = CliRunner().invoke(main, ["simulate", "run", str(scenario), "--write", str(place)])
    assert found.exit_code == 2
    assert found.stderr == f"Error: {place}: nothing can be written there: not a directory\n"


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_the_charts_can_be_a_picture(result, tmp_path, kind):
    pytest.importorskip("matplotlib", reason="the extra picture is not installed")
    for name in ("a", "b"):
        reports.write(result, tmp_path / name, picture=kind)
    content = (tmp_path / "a" / f"report.{kind}").read_bytes()
    assert len(content) > 10_000
    assert content == (tmp_path / "b" / f"report.{kind}").read_bytes()
    # Letters are kept as text, their font is in the file, and it is as wide as a page.
    if kind == "svg":
        assert b">in use (%)</text>" in content
        assert b'width="504pt"' in content
    if kind == "pdf":
        assert b"/FontFile2" in content
        assert b"/MediaBox [ 0 0 504 504 ]" in content


def test_curves_that_cover_each_other_are_one(result):
    of_one_model = replace(
        result,
        types={"A100": result.capacity["gpu"]},
        samples=[sample._replace(types=(sample.gpu,)) for sample in result.samples],
    )
    in_use = reports.page(of_one_model).charts[0]["series"]
    assert [each["name"] for each in in_use] == ["cpu", "memory", "gpu, gpu[A100]"]
    assert len({tuple(each["y"]) for each in in_use}) == len(in_use)
    other = [{"name": "a", "y": [1, 2]}, {"name": "b", "y": [1, 3]}]
    assert distinct(other) == other


def test_a_gantt_of_too_many_boxes_is_the_share_of_each_node_that_was_held(result, monkeypatch):
    exact = sum(end - start for _, start, end, _ in charts.gantt(result)["rects"])
    monkeypatch.setattr(charts, "MOST_RECTS", 5)
    chart = charts.gantt(result)
    lanes = {result.lanes[lane] for task in result.tasks for lane in task.lanes}
    nodes = sorted({lane.partition("/")[0] for lane in lanes}, key=charts.natural)
    assert (chart["kind"], chart["rows"]) == ("heat", nodes)
    width = chart["end"] / charts.STRETCHES
    held = sum(
        share / 100 * width * sum(lane.partition("/")[0] == node for lane in lanes)
        for node, row in zip(chart["rows"], chart["values"], strict=True)
        for share in row
    )
    assert held == pytest.approx(exact, rel=0.01)


def test_many_nodes_are_a_few_rows_in_the_order_of_their_numbers():
    lanes = [f"n-{number}/gpu-0" for number in range(120)]
    stays = [charts.Stay(["n-0/gpu-0", "n-7/gpu-0"], 0.0, 50.0)]
    rows, shares = charts.occupancy(lanes, stays, 100.0)
    assert rows[:2] == ["n-0 … n-2", "n-3 … n-5"]
    assert len(rows) == 40
    # One lane of three in the first row, and one in the third, for half of the time.
    assert [sum(row) / len(row) for row in shares[:4]] == pytest.approx([1 / 6, 0, 1 / 6, 0])


def test_every_number_of_a_page_says_what_it_means(result):
    found = reports.page(result)
    names = [
        row[0] for chart in found.charts if chart["title"] == "All numbers" for row in chart["rows"]
    ]
    assert names
    assert {*names, *(name for name, *_ in found.cards)} <= found.meanings.keys()
    kinds = dict(zip(names, found.charts[-2]["rowKinds"], strict=True))
    expected = {
        "wait_mean": "time", "wait_fairness": "number", "makespan": "time", "success_rate": "share",
        "utilisation_gpu": "share", "slowdown_mean": "number", "tasks": "number",
    }  # fmt: skip
    assert {name: kinds[name] for name in expected} == expected


def test_an_empty_page_is_still_a_page():
    assert data_of(ReportPage(title="nothing").html())["charts"] == []


def test_the_gantt_hatches_what_is_down_also_where_outages_overlap(tmp_path):
    from dralab.simulation.dispatch import begin
    from dralab.simulation.scenario import scenario as scenarios

    for scheduler in ("firstfit", "dralab"):
        path = tmp_path / "s.yaml"
        path.write_text(
            "fleet: {nodes: [{name: a, cpu: 1}, {name: b, cpu: 1}]}\n"
            "workload: {pods: [{name: p, cpu: 1, duration: 1h, count: 2}]}\nstop: {at: 30m}\n"
            "faults: [{node: a, at: 5m, for: 5m}, {node: a, at: 8m, for: 10m}, {node: b, at: 29m}]\n"
            f"scheduler: {scheduler}\n"
        )
        found = begin(scenarios.load(path)).go()
        assert sorted(found.outages) == [
            (0, 300 * 10**9, 1080 * 10**9),
            (1, 1740 * 10**9, 1800 * 10**9),
        ]
        assert charts.gantt(found)["outages"] == [[0, 300, 1080], [1, 1740, 1800]]
