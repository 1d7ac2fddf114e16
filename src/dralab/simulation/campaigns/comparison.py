"""The table: means over seeds, their spread, and significant differences from the baseline."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.simulation.campaigns.grid import Campaign, CampaignCase, Numbers
from dralab.simulation.reports.page import Chart, ReportPage
from dralab.simulation.results import metrics
from dralab.simulation.results.outputs import write_csv, writing

# Student's t, 97.5 %, for 1 to 30 degrees of freedom.
STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

COLUMNS = (
    "scenario", "scheduler", "metric", "runs", "mean", "sd", "ci95",
    "difference", "difference_ci95", "significant",
)  # fmt: skip
RUN_COLUMNS = ("scenario", "scheduler", "seed")
MEANINGS = {
    "runs": "seeds that were run and have this number",
    "mean": "mean over the seeds",
    "sd": "standard deviation over the seeds (n - 1)",
    "ci95": "half of the interval that holds the mean with 95 % (Student's t)",
    "difference": "the mean difference from the baseline's run of the same seed",
    "difference_ci95": "half of the interval that holds it with 95 % (Student's t)",
    "significant": "that interval leaves out zero",
}
# Columns in the unit of the metric.
IN_ITS_UNIT = {"mean", "sd", "ci95", "difference", "difference_ci95"}


def rows(campaign: Campaign, found: Mapping[CampaignCase, Numbers]) -> list[dict[str, Any]]:
    """Return a row per scenario, scheduler and metric.

    `difference` is the mean one from the baseline's run of the same seed, with half of its 95 %
    interval; it is `significant` where that leaves out zero.
    """
    groups: dict[tuple[str, str], dict[int, Numbers]] = {}
    for case, numbers in found.items():
        groups.setdefault((case.name, case.scheduler), {})[case.seed] = numbers
    table: list[dict[str, Any]] = []
    for metric in campaign.compared:
        for (scenario, scheduler), runs in groups.items():
            values = _by_seed(runs, metric)
            if not values:
                continue
            base = _by_seed(groups.get((scenario, campaign.baseline), {}), metric)
            row: dict[str, Any] = {
                "scenario": scenario,
                "scheduler": scheduler,
                "metric": metric,
                "runs": len(values),
                **over_seeds(list(values.values())),
                "difference": None,
                "difference_ci95": None,
                "significant": None,
            }
            if base and scheduler != campaign.baseline:
                compared = paired(base, values)
                row["difference"] = compared["difference"]
                row["difference_ci95"] = compared["ci95"]
                if compared["significant"] is not None:
                    row["significant"] = "yes" if compared["significant"] else "no"
            table.append(row)
    return table


def _by_seed(runs: Mapping[int, Numbers], metric: str) -> dict[int, float]:
    found = {seed: numbers.get(metric) for seed, numbers in runs.items()}
    return {seed: float(value) for seed, value in found.items() if value is not None}


def run_rows(campaign: Campaign, found: Mapping[CampaignCase, Numbers]) -> list[list[Any]]:
    """Return a row per run: what was run, then the numbers that are compared."""
    return [
        [case.name, case.scheduler, case.seed, *(numbers.get(m) for m in campaign.compared)]
        for case, numbers in found.items()
    ]


def page(
    campaign: Campaign, table: list[dict[str, Any]], found: Mapping[CampaignCase, Numbers]
) -> ReportPage:
    """Return the table as a page, with bars per metric, and all runs."""
    return ReportPage(
        title=campaign.name,
        subtitle=f"{len(campaign.cases):,} runs · compared with {campaign.baseline}",
        charts=[*_bars(table), _table(table), _runs(campaign, found)],
        definitions=list(MEANINGS.items()),
        meanings=MEANINGS | metrics.meanings(campaign.compared),
    )


def _bars(table: list[dict[str, Any]]) -> Iterator[Chart]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table:
        groups.setdefault((row["metric"], row["scenario"]), []).append(row)
    for (metric, scenario), members in groups.items():
        yield {
            "kind": "bars", "half": True, "title": metric, "yKind": metrics.kind_of(metric),
            "text": f"{scenario}, mean over seeds; the lines span 95 % confidence",
            "labels": [row["scheduler"] for row in members],
            "values": [row["mean"] for row in members],
            "errors": [row["ci95"] for row in members],
        }  # fmt: skip


def _table(table: list[dict[str, Any]]) -> Chart:
    return {
        "kind": "table",
        "title": "All means",
        "text": "A heading sorts.",
        "columns": [
            [column, "by row" if column in IN_ITS_UNIT else "number"] for column in COLUMNS
        ],
        "rows": [[row[column] for column in COLUMNS] for row in table],
        "rowKinds": [metrics.kind_of(row["metric"]) for row in table],
    }


def _runs(campaign: Campaign, found: Mapping[CampaignCase, Numbers]) -> Chart:
    names = [*RUN_COLUMNS, *campaign.compared]
    return {
        "kind": "table",
        "title": "All runs",
        "columns": [[name, metrics.kind_of(name)] for name in names],
        "rows": run_rows(campaign, found),
    }


def write(
    campaign: Campaign, found: Mapping[CampaignCase, Numbers], folder: Path
) -> list[dict[str, Any]]:
    """Write `campaign.csv`, `runs.csv` and `report.html`; return the table."""
    table = rows(campaign, found)
    cells = [[row[column] for column in COLUMNS] for row in table]
    with writing(folder):
        write_csv(folder / "campaign.csv", COLUMNS, cells)
        write_csv(
            folder / "runs.csv", [*RUN_COLUMNS, *campaign.compared], run_rows(campaign, found)
        )
        page(campaign, table, found).write(folder / "report.html")
    return table


def over_seeds(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean, sample standard deviation, and half the 95 % confidence interval of the mean."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return {"mean": mean, "sd": None, "ci95": None}
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return {"mean": mean, "sd": sd, "ci95": _student(count - 1) * sd / math.sqrt(count)}


def _student(degrees: int) -> float:
    return STUDENT[degrees - 1] if degrees <= len(STUDENT) else 1.96


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> dict[str, float | None]:
    """Compare runs of the same seeds in pairs, so that common random effects cancel out.

    Returns the mean of b - a, half of its 95 % confidence interval (Student's t) and `significant`,
    1 where that interval leaves out zero; None where fewer than two seeds are shared.
    """
    gaps = [b[seed] - a[seed] for seed in a if seed in b]
    if not gaps:
        return {"difference": None, "ci95": None, "significant": None}
    found = over_seeds(gaps)
    mean, half = found["mean"] or 0.0, found["ci95"]
    significant = None if half is None else float(abs(mean) > half)
    return {"difference": mean, "ci95": half, "significant": significant}
