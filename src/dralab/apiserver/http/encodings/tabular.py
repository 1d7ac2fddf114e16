"""Answers as tables: what `kubectl get` shows comes as rows and cells from the server."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind
from dralab.api.resource.features import changes_of
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.http.encodings.encoding import INITIAL_END, list_metadata
from dralab.apiserver.http.tables import Printer, TableRow, custom_printer, printer_for, table
from dralab.apiserver.storage import Stored
from dralab.apiserver.storage.watching.interfaces import EventType
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.reading import ListPage
from dralab.kernel.clock import Clock

INCLUDES: Final = ("", "Metadata", "Object", "None")
# Rows of the process that are kept, so that a list shown again is not made again.
ROWS: Final = 16_384
LONGEST: Final = 8 * 1024  # bytes of an object whose row is kept
_rows: dict[tuple[Stored, str, str, str], TableRow] = {}


class TableEncoder:
    """Encodes the objects of one kind as tables, as of now.

    Each watch has one of its own: the columns are named in its first event alone.
    """

    shared = False

    def __init__(
        self,
        kind: Kind,
        rules: Rules,
        clock: Clock,
        *,
        version: str,
        include: str,
        scope: RequestScope | None = None,
    ) -> None:
        self.kind = kind
        self.rules = rules
        self.clock = clock
        self.version = version
        self.include = include or "Metadata"
        self.printer = printer_of(kind)
        self._scope = scope
        self._named = False

    def page(self, page: ListPage) -> bytes:
        """Return a list."""
        return orjson.dumps(self._table(page.items, list_metadata(page)))

    def object(self, stored: Stored) -> bytes:
        """Return one object: a table of one row."""
        metadata = {"resourceVersion": stored.value["metadata"].get("resourceVersion", "")}
        return orjson.dumps(self._table((stored,), metadata))

    def event(self, type: EventType, stored: Stored) -> bytes:
        """Return one change as a line."""
        metadata = {"resourceVersion": stored.value["metadata"].get("resourceVersion", "")}
        found = self._table((stored,), metadata, with_columns=not self._named)
        self._named = True
        return orjson.dumps({"type": type, "object": found}, option=orjson.OPT_APPEND_NEWLINE)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark as a line."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = INITIAL_END
        found = self._table((), metadata, with_columns=False)
        # The revision and the note are looked for in the object of a row.
        marker = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{self.version}",
            "metadata": metadata,
        }
        found["rows"] = [{"cells": [], "object": marker}]
        event = {"type": "BOOKMARK", "object": found}
        return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)

    def _table(
        self,
        items: Sequence[Stored],
        metadata: Mapping[str, Any],
        *,
        with_columns: bool = True,
    ) -> dict[str, Any]:
        return table(
            self.printer,
            map(self._row, items),
            now=self.clock.now(),
            metadata=metadata,
            version=self.version,
            with_columns=with_columns,
        )

    def _row(self, stored: Stored) -> TableRow:
        # A custom kind's columns may change while its objects do not; whole objects are kept once.
        if self.kind.custom is not None or self.include == "Object":
            return self._made(stored)
        key = (stored, self.kind.version, self.version, self.include)
        row = _rows.get(key)
        if row is None:
            if len(_rows) >= ROWS:
                _rows.clear()  # simpler than to find the oldest, and right in any thread
            row = self._made(stored)
            if len(stored.encoded) <= LONGEST:
                _rows[key] = row
        return row

    def _made(self, stored: Stored) -> TableRow:
        value = stored.value
        if not self.rules.is_hub(self.kind):
            value = self.rules.from_hub(self.kind, value, self._scope)
        return self.printer.row(value, include=self.include, version=self.version)


def printer_of(kind: Kind) -> Printer:
    """Return the printer of a kind's rows."""
    if kind.custom is None:
        return printer_for(kind.group, kind.plural, changes_of(kind.release))
    columns = kind.custom.get("additionalPrinterColumns") if isinstance(kind.custom, dict) else None
    return custom_printer(columns)


def included(query: Mapping[str, Sequence[str]]) -> str:
    """Return the parameter `includeObject`; ApiError if it is not a known one."""
    value = query.get("includeObject", [""])[0]
    if value not in INCLUDES:
        raise ApiError.bad_request(
            f"includeObject: Invalid value: \"{value}\": must be 'Metadata', 'Object', 'None',"
            " or empty"
        )
    return value
