"""How ownership divides a value, compiled from its schema.

A list is owned as a whole (atomic), by the keys of its elements (map), or by their values
(set). A map is owned as a whole or field by field. Sources: k8s.io/kube-openapi `schemaconv`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

import orjson

from dralab.api.messages import Messages, message_of
from dralab.api.schemas import Schema
from dralab.apiserver.managed_fields.paths import FieldSet
from dralab.values.remembering import KnownValues

Kind = Literal["scalar", "atomic", "fields", "map", "set"]
Scalar = Literal["string", "numeric", "boolean", "any"]
NOTHING: Final[Mapping[str, Any]] = {}


class StepError(ValueError):
    """An element of a list that cannot be told from the others."""


class Form:
    """How a value is split into owned parts.

    `kind` is scalar, atomic (a list or a map owned as a whole), fields (a struct or a map),
    map or set (lists). `scalar` is the type of a plain value. `keys` tells the elements of a list
    apart, with the default of a key that is not there. `holds` is "list" or "dict" where the schema
    says that an atomic value is one. `zeros` are the fields of a struct that are
    always there in Go. `copies` are the fields of whole objects, if many are equal.
    """

    __slots__ = (
        "_begin",
        "_below",
        "_element",
        "_only",
        "_rest",
        "_schema",
        "closed",
        "copies",
        "holds",
        "keys",
        "kind",
        "open",
        "scalar",
        "zeros",
    )

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._below: dict[str, Form] = {}
        self._element: Form | None = None
        self._rest: Form | None = None
        self.kind: Kind = _kind(schema)
        self.open = schema is None or (schema.free and not schema.type and not schema.map_type)
        self.closed = schema is not None and schema.is_struct
        copied = schema is not None and schema.copied
        self.copies: KnownValues[bytes, FieldSet] | None = KnownValues() if copied else None
        self.keys: tuple[tuple[str, Any], ...] = ()
        self.zeros = NOTHING
        self._only: str | None = None
        self.holds = ""
        self._begin = ""
        self.scalar: Scalar = "any"
        if schema is None:
            return
        if self.kind == "scalar":
            self.scalar = _scalar(schema)
        if self.kind == "atomic" and not schema.free:
            self.holds = {"array": "list", "object": "dict"}.get(schema.type, "")
        if self.kind == "map" and schema.item is not None:
            named = schema.list_map_keys or (schema.patch_merge_key,)
            fields = schema.item.properties
            self.keys = tuple(
                (key, _key_default(schema.item, key) if key in fields else None)
                for key in sorted(named)
            )
            if len(self.keys) == 1:
                self._only = self.keys[0][0]
                self._begin = f"k:{{{orjson.dumps(self._only).decode()}:"
        if schema.name and self.kind == "fields":
            self.zeros = Messages.standard().zeros(message_of(schema.name))

    @staticmethod
    def from_schema(schema: Schema | None) -> "Form":
        """Return a schema's form; the same one each time."""
        if schema is None:
            return DEDUCED
        found = _FORMS.get(schema)
        if found is None:
            found = _FORMS[schema] = Form(schema)
        return found

    def below(self, name: str) -> "Form":
        """Return the form of a field; it is deduced for unknown fields."""
        found = self._below.get(name)
        if found is None:
            fields = self._schema.properties if self._schema is not None else NOTHING
            if name in fields:
                found = self._below[name] = Form.from_schema(fields[name])
            else:
                found = self._rest
                if found is None:
                    found = Form.from_schema(
                        self._schema.values if self._schema is not None else None
                    )
                    self._rest = found
        return found

    def knows(self, name: str) -> bool:
        """Return whether the schema allows a field."""
        if not self.closed or self._schema is None:
            return True
        return name in self._schema.properties

    def names(self, name: str) -> bool:
        """Return whether the schema has a field of that very name."""
        return self._schema is not None and name in self._schema.properties

    @property
    def element(self) -> "Form":
        """The form of what a list holds."""
        if self._element is None:
            self._element = Form.from_schema(
                self._schema.item if self._schema is not None else None
            )
        return self._element

    def seen(self, value: Any) -> Kind:
        """Return the kind of a value; it is deduced from the value if the schema leaves it open."""
        return _deduced(value) if self.open else self.kind

    def step(self, item: Any) -> str:
        """Return the step that leads to an element of a list; StepError if none does."""
        if self.kind == "map":
            if not isinstance(item, dict):
                what = "null" if item is None else "non-map"
                raise StepError(f"associative list with keys may not have {what} elements")
            if self._only is not None:
                # Hot: one key, as most lists have, and there.
                value = item.get(self._only)
                if value is not None:
                    return f"{self._begin}{orjson.dumps(value).decode()}}}"
            found = {}
            for key, default in self.keys:
                value = item.get(key, default)
                if value is not None or key in item:
                    found[key] = value
            if not found:
                names = " ".join(f'"{key}"' for key, _ in self.keys)
                raise StepError(
                    f"associative list with keys has an element that omits all key fields [{names}]"
                    " (and doesn't have default values for any key fields)"
                )
            return "k:" + orjson.dumps(found).decode()
        if isinstance(item, dict):
            raise StepError("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise StepError("not supported: associative list with lists as elements")
        if item is None:
            raise StepError("associative list without keys has an element that's an explicit null")
        return "v:" + orjson.dumps(item).decode()


def _key_default(struct: Schema, name: str) -> Any:
    """Return the value of a key that an element leaves out.

    The schemas of structs of Go give those that are always written their zero values.
    """
    key = struct.properties[name]
    if key.default is not None or not struct.name or name not in struct.required:
        return key.default
    return 0 if key.type == "integer" else ""


def _scalar(schema: Schema) -> Scalar:
    if schema.format in {"quantity", "int-or-string"}:
        return "any"
    match schema.type:
        case "string":
            return "string"
        case "integer" | "number":
            return "numeric"
        case "boolean":
            return "boolean"
        case _:
            return "any"


def _kind(schema: Schema | None) -> Kind:
    if schema is None:
        return "fields"
    if schema.type == "array":
        return _list_kind(schema)
    if schema.type == "object":
        replaced = not schema.map_type and "replace" in schema.patch_strategy
        return "atomic" if schema.map_type == "atomic" or replaced else "fields"
    if schema.map_type == "atomic":
        return "atomic"
    return "scalar"


def _list_kind(schema: Schema) -> Kind:
    if schema.list_type:
        return schema.list_type
    if "merge" in schema.patch_strategy:
        return "map" if schema.patch_merge_key else "set"
    return "atomic"


def _deduced(value: Any) -> Kind:
    if isinstance(value, dict):
        return "fields"
    return "atomic" if isinstance(value, list) else "scalar"


DEDUCED: Final = Form(None)
_FORMS: Final[WeakKeyDictionary[Schema, Form]] = WeakKeyDictionary()
