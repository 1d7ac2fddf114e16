"""Azure's traces of LLM inference: a row a request, with its time and the numbers of its tokens.

`TIMESTAMP,ContextTokens,GeneratedTokens`, as AzureLLMInferenceDataset2023.md and its successors in
https://github.com/Azure/AzurePublicDataset describe them.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.workloads.csv_rows import CsvRow, csv_rows

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_INTERVALS: Final = 1_000_000
Load = tuple[float, float, float]


def loads(path: Path, every: int) -> list[Load]:
    """Return the requests, context tokens and generated tokens a second of each interval.

    What is left of the last interval does not count, where there are others. InputError.
    """
    sums: list[list[float]] = []
    first = last = -1.0
    for when, *tokens in _requests(path):
        first = when if first < 0 else first
        if when < first:
            raise InputError(path, "its rows are not in the order of their times")
        index, last = int((when - first) * SECOND) // every, when
        if index >= MOST_INTERVALS:
            raise InputError(path, f"has more than {MOST_INTERVALS} intervals of the service")
        sums += [[0.0, 0.0, 0.0] for _ in range(index + 1 - len(sums))]
        for column, amount in enumerate((1.0, *tokens)):
            sums[index][column] += amount
    if not sums:
        raise InputError(path, "there are no requests")
    seconds = every / SECOND
    if len(sums) == 1:
        seconds = max(1.0, min(seconds, last - first))
    whole = sums[:-1] or sums
    return [(each[0] / seconds, each[1] / seconds, each[2] / seconds) for each in whole]


def _requests(path: Path) -> Iterator[tuple[float, float, float]]:
    problems = InputProblems()
    for row in csv_rows(path, COLUMNS, problems):
        yield _time(row), row.number("ContextTokens"), row.number("GeneratedTokens")


def _time(row: CsvRow) -> float:
    text = row.text("TIMESTAMP")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise row.error("TIMESTAMP", f"{text!r} is not a time: 2023-11-16 18:15:46") from None
