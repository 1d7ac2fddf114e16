"""The files of a run: summary, tasks and samples, as JSON, CSV and (with an extra) Parquet."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from dralab.kernel.clock import SECOND
from dralab.kernel.extras import has, require
from dralab.scenarios.errors import InputError, content_of
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result, StateSample

TASK_COLUMNS: Final = (
    "id", "user", "state", "submitted", "bound", "started", "ended", "wait", "run", "turnaround",
    "bounded_slowdown", "width", "gpu_milli", "places", "evictions", "reason",
)  # fmt: skip
STAY_COLUMNS: Final = ("id", "started", "ended", "places")
NODE_COLUMNS: Final = ("name", "pool", "price", "asked", "ready", "gone", "hours", "reason")
SAMPLE_COLUMNS: Final = ("time", *StateSample._fields[1:-1])
Row = tuple[Any, ...]


def check(
    folder: Path | None = None, *, parquet: bool | None = None, picture: str | None = None
) -> None:
    """Create the folder, and check before the run that the outputs can be written.

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

    With pools of nodes there is `nodes.csv`, too, and with tasks that ran in turns `stays.csv`.
    `parquet` None: the tables as Parquet, too, where the extra is installed.
    """
    if parquet is None:
        parquet = has("parquet")
    check(folder, parquet=parquet)
    paths = [folder / "summary.json"]
    paths[0].write_bytes(
        orjson.dumps(summary(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    tables: dict[str, tuple[Sequence[str], list[Row]]] = {
        "tasks": (TASK_COLUMNS, task_rows(result)),
        "samples": (sample_columns(result), sample_rows(result)),
    }
    if result.nodes:
        tables["nodes"] = NODE_COLUMNS, node_rows(result)
    if stays := stay_rows(result):
        tables["stays"] = STAY_COLUMNS, stays
    for name, (columns, rows) in tables.items():
        paths.append(folder / f"{name}.csv")
        write_csv(paths[-1], columns, rows)
        if parquet:
            paths.append(folder / f"{name}.parquet")
            write_parquet(paths[-1], columns, rows)
    return paths


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Have the error of a write, as on a full disk, name the folder."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table: fractions with six digits, nothing for None."""
    lines = [",".join(columns), *(",".join(map(_cell, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


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
                *(in_seconds(t) for t in (task.submitted, task.bound, task.started, task.ended)),
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


def stay_rows(result: Result) -> list[Row]:
    """Return a row each time that a task in turns with others had GPUs; times in seconds."""
    return [
        (
            task.id,
            in_seconds(stay.since),
            in_seconds(stay.until),
            " ".join(result.lanes[lane] for lane in stay.lanes),
        )
        for task in result.tasks
        for stay in task.stays
    ]


def sample_columns(result: Result) -> list[str]:
    """Return the names of the columns of samples: after the common ones the types of devices."""
    return [*SAMPLE_COLUMNS, *(f"gpu[{name}]" for name in result.types)]


def sample_rows(result: Result) -> list[Row]:
    """Return a row per sample; time in seconds."""
    none = (0,) * len(result.types)
    return [
        (in_seconds(sample.when), *sample[1:-1], *(sample.types or none))
        for sample in result.samples
    ]


def node_rows(result: Result) -> list[Row]:
    """Return a row per node of a pool; times in seconds, None if it never came."""
    return [
        (
            node.name,
            node.pool,
            node.price,
            *(in_seconds(when) for when in (node.asked, node.ready, node.gone)),
            node.hours,
            node.reason,
        )
        for node in result.nodes
    ]


def write_parquet(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write a table; needs the extra `parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = {name: [row[index] for row in rows] for index, name in enumerate(columns)}
    pq.write_table(pa.table(data), path)


def in_seconds(nanoseconds: int | None) -> float | None:
    """Return a time in seconds; None for one that is not known."""
    return None if nanoseconds is None else nanoseconds / SECOND


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text


TASKS: Final = ("id", "state", "submitted", "started", "ended", "places")


class WrittenStay(NamedTuple):
    """When a task had GPUs, in seconds, and which."""

    started: float | None
    ended: float | None
    places: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTask:
    """A task as it was written: times in seconds, None if they never came; names of lanes.

    One that ran in turns with others is there once for each of its stays.
    """

    id: str
    state: str
    submitted: float | None
    started: float | None
    ended: float | None
    places: Sequence[str]

    def in_turns(self, stays: Iterable[WrittenStay]) -> Iterator["WrittenTask"]:
        """Yield it once for each stay; after the first it waits from the end of the last one."""
        task = None
        for stay in stays:
            submitted = self.submitted if task is None else task.ended
            task = replace(self, submitted=submitted, **stay._asdict())
            yield task
        if task is None:
            yield self


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRun:
    """A run: summary, samples by column (times in seconds), tasks, and read errors."""

    summary: Mapping[str, Any]
    columns: Sequence[str]
    samples: Sequence[Sequence[float]]
    tasks: Sequence[WrittenTask]
    problems: Sequence[str]


def as_written(result: Result) -> WrittenRun:
    """Return a run as it would be read from its folder."""
    return WrittenRun(
        summary=summary(result),
        columns=sample_columns(result),
        samples=sample_rows(result),
        tasks=[
            each
            for task in result.tasks
            for each in WrittenTask(
                id=task.id, state=task.state, submitted=task.submitted / SECOND,
                started=in_seconds(task.started), ended=in_seconds(task.ended),
                places=[result.lanes[lane] for lane in task.lanes],
            ).in_turns(
                WrittenStay(
                    stay.since / SECOND, stay.until / SECOND,
                    [result.lanes[lane] for lane in stay.lanes],
                )
                for stay in task.stays
            )
        ],
        problems=(),
    )  # fmt: skip


def read_run(folder: Path) -> WrittenRun:
    """Return the run of a folder that `outputs.write` filled. InputError without its summary."""
    problems: list[str] = []
    path = folder / "summary.json"
    content = content_of(path)
    try:
        summary = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError(path, f"is not a summary of a run: {error}") from None
    if not isinstance(summary, dict) or not isinstance(summary.get("metrics"), dict):
        raise InputError(path, "is not a summary of a run: it has no metrics")
    stays: dict[str, list[WrittenStay]] = {}
    if (folder / "stays.csv").exists():
        for row in _rows(folder / "stays.csv", STAY_COLUMNS, problems):
            stays.setdefault(row["id"], []).append(_stay(row))
    tasks: list[WrittenTask] = []
    for row in _rows(folder / "tasks.csv", TASKS, problems):
        task = WrittenTask(
            id=row["id"],
            state=row["state"],
            submitted=_number(row["submitted"]),
            **_stay(row)._asdict(),
        )
        tasks += task.in_turns(stays.get(task.id, ()))
    samples: list[list[float]] = []
    columns: Sequence[str] = SAMPLE_COLUMNS
    for row in _rows(folder / "samples.csv", SAMPLE_COLUMNS, problems):
        columns = list(row)
        samples.append([_number(value) or 0.0 for value in row.values()])
    return WrittenRun(
        summary=summary, columns=columns, samples=samples, tasks=tasks, problems=problems
    )


def _rows(path: Path, wanted: Sequence[str], problems: list[str]) -> Iterator[dict[str, str]]:
    """Yield the complete rows of a table; errors are added to `problems`."""
    try:
        text = content_of(path).decode(errors="replace")
    except InputError as error:
        problems.append(f"{path.name} {error.problem}")
        return
    is_cut = bool(text) and not text.endswith("\n")
    lines = text.splitlines()
    reader = csv.DictReader(lines[:-1] if is_cut else lines)
    missing = [name for name in wanted if name not in (reader.fieldnames or ())]
    if missing:
        problems.append(f"{path.name}: the header lacks {', '.join(missing)}")
        return
    for row in reader:
        if None in row or None in row.values() or not _are_numbers(row):
            problems.append(f"{path.name}:{reader.line_num}: the row is not whole; left out")
            continue
        yield row
    if is_cut:
        problems.append(f"{path.name} is cut: its last row is left out")


def _are_numbers(row: Mapping[str, str]) -> bool:
    """Return whether the columns of times hold numbers or nothing."""
    try:
        for name in ("time", "submitted", "started", "ended"):
            _number(row.get(name, ""))
        if "time" in row:
            for value in row.values():
                _number(value)
    except ValueError:
        return False
    return True


def _stay(row: Mapping[str, str]) -> WrittenStay:
    return WrittenStay(_number(row["started"]), _number(row["ended"]), row["places"].split())


def _number(text: str) -> float | None:
    return float(text) if text else None
