"""The schemas of custom resources in documents; OpenAPI 2 cannot express all of them.

Source: k8s.io/apiextensions-apiserver `pkg/controller/openapi/builder` and
`pkg/controller/openapi/v2`; recorded documents of a real server.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dralab.values.json_types import JsonDict, JsonObject

KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
# OpenAPI 2 has neither alternatives nor null, and clients would apply its defaults.
NOT_IN_2: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "nullable", "default"})


def keeps_unknown(schema: JsonObject) -> bool:
    """Return whether a schema keeps fields that it does not name."""
    return bool(schema.get(KEEPS))


def in_openapi_2(schema: JsonObject) -> JsonDict:
    """Return a schema as OpenAPI 2 can have it.

    kubectl takes every field for unknown that is not named. So what may be null, or keeps unknown
    fields, names none and has no type.

    >>> in_openapi_2({"type": "array", "nullable": True, "items": {"type": "string"}})
    {}
    """
    found = {key: value for key, value in schema.items() if key not in NOT_IN_2}
    if schema.get("nullable") or keeps_unknown(schema):
        found.pop("items", None)
        found.pop("properties", None)
    untyped = schema.get("nullable") or (keeps_unknown(schema) and found.get("type") == "object")
    if untyped or (found.get("type") == "array" and "items" not in found):
        found.pop("type", None)
    properties: Mapping[str, JsonObject] = found.get("properties") or {}
    of_others = found.get("additionalProperties")
    required = [
        field
        for field in found.get("required") or ()
        if not (properties.get(field) or {}).get("nullable")
    ]
    if not required or (isinstance(of_others, Mapping) and of_others.get("nullable")):
        found.pop("required", None)
    else:
        found["required"] = required
    return _below(found, in_openapi_2)


def with_embedded(schema: JsonObject, fields: Mapping[str, Any], *, all_of_them: bool) -> JsonDict:
    """Return a schema in which embedded objects have an object's own `fields`.

    Unless `all_of_them`, those do not that keep unknown fields.
    """
    found = _below(schema, lambda below: with_embedded(below, fields, all_of_them=all_of_them))
    if not found.get(EMBEDDED) or (keeps_unknown(found) and not all_of_them):
        return found
    found["properties"] = {**(found.get("properties") or {}), **fields}
    required = list(found.get("required") or ())
    found["required"] = [
        *required, *(field for field in ("kind", "apiVersion") if field not in required)
    ]  # fmt: skip
    return found


def _below(schema: JsonObject, change: Callable[[JsonObject], JsonDict]) -> JsonDict:
    """Return a schema with the schemas in it changed."""
    found = dict(schema)
    if found.get("properties"):
        found["properties"] = {field: change(below) for field, below in found["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(found.get(part), Mapping):
            found[part] = change(found[part])
    return found
