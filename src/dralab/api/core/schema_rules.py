"""Validation of the schemas of custom resources.

A schema is structural where it gives every value one type, outside of `allOf` and its like, so
that objects can be pruned and defaulted. Source: k8s.io/apiextensions-apiserver
`pkg/apiserver/schema` (ValidateStructural), `pkg/apis/apiextensions/validation`. Defaults are
held against their schemas in `schema_defaults`; expressions are left to the server.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dralab.api import fields, structural
from dralab.api.core.schema_defaults import default_errors
from dralab.api.core.schema_rule_forms import rule_form_errors
from dralab.api.fields import FieldError
from dralab.values.records import dataclass

Schema = Mapping[str, Any]

MAX_DEPTH: Final = 100
TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
META: Final = frozenset({"metadata", "kind", "apiVersion"})
INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
EMBEDDED: Final = "x-kubernetes-embedded-resource"
FREE: Final = "x-kubernetes-preserve-unknown-fields"
EITHER: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
RULES: Final = "x-kubernetes-validations"
UNSUPPORTED: Final = (
    ("id", "id"), ("$schema", "schema"), ("$ref", "$ref"),
    ("patternProperties", "patternProperties"), ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"), ("definitions", "definitions"),
)  # fmt: skip
REFUSED: Final = (
    "id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref",
)  # fmt: skip
# What a part of `allOf` and its like may not have, and how that is said.
NOT_NESTED: Final = (
    ("type", "empty"), ("additionalProperties", "undefined"), ("default", "undefined"),
    ("title", "empty"), ("description", "empty"), ("nullable", "false"), (FREE, "false"),
    (EMBEDDED, "false"), (EITHER, "false"), (LIST_KEYS, "empty"), (LIST_TYPE, "undefined"),
    (MAP_TYPE, "undefined"), (RULES, "empty"),
)  # fmt: skip
WORDS: Final = ("anyOf", "allOf", "oneOf")


def schema_errors(schema: Schema, path: str, *, sound: bool = True) -> list[FieldError]:
    """Return the errors of the schema of a version, whose root is `sound` so far."""
    found = []
    if schema.get("nullable"):
        found.append(fields.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    unsupported = next(_unsupported(schema, 0), None)
    if unsupported is None:
        shape = [*_invariants(schema, path, "root", 0), *_incomplete(schema, schema, path, path)]
        found += sorted(shape, key=str)
        if not found:
            found += default_errors(schema, path)
    found += _openapi_errors(schema, path, _SchemaSpot(root=True))
    if sound and not found and unsupported is not None:
        why = f"OpenAPIV3Schema '{unsupported}' is not supported"
        found.append(fields.invalid_value(path, "", why))
    return found


def _parts(schema: Schema, path: str) -> Iterator[tuple[Schema, str, str]]:
    """Yield the schemas directly below, each with its path and level."""
    if isinstance(items := schema.get("items"), Mapping):
        yield items, f"{path}.items", "item"
    for name, part in (schema.get("properties") or {}).items():
        if isinstance(part, Mapping):
            yield part, f"{path}.properties[{name}]", "field"
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        yield extra, f"{path}.additionalProperties", "field"


def _nested(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    """Yield the schemas that values are also checked against."""
    for word in WORDS:
        for index, part in enumerate(schema.get(word) or ()):
            if isinstance(part, Mapping):
                yield part, f"{path}.{word}[{index}]"
    if isinstance(part := schema.get("not"), Mapping):
        yield part, f"{path}.not"


def _unsupported(schema: Schema, depth: int) -> Iterator[str]:
    yield from (called for word, called in UNSUPPORTED if schema.get(word))
    if depth < MAX_DEPTH:
        for part, _, _ in _parts(schema, ""):
            yield from _unsupported(part, depth + 1)
        for part, _ in _nested(schema, ""):
            yield from _unsupported(part, depth + 1)


# --- structure --------------------------------------------------------------------------------


def _invariants(schema: Schema, path: str, level: str, depth: int) -> Iterator[FieldError]:
    if depth > MAX_DEPTH:
        return
    kind = schema.get("type") or ""
    if kind == "array" and schema.get("items") is None:
        yield fields.required(f"{path}.items", "must be specified")
    if level == "root" and schema.get("additionalProperties") is not None:
        why = "must not be used at the root"
        yield fields.forbidden(f"{path}.additionalProperties", why)
    for part, where, below in _parts(schema, path):
        yield from _invariants(part, where, below, depth + 1)
    if schema.get(EITHER):
        for word in (FREE, EMBEDDED):
            if schema.get(word):
                why = "must be false if x-kubernetes-int-or-string is true"
                yield fields.invalid_value(f"{path}.{word}", True, why)  # noqa: FBT003
    yield from _value_rules(schema, path, depth)
    yield from _type_errors(schema, path, level)
    if level == "root" or schema.get(EMBEDDED):
        yield from _meta_errors(schema.get("properties") or {}, f"{path}.properties", level)


def _type_errors(schema: Schema, path: str, level: str) -> Iterator[FieldError]:
    kind, at = schema.get("type") or "", f"{path}.type"
    if schema.get(EMBEDDED):
        why = "must be object if x-kubernetes-embedded-resource is true"
        if kind != "object":
            yield fields.invalid_value(at, kind, why) if kind else fields.required(at, why)
        if schema.get("additionalProperties") is not None:
            why = "must not be used if x-kubernetes-embedded-resource is set"
            yield fields.forbidden(f"{path}.additionalProperties", why)
        if not schema.get(FREE) and not schema.get("properties"):
            why = (
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            )
            yield fields.required(f"{path}.properties", why)
    elif not kind and not schema.get(EITHER) and not schema.get(FREE):
        where = {"item": "for specified array items", "field": "for specified object fields"}
        yield fields.required(at, f"must not be empty {where.get(level, 'at the root')}")
    if level == "root" and kind and kind != "object":
        yield fields.invalid_value(at, kind, "must be object at the root")


def _meta_errors(properties: Schema, path: str, level: str) -> Iterator[FieldError]:
    """Yield the errors of what a schema says of kind, apiVersion and metadata."""
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        part = properties.get(name)
        if isinstance(part, Mapping) and part.get("type") != wanted:
            at = f"{path}[{name}].type"
            yield fields.invalid_value(at, part.get("type") or "", f"must be {wanted}")
    metadata = properties.get("metadata")
    if level != "root" or not isinstance(metadata, Mapping):
        return
    rest = {
        part
        for part, item in metadata.items()
        if item and part not in {"type", "default", "properties"}
    }
    if rest or (metadata.get("properties") or {}).keys() - {"name", "generateName"}:
        why = (
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified"
        )
        yield fields.forbidden(f"{path}[metadata]", why)


def _value_rules(schema: Schema, path: str, depth: int) -> Iterator[FieldError]:
    """Yield the errors of the value validations."""
    if depth > MAX_DEPTH:
        return
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (problem := structural.pattern_problem(pattern)):
        why = f"must be a valid regular expression, but isn't: {problem}"
        yield fields.invalid_value(f"{path}.pattern", pattern, why)
    for part, where in _nested(schema, path):
        in_any = where.startswith(f"{path}.anyOf[")
        if in_any and schema.get("anyOf") == INT_OR_STRING:
            continue  # the one place where types may stand
        if where == f"{path}.allOf[0]" and part.get("anyOf") == INT_OR_STRING:
            rest = {word: item for word, item in part.items() if word != "anyOf"}
            yield from _nested_errors(rest, where, depth + 1)
            continue
        yield from _nested_errors(part, where, depth + 1)


def _nested_errors(schema: Schema, path: str, depth: int) -> Iterator[FieldError]:
    yield from _value_rules(schema, path, depth)
    for word, wanted in NOT_NESTED:
        if schema.get(word) not in (None, "", [], False):
            yield fields.forbidden(f"{path}.{word}", f"must be {wanted} to be structural")
    if "metadata" in (schema.get("properties") or {}):
        why = "must not be specified in a nested context"
        yield fields.forbidden(f"{path}.properties[metadata]", why)
    for part, where, _ in _parts(schema, path):
        if not where.endswith(".additionalProperties") and depth <= MAX_DEPTH:
            yield from _nested_errors(part, where, depth + 1)


def _incomplete(said: Schema, schema: Any, path: str, where: str) -> Iterator[FieldError]:
    """Yield the value validations of fields that the schema itself does not have."""
    for part, at in _nested(said, where):
        yield from _unknown_parts(part, schema, path, at)


def _unknown_parts(said: Schema, schema: Any, path: str, where: str) -> Iterator[FieldError]:
    if not isinstance(schema, Mapping):
        yield fields.required(path, f"because it is defined in {where}")
        return
    yield from _incomplete(said, schema, path, where)
    if isinstance(items := said.get("items"), Mapping):
        yield from _unknown_parts(items, schema.get("items"), f"{path}.items", f"{where}.items")
    known = schema.get("properties") or {}
    for name, part in (said.get("properties") or {}).items():
        if isinstance(part, Mapping):
            step = f".properties[{name}]"
            yield from _unknown_parts(part, known.get(name), f"{path}{step}", f"{where}{step}")


# --- OpenAPI ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SchemaSpot:
    """Where a schema stands: at the root, inside of metadata, where defaults are forbidden."""

    root: bool = False
    inside_meta: bool = False
    no_defaults: str = ""
    depth: int = 0

    @property
    def below(self) -> "_SchemaSpot":
        """The place of a part."""
        return replace(self, root=False, depth=self.depth + 1)


def _openapi_errors(schema: Schema, path: str, place: _SchemaSpot) -> Iterator[FieldError]:
    if place.depth > MAX_DEPTH:
        return
    yield from _plain_errors(schema, path, place)
    extra, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if extra is not None and properties and extra is not True:
        why = "additionalProperties and properties are mutual exclusive"
        yield fields.forbidden(f"{path}.additionalProperties", why)
    for part, where, _ in _parts(schema, path):
        below, name = place.below, where.removeprefix(f"{path}.properties[").removesuffix("]")
        if where == f"{path}.additionalProperties" and place.inside_meta:
            why = "inside additionalProperties applying to object metadata"
            below = replace(below, no_defaults=why)
        elif (place.root or schema.get(EMBEDDED)) and name in META:
            why = f"in top-level {name}" if place.root else below.no_defaults
            below = replace(below, inside_meta=True, no_defaults=why)
        yield from _openapi_errors(part, where, below)
    for part, where in _nested(schema, path):
        yield from _openapi_errors(part, where, place.below)
    yield from _map_errors(schema, path)
    yield from _list_errors(schema, path)
    yield from rule_form_errors(schema, path)


def _plain_errors(schema: Schema, path: str, place: _SchemaSpot) -> Iterator[FieldError]:
    kind = schema.get("type") or ""
    if kind and kind not in TYPES:
        yield fields.not_supported(f"{path}.type", kind, TYPES)
    if place.no_defaults and schema.get("default") is not None:
        yield fields.forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    for part in REFUSED:
        if schema.get(part) not in (None, "", {}):
            yield fields.forbidden(f"{path}.{part}", f"{part} is not supported")
    if kind == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        yield fields.forbidden(f"{path}.type", why)
    if isinstance(schema.get("items"), list):
        yield fields.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.inside_meta and schema.get(EMBEDDED):
        yield fields.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield fields.forbidden(f"{path}.uniqueItems", why)


def _map_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    if schema.get(FREE) is False:
        why = "must be true or undefined"
        yield fields.invalid_value(f"{path}.{FREE}", False, why)  # noqa: FBT003
    given, kind = schema.get(MAP_TYPE), schema.get("type") or ""
    if given is None:
        return
    if kind != "object":
        why = f"must be object if {MAP_TYPE} is specified"
        at = f"{path}.type"
        yield fields.invalid_value(at, kind, why) if kind else fields.required(at, why)
    known = ("atomic", "granular")
    if given not in known:
        yield fields.not_supported(f"{path}.{MAP_TYPE}", given, known)


def _list_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    given, kind = schema.get(LIST_TYPE), schema.get("type") or ""
    items, keys = schema.get("items"), schema.get(LIST_KEYS) or ()
    if given is not None and kind != "array":
        why, at = f"must be array if {LIST_TYPE} is specified", f"{path}.type"
        yield fields.invalid_value(at, kind, why) if kind else fields.required(at, why)
    elif given == "set" and isinstance(items, Mapping):
        why = f"must be atomic as item of a list with {LIST_TYPE}=set"
        inner, at = items.get(LIST_TYPE), f"{path}.items"
        if items.get("type") == "array" and inner not in (None, "atomic"):
            yield fields.invalid_value(f"{at}.{LIST_TYPE}", inner, why)
        if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            yield fields.invalid_value(f"{at}.{MAP_TYPE}", inner, why)  # as upstream shows it
    known = ("atomic", "set", "map")
    if given is not None and given not in known:
        yield fields.not_supported(f"{path}.{LIST_TYPE}", given, known, ordered=True)
    if keys and given != "map":
        why, at = f"must be map if {LIST_KEYS} is non-empty", f"{path}.{LIST_TYPE}"
        yield fields.required(at, why) if given is None else fields.invalid_value(at, given, why)
    if given == "map":
        yield from _key_errors(keys, items, path)
    if given in {"set", "map"} and isinstance(items, Mapping) and items.get("nullable"):
        why = f"cannot be nullable when {LIST_TYPE} is {given}"
        yield fields.forbidden(f"{path}.items.nullable", why)


def _key_errors(keys: Any, items: Any, path: str) -> Iterator[FieldError]:
    """Yield the errors of the keys of a list that is a map."""
    at = f"{path}.{LIST_KEYS}"
    if not keys:
        yield fields.required(at, f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        yield fields.required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        why = f"must be object if parent array's {LIST_TYPE} is map"
        yield fields.invalid_value(f"{path}.items.type", items.get("type") or "", why)
    key_of = f"this property is in {LIST_KEYS}, so "
    properties, needed = items.get("properties") or {}, items.get("required") or ()
    shown, again = list(keys), fields.repeated(keys)
    for index, key in enumerate(keys):
        part, where = properties.get(key), f"{path}.items.properties[{key}]"
        if part is None and items.get("type") == "object":
            yield fields.invalid_value(at, shown, "entries must all be names of item properties")
        elif part is not None and part.get("type") in {"array", "object"}:
            why = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            yield fields.invalid_value(f"{where}.type", items.get("type"), why)
        if index in again:
            yield fields.invalid_value(at, shown, "must not contain duplicate entries")
    for key in keys:
        part, where = properties.get(key), f"{path}.items.properties[{key}]"
        if part is None:
            continue
        if key not in needed and part.get("default") is None:
            why = f"{key_of}it must have a default or be a required property"
            yield fields.required(f"{where}.default", why)
        if part.get("nullable"):
            why = f"{key_of}it cannot be nullable"
            yield fields.forbidden(f"{where}.nullable", why)
