"""Lists as tables, with the columns of `kubectl get`.

One printer per kind, as data and small functions of an object and the time. Which objects a
table shows, and in which form a client takes it, is left to the server's edge.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.apiserver.tables import cluster, network, workloads
from dralab.apiserver.tables.custom import custom_printer
from dralab.apiserver.tables.pods import PODS
from dralab.apiserver.tables.printers import Column, Printer

PRINTERS: Final[Mapping[tuple[str, str], Printer]] = {
    ("", "pods"): PODS,
    **cluster.PRINTERS,
    **network.PRINTERS,
    **workloads.PRINTERS,
}


def printer_for(group: str, plural: str) -> Printer:
    """Return the printer of a built-in kind; without one of its own, name and age."""
    return PRINTERS.get((group, plural), cluster.AGE)


def table(
    printer: Printer,
    objects: Sequence[Mapping[str, Any]],
    *,
    now: int,
    metadata: Mapping[str, Any],
    version: str = "v1",
    include: str = "Metadata",
    with_columns: bool = True,
) -> dict[str, Any]:
    """Return a Table of objects.

    `include` says what comes with each row: None, Metadata or Object. A watch names its columns
    only once: `with_columns`. `version` is that of meta.k8s.io.
    """
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": dict(metadata),
        "columnDefinitions": printer.definitions() if with_columns else None,
        "rows": [
            {"cells": list(printer.cells(obj, now)), "object": _included(obj, include, version)}
            for obj in objects
        ],
    }


def _included(obj: Mapping[str, Any], include: str, version: str) -> Mapping[str, Any] | None:
    match include:
        case "None":
            return None
        case "Object":
            return obj
        case _:
            return {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{version}",
                "metadata": obj["metadata"],
            }


__all__ = ["PRINTERS", "Column", "Printer", "custom_printer", "printer_for", "table"]
