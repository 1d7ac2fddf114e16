"""Helpers for writing structural schemas: `struct({"name": text("Unique.")}, ("name",))`."""

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]
NOT_EMPTY: Final[Schema] = {"minLength": 1}


def text(description: str = "") -> Schema:
    """A string."""
    return _described({"type": "string"}, description)


def boolean(description: str = "") -> Schema:
    """A truth value."""
    return _described({"type": "boolean"}, description)


def integer(description: str = "", **limits: int) -> Schema:
    """A whole number."""
    return _described({"type": "integer", "format": "int64", **limits}, description)


def quantity(description: str = "") -> Schema:
    """A Kubernetes quantity, as text or number."""
    return _described({"x-kubernetes-int-or-string": True, "format": "quantity"}, description)


def array(items: Schema, description: str = "", **rules: Any) -> Schema:
    """A list."""
    return _described({"type": "array", "items": items, **rules}, description)


def mapping(values: Schema, description: str = "") -> Schema:
    """A map with free keys."""
    return _described({"type": "object", "additionalProperties": values}, description)


def struct(
    properties: Mapping[str, Schema], required: tuple[str, ...] = (), description: str = ""
) -> Schema:
    """An object with known fields."""
    found: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        found["required"] = list(required)
    return _described(found, description)


def anything(description: str = "") -> Schema:
    """Any object, kept as it is."""
    return _described({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, description)


def _described(schema: Schema, description: str) -> Schema:
    return schema | {"description": description} if description else schema


def kind(
    name: str,
    plural: str,
    short: tuple[str, ...],
    *,
    namespaced: bool,
    properties: Mapping[str, Schema],
    required: tuple[str, ...] = (),
    columns: tuple[tuple[str, str, str], ...] = (),
) -> Schema:
    """A kind, with what a server needs to serve it: names, scope, schema, printer columns."""
    return {
        "kind": name,
        "plural": plural,
        "singular": name.lower(),
        "shortNames": list(short),
        "namespaced": namespaced,
        "schema": struct(
            {"apiVersion": text(), "kind": text(), "metadata": anything(), **properties}, required
        ),
        "columns": [
            {"name": title, "type": type_, "jsonPath": path} for title, type_, path in columns
        ],
        "status": "status" in properties,
    }


AGE = ("Age", "date", ".metadata.creationTimestamp")
