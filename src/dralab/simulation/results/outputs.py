"""The files of a run: summary, tasks and samples, as JSON, CSV and (with an extra) Parquet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.kernel.clock import SECOND
from dralab.kernel.extras import has, require
from dralab.scenarios.errors import InputError
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result, StateSample

TASK_COLUMNS: Final = (
    "id", "user", "state", "submitted", "bound", "started", "ended", "wait", "run", "turnaround",
    "bounded_slowdown", "width", "gpu_milli", "places", "evictions", "reason",
)  # fmt: skip
SAMPLE_COLUMNS: Final = ("time", *StateSample._fields[1:-1])
Row = tuple[Any, ...]


def check(
    folder: Path | None = None, *, parquet: bool | None = None, picture: str | None = None
) -> None:
    """Make the folder, and refuse what cannot be written: better before a run than after.

    InputError, MissingExtraError.
    """
    for extra, wanted in (("parquet", parquet), ("picture", picture)):
        if wanted:
            require(extra, f"--{extra}")
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise InputError(folder, f"nothing can be written there: {why}") from None


def write(result: Result, folder: Path, *, parquet: bool | None = None) -> list[Path]:
    """Write `summary.json`, `tasks.csv` and `samples.csv`; the same run gives the same bytes.

    `parquet` None: the tables as Parquet, too, where the extra is installed.
    """
    if parquet is None:
        parquet = has("parquet")
    check(folder, parquet=parquet)
    paths = [folder / "summary.json", folder / "tasks.csv", folder / "samples.csv"]
    paths[0].write_bytes(
        orjson.dumps(summary(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    tables: Mapping[str, tuple[Sequence[str], list[Row]]] = {
        "tasks": (TASK_COLUMNS, task_rows(result)),
        "samples": (sample_columns(result), sample_rows(result)),
    }
    for name, (columns, rows) in tables.items():
        text = "\n".join([",".join(columns), *(",".join(map(_cell, row)) for row in rows)])
        (folder / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
        if parquet:
            paths.append(folder / f"{name}.parquet")
            write_parquet(paths[-1], columns, rows)
    return paths


def summary(result: Result) -> dict[str, Any]:
    """Return what identifies the run and all its numbers."""
    return {
        "name": result.name,
        "scheduler": result.scheduler,
        "seed": result.seed,
        "complete": result.complete,
        "simulated_until": result.end / SECOND,
        "capacity": result.all_capacity(),
        "metrics": metrics.metrics_of(result),
        "notes": list(result.notes),
    }


def task_rows(result: Result) -> list[Row]:
    """Return a row per task; times in seconds, None if they never came."""
    rows: list[Row] = []
    for task in result.tasks:
        over = task.started is not None and task.ended is not None
        rows.append(
            (
                task.id,
                task.user,
                task.state,
                *(_seconds(t) for t in (task.submitted, task.bound, task.started, task.ended)),
                metrics.wait(task) if task.started is not None else None,
                metrics.run_time(task) if over else None,
                metrics.turnaround(task) if over else None,
                metrics.bounded_slowdown(task) if over else None,
                task.width,
                task.gpu_milli,
                " ".join(result.lanes[lane] for lane in task.lanes),
                task.evictions,
                task.reason,
            )
        )
    return rows


def sample_columns(result: Result) -> list[str]:
    """Return the names of the columns of samples: after the common ones the types of devices."""
    return [*SAMPLE_COLUMNS, *(f"gpu[{name}]" for name in result.types)]


def sample_rows(result: Result) -> list[Row]:
    """Return a row per sample; time in seconds."""
    none = (0,) * len(result.types)
    return [
        (_seconds(sample.when), *sample[1:-1], *(sample.types or none)) for sample in result.samples
    ]


def write_parquet(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write a table; needs the extra `parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = {name: [row[index] for row in rows] for index, name in enumerate(columns)}
    pq.write_table(pa.table(data), path)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / SECOND


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
