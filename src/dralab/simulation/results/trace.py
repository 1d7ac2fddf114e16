"""A run as a trace for ui.perfetto.dev, in Chrome's JSON: rows for each lane, and curves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.simulation.results.result import Result, TaskStay

MICROSECOND: Final = 1000
CURVES: Final = ("waiting", "running", "cpu", "gpu", "memory")
QUEUE: Final = 1  # the group of the tasks that wait, before those of lanes


def write(result: Result, path: Path) -> None:
    """Write the trace, an event a line."""
    with path.open("wb") as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        file.write(b",\n".join(map(orjson.dumps, events(result))))
        file.write(b"\n]}\n")


def events(result: Result) -> Iterator[dict[str, Any]]:
    """Yield its events; of a task that was evicted, the last attempt."""
    for group, name in enumerate(("queue", *result.lanes), QUEUE):
        yield {"ph": "M", "name": "process_name", "pid": group, "args": {"name": name}}
    rows: dict[int, list[int]] = {}  # by group: when each row is free again
    for task in sorted(result.tasks, key=lambda task: (task.started or 0, task.submitted)):
        ended = result.end if task.ended is None else task.ended
        spans, waits = [], task.submitted
        for since, until, lanes in task.held(result.end) or [TaskStay(ended, ended, ())]:
            if since > waits:
                spans.append((QUEUE, waits, since))
            spans += [(QUEUE + 1 + lane, since, until) for lane in lanes]
            waits = until
        told = {"state": task.state, "user": task.user, "why": task.reason}
        for group, begin, end in spans:
            row = _free_row(rows.setdefault(group, []), begin, end)
            where = {"pid": group, "tid": row, "ts": begin / MICROSECOND}
            length = (end - begin) / MICROSECOND
            yield {"ph": "X", "name": task.id, **where, "dur": length, "args": told}
    for sample in result.samples:
        for name in CURVES:
            value = {"value": getattr(sample, name)}
            when = sample.when / MICROSECOND
            yield {"ph": "C", "name": name, "pid": QUEUE, "ts": when, "args": value}


def _free_row(rows: list[int], begin: int, end: int) -> int:
    """Take the first row that is free: slices of one row must not overlap."""
    row = next((row for row, until in enumerate(rows) if until <= begin), len(rows))
    rows[row : row + 1] = [end]
    return row
