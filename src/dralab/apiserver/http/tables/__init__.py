"""Lists as tables, with the columns of `kubectl get`.

One printer per kind, as data and small functions of an object and the time. Which objects a
table shows, and in which form a client takes it, is left to the server's edge.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dralab.api.resource.features import WIDE_DEFINITIONS, Features
from dralab.apiserver.http.tables import cluster, network, newer, workloads
from dralab.apiserver.http.tables.custom import custom_printer
from dralab.apiserver.http.tables.pods import PODS
from dralab.apiserver.http.tables.printers import Column, Printer, TableRow

PRINTERS: Final[Mapping[tuple[str, str], Printer]] = {
    ("", "pods"): PODS,
    **cluster.PRINTERS,
    **network.PRINTERS,
    **workloads.PRINTERS,
    **newer.PRINTERS,
}


def printer_for(group: str, plural: str, changes: Features = frozenset()) -> Printer:
    """Return the printer of a built-in kind; without one of its own, name and age."""
    if plural == "customresourcedefinitions" and WIDE_DEFINITIONS in changes:
        return newer.DEFINITIONS
    return PRINTERS.get((group, plural), cluster.AGE)


def table(
    printer: Printer,
    rows: Iterable[TableRow],
    *,
    now: int,
    metadata: Mapping[str, Any],
    version: str = "v1",
    with_columns: bool = True,
) -> dict[str, Any]:
    """Return a Table of rows as of `now`.

    A watch names its columns only once: `with_columns`. `version` is that of meta.k8s.io.
    """
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": dict(metadata),
        "columnDefinitions": printer.definitions() if with_columns else None,
        "rows": [row.at(now) for row in rows],
    }


__all__ = ["PRINTERS", "Column", "Printer", "TableRow", "custom_printer", "printer_for", "table"]
