"""What a table of a kind has: its columns, and how a row's cells are made of an object."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from dralab.apiserver.http.tables.ages import Elapsed, age
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

Cell = Callable[[JsonObject], Any]

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
    cells: Callable[[JsonObject], Sequence[Any]]

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


def printer(columns: str, *cells: Cell, name: Cell | None = None) -> Printer:
    """Return a printer from its columns: each has a name, marks of its type, and where it is from.

    After a name, `#` stands for an integer, `?` for a boolean, `@` for a date, `*` for wide
    output alone. A column "Name" names the object, `Name~` only shows it. After a colon comes the
    path of the cell: `spec.driver`; `spec.driver=x` shows x where it is missing, `spec.driver|x`
    also where it is empty; `?spec.driver` shows whether it is set, `#spec.drivers` how many there
    are. Without a path, a cell is known by its name, or the next one of `cells`. `name` is what
    a kind shows as its name.

    >>> made = printer("Name, Driver*: spec.driver|none, Ports#: #spec.ports")
    >>> made.cells({"metadata": {"name": "a"}, "spec": {"ports": [80]}})
    ['a', 'none', 1]
    """
    given, known = iter(cells), {**KNOWN, "Name": name or name_of}
    found, made = [], []
    for text in columns.split(","):
        title, _, path = text.strip().partition(": ")
        found.append(_column(title))
        if path:
            made.append(_at(path))
        else:
            made.append(known.get(found[-1].name) or next(given))
    return Printer(tuple(found), lambda obj: [cell(obj) for cell in made])


def _at(text: str) -> Cell:
    """Return the cell at a path of an object."""
    kind = text[0] if text[0] in "?#" else ""
    text = text.removeprefix(kind)
    path, empty, default = text.partition("|")
    if not empty:
        path, _, default = text.partition("=")
    absent: Any = int(default) if default.isdigit() else default
    parts = path.split(".")

    def cell(obj: JsonObject) -> Any:
        found: Any = obj
        for part in parts:
            found = found.get(part) if found else None
        if kind:
            return bool(found) if kind == "?" else len(found or ())
        return absent if found is None or (empty and not found) else found

    return cell


def name_of(obj: JsonObject) -> str:
    """Return an object's name."""
    found: str = obj["metadata"].get("name", "")
    return found


def columns_of(text: str) -> tuple[Column, ...]:
    """Return columns from their names and marks."""
    return tuple(_column(each.strip()) for each in text.split(","))


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


def _created(obj: JsonObject) -> Any:
    return obj["metadata"].get("creationTimestamp")


KNOWN: Final[Mapping[str, Cell]] = {"Age": age, "Created At": _created}
