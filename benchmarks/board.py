"""Figures of benchmarks over commits: each is a line of JSON, and a page draws them.

    make bench                              append figures to build/bench.jsonl
    python -m benchmarks.board FILE…        write build/bench.html: a panel for each figure

A panel has a line for each machine, over the commits in the order of their measurement, and says by
how much the last figure is worse or better than the median of those before.
"""

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, Final

BUILD: Final = Path("build")
LINES: Final = "DRALAB_BENCH_LINES"
WIDTH, HEIGHT, EDGE = 300, 80, 6
COLORS: Final = ("#1b6ac9", "#b3541e", "#2e7d4f", "#7a4fb5")
STYLE: Final = """
body { font: 15px system-ui, sans-serif; margin: 2rem; color: #1c1c1c; background: #fff }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem }
section { border: 1px solid #ccc; border-radius: 6px; padding: .7rem 1rem }
h2 { font-size: 1rem; margin: 0 } p { margin: .2rem 0 } .worse { color: #a40000; font-weight: 600 }
"""


def record(figure: str, value: float, unit: str) -> None:
    """Append a figure to the file that `make bench` names; nothing without one."""
    path = os.environ.get(LINES)
    if path:
        line = _context() | {"figure": figure, "value": value, "unit": unit}
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _context() -> dict[str, Any]:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": done.stdout.strip() or "unknown",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
    }


def is_rate(unit: str) -> bool:
    """Return whether more is better: of so many a second."""
    return unit.endswith("/s")


def change(values: Sequence[float], unit: str) -> float | None:
    """Return by which part the last value is worse than the median before; below 0: better."""
    if len(values) < 2 or not values[-1]:
        return None
    before = median(values[:-1])
    return before / values[-1] - 1 if is_rate(unit) else values[-1] / before - 1


def page(lines: Iterable[dict[str, Any]]) -> str:
    """Return the page of some lines."""
    panels: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for line in sorted(lines, key=lambda each: each["at"]):
        panel = panels.setdefault((line["figure"], line["unit"]), {})
        panel.setdefault(line["machine"], []).append(line)
    body = "\n".join(_panel(*key, machines) for key, machines in sorted(panels.items()))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Benchmarks</title>'
        f"<style>{STYLE}</style><h1>Benchmarks over commits</h1><main>{body}</main></html>\n"
    )


def _panel(figure: str, unit: str, machines: dict[str, list[dict[str, Any]]]) -> str:
    top = max(each["value"] for lines in machines.values() for each in lines) or 1
    drawn, texts = "", ""
    for color, (machine, lines) in zip(COLORS * len(machines), machines.items(), strict=False):
        step = (WIDTH - 2 * EDGE) / max(1, len(lines) - 1)
        points = [
            (EDGE + i * step, HEIGHT - EDGE - each["value"] / top * (HEIGHT - 2 * EDGE))
            for i, each in enumerate(lines)
        ]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn += f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{corners}"/>'
        drawn += "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"><title>'
            f"{escape(each['commit'])}: {each['value']:,.3g} {escape(unit)}, load {each['load']}"
            "</title></circle>"
            for (x, y), each in zip(points, lines, strict=True)
        )
        worse = change([each["value"] for each in lines], unit)
        told = "" if worse is None else f", {abs(worse):.0%} {'worse' if worse > 0 else 'better'}"
        mark = ' class="worse"' if worse is not None and worse > 0.1 else ""
        last = lines[-1]
        texts += (
            f'<p{mark}>{last["value"]:,.3g} {escape(unit)}{told} <small style="color:{color}">'
            f"{escape(last['commit'])} · {escape(machine)}</small></p>"
        )
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(figure)}">'
    return f"<section><h2>{escape(figure)}</h2>{texts}{svg}{drawn}</svg></section>"


def main() -> None:
    """Write the page of some files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=[BUILD / "bench.jsonl"])
    parser.add_argument("--out", type=Path, default=BUILD / "bench.html")
    given = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in given.files]
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(page(json.loads(line) for text in texts for line in text.splitlines()))
    print(given.out)


if __name__ == "__main__":
    main()
