"""The page of one run: cards, use and queue over time, Gantt, fragmentation, waits, tasks."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.reports.gantt import gantt
from dralab.simulation.reports.page import Chart, ReportPage, distinct, thin
from dralab.simulation.results import metrics, outputs, trace
from dralab.simulation.results.result import Result

MOST_POINTS: Final = 1500
MOST_ROWS: Final = 2000
CARDS: Final = {
    "makespan": "makespan",
    "mean wait": "wait_mean",
    "longest wait": "wait_max",
    "mean bounded slowdown": "bounded_slowdown_mean",
    "tasks an hour": "throughput_per_hour",
    "never started": "never_started",
    "cost": "cost",
    "idle cost": "idle_cost",
    "most nodes": "most_nodes",
}
"""The numbers on top, by what they are called there."""


def write(
    result: Result,
    folder: Path,
    *,
    parquet: bool | None = None,
    picture: str = "",
    perfetto: bool = False,
) -> list[Path]:
    """Write the tables and `report.html` (and a picture, and a trace) of a run into a folder."""
    outputs.check(picture=picture)
    with outputs.writing(folder):
        paths = outputs.write(result, folder, parquet=parquet)
        paths.append(folder / "report.html")
        page(result).write(paths[-1])
        if picture:
            from dralab.simulation.reports import picture as pictures

            paths.append(folder / f"report.{picture}")
            pictures.write(result, paths[-1])
        if perfetto:
            paths.append(folder / "trace.json")
            trace.write(result, paths[-1])
    return paths


def page(result: Result) -> ReportPage:
    """Return the page of a run."""
    numbers = metrics.metrics_of(result)
    notes = list(result.notes)
    if not result.complete:
        notes.append("This run was stopped before its end.")
    cards = {title: name for title, name in CARDS.items() if name in numbers} | {
        f"{name} in use": f"utilisation_{name}"
        for name in result.capacity
        if f"utilisation_{name}" in numbers
    }
    return ReportPage(
        title=result.name,
        subtitle=f"{result.scheduler} · seed {result.seed} · {numbers['tasks']:,} tasks"
        f" on {len([lane for lane in result.lanes if '/' not in lane]):,} nodes",
        notes=notes,
        cards=[(title, numbers[name], metrics.kind_of(name)) for title, name in cards.items()],
        charts=list(_charts(result)),
        definitions=[(name.replace("_", " "), text) for name, text in metrics.DEFINITIONS.items()],
        meanings=metrics.meanings(numbers)
        | {title: metrics.definition_of(name) for title, name in cards.items()},
    )


def _charts(result: Result) -> Iterator[Chart]:
    thinned = thin(result.samples, MOST_POINTS)
    x = [sample.when / SECOND for sample in thinned]
    common = {"kind": "lines", "x": x, "xKind": "time", "steps": True}
    uses = []
    for name, capacity in result.all_capacity().items():
        if capacity:
            used = result.in_use(name)
            uses.append({"name": name, "y": [round(100 * used(s) / capacity, 3) for s in thinned]})
    yield common | {
        "title": "In use", "series": distinct(uses), "yKind": "percent", "most": 100,
        "fill": True, "half": True,
    }  # fmt: skip
    yield common | {
        "title": "Waiting and running",
        "unit": "tasks",
        "series": [
            {"name": "waiting", "y": [s.waiting for s in thinned]},
            {"name": "running", "y": [s.running for s in thinned]},
        ],
        "half": True,
    }
    if result.nodes:
        yield pools(result)
    yield gantt(result)
    if result.capacity.get("gpu"):
        idle = [result.capacity["gpu"] - s.gpu for s in thinned]
        yield common | {
            "title": "Fragmentation",
            "unit": "GPUs",
            "text": "GPUs that are idle, and of those what the typical pods cannot use.",
            "series": [
                {"name": "idle GPUs", "y": [round(v / 1000, 3) for v in idle]},
                {"name": "fragmented", "y": [round(s.fragmented / 1000, 3) for s in thinned]},
            ],
        }
    if result.refusals or any(task.evictions for task in result.tasks):
        yield common | {
            "title": "Refused and evicted",
            "unit": "times",
            "text": "Counted from the beginning.",
            "series": [
                {"name": "refused", "y": [s.refused for s in thinned]},
                {"name": "evicted", "y": [s.evicted for s in thinned]},
            ],
        }
    if result.joules is not None:
        yield common | {
            "title": "Energy",
            "unit": "J",
            "text": "Counted from the beginning.",
            "series": [{"name": "joules", "y": [round(s.joules, 3) for s in thinned]}],
        }
    yield from waits(result)
    yield number_table(result)
    yield task_table(result)


def pools(result: Result) -> Chart:
    """Return how many nodes each pool had, from the request for them on."""
    names = sorted({node.pool for node in result.nodes})
    steps = sorted(
        (when, sign, node.pool)
        for node in result.nodes
        for when, sign in ((node.asked, 1), (node.gone, -1))
    )
    now, x = Counter(dict.fromkeys(names, 0)), [0.0]
    series: dict[str, list[int]] = {name: [0] for name in names}
    for when, of_instant in groupby(steps, key=lambda step: step[0]):
        for _, sign, pool in of_instant:
            now[pool] += sign
        x.append(when / SECOND)
        for name in names:
            series[name].append(now[name])
    return {
        "kind": "lines", "title": "Nodes of pools", "xKind": "time", "steps": True, "x": x,
        "text": "From the request for a node until it is gone.",
        "series": [{"name": name, "y": found} for name, found in series.items()],
    }  # fmt: skip


def waits(result: Result) -> Iterator[Chart]:
    """Yield the distribution of waits, as shares of tasks and as a histogram."""
    values = sorted(metrics.wait(task) for task in result.tasks if task.started is not None)
    if not values:
        return
    count = min(len(values), 400)
    at = [max(0, math.ceil((index + 1) * len(values) / count) - 1) for index in range(count)]
    shares = [round(100 * (i + 1) / len(values), 3) for i in at]
    yield {
        "kind": "lines", "title": "How long tasks waited", "half": True, "xKind": "time",
        "yKind": "percent", "most": 100, "x": [0.0, *(values[i] for i in at)], "steps": True,
        "text": "Share of the tasks that waited at most so long.",
        "series": [{"name": "tasks", "y": [0.0, *shares]}],
    }  # fmt: skip
    edges: list[float] = [0, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 86_400, math.inf]
    names = ["none", "1 s", "10 s", "1 min", "5 min", "30 min", "1 h", "4 h", "12 h", "1 d", "more"]
    counts = [0] * len(edges)
    for value in values:
        counts[next(index for index, edge in enumerate(edges) if value <= edge)] += 1
    yield {
        "kind": "bars", "title": "Tasks by wait", "unit": "tasks", "half": True,
        "labels": names, "values": counts,
        "text": "How many waited up to so long.",
    }  # fmt: skip


def number_table(result: Result) -> Chart:
    """Return all numbers of the run; what they say is shown with their names."""
    numbers = metrics.metrics_of(result)
    rows = [
        [name, None if value is None else round(float(value), 6)] for name, value in numbers.items()
    ]
    return {
        "kind": "table",
        "title": "All numbers",
        "columns": [["number", ""], ["value", "by row"]],
        "rows": rows,
        "rowKinds": [metrics.kind_of(name) for name in numbers],
    }


def task_table(result: Result) -> Chart:
    """Return the tasks that waited longest."""
    rows = outputs.task_rows(result)
    rows.sort(key=lambda row: (-(row[7] if row[7] is not None else math.inf), row[0]))
    columns = [
        ["task", ""], ["user", ""], ["state", ""], ["submitted", "time"], ["started", "time"],
        ["ended", "time"], ["wait", "time"], ["run", "time"], ["bounded slowdown", "number"],
        ["width", "number"], ["where", ""], ["why not", ""],
    ]  # fmt: skip
    shown = [
        [r[0], r[1], r[2], r[3], r[5], r[6], r[7], r[8], r[10], r[11], r[13][:60], r[15]]
        for r in rows[:MOST_ROWS]
    ]
    text = "Longest wait first; a heading sorts."
    if len(rows) > MOST_ROWS:
        text += f" The first {MOST_ROWS:,} of {len(rows):,}; all are in tasks.csv."
    return {"kind": "table", "title": "Tasks", "text": text, "columns": columns, "rows": shown}
