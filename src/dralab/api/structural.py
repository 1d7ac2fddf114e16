"""Structural schemas, as CustomResourceDefinitions carry them: check, prune and default values.

A schema is an OpenAPI v3 mapping. Texts and order of errors: k8s.io/apiextensions-apiserver
`pkg/apiserver/validation` on kube-openapi's validator. CEL rules (`x-kubernetes-validations`) are
left to the caller; a whole CustomResourceDefinition, to the API server.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeGuard

from dralab.api.fields import (
    FieldError,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
)
from dralab.api.metadata import NOT_IN_TEMPLATES, annotation_problems, label_problems
from dralab.kernel.times import is_date
from dralab.values import names
from dralab.values.remembering import remembered

Schema = Mapping[str, Any]

OBJECT_META: Final[Schema] = {
    "properties": {key: {} for key in [*NOT_IN_TEMPLATES, "labels", "annotations"]}
}
MAX_DEPTH: Final = 200
MAX_DEFAULTS: Final = 1_000_000  # values that the defaults of a schema may add to one object
DEFAULTS: Final = 4  # defaults that are filled in while an object without fields is read
STEPS: Final = 64  # steps of a pattern that are taken while one byte is read
ENUM: Final = 32  # values of an enum that are looked through while one value is read
TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: (
        not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v % 1 == 0))
    ),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}

# RE2's words for what is wrong with a pattern, and those of Go's regexp/syntax.
GO_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "unexpected )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid character class range": "invalid character class range",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
}


def errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """Return everything that is wrong with a value, in the order of its fields.

    >>> [str(e) for e in errors({"properties": {"n": {"type": "integer"}}}, {"n": "x"})]
    ['n: Invalid value: "string": n in body must be of type integer: "string"']
    """
    return list(_check(schema, value, path, 0))


def effort(schema: Schema) -> float:
    """Return how many times as long as reading a value it takes to check it, at the most.

    >>> effort({"type": "string"}), effort({"anyOf": [{"pattern": "a"}, {"pattern": "b"}]})
    (1.0, 3.0)
    """
    parts = [*(schema.get("properties") or {}).values()]
    parts += [schema.get("items"), schema.get("additionalProperties")]
    branches = [*(schema.get("allOf") or ()), *(schema.get("anyOf") or ())]
    branches += [*(schema.get("oneOf") or ()), schema.get("not")]
    own = 1 + len(schema.get("enum") or ()) / ENUM + _pattern_effort(schema.get("pattern"))
    own += sum("default" in part for part in parts if isinstance(part, dict)) / DEFAULTS
    below = [effort(part) for part in parts if isinstance(part, dict)]
    # A part is checked once for each branch that has it, and once for itself.
    return max(own, *below, 0) + sum(effort(each) for each in branches if isinstance(each, dict))


def prune(schema: Schema, value: Any) -> list[str]:
    """Drop, in place, the fields that the schema does not know; return their paths.

    With them go nulls of fields that are not nullable and have no default.
    """
    found: list[str] = []
    _prune(schema, value, "", found)
    drop_nulls(schema, value)
    return found


def drop_nulls(schema: Schema, value: Any) -> None:
    """Drop, in place, nulls of fields that are not nullable and have no default."""
    # k8s.io/apiextensions-apiserver `schema/defaulting` (PruneNonNullableNullsWithoutDefaults).
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in list(value.items()):
            part = properties.get(name, extra)
            if not isinstance(part, dict):
                continue
            if item is not None:
                drop_nulls(part, item)
            elif not part.get("nullable") and part.get("default") is None:
                del value[name]
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            drop_nulls(schema["items"], item)


class TooManyDefaultsError(ValueError):
    """The defaults of a schema would make an object many times as large as the client sent it."""

    def __init__(self) -> None:
        super().__init__(f"the defaults of its schema add more than {MAX_DEFAULTS} values")


def apply_defaults(schema: Schema, value: Any) -> None:
    """Fill in, in place, the defaults of absent fields, from the outside in.

    TooManyDefaultsError: a list of 100,000 empty objects may ask for gigabytes.
    """
    _default(schema, value, _Room())


class _Room:
    """How much may still be added."""

    def __init__(self) -> None:
        self.left = MAX_DEFAULTS

    def copy(self, value: Any) -> Any:
        # Texts are shared, but each is written again.
        self.left -= 1 + len(value) // 64 if isinstance(value, str) else 1
        if self.left < 0:
            raise TooManyDefaultsError
        if isinstance(value, dict):
            return {key: self.copy(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.copy(item) for item in value]
        return value


def _default(schema: Schema, value: Any, room: _Room) -> None:
    if isinstance(value, dict):
        for name, part in (schema.get("properties") or {}).items():
            if "default" in part and _takes_default(part, value, name):
                value[name] = room.copy(part["default"])
            if name in value:
                _default(part, value[name], room)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            known = schema.get("properties") or {}
            for name, item in value.items():
                if name not in known:
                    _default(extra, item, room)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            _default(schema["items"], item, room)


def _takes_default(part: Schema, value: Mapping[str, Any], name: str) -> bool:
    # A null where null is not allowed counts as absent.
    return name not in value or (value[name] is None and not part.get("nullable"))


def _check(schema: Schema, value: Any, path: str, depth: int) -> Iterator[FieldError]:
    if depth > MAX_DEPTH:
        yield invalid_value(path, "…", f"must not be nested deeper than {MAX_DEPTH} levels")
        return
    if value is None and schema.get("nullable"):
        return
    wrong = _type_error(schema, value, path)
    if wrong is not None:
        yield wrong
        if schema.get("type") == "integer" and isinstance(value, float):
            yield _out_of_range(schema, path)
        yield from _enum_errors(schema, value, path)
        return
    if isinstance(value, str):
        yield from _string_errors(schema, value, path)
    elif isinstance(value, dict):
        if schema.get("x-kubernetes-embedded-resource"):
            yield from _embedded_errors(value, path)
        yield from _object_errors(schema, value, path, depth)
    elif isinstance(value, list):
        yield from _array_errors(schema, value, path, depth)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_errors(schema, value, path)
    yield from _enum_errors(schema, value, path)
    yield from _combination_errors(schema, value, path, depth)


def _enum_errors(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    """Yield an error if a value is not one of those that are allowed, whatever its type."""
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        # In the order of the schema: kube-openapi does not sort them.
        known = ", ".join(json.dumps(item) for item in allowed)
        yield FieldError("FieldValueNotSupported", path, value, f"supported values: {known}")


def _type_error(schema: Schema, value: Any, path: str) -> FieldError | None:
    name = path or "<root>"
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, str) or TYPES["integer"](value):
            return None
        kind = _kind_of(value)
        return _typed(path, kind, f'{name} in body must be of type integer,string: "{kind}"')
    wanted = schema.get("type")
    if not wanted or (wanted in TYPES and TYPES[wanted](value)):
        return None
    kind = _kind_of(value)
    return _typed(path, kind, f'{name} in body must be of type {wanted}: "{kind}"')


def _typed(path: str, kind: Any, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", path, kind, detail)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return {dict: "object", list: "array", str: "string", int: "integer"}.get(type(value), "number")


def _string_errors(schema: Schema, value: str, path: str) -> Iterator[FieldError]:
    # Of length and pattern the first is told of (kube-openapi, stringValidator).
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern = schema.get("pattern")
    if longest is not None and len(value) > longest:
        yield too_long(path, longest)
    elif shortest is not None and len(value) < shortest:
        yield invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    elif pattern is not None and not _pattern(pattern).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    check = FORMATS.get(schema.get("format", ""))
    if check is not None and not check(value):
        form = schema["format"]
        yield _typed(path, value, f'{path} in body must be of type {form}: "{value}"')


def _number_errors(schema: Schema, value: float, path: str) -> Iterator[FieldError]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        words = "" if schema.get("exclusiveMinimum") else " or equal to"
        detail = f"{path} in body should be greater than{words} {least}"
        yield invalid_value(path, value, detail)
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        words = "" if schema.get("exclusiveMaximum") else " or equal to"
        yield invalid_value(path, value, f"{path} in body should be less than{words} {most}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {step}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        yield _out_of_range(schema, path)


def _out_of_range(schema: Schema, path: str) -> FieldError:
    """Return the error of a number that does not fit its format; upstream names no field."""
    form = f"with format {schema['format']}" if schema.get("format") else "(default format)"
    return invalid_value("<nil>", "", f"Checked value must be of type integer {form} in {path}")


def _object_errors(
    schema: Schema, value: Mapping[str, Any], path: str, depth: int
) -> Iterator[FieldError]:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)
    if least is not None and len(value) < least:
        detail = f"{path} in body should have at least {least} properties"
        yield invalid_value(path, dict(value), detail)
    properties = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield required(_join(path, name))
    extra = schema.get("additionalProperties")
    for name, item in value.items():
        part = properties.get(name, extra if isinstance(extra, dict) else None)
        if part is None:
            continue
        if item is None and name in properties and not part.get("nullable"):
            # The server drops such a null before it looks at the value.
            if name in (schema.get("required") or ()):
                yield required(_join(path, name))
            continue
        where = _join(path, name) if name in properties else f"{path}.{name}" if path else name
        yield from _check(part, item, where, depth + 1)


def _array_errors(schema: Schema, value: list[Any], path: str, depth: int) -> Iterator[FieldError]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)
        return
    if least is not None and len(value) < least:
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} items")
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            yield from _check(items, item, f"{path}[{index}]", depth + 1)
    yield from _duplicates(schema, value, path)


def _embedded_errors(value: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the required fields that an embedded object lacks.

    Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/objectmeta/validation.go`.
    """
    for name in ("apiVersion", "kind"):
        given = value.get(name)
        if given is None or given == "":
            yield required(_join(path, name))
        elif not isinstance(given, str):
            yield invalid_value(_join(path, name), given, "must be a string")
        elif name == "apiVersion" and given.count("/") > 1:
            why = f"unexpected GroupVersion string: {given}"
            yield invalid_value(_join(path, name), given, why)
        elif name == "kind" and (problems := names.label_1035_problems(given.lower())):
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid_value(_join(path, name), given, why)
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        why = "must be an object"
        yield invalid_value(_join(path, "metadata"), metadata, why)
    elif metadata:
        yield from _embedded_metadata_errors(metadata, _join(path, "metadata"))


def _embedded_metadata_errors(metadata: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the texts in an embedded object's metadata."""
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if _are_texts(annotations):
        yield from annotation_problems(annotations, f"{path}.annotations")
    if _are_texts(labels):
        yield from label_problems(labels, f"{path}.labels")


def _are_texts(value: Any) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _duplicates(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"set", "map"}:
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    defaults = {
        key: part["default"]
        for key, part in ((schema.get("items") or {}).get("properties") or {}).items()
        if "default" in part
    }
    seen: set[Any] = set()
    for index, item in enumerate(value):
        if kind == "map":
            if not isinstance(item, dict):
                continue
            item = {key: item.get(key, defaults.get(key)) for key in keys}  # noqa: PLW2901
        mark = _mark(item)
        if mark in seen:
            yield duplicate(f"{path}[{index}]", item)
        seen.add(mark)


def _mark(value: Any) -> Any:
    """Return a hashable key that is equal for equal JSON values: true is not 1."""
    if isinstance(value, dict):
        return frozenset((key, _mark(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_mark, value))
    return isinstance(value, bool), value


def _combination_errors(schema: Schema, value: Any, path: str, depth: int) -> Iterator[FieldError]:
    name = path or "<root>"
    shown = value if isinstance(value, (str, int, float, bool)) else _kind_of(value)
    for part in schema.get("allOf") or ():
        yield from _check(part, value, path, depth + 1)
    if "anyOf" in schema and not any(
        not _breaks(part, value, path, depth) for part in schema["anyOf"]
    ):
        yield invalid_value(
            path, shown, f"{name} in body must validate at least one schema (anyOf)"
        )
    if "oneOf" in schema:
        valid = sum(not _breaks(part, value, path, depth) for part in schema["oneOf"])
        if valid != 1:
            found = "" if not valid else f". Found {valid} valid alternatives"
            detail = f"{name} in body must validate one and only one schema (oneOf){found}"
            yield invalid_value(path, shown, detail)
    if "not" in schema and not _breaks(schema["not"], value, path, depth):
        yield invalid_value(path, shown, f"{name} in body must not validate the schema (not)")


def _breaks(schema: Schema, value: Any, path: str, depth: int) -> bool:
    """Return whether a value breaks one alternative of a combination."""
    return next(_check(schema, value, path, depth + 1), None) is not None


def _prune(schema: Schema, value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                _prune(items, item, f"{path}[{index}]", found)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or extra is True
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    for name in list(value):
        where = _join(path, name)
        if embedded and name in {"apiVersion", "kind", "metadata"}:
            # Whatever its schema says, metadata has the fields of ObjectMeta (`objectmeta`).
            if name == "metadata":
                _prune(OBJECT_META, value[name], where, found)
        elif name in properties:
            _prune(properties[name], value[name], where, found)
        elif isinstance(extra, dict):
            _prune(extra, value[name], where, found)
        elif not keeps and (properties or schema.get("type") == "object"):
            found.append(where)
            del value[name]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def pattern_problem(pattern: str) -> str:
    """Return the error of an invalid pattern, with Go's message where RE2 has an equal one.

    >>> pattern_problem("^a+$"), pattern_problem("a(b")
    ('', 'error parsing regexp: missing closing ): `a(b`')
    """
    import re2

    try:
        _pattern(pattern)
    except re2.error as error:
        why = error.args[0] if error.args else error
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        # Go's regexp says the same of more errors in other words (regexp/syntax, ErrorCode).
        words, colon, part = text.partition(": ")
        shown = f": `{part}`" if colon else ""
        return f"error parsing regexp: {GO_WORDS.get(words, words)}{shown}"
    return ""


def _pattern_effort(pattern: Any) -> int:
    """Return how many times as long as reading a text it takes to look for a pattern in it.

    RE2 is linear in the text, but may take all steps of a pattern at each character.
    """
    if not isinstance(pattern, str) or pattern_problem(pattern):
        return 0
    return int(_pattern(pattern).programsize) // STEPS


@remembered(4096)
def _pattern(pattern: str) -> Any:
    """Return the pattern with RE2's meaning: schemas come from outside, and `re` backtracks."""
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options=options)


# Source: k8s.io/kube-openapi `validation/strfmt` (IsDateTime): laxer than Go's time.Parse.
_CLOCK: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII)


def _is_date_time(value: str) -> bool:
    day, _, clock = value.lower().partition("t")
    return is_date(day) and _CLOCK.fullmatch(clock) is not None


_UUID: Final = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date-time": _is_date_time,
    "date": is_date,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
}
