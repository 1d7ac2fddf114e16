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


def template(spec: Schema) -> Schema:
    """The spec of a template: metadata, and the spec that is copied."""
    metadata = struct({"labels": mapping(text()), "annotations": mapping(text())})
    return struct({"metadata": metadata, "spec": spec}, ("spec",))


def anything(description: str = "") -> Schema:
    """Any object, kept as it is."""
    return _described({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, description)


def _described(schema: Schema, description: str) -> Schema:
    return schema | {"description": description} if description else schema


def kind(
    names: str,
    properties: Mapping[str, Schema],
    *,
    namespaced: bool = True,
    required: tuple[str, ...] = (),
    columns: str = "",
) -> Schema:
    """A kind, with what a server needs to serve it: names, scope, schema, printer columns.

    `names` are the kind, its plural and short ones; `columns` has a title, a type unless it is a
    string, and a path for each, before the age.

    >>> toy = kind("Toy toys t", {"size": integer()}, columns="Size integer .size")
    >>> toy["shortNames"], toy["columns"][0]
    (['t'], {'name': 'Size', 'type': 'integer', 'jsonPath': '.size'})
    """
    name, plural, *short = names.split()
    told = [column.split() for column in columns.split(", ") if column]
    return {
        "kind": name,
        "plural": plural,
        "singular": name.lower(),
        "shortNames": short,
        "namespaced": namespaced,
        "schema": struct(
            {"apiVersion": text(), "kind": text(), "metadata": anything(), **properties}, required
        ),
        "columns": [
            {"name": title, "type": type_[0] if type_ else "string", "jsonPath": path}
            for title, *type_, path in (*told, ["Age", "date", ".metadata.creationTimestamp"])
        ],
        "status": "status" in properties,
    }
