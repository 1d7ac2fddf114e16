"""The scores of designs as a picture: one panel a measure, one bar a generation."""

from collections.abc import Callable, Mapping
from html import escape
from math import log10
from typing import Final, NamedTuple

from dralab.prototypes.scoring import DesignScore

COLOURS: Final = ("#3b6ea8", "#c8742c", "#4d8f5b", "#8a5a9e", "#7a7a7a")
LETTER: Final = 8
BAR: Final = 360
TEXT: Final = 250
LINE: Final = 24
TITLE: Final = 30


class Panel(NamedTuple):
    """A measure: how long its bar is, from 0 to 1, and what stands beside it."""

    title: str
    length: Callable[[DesignScore], float]
    text: Callable[[DesignScore], str]


def picture(scores: Mapping[str, DesignScore]) -> str:
    """Return an SVG document; the same scores give the same bytes."""
    panels, left = _panels(), 20 + LETTER * max(map(len, scores), default=0)
    width = left + BAR + TEXT
    height = len(panels) * (TITLE + LINE * len(scores) + 10) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    top = 10
    for panel in panels:
        lines.append(f'<text x="10" y="{top + 18}" font-weight="bold">{panel.title}</text>')
        top += TITLE
        for number, (name, each) in enumerate(scores.items()):
            lines += _bar(panel, name, each, (left, top), COLOURS[number % len(COLOURS)])
            top += LINE
        top += 10
    return "\n".join([*lines, "</svg>", ""])


def _panels() -> tuple[Panel, ...]:
    return (
        Panel(
            "Pods placed",
            lambda each: each.placed / each.pods if each.pods else 0.0,
            lambda each: f"{each.placed} of {each.pods}",
        ),
        Panel(
            "Capacity left (devices, and cards as one each)",
            lambda each: float(each.left / each.units) if each.units else 0.0,
            lambda each: f"{float(each.left):.1f} of {each.units}",
        ),
        Panel(
            "Ways to serve the median pod from the whole fleet (logarithmic)",
            lambda each: log10(max(1, each.median_ways)) / log10(each.most_ways),
            lambda each: f"{each.median_ways} (least {each.least_ways})",
        ),
        Panel(
            "Oversized: part of what was given that a smaller choice would have left",
            lambda each: float(each.oversized),
            lambda each: f"{float(each.oversized):.0%}",
        ),
        Panel(
            "Useless: part of what is left that no further pod of the load could use",
            lambda each: float(each.useless),
            lambda each: f"{float(each.useless):.0%}",
        ),
    )


def _bar(
    panel: Panel, name: str, score: DesignScore, place: tuple[int, int], colour: str
) -> list[str]:
    left, top = place
    long = round(BAR * min(1.0, max(0.0, panel.length(score))), 1)
    return [
        f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{left}" y="{top + 2}" width="{BAR}" height="16" fill="#eee"/>',
        f'<rect x="{left}" y="{top + 2}" width="{long}" height="16" fill="{colour}"/>',
        f'<text x="{left + BAR + 8}" y="{top + 14}">{escape(panel.text(score))}</text>',
    ]
