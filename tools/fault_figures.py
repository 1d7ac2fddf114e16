"""Draws what each fault does, from trials in which it happens: docs/images/faults/*.svg.

python tools/fault_figures.py            write the drawings
python tools/fault_figures.py --check    exit code 1 where one is not what a trial does
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from dralab.kernel.clock import SECOND
from dralab.testing import history as kinds
from dralab.testing.faults import FAULTS, PlannedFault
from dralab.testing.history import HistoryEntry
from dralab.testing.scenario import load
from dralab.testing.trial import expected_end, run_trial

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images" / "faults"
SITES = ROOT / "examples/60-find-the-bug/fixed.yaml"
PODS = ROOT / "tests/testing/own/claims.yaml"
OTHERS, SERVER, PROGRAM = 150, 450, 750
WIDTH, TOP, STEP = 1100, 46, 26
ROWS = 11
STYLE = """
svg{background:#fff;font:12px ui-monospace,Menlo,Consolas,monospace}
.lane{stroke:#9aa5b1;stroke-width:1.5}.gone{stroke:#fff;stroke-width:4}
.to{stroke:#1f6feb;stroke-width:1.5;fill:none}.back{stroke:#2da44e;stroke-width:1.5;fill:none}
.no{stroke:#cf222e;stroke-width:1.5;stroke-dasharray:5 4;fill:none}
.at{fill:#6e7781}.head{font-weight:bold}.fault{fill:#cf222e;font-weight:bold}.life{fill:#9a6700}
"""


@dataclass(frozen=True)
class Figure:
    """What is drawn of a trial: from its first entry with a text, or from the fault on."""

    fault: PlannedFault
    also: Sequence[PlannedFault] = ()
    scenario: Path = SITES
    before: int = 2
    rows: int = ROWS
    leave_out: Sequence[str] = ("list ", "watch ", "get ")
    only: str = ""


def of_request(name: str, verb: str, resource: str, nth: int = 1, **more: object) -> Figure:
    """Return a figure of a fault that a request triggers."""
    fault = PlannedFault(
        fault=name, program=PROGRAM_NAME, verb=verb, resource=resource, nth=nth, **more
    )
    return Figure(fault)


PROGRAM_NAME = "fixed"
MAPS, SITE = "configmaps", "sites.example.com"
RESTART = PlannedFault(fault="restart", program=PROGRAM_NAME, at=18 * SECOND, duration=2 * SECOND)


def timed(name: str, at: int, duration: int = 0, **more: object) -> Figure:
    """Return a figure of a fault at a time of the program."""
    return Figure(
        PlannedFault(fault=name, program=PROGRAM_NAME, at=at * SECOND, duration=duration * SECOND),
        **more,
    )


def of_cluster(name: str, at: int, duration: int = 0, **more: object) -> Figure:
    """Return a figure of a fault of the cluster."""
    fault = PlannedFault(fault=name, nth=1, at=at * SECOND, duration=duration * SECOND)
    return Figure(fault, **{"scenario": PODS, "before": 1, **more})


FIGURES = {
    "kill": of_request("kill", "create", MAPS, moment="after", duration=2 * SECOND),
    "conflict": of_request("conflict", "update/status", SITE),
    "lose-answer": of_request("lose-answer", "create", MAPS),
    "late-write": of_request("late-write", "create", MAPS, duration=15 * SECOND),
    "refuse": of_request("refuse", "create", MAPS, code=503),
    "slow": of_request("slow", "create", MAPS, duration=2 * SECOND),
    "throttle": of_request("throttle", "create", MAPS, duration=SECOND // 20),
    "deny": of_request("deny", "create", MAPS, duration=SECOND // 20, code=403),
    "hold-watch": of_request("hold-watch", "watch", SITE, 4, duration=2 * SECOND),
    "expire-watch": of_request("expire-watch", "watch", SITE, 4, duration=2 * SECOND),
    "end-watch": of_request("end-watch", "watch", SITE, 4),
    "stale-list": Figure(
        PlannedFault(
            fault="stale-list", program=PROGRAM_NAME, verb="list", resource=SITE, nth=2,
            behind=2, duration=5 * SECOND,
        ),
        also=[RESTART],
        before=3,
        leave_out=("get ",),
    ),
    "restart": timed("restart", 9, 2),
    "pause": timed("pause", 9, 5),
    "skew": timed("skew", 0, 40, before=0, rows=7),
    "expire-credentials": timed("expire-credentials", 9, 2, leave_out=()),
    "outage": of_cluster("outage", 9, 2, scenario=SITES, leave_out=()),
    "delete-pod": of_cluster("delete-pod", 12),
    "out-of-memory": of_cluster("out-of-memory", 12, only="memory|OOM|pods", rows=6),
    "node-down": of_cluster("node-down", 12, 60, only="node", rows=9),
    "driver-down": of_cluster("driver-down", 4, 5, only="driver|create pods|change pods|Deployment",
                              rows=14),
}  # fmt: skip


def entries_of(figure: Figure) -> list[HistoryEntry]:
    """Run the trial of a figure; return what is drawn."""
    scenario = load(figure.scenario)
    result = run_trial(scenario, expected_end(scenario), [*figure.also, figure.fault], 0)
    kept = [
        entry
        for entry in result.history.entries
        if not entry.text.startswith(tuple(figure.leave_out))
        and " events" not in entry.text
        and entry.what != kinds.VERDICT
        and re.search(figure.only, entry.text)
    ]
    at = next(
        number
        for number, entry in enumerate(kept)
        if entry.what == kinds.FAULT and entry.text == figure.fault.text
    )
    return kept[max(at - figure.before, 0) :][: figure.rows]


def drawn(entries: Sequence[HistoryEntry], program: str) -> str:
    """Return entries as a drawing: who sees what, from top to bottom."""
    height = TOP + STEP * len(entries) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"><style>{STYLE.strip()}</style>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for x, title in ((OTHERS, "user, others"), (SERVER, "API server"), (PROGRAM, program)):
        parts.append(f'<line class="lane" x1="{x}" y1="{TOP - 14}" x2="{x}" y2="{height - 8}"/>')
        parts.append(f'<text class="head" x="{x}" y="22" text-anchor="middle">{title}</text>')
    parts += _gaps(entries)
    for row, entry in enumerate(entries):
        y = TOP + STEP * row
        parts.append(f'<text class="at" x="6" y="{y + 4}">{entry.at / SECOND:.3f}s</text>')
        parts += _row(entry, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _gaps(entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Yield the times in which the program is not there, as gaps of its line."""
    since = None
    for row, entry in enumerate(entries):
        if entry.what != kinds.LIFE and not entry.text.startswith(("killed at", "stands still")):
            continue
        if entry.text.startswith(("is killed", "killed at", "stands still")):
            since = row if since is None else since
        elif since is not None and entry.text.startswith(("starts", "goes on")):
            yield (
                f'<line class="gone" x1="{PROGRAM}" x2="{PROGRAM}" y1="{TOP + STEP * since + 8}" '
                f'y2="{TOP + STEP * row - 8}"/>'
            )
            since = None


def _row(entry: HistoryEntry, y: int) -> Iterator[str]:
    text = entry.text.replace("sites.example.com", "sites").replace(".resource.k8s.io", "")
    text = (
        text.replace("ml-tdtv4rlthl-", "ml-").replace("resource.k8s.io/", "").replace("apps/", "")
    )
    text = escape(text if len(text) <= 46 else f"{text[:45]}…")
    mine = entry.who not in {"user", "other", "cluster"}
    if entry.what == kinds.FAULT:
        yield f'<text class="fault" x="96" y="{y + 4}">⚡ {escape(entry.text)}</text>'
        return
    if entry.what == kinds.LIFE:
        where, anchor = (PROGRAM + 8, "start") if mine else (OTHERS + 8, "start")
        yield f'<text class="life" x="{where}" y="{y + 4}" text-anchor="{anchor}">{text}</text>'
        return
    source = PROGRAM if mine else OTHERS
    failed = "-&gt;" in text
    style, begin, end = ("no" if failed else "to"), source, SERVER
    if entry.what == kinds.SEEN:
        style, begin, end = "back", SERVER, source
    elif entry.what == kinds.WITHHELD:
        style, begin, end = "no", SERVER, (SERVER + source) // 2
    sign = 1 if end > begin else -1
    yield f'<line class="{style}" x1="{begin}" y1="{y + 6}" x2="{end - 6 * sign}" y2="{y + 6}"/>'
    tip = "M{0} {1}l{2} -4v8z" if entry.what != kinds.WITHHELD else "M{0} {1}m-4 -4l8 8m0 -8l-8 8"
    path = tip.format(end - sign, y + 6, -7 * sign)
    yield f'<path class="{style}" d="{path}"/>'
    middle = (min(source, SERVER) + max(source, SERVER)) // 2
    yield f'<text x="{middle}" y="{y + 1}" text-anchor="middle" font-size="10.5">{text}</text>'
    if entry.revision and entry.what == kinds.WRITE:
        side = 6 if not mine else -6
        anchor = "start" if side > 0 else "end"
        yield (
            f'<text class="at" x="{SERVER + side}" y="{y + 10}" text-anchor="{anchor}" '
            f'font-size="10">rev {entry.revision}</text>'
        )


def main() -> int:
    """Write or check; return the exit code."""
    wrong = 0
    if missing := set(FAULTS) - set(FIGURES):
        print(f"no figure of {', '.join(sorted(missing))}")
        wrong = 1
    for name, figure in FIGURES.items():
        program = "operator" if figure.scenario == SITES else "scheduler, controller"
        text = drawn(entries_of(figure), program)
        path = IMAGES / f"{name}.svg"
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                print(f"{path.relative_to(ROOT)} is old: run tools/fault_figures.py")
                wrong = 1
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return wrong


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main())
