"""The page of a placement experiment: the paper's figures over arrived demand."""

from pathlib import Path

from dralab.simulation.engines.placement import PlacementOutcome, write_curve
from dralab.simulation.reports.page import ReportPage
from dralab.simulation.workloads.openb import WHOLE_GPU

MOST_POINTS = 1500


def write(outcome: PlacementOutcome, folder: Path) -> None:
    """Write `curve.csv` and `report.html` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_curve(outcome, folder / "curve.csv")
    page(outcome).write(folder / "report.html")


def page(outcome: PlacementOutcome) -> ReportPage:
    """Return the page of one run."""
    step = max(1, len(outcome.measures) // MOST_POINTS)
    measures = [*outcome.measures[::step], outcome.measures[-1]] if outcome.measures else []
    total = outcome.capacity
    failed, dropped = 0, []
    for measure in outcome.measures:
        failed += not measure.placed
        dropped.append(failed)
    thinned = [*dropped[::step], dropped[-1]] if dropped else []
    x = [round(100 * m.arrived / total, 3) for m in measures]
    idle = [total - m.allocated for m in measures]
    common = {"kind": "lines", "x": x, "xKind": "percent", "half": True}
    percent = common | {"yKind": "percent"}
    last = outcome.measures[-1] if outcome.measures else None
    classes = outcome.ledger.classes()
    all_idle = sum(classes.values()) or 1.0
    return ReportPage(
        title=f"{outcome.workload}: {outcome.policy}",
        subtitle=f"seed {outcome.seed} · {len(outcome.measures):,} pods on "
        f"{outcome.ledger.table.size:,} nodes · {total // WHOLE_GPU:,} GPUs",
        cards=[
            ("GPU allocated", 100 * last.allocated / total if last else None, "percent"),
            ("of the idle GPU fragmented", _of_idle(outcome), "percent"),
            ("pods without a place", failed, "number"),
        ],
        charts=[
            percent
            | {
                "title": "GPU not allocated",
                "text": "By the demand that has arrived, in percent of all GPUs.",
                "series": [
                    {"name": "idle", "y": [round(100 * v / total, 3) for v in idle]},
                    {
                        "name": "had all been placed",
                        "y": [max(0.0, round(100 - value, 3)) for value in x],
                    },
                ],
            },
            percent
            | {
                "title": "Fragmentation of the idle GPU",
                "text": "What of the idle GPU the typical pods cannot use.",
                "most": 100,
                "series": [
                    {
                        "name": "fragmented",
                        "y": [
                            round(100 * m.fragmented / i, 3) if i else 0.0
                            for m, i in zip(measures, idle, strict=True)
                        ],
                    }
                ],
            },
            common
            | {
                "title": "Fragmented GPUs",
                "series": [
                    {
                        "name": "GPUs",
                        "y": [round(m.fragmented / WHOLE_GPU, 3) for m in measures],
                    }
                ],
            },
            common
            | {
                "title": "Pods without a place",
                "series": [{"name": "pods", "y": thinned}],
            },
            {
                "kind": "bars",
                "title": "Why idle GPU cannot be used, at the end",
                "text": "In percent of the idle GPU; q3 is what can be used.",
                "labels": list(classes),
                "values": [round(100 * value / all_idle, 3) for value in classes.values()],
                "yKind": "percent",
            },
        ],
        definitions=[
            ("q1", "neither the CPU nor the GPUs are enough"),
            ("q2", "the CPU is enough, the pieces of GPU are too small"),
            ("q3", "both are enough: this can be used"),
            ("q4", "the GPUs are enough, the CPU is not"),
            ("xl, xr", "for pods without GPU: the CPU is enough, or not"),
            ("no_access", "the model is not allowed"),
        ],
    )


def _of_idle(outcome: PlacementOutcome) -> float | None:
    if not outcome.measures:
        return None
    last = outcome.measures[-1]
    idle = outcome.capacity - last.allocated
    return 100 * last.fragmented / idle if idle else 0.0
