"""One HTML file that holds everything: data, style and script. It loads nothing.

Charts are data (`lines`, `bars`, `gantt`, `heat`, `table`); the script draws them. Long series are
thinned to what a screen can show, and what was left out is said on the page.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

import orjson

from dralab import __version__
from dralab.simulation.results.result import StateSample

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
<div id="tip" role="status"></div>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A page: cards on top (name, value, kind), charts below, definitions at the end.

    `meanings` explain names where they stand: of cards, columns, and first cells of rows.
    """

    title: str
    subtitle: str = ""
    notes: Sequence[str] = ()
    cards: Sequence[tuple[str, Any, str]] = ()
    charts: Sequence[Chart] = ()
    definitions: Sequence[tuple[str, str]] = field(default=())
    meanings: Mapping[str, str] = field(default_factory=dict)

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
                "meanings": dict(self.meanings),
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


def distinct(series: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return curves, those that would cover each other as one with all their names.

    >>> distinct([{"name": "gpu", "y": [1]}, {"name": "cpu", "y": [2]}, {"name": "b", "y": [1]}])
    [{'name': 'gpu, b', 'y': [1]}, {'name': 'cpu', 'y': [2]}]
    """
    found: dict[tuple[float, ...], dict[str, Any]] = {}
    for each in series:
        known = found.setdefault(tuple(each["y"]), {**each, "name": ""})
        known["name"] = f"{known['name']}, {each['name']}".removeprefix(", ")
    return list(found.values())
