"""Rows of CSV tables whose errors name file, line and column."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dralab.files.reading import open_file
from dralab.scenarios.errors import InputError, InputProblems, content_of

LARGEST: Final = 1 << 53
LONGEST_HEADER: Final = 64 * 1024

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row, by the names of the header."""

    path: Path
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, problem: str) -> InputError:
        """Return an error about a cell."""
        return InputError(self.path, problem, line=self.line, where=column)

    def text(self, column: str) -> str:
        """Return a cell; empty where there is none."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str, *, most: int = LARGEST, what: str = "a number") -> float:
        """Return a number from 0 to `most`. InputError."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"{text!r} is not a number") from None
        if not 0 <= value <= most:
            raise self.error(column, f"{text} must be {what} from 0 to {most}")
        return value

    def whole(self, column: str, *, most: int = LARGEST) -> int:
        """Return a whole number from 0 to `most`. InputError."""
        value = self.number(column, most=most, what="a whole number")
        if value != int(value):
            raise self.error(column, f"{value:g} must be a whole number from 0 to {most}")
        return int(value)

    def maybe(self, column: str) -> int | None:
        """Return a whole number, None for an empty cell. InputError."""
        return self.whole(column) if self.text(column) else None

    def name(self, column: str) -> str:
        """Return a name. InputError: it is empty, or cannot be printed."""
        text = self.text(column)
        if not text:
            raise self.error(column, "must not be empty")
        if not text.isprintable():
            raise self.error(column, f"{text!r} must not hold control characters")
        return text


def csv_rows(
    path: Path,
    columns: Sequence[str],
    problems: InputProblems,
    header: Sequence[str] | None = None,
) -> Iterator[CsvRow]:
    """Yield the rows of a file whose header has these columns, or of one without a header.

    InputError: a column is missing, or a row has more or fewer cells.
    """
    text = io.TextIOWrapper(io.BytesIO(content_of(path)), "utf-8-sig", "replace", newline="")
    reader = csv.reader(text)
    rows = _rows(path, reader)
    names = [cell.strip() for cell in next(rows, [])] if header is None else list(header)
    missing = [column for column in columns if column not in names]
    if missing:
        raise InputError(path, f"the header lacks {', '.join(missing)}", line=1)
    for cells in rows:
        if not cells:
            continue
        if len(cells) != len(names):
            problem = f"must have {len(names)} cells and has {len(cells)}"
            problems.about(InputError(path, problem, line=reader.line_num))
            continue
        yield CsvRow(path, reader.line_num, dict(zip(names, cells, strict=True)))


def each_row(
    path: Path,
    columns: Sequence[str],
    problems: InputProblems,
    make: Callable[[CsvRow], Iterator[Item]],
    header: Sequence[str] | None = None,
) -> Iterator[Item]:
    """Yield what is made of each row; rows that cannot be used are problems."""
    for row in csv_rows(path, columns, problems, header):
        try:
            yield from make(row)
        except InputError as error:
            problems.about(error)


def has_header(path: Path, columns: Sequence[str]) -> bool:
    """Return whether the first line of a file names columns."""
    with open_file(path) as file:
        line = file.readline(LONGEST_HEADER).decode("utf-8-sig", "replace")
    return {*columns} <= {cell.strip().strip('"') for cell in line.split(",")}


def _rows(path: Path, reader: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(path, f"is not CSV: {error}") from None
