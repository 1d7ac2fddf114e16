"""The guide's table of charts is the list that is installed (`make conformance`)."""

import re
from pathlib import Path

from publishedcharts import CHARTS

GUIDE = Path(__file__).parents[2] / "docs/guides/operators.md"


def test_the_guide_has_the_charts_that_are_installed():
    text = GUIDE.read_text().partition("## Charts")[2]
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| [a-z]", line) and not line.startswith("| chart")
    ]
    shown = [(name, version, given) for name, version, given, *_ in rows]
    assert shown == [(each.name, each.version, ", ".join(each.settings)) for each in CHARTS]
    assert sum(not each.settings and not each.secret[0] for each in CHARTS) >= 13
