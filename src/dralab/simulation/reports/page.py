"""One HTML file that holds everything: data, style and script. It loads nothing.

Charts are data (`lines`, `bars`, `gantt`, `table`); the script draws them. Long series are thinned
to what a screen can show, and what was left out is said on the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

import orjson

from dralab import __version__
from dralab.kernel.clock import SECOND
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result, StateSample

Chart = Mapping[str, Any]

FRAME: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="generator" content="dralab {version}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main></main>
<div id="tip"></div>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A page: cards on top (name, value, kind), charts below, definitions at the end."""

    title: str
    subtitle: str = ""
    notes: Sequence[str] = ()
    cards: Sequence[tuple[str, Any, str]] = ()
    charts: Sequence[Chart] = ()
    definitions: Sequence[tuple[str, str]] = field(default=())

    def html(self) -> str:
        """Return the whole file."""
        data = orjson.dumps(
            {
                "title": self.title,
                "subtitle": self.subtitle,
                "notes": list(self.notes),
                "cards": list(self.cards),
                "charts": list(self.charts),
                "definitions": list(self.definitions),
            }
        ).decode()
        here = resources.files(__package__)
        return FRAME.format(
            version=__version__,
            title=_escaped(self.title),
            style=(here / "page.css").read_text(encoding="utf-8"),
            script=(here / "page.js").read_text(encoding="utf-8"),
            # Inside <script> only this can end the element.
            data=data.replace("<", "\\u003c"),
        )

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text(self.html(), encoding="utf-8")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


MOST_RECTS: Final = 20_000
MOST_LANES: Final = 200


def thin(samples: Sequence[StateSample], most: int) -> list[StateSample]:
    """Return about `most` samples at most: of each interval the one with most waiting."""
    if len(samples) <= most:
        return list(samples)
    first, last = samples[0].when, samples[-1].when
    width = max(1, (last - first) // most)
    kept: dict[int, StateSample] = {}
    for sample in samples:
        bucket = (sample.when - first) // width
        if bucket not in kept or sample.waiting > kept[bucket].waiting:
            kept[bucket] = sample
    return [*kept.values(), samples[-1]]


def gantt(result: Result) -> Chart:
    """Return the Gantt of tasks; unused lanes are left out."""
    used = sorted(
        {lane for task in result.tasks for lane in task.lanes}
        | {lane for lane, _, _ in result.outages}
    )
    lanes = used[:MOST_LANES]
    place = {lane: index for index, lane in enumerate(lanes)}
    groups: dict[str, int] = {}
    tasks: list[list[Any]] = []
    rects: list[list[float]] = []
    left_out = 0
    for task in result.tasks:
        if task.started is None:
            continue
        end = (result.end if task.ended is None else task.ended) / SECOND
        here = [place[lane] for lane in task.lanes if lane in place]
        if not here or len(rects) + len(here) > MOST_RECTS:
            left_out += 1
            continue
        group = groups.setdefault(task.user or task.id, len(groups))
        start = task.started / SECOND
        rects += [[lane, start, end, len(tasks)] for lane in here]
        tasks.append([task.id, group, metrics.wait(task)])
    ran = {lane for task in result.tasks for lane in task.lanes}
    text = f"{len(ran):,} of {len(result.lanes):,} nodes and devices were used."
    if result.outages:
        text += " Hatched: down."
    if len(lanes) < len(used):
        text += f" The first {len(lanes)} of them are shown."
    if left_out:
        text += f" {left_out:,} tasks are not drawn."
    users = len(groups) < len(tasks)
    return {
        "kind": "gantt",
        "title": "Who ran where" + (" (a colour per user)" if users else ""),
        "text": text,
        "lanes": [result.lanes[lane] for lane in lanes],
        "groups": list(groups) if users else [""] * len(groups),
        "tasks": tasks,
        "rects": rects,
        "outages": [
            [place[lane], start / SECOND, end / SECOND]
            for lane, start, end in result.outages
            if lane in place
        ],
        "end": max([result.end / SECOND, *(rect[2] for rect in rects)], default=1.0),
    }
