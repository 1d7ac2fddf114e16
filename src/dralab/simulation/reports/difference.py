"""Compares two runs of one workload: numbers, and tasks that ran elsewhere or at other times.

Both are read from the tables that `simulate run --write` wrote, whatever scheduler made them.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from dralab.scenarios.errors import InputError, content_of
from dralab.simulation.reports.gantt import Stay, is_dense, natural, occupancy
from dralab.simulation.reports.page import Chart, ReportPage
from dralab.simulation.results import metrics

COLUMNS: Final = ("id", "submitted", "started", "ended", "wait", "places")
MOST_ROWS: Final = 2000
# What the tables can hold: microseconds.
SAME: Final = 2e-6

COUNTS: Final = {
    "same": "tasks that ran at the same time and place",
    "earlier": "tasks that began earlier in the second run",
    "later": "tasks that began later in the second run",
    "elsewhere": "tasks that ran on other nodes or devices",
    "only in first": "tasks that the second run does not have",
    "only in second": "tasks that the first run does not have",
}


class TaskInterval(NamedTuple):
    """Where and when a task ran, in seconds; None if it never did."""

    submitted: float
    started: float | None
    ended: float | None
    places: tuple[str, ...]

    @property
    def wait(self) -> float | None:
        """How long it waited."""
        return None if self.started is None else self.started - self.submitted

    def same_as(self, other: "TaskInterval") -> bool:
        """Return whether it ran at the same time and place."""
        times = zip((self.started, self.ended), (other.started, other.ended), strict=True)
        return self.places == other.places and all(_same(a, b) for a, b in times)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run, as its tables have it."""

    label: str
    numbers: Mapping[str, float | None]
    tasks: Mapping[str, TaskInterval]
    end: float


def read(folder: Path) -> RecordedRun:
    """Return the run of a report's folder; InputError names file, line and column."""
    path = folder / "summary.json"
    content = content_of(path)
    try:
        summary = orjson.loads(content)
        label = f"{summary['name']} · {summary['scheduler']} · seed {summary['seed']}"
        numbers = dict(summary["metrics"])
        end = float(summary["simulated_until"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"is not a summary of a run: {error}") from None
    return RecordedRun(label, numbers, _tasks(folder / "tasks.csv"), end)


def _tasks(path: Path) -> dict[str, TaskInterval]:
    found: dict[str, TaskInterval] = {}
    text = content_of(path).decode(errors="replace")
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(path, f"the header lacks {', '.join(missing)}", line=1)
    for row in reader:

        def seconds(name: str, row: Mapping[str, str] = row) -> float | None:
            try:
                return float(row[name]) if row[name] else None
            except (TypeError, ValueError):
                problem = f"{row[name]!r} is not a number"
                raise InputError(path, problem, line=reader.line_num, where=name) from None

        places = tuple(sorted((row["places"] or "").split()))
        stay = TaskInterval(
            seconds("submitted") or 0.0, seconds("started"), seconds("ended"), places
        )
        found[row["id"]] = stay
    return found


def of(first: RecordedRun, second: RecordedRun) -> dict[str, Any]:
    """Return the differences: numbers, and the tasks that began earlier, later, or elsewhere."""
    common = [name for name in first.tasks if name in second.tasks]
    pairs = [(first.tasks[name], second.tasks[name]) for name in common]
    began = [
        (one.started, two.started)
        for one, two in pairs
        if one.started is not None and two.started is not None
    ]
    numbers = {}
    for name in dict.fromkeys([*first.numbers, *second.numbers]):
        one, two = first.numbers.get(name), second.numbers.get(name)
        gap = None if one is None or two is None else two - one
        numbers[name] = {"first": one, "second": two, "difference": gap}
    return {
        "first": first.label,
        "second": second.label,
        "tasks": {
            "same": sum(one.same_as(two) for one, two in pairs),
            "earlier": sum(two < one and not _same(one, two) for one, two in began),
            "later": sum(two > one and not _same(one, two) for one, two in began),
            "elsewhere": sum(one.places != two.places for one, two in pairs),
            "only_in_first": len(first.tasks) - len(common),
            "only_in_second": len(second.tasks) - len(common),
        },
        "numbers": numbers,
    }


def page(first: RecordedRun, second: RecordedRun) -> ReportPage:
    """Return the difference as a page: numbers, the Gantt of what differs, tasks."""
    found = of(first, second)
    counts = found["tasks"]
    return ReportPage(
        title="Two runs compared",
        subtitle=f"{first.label} → {second.label}",
        cards=[(name.replace("_", " "), value, "number") for name, value in counts.items()],
        charts=[_gantt(first, second), _numbers(found), _changed(first, second)],
        definitions=[
            *COUNTS.items(),
            *((name.replace("_", " "), text) for name, text in metrics.DEFINITIONS.items()),
        ],
        meanings=COUNTS | metrics.meanings(found["numbers"]),
    )


def _gantt(first: RecordedRun, second: RecordedRun) -> Chart:
    """Return the Gantt of tasks that differ between the runs."""
    drawn: list[tuple[int, str, TaskInterval]] = []
    for group, one, other in ((0, first, second), (1, second, first)):
        for name, stay in one.tasks.items():
            twin = other.tasks.get(name)
            if stay.started is not None and (twin is None or not stay.same_as(twin)):
                drawn.append((group, name, stay))
    names = sorted({place for _, _, stay in drawn for place in stay.places}, key=natural)
    end = max([first.end, second.end, 1.0])
    if is_dense(len(names), sum(len(stay.places) for _, _, stay in drawn)):
        return _dense(drawn, names, end, (first.end, second.end))
    place = {name: index for index, name in enumerate(names)}
    tasks: list[list[Any]] = []
    rects: list[list[float]] = []
    for group, name, stay in drawn:
        until = stay.ended if stay.ended is not None else (first, second)[group].end
        # Halves of a lane: the first run above, the second below.
        rects += [[place[lane], stay.started or 0.0, until, len(tasks)] for lane in stay.places]
        tasks.append([name, group, stay.wait or 0.0])
    return {
        "kind": "gantt",
        "title": "What differs",
        "text": "Only what differs: above in the first run, below in the second.",
        "lanes": names,
        "groups": ["first", "second"],
        "tasks": tasks,
        "rects": rects,
        "end": end,
        "halves": True,
    }


def _dense(
    drawn: Sequence[tuple[int, str, TaskInterval]],
    names: Sequence[str],
    end: float,
    ends: tuple[float, float],
) -> Chart:
    """Return by how much more of each node was held in one of the runs."""

    def held(run: int) -> tuple[list[str], list[list[float]]]:
        last = ends[run]
        stays = [
            Stay(stay.places, stay.started or 0.0, last if stay.ended is None else stay.ended)
            for group, _, stay in drawn
            if group == run
        ]
        return occupancy(names, stays, end)

    rows, first = held(0)
    _, second = held(1)
    return {
        "kind": "heat",
        "title": "What differs",
        "text": "By how much more of the time a row was held in one of the runs: "
        "above in the first, below in the second.",
        "rows": rows,
        "values": [
            [round(100 * (two - one)) for one, two in zip(*shares, strict=True)]
            for shares in zip(first, second, strict=True)
        ],
        "end": end,
        "halves": True,
    }


def _numbers(found: Mapping[str, Any]) -> Chart:
    numbers = found["numbers"]
    columns = ("first", "second", "difference")
    return {
        "kind": "table",
        "title": "Numbers",
        "columns": [["number", ""], *([name, "by row"] for name in columns)],
        "rows": [[name, *(row[column] for column in columns)] for name, row in numbers.items()],
        "rowKinds": [metrics.kind_of(name) for name in numbers],
    }


def _changed(first: RecordedRun, second: RecordedRun) -> Chart:
    rows: list[list[Any]] = []
    for name, one in first.tasks.items():
        two = second.tasks.get(name)
        if two is None or one.same_as(two):
            continue
        later = (
            two.started - one.started
            if one.started is not None and two.started is not None
            else None
        )
        rows.append(
            [name, one.started, two.started, later, " ".join(one.places)[:60],
             " ".join(two.places)[:60]]
        )  # fmt: skip
    rows.sort(key=lambda row: (-abs(row[3]) if row[3] is not None else -math.inf, row[0]))
    columns = [
        ["task", ""], ["started, first", "time"], ["started, second", "time"], ["later by", "time"],
        ["where, first", ""], ["where, second", ""],
    ]  # fmt: skip
    text = f"{len(rows):,} tasks; the greatest difference first."
    return {
        "kind": "table", "title": "Tasks that differ", "text": text, "columns": columns,
        "rows": rows[:MOST_ROWS],
    }  # fmt: skip


def _same(one: float | None, two: float | None) -> bool:
    if one is None or two is None:
        return one is two
    return abs(one - two) < SAME
