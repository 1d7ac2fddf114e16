"""The charts of a run as one file that fits a paper: PDF, SVG or PNG (extra: picture).

It is as wide as a page of two columns, with letters of eight points that are kept as text. Curves
differ by colour and by dash, so that they are told apart in print.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.simulation.reports.gantt import gantt
from dralab.simulation.reports.page import Chart, distinct
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result

FIGURE: Final = (7.0, 7.0)
MOST_LABELS: Final = 30
# Colours that people who see few colours tell apart (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2)), (0, (3, 1, 1, 1)))
STYLE: Final[dict[Any, Any]] = {
    # The same run gives the same bytes: no random ids.
    "svg.hashsalt": "dralab",
    # Letters, not their outlines: they can be searched, copied and edited.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.size": 8,
    "figure.titlesize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.1,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
}


def write(result: Result, path: Path) -> None:
    """Draw use, queue, Gantt and waits into a file; its ending says which kind."""
    draw(result, path)


def draw(result: Result, path: Path | None = None) -> Any:
    """Return the matplotlib figure of use, queue, Gantt and waits; with a path it is written."""
    from matplotlib.figure import Figure

    with _style():
        figure = Figure(figsize=FIGURE, layout="constrained")
        axes = figure.subplots(4, 1, height_ratios=[1, 1, 2.4, 1])
        when = [sample.when / SECOND / 3600 for sample in result.samples]
        uses = []
        for name, capacity in result.all_capacity().items():
            used = result.in_use(name)
            values = [100 * used(s) / (capacity or 1) for s in result.samples]
            uses.append({"name": name, "y": values})
        for curve in distinct(uses):
            axes[0].step(when, curve["y"], where="post", label=curve["name"])
        axes[0].set(ylabel="in use (%)", ylim=(0, 100))
        axes[1].step(when, [s.waiting for s in result.samples], where="post", label="waiting")
        axes[1].step(when, [s.running for s in result.samples], where="post", label="running")
        axes[1].set(ylabel="tasks")
        chart = gantt(result)
        (_heat if chart["kind"] == "heat" else _boxes)(figure, axes[2], chart)
        for axis in axes[:2]:
            axis.set_xlim(0, chart["end"] / 3600 or 1)
            # Above the curves, which it would hide.
            axis.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=6, borderaxespad=0)
        waits = sorted(metrics.wait(t) / 3600 for t in result.tasks if t.started is not None)
        shares = [100 * (index + 1) / len(waits) for index in range(len(waits))]
        axes[3].step([0, *waits], [0, *shares], where="post")
        axes[3].set(
            xlabel="wait (h)", ylabel="tasks (%)", ylim=(0, 101), xlim=(0, max([*waits, 1 / 60]))
        )
        figure.suptitle(f"{result.name} · {result.scheduler} · seed {result.seed}")
        _save(figure, path)
    return figure


def draw_means(metric: str, rows: Sequence[Mapping[str, Any]], path: Path | None = None) -> Any:
    """Return the figure of a number's means over the seeds, with half of their 95 % intervals."""
    from matplotlib.figure import Figure

    with _style():
        names = list(dict.fromkeys(row["scenario"] for row in rows))
        schedulers = list(dict.fromkeys(row["scheduler"] for row in rows))
        figure = Figure(
            figsize=(min(FIGURE[0], max(3.4, 0.8 * len(rows))), 3), layout="constrained"
        )
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
        axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
        axis.set_title("mean over the seeds and its 95 % interval", fontsize="small")
        _save(figure, path)
    return figure


def _style() -> AbstractContextManager[None]:
    import matplotlib as mpl
    from cycler import cycler  # comes with matplotlib

    cycle = cycler(color=COLOURS) + cycler(linestyle=DASHES)
    return mpl.rc_context({**STYLE, "axes.prop_cycle": cycle})


def _save(figure: Any, path: Path | None) -> None:
    if path is not None:
        unnamed = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix, "Software")
        figure.savefig(path, metadata={unnamed: None}, dpi=200)


def _boxes(_: Any, axis: Any, chart: Chart) -> None:
    from matplotlib.collections import PolyCollection

    boxes = [
        [(s / 3600, lane), (e / 3600, lane), (e / 3600, lane + 0.9), (s / 3600, lane + 0.9)]
        for lane, s, e, _ in chart["rects"]
    ]
    groups = [chart["tasks"][int(task)][1] for *_, task in chart["rects"]]
    colours = [COLOURS[group % len(COLOURS)] for group in groups]
    axis.add_collection(PolyCollection(boxes, facecolors=colours, edgecolors="w", linewidths=0.2))
    down = [
        [(s / 3600, lane), (e / 3600, lane), (e / 3600, lane + 1), (s / 3600, lane + 1)]
        for lane, s, e in chart["outages"]
    ]
    shaded = PolyCollection(down, facecolors="none", edgecolors="grey", hatch="////", linewidths=0)
    axis.add_collection(shaded)
    _label(axis, chart["lanes"], chart["end"])


def _heat(figure: Any, axis: Any, chart: Chart) -> None:
    drawn = axis.imshow(
        chart["values"],
        aspect="auto",
        interpolation="nearest",
        cmap="Blues",
        vmin=0,
        vmax=100,
        extent=(0, chart["end"] / 3600, len(chart["rows"]), 0),
    )
    figure.colorbar(drawn, ax=axis, label="held (%)", pad=0.01, fraction=0.03)
    _label(axis, chart["rows"], chart["end"])


def _label(axis: Any, rows: list[str], end: float) -> None:
    every = -(-len(rows) // MOST_LABELS) or 1
    axis.set_yticks([at + 0.5 for at in range(0, len(rows), every)], rows[::every])
    axis.tick_params(axis="y", length=0)
    axis.set(xlim=(0, end / 3600 or 1), ylim=(len(rows) or 1, 0), xlabel="time (h)")
