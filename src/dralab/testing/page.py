"""The timeline of a trial as one HTML file: no requests to anywhere, all names escaped.

Columns are the user, the programs and the rest of the cluster; rows are instants. What is drawn
comes from data in the page; its script only filters.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Final

from dralab import __version__
from dralab.kernel.clock import SECOND
from dralab.testing.faults import PlannedFault
from dralab.testing.history import HistoryEntry, TrialViolation

MOST_ROWS: Final = 5000
FIRST: Final = ("user", "other")
LAST: Final = ("cluster",)
# What it says stands across all columns.
JUDGE: Final = "trial"
LABELS: Final = (
    ("write", "writes"), ("request", "reads"), ("seen", "seen"), ("withheld", "withheld"),
    ("fault", "faults"), ("life", "starts and ends"),
)  # fmt: skip


def timeline_page(
    title: str,
    violations: Sequence[TrialViolation],
    schedule: Sequence[PlannedFault],
    entries: Sequence[HistoryEntry],
) -> str:
    """Return the page of a trial."""
    here = resources.files(__package__).joinpath("data")
    style = here.joinpath("timeline.css").read_text(encoding="utf-8")
    script = here.joinpath("timeline.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    shown = entries[:MOST_ROWS]
    lanes = _lanes(shown)
    wrong = "".join(f"<li>{escape(str(each))}</li>" for each in violations)
    faults = "".join(f"<li>{escape(str(each))}</li>" for each in schedule)
    filters = "".join(
        f'<label><input type="checkbox" data-what="{what}"'
        f"{'' if what == 'request' else ' checked'}> {label}</label>"
        for what, label in LABELS
    )
    heads = "".join(f"<th>{escape(lane)}</th>" for lane in lanes)
    left_out = len(entries) - len(shown)
    note = f"<p>{left_out} later entries are left out.</p>" if left_out else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="dralab {__version__}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<ul class="verdict{"" if wrong else " good"}">{wrong or "<li>nothing is wrong</li>"}</ul>
<h2>Schedule</h2>
<ol>{faults or "<li>no fault</li>"}</ol>
<p class="filters">{filters}</p>
<table>
<thead><tr><th class="time">time</th><th class="revision">revision</th>{heads}</tr></thead>
<tbody>
{"".join(_rows(shown, lanes))}</tbody>
</table>
{note}<script>{script}</script>
</body>
</html>
"""


def _lanes(entries: Sequence[HistoryEntry]) -> list[str]:
    """Return the columns: the user first, the programs, then the rest."""
    names = {entry.who for entry in entries} - {JUDGE}
    programs = sorted(names.difference(FIRST, LAST))
    return [*(n for n in FIRST if n in names), *programs, *(n for n in LAST if n in names)]


def _rows(entries: Sequence[HistoryEntry], lanes: Sequence[str]) -> list[str]:
    rows = []
    before = -1
    for entry in entries:
        time = f"{entry.at / SECOND:.3f}s" if entry.at != before else ""
        before = entry.at
        if entry.who == JUDGE:
            rows.append(
                f'<tr data-what="{escape(entry.what)}"><td>{time}</td><td></td>'
                f'<td class="{escape(entry.what)}" colspan="{len(lanes)}">{escape(entry.text)}</td>'
                "</tr>\n"
            )
            continue
        place = lanes.index(entry.who)
        after = len(lanes) - place - 1
        revision = str(entry.revision) if entry.revision else ""
        rows.append(
            f'<tr data-what="{escape(entry.what)}"><td>{time}</td><td>{revision}</td>'
            + "<td></td>" * place
            + f'<td class="{escape(entry.what)}">{escape(entry.text)}</td>'
            + "<td></td>" * after
            + "</tr>\n"
        )
    return rows


def _digest(text: str) -> str:
    """Return the hash by which a policy names an inline element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
