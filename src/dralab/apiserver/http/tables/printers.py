"""What a table of a kind has: its columns, and how a row's cells are made of an object."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dralab.apiserver.http.tables.ages import Elapsed
from dralab.values.json_types import JsonObject

Cells = Callable[[JsonObject], Sequence[Any]]

MARKS: Final = {"#": "integer", "?": "boolean", "@": "date"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; those with a priority above 0 are shown on wide output alone."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def as_mapping(self) -> dict[str, Any]:
        """Return the wire form."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind, and the cells of an object; some of these change as time passes."""

    columns: tuple[Column, ...]
    cells: Cells

    def row(self, obj: JsonObject, *, include: str, version: str) -> "TableRow":
        """Return an object's row. `include` says what comes with it: None, Metadata or Object."""
        cells = list(self.cells(obj))
        moments = [(at, cell) for at, cell in enumerate(cells) if isinstance(cell, Elapsed)]
        return TableRow(cells, tuple(moments), _included(obj, include, version))

    def definitions(self) -> list[dict[str, Any]]:
        """Return the columns in the wire form."""
        return [column.as_mapping() for column in self.columns]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table, without the cells that change as time passes."""

    fixed: list[Any]
    moments: tuple[tuple[int, Elapsed], ...]
    included: orjson.Fragment

    def at(self, now: int) -> dict[str, Any]:
        """Return the row as of `now`, in nanoseconds."""
        cells = self.fixed.copy()
        for at, moment in self.moments:
            cells[at] = moment.at(now)
        return {"cells": cells, "object": self.included}


def _included(obj: JsonObject, include: str, version: str) -> orjson.Fragment:
    if include == "None":
        return orjson.Fragment(b"null")
    if include == "Object":
        return orjson.Fragment(orjson.dumps(obj))
    kind, group = "PartialObjectMetadata", f"meta.k8s.io/{version}"
    found = {"kind": kind, "apiVersion": group, "metadata": obj["metadata"]}
    return orjson.Fragment(orjson.dumps(found))


def printer(columns: str, cells: Cells) -> Printer:
    """Return a printer from its columns' names.

    After a name, `#` stands for an integer, `?` for a boolean, `@` for a date, `*` for wide
    output alone. A column "Name" names the object, `Name~` only shows it.
    """
    return Printer(tuple(_column(text.strip()) for text in columns.split(",")), cells)


def _column(text: str) -> Column:
    wide = text.endswith("*")
    text = text.removesuffix("*")
    kind = MARKS.get(text[-1], "string")
    name = text if kind == "string" else text[:-1]
    naming = name in {"Name", "Attacher"}
    name = name.removesuffix("~")
    return Column(
        name=name,
        type=kind,
        format="name" if naming else "",
        description=f"{name} of the object",
        priority=1 if wide else 0,
    )


def name_of(obj: JsonObject) -> str:
    """Return an object's name."""
    found: str = obj["metadata"].get("name", "")
    return found
