"""Defaults in the schema of a custom resource: each must be a value of its own schema.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/defaulting` (ValidateDefaults). Rules
in CEL are not applied to defaults.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dralab.api import fields, structural
from dralab.api.fields import FieldError

EMBEDDED: Final = "x-kubernetes-embedded-resource"
META: Final = frozenset({"metadata", "kind", "apiVersion"})
MAX_DEPTH: Final = 100


def default_errors(
    schema: Mapping[str, Any], path: str, *, root: bool = True, depth: int = 0
) -> Iterator[FieldError]:
    """Yield which defaults of a schema are not values of their schemas.

    >>> part = {"type": "integer", "default": "x"}
    >>> next(default_errors({"properties": {"a": part}}, "schema")).field
    'schema.properties[a].default'
    """
    if depth > MAX_DEPTH:
        return
    if schema.get("default") is not None:
        yield from _own_errors(schema, schema["default"], f"{path}.default")
    if isinstance(items := schema.get("items"), Mapping):
        yield from default_errors(items, f"{path}.items", root=False, depth=depth + 1)
    embedded = root or bool(schema.get(EMBEDDED))
    for name, part in (schema.get("properties") or {}).items():
        if isinstance(part, Mapping) and not (embedded and name in META):
            where = f"{path}.properties[{name}]"
            yield from default_errors(part, where, root=False, depth=depth + 1)


def _own_errors(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[FieldError]:
    pruned = copy.deepcopy(value)
    structural.prune(schema, pruned)
    if pruned != value:
        yield fields.invalid_value(path, value, "must not have unknown fields")
    for error in structural.errors(schema, value):
        below = error.field
        detail = error.detail.removeprefix("<root>")
        yield replace(error, field=f"{path}.{below}" if below else path, detail=detail)
