"""Structural schemas as types of CEL: what a rule may read, of which type, and how large it may be.

What has no type in a schema (unknown fields that are kept, for instance) is hidden from rules.
Source: k8s.io/apiserver `pkg/cel/common` (schemas, values), `pkg/cel` (types, limits, escaping).
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Final

from dralab.cel import types
from dralab.cel.environment import DeclaredSize
from dralab.cel.functions.times import duration, timestamp
from dralab.cel.json_values import from_json
from dralab.cel.types import CelType
from dralab.cel.values import Map
from dralab.values.records import dataclass

REQUEST: Final = 3 * 1024 * 1024  # bytes of the largest request, which bound all sizes
QUOTES: Final = 2
CHARACTER: Final = 4  # bytes of a character, at the most
DURATION_SIZE: Final = (3, 32)  # bytes of JSON: at least, at the most
DATE_SIZE: Final = (12, 12)
TIME_SIZE: Final = (21, 32)
STRING: Final = {"type": "string"}
ROOT: Final[Mapping[str, Any]] = {
    "apiVersion": STRING,
    "kind": STRING,
    "metadata": {"type": "object", "properties": {"name": STRING, "generateName": STRING}},
}
IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)
RESERVED: Final = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for",
        "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void",
        "while",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SchemaType:
    """What a rule sees of a schema.

    `largest` is the number of characters or entries, `smallest` the bytes of the shortest JSON.
    `fields` are those of an object, by the names that rules use.
    """

    type: CelType
    smallest: int
    largest: int = 0
    fields: Mapping[str, "SchemaType"] = field(default_factory=dict)
    element: "SchemaType | None" = None

    @cached_property
    def size(self) -> DeclaredSize:
        """The size for the estimate of costs."""
        key = DeclaredSize(0) if self.type.kind == "map" else None
        element = self.element.size if self.element is not None else None
        fields = {name: each.size for name, each in self.fields.items()}
        return DeclaredSize(self.largest, key=key, element=element, fields=fields)

    @property
    def most(self) -> int:
        """How many such values one request can hold."""
        return REQUEST // (self.smallest + 1)

    def structs(self) -> dict[str, Mapping[str, CelType]]:
        """Return the fields of all object types in it, by the name of the type."""
        found: dict[str, Mapping[str, CelType]] = {}
        if self.type.kind == "struct":
            found[self.type.name] = {name: each.type for name, each in self.fields.items()}
        for each in (*self.fields.values(), *((self.element,) if self.element else ())):
            found |= each.structs()
        return found


def type_of_schema(
    schema: Mapping[str, Any], name: str = "selfType", *, root: bool = False
) -> SchemaType | None:
    """Return the type of a schema; None if rules do not see its values.

    `root` is for whole objects, whose type and name every rule sees.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return SchemaType(types.DYN, 1, REQUEST - QUOTES)
    match schema.get("type"):
        case "array":
            return _list_type(schema, name)
        case "object":
            return _object_type(schema, name, root=root)
        case "string":
            return _text_type(schema)
        case "boolean":
            return SchemaType(types.BOOL, 4)
        case "number":
            return SchemaType(types.DOUBLE, 1)
        case "integer":
            return SchemaType(types.INT, 1)
        case _:
            return None


def _list_type(schema: Mapping[str, Any], name: str) -> SchemaType | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    element = type_of_schema(items, f"{name}.@idx", root=is_embedded(items))
    if element is None:
        return None
    largest = schema.get("maxItems")
    if largest is None:
        largest = (REQUEST - QUOTES) // (element.smallest + 1)
    return SchemaType(types.list_of(element.type), 2, max(largest, 0), element=element)


def _object_type(schema: Mapping[str, Any], name: str, *, root: bool) -> SchemaType | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        element = type_of_schema(extra, f"{name}.@elem", root=is_embedded(extra))
        if element is None:
            return None
        largest = schema.get("maxProperties")
        if largest is None:
            # An empty key with its quotes, a colon and a comma.
            largest = (REQUEST - QUOTES) // (element.smallest + 6)
        type_ = types.map_of(types.STRING, element.type)
        return SchemaType(type_, 2, max(largest, 0), element=element)
    smallest, fields = 2, {}
    required = schema.get("required") or ()
    for key, part in properties(schema, root=root).items():
        found = type_of_schema(part, f"{name}.{key}", root=is_embedded(part))
        if found is None:
            continue
        escaped = escape(key)
        if escaped is not None:
            fields[escaped] = found
        if key in RESERVED:
            # As a field, a keyword needs no escape (DeclTypeProvider.FindStructFieldType, 1.31).
            fields[key] = found
        if key in required and "default" not in part:
            smallest += len(key) + found.smallest + 4
    return SchemaType(CelType("struct", name), smallest, fields=fields)


def properties(schema: Mapping[str, Any], *, root: bool) -> Mapping[str, Any]:
    """Return the properties of a mapping's schema, with those of all objects if it is one."""
    found = schema.get("properties") or {}
    return {**found, **ROOT} if root else found


def _text_type(schema: Mapping[str, Any]) -> SchemaType:
    match schema.get("format"):
        case "duration":
            return SchemaType(types.DURATION, *DURATION_SIZE)
        case "date":
            return SchemaType(types.TIMESTAMP, *DATE_SIZE)
        case "date-time":
            return SchemaType(types.TIMESTAMP, *TIME_SIZE)
        case "byte":
            most = schema.get("maxLength")
            return SchemaType(types.BYTES, 2, REQUEST - QUOTES if most is None else max(most, 0))
        case _:
            pass
    most = schema.get("maxLength")
    if most is not None:
        largest = max(most, 0) * CHARACTER
    elif schema.get("enum"):
        largest = max(len(str(each)) for each in schema["enum"])
    else:
        largest = REQUEST - QUOTES
    return SchemaType(types.STRING, 2, largest)


def is_embedded(schema: Any) -> bool:
    """Whether values of a schema are whole objects."""
    return isinstance(schema, Mapping) and bool(schema.get("x-kubernetes-embedded-resource"))


def escape(name: str) -> str | None:
    """Return the escaped name of a property in rules; None if rules cannot read it.

    >>> escape("a-b"), escape("namespace"), escape("1")
    ('a__dash__b', '__namespace__', None)
    """
    if name in RESERVED:
        return f"__{name}__"
    for plain, written in ESCAPES:
        name = name.replace(plain, written)
    return name if IDENTIFIER.fullmatch(name) else None


# --- Values -----------------------------------------------------------------------------------


def value_of(schema: Any, value: Any, *, root: bool = False) -> Any:
    """Return a JSON value as rules see it: times as times, and properties by escaped names."""
    if value is None or not isinstance(schema, Mapping):
        return from_json(value)
    if isinstance(value, Mapping):
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            embedded = is_embedded(extra)
            return Map({key: value_of(extra, item, root=embedded) for key, item in value.items()})
        known = properties(schema, root=root)
        found = {}
        for key, item in value.items():
            part = known.get(key)
            # What has no schema cannot be named by a checked rule.
            found[escape(key) or key] = seen = value_of(part, item, root=is_embedded(part))
            if key in RESERVED:
                found[key] = seen
        return Map(found)
    if isinstance(value, list):
        items = schema.get("items")
        return [value_of(items, item, root=is_embedded(items)) for item in value]
    if schema.get("type") == "number" and type(value) is int:
        return float(value)
    if isinstance(value, str):
        return _text_value(schema.get("format"), value)
    return value


def _text_value(format_: Any, text: str) -> Any:
    match format_:
        case "date":
            return timestamp(f"{text}T00:00:00Z")
        case "date-time":
            return timestamp(text)
        case "duration":
            return duration(text)
        case "byte":
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error:
                return text  # the schema refuses it
        case _:
            return text
