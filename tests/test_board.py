"""The board of benchmarks: figures over commits, on one page."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def board():
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("benchmarks.board")
    finally:
        sys.path.remove(str(ROOT))


def line(value, *, at=1, figure="a <list>", unit="ms", machine="x86"):
    when = f"2026-11-{at:02}T00:00:00Z"
    return {"at": when, "commit": f"c{at}", "machine": machine, "load": 0.1} | {
        "figure": figure, "value": value, "unit": unit,
    }  # fmt: skip


def test_a_figure_is_kept_only_where_it_is_asked_for(board, tmp_path, monkeypatch):
    monkeypatch.delenv(board.LINES, raising=False)
    board.record("a", 1.0, "ms")
    kept = tmp_path / "bench.jsonl"
    monkeypatch.setenv(board.LINES, str(kept))
    board.record("a", 1.5, "ms")
    board.record("b", 2.0, "/s")
    lines = [json.loads(text) for text in kept.read_text().splitlines()]
    assert [(each["figure"], each["value"], each["unit"]) for each in lines] == [
        ("a", 1.5, "ms"),
        ("b", 2.0, "/s"),
    ]
    assert all(each["commit"] and each["at"].endswith("Z") for each in lines)


@pytest.mark.parametrize(
    ("values", "unit", "worse"),
    [
        ([100, 120], "ms", 0.2),
        ([100, 80], "ms", -0.2),
        ([100, 50], "pods/s", 1.0),
        ([1, 100, 100, 150], "ms", 0.5),
        ([100], "ms", None),
    ],
)
def test_a_change_is_against_the_median_before(board, values, unit, worse):
    assert board.change(values, unit) == (worse if worse is None else pytest.approx(worse))


def test_the_page_has_a_panel_for_each_figure_and_a_line_for_each_machine(board):
    lines = [line(120, at=2), line(100, at=1), line(9, machine="arm"), line(5, figure="b")]
    page = board.page(lines)
    assert page.count("<section>") == 2
    assert page.count("<polyline") == 3
    assert '<p class="worse">120 ms, 20% worse' in page
    assert "a &lt;list&gt;" in page
    assert page.index("c1: 100 ms") < page.index("c2: 120 ms")
