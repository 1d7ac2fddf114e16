"""Reads the files of a run back, as far as they are whole, for those who show them.

`outputs` writes them. A file that was cut short loses its last row, and a problem says so.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.scenarios.errors import InputError, content_of
from dralab.simulation.results.outputs import SAMPLE_COLUMNS

TASKS: Final = ("id", "state", "submitted", "started", "ended", "places")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTask:
    """A task as it was written: times in seconds, None if they never came; names of lanes."""

    id: str
    state: str
    submitted: float | None
    started: float | None
    ended: float | None
    places: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRun:
    """A run: summary, samples by column (times in seconds), tasks, and what could not be read."""

    summary: Mapping[str, Any]
    columns: Sequence[str]
    samples: Sequence[Sequence[float]]
    tasks: Sequence[WrittenTask]
    problems: Sequence[str]


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
    tasks = []
    for row in _rows(folder / "tasks.csv", TASKS, problems):
        times = [_number(row[name]) for name in ("submitted", "started", "ended")]
        places = row["places"].split()
        tasks.append(
            WrittenTask(
                id=row["id"], state=row["state"], submitted=times[0], started=times[1],
                ended=times[2], places=places,
            )
        )  # fmt: skip
    samples: list[list[float]] = []
    columns: Sequence[str] = SAMPLE_COLUMNS
    for row in _rows(folder / "samples.csv", SAMPLE_COLUMNS, problems):
        columns = list(row)
        samples.append([_number(value) or 0.0 for value in row.values()])
    return WrittenRun(
        summary=summary, columns=columns, samples=samples, tasks=tasks, problems=problems
    )


def _rows(path: Path, wanted: Sequence[str], problems: list[str]) -> Iterator[dict[str, str]]:
    """Yield the whole rows of a table; `problems` get what is wrong with it."""
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


def _number(text: str) -> float | None:
    return float(text) if text else None
