"""The charts of a run as one PNG or SVG file (extra: picture)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.simulation.reports.page import Chart, gantt
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result

FIGURE: Final = (12.0, 10.0)


def write(result: Result, path: Path) -> None:
    """Draw use, queue, Gantt and waits into a file; its ending says which kind."""
    draw(result, path)


def draw(result: Result, path: Path | None = None) -> Any:
    """Return the matplotlib figure of use, queue, Gantt and waits; with a path it is written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same run gives the same bytes: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "dralab"}):
        figure = Figure(figsize=FIGURE, layout="constrained")
        axes = figure.subplots(4, 1, height_ratios=[1, 1, 2.4, 1])
        when = [sample.when / SECOND / 3600 for sample in result.samples]
        for name, capacity in result.all_capacity().items():
            used = result.in_use(name)
            values = [100 * used(s) / (capacity or 1) for s in result.samples]
            axes[0].step(when, values, where="post", label=name)
        axes[0].set(ylabel="in use (%)", ylim=(0, 100))
        axes[0].legend(loc="upper right")
        axes[1].step(when, [s.waiting for s in result.samples], where="post", label="waiting")
        axes[1].step(when, [s.running for s in result.samples], where="post", label="running")
        axes[1].set(ylabel="tasks")
        axes[1].legend(loc="upper right")
        chart = gantt(result)
        _gantt(axes[2], chart)
        for axis in axes[:2]:
            axis.set_xlim(0, chart["end"] / 3600 or 1)
        waits = sorted(metrics.wait(t) / 3600 for t in result.tasks if t.started is not None)
        shares = [100 * (index + 1) / len(waits) for index in range(len(waits))]
        axes[3].step(waits, shares, where="post")
        axes[3].set(xlabel="wait (h)", ylabel="tasks (%)", ylim=(0, 101))
        figure.suptitle(f"{result.name} · {result.scheduler} · seed {result.seed}")
        _save(figure, path)
    return figure


def draw_means(metric: str, rows: Sequence[Mapping[str, Any]], path: Path | None = None) -> Any:
    """Return the figure of a number's means over the seeds, with half of their 95 % intervals."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "dralab"}):
        names = list(dict.fromkeys(row["scenario"] for row in rows))
        schedulers = list(dict.fromkeys(row["scheduler"] for row in rows))
        figure = Figure(figsize=(max(4.0, 1.1 * len(rows)), 4), layout="constrained")
        axis = figure.subplots()
        width = 0.8 / len(schedulers)
        for number, scheduler in enumerate(schedulers):
            own = [row for row in rows if row["scheduler"] == scheduler]
            axis.bar(
                [names.index(row["scenario"]) + number * width for row in own],
                [row["mean"] for row in own],
                width,
                yerr=[row["ci95"] or 0 for row in own],
                capsize=4,
                label=scheduler,
            )
        middle = 0.4 - width / 2
        axis.set_xticks([place + middle for place in range(len(names))], names)
        axis.set(ylabel=metrics.titled(metric))
        axis.legend()
        axis.set_title("mean over the seeds and its 95 % interval", fontsize="small")
        _save(figure, path)
    return figure


def _save(figure: Any, path: Path | None) -> None:
    if path is not None:
        unnamed = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix, "Software")
        figure.savefig(path, metadata={unnamed: None}, dpi=110)


def _gantt(axis: object, chart: Chart) -> None:
    from matplotlib.collections import PolyCollection

    boxes = [
        [(s / 3600, lane), (e / 3600, lane), (e / 3600, lane + 0.9), (s / 3600, lane + 0.9)]
        for lane, s, e, _ in chart["rects"]
    ]
    colours = [f"C{chart['tasks'][int(task)][1] % 10}" for *_, task in chart["rects"]]
    axis.add_collection(PolyCollection(boxes, facecolors=colours))  # type: ignore[attr-defined]
    down = [
        [(s / 3600, lane), (e / 3600, lane), (e / 3600, lane + 1), (s / 3600, lane + 1)]
        for lane, s, e in chart["outages"]
    ]
    shaded = PolyCollection(down, facecolors="none", edgecolors="grey", hatch="////", linewidths=0)
    axis.add_collection(shaded)  # type: ignore[attr-defined]
    axis.set(  # type: ignore[attr-defined]
        xlim=(0, chart["end"] / 3600 or 1),
        ylim=(len(chart["lanes"]) or 1, 0),
        xlabel="time (h)",
        ylabel="nodes and devices",
    )
