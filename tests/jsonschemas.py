"""A plain validator of JSON schemas, with the words of draft 2020-12 that dralab's schemas use.

`compare` holds a schema against a reader of files, over documents that are broken in one place.
"""

import copy
import re
from dataclasses import dataclass, field
from itertools import islice

from dralab.scenarios.errors import InputError

WRONG = (-1, 0, 1.5, "", "x", "5s", True, [], {}, [1], [[]], {"x": 1})


def problems(schema, value, root=None, where=""):
    """Return the errors of a value, as texts."""
    root = schema if root is None else root
    unknown = (
        set(schema)
        - WORDS.keys()
        - {"$schema", "$defs", "title", "description", "default", "deprecated", "then"}
    )
    assert not unknown, f"the validator does not know {unknown}"
    found = []
    for word, rule in schema.items():
        if word in WORDS:
            found += WORDS[word](rule, value, schema, root, where)
    return found


def fits(schema, value, root):
    return not problems(schema, value, root)


TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == int(v),
    "null": lambda v: v is None,
}


def told(holds, text, where):
    return [] if holds else [f"{where}: {text}"]


def kind(rule, value, schema, root, where):
    names = [rule] if isinstance(rule, str) else rule
    return told(any(TYPES[name](value) for name in names), f"is not {rule}", where)


def fields(rule, value, schema, root, where):
    if not isinstance(value, dict):
        return []
    return [
        problem
        for key, inner in rule.items()
        if key in value
        for problem in problems(inner, value[key], root, f"{where}.{key}")
    ]


def others(rule, value, schema, root, where):
    if not isinstance(value, dict):
        return []
    extra = [key for key in value if key not in schema.get("properties", {})]
    if rule is False:
        return [f"{where}.{key}: is unknown" for key in extra]
    return [p for key in extra for p in problems(rule, value[key], root, f"{where}.{key}")]


def items(rule, value, schema, root, where):
    if not isinstance(value, list):
        return []
    return [
        problem
        for index, item in enumerate(value)
        for problem in problems(rule, item, root, f"{where}[{index}]")
    ]


def needed(rule, value, schema, root, where):
    if not isinstance(value, dict):
        return []
    return [f"{where}.{key}: is required" for key in rule if key not in value]


def needed_with(rule, value, schema, root, where):
    if not isinstance(value, dict):
        return []
    return [
        p
        for key, more in rule.items()
        if key in value
        for p in needed(more, value, schema, root, where)
    ]


def compared(name, holds):
    def check(rule, value, schema, root, where):
        return told(not TYPES["number"](value) or holds(value, rule), f"{name} {rule}", where)

    return check


def consequence(rule, value, schema, root, where):
    return problems(schema["then"], value, root, where) if fits(rule, value, root) else []


def number_of_fits(name, holds):
    def check(rule, value, schema, root, where):
        count = sum(fits(each, value, root) for each in rule)
        return told(holds(count), f"{name}: fits {count}", where)

    return check


WORDS = {
    "type": kind,
    "properties": fields,
    "additionalProperties": others,
    "items": items,
    "required": needed,
    "dependentRequired": needed_with,
    "minItems": lambda r, v, s, root, w: told(
        not isinstance(v, list) or len(v) >= r, "is too short", w
    ),
    "minProperties": lambda r, v, s, root, w: told(
        not isinstance(v, dict) or len(v) >= r, "is too short", w
    ),
    "propertyNames": lambda r, v, s, root, w: (
        [p for key in v for p in problems(r, str(key), root, f"{w}.{key}")]
        if isinstance(v, dict)
        else []
    ),
    "minimum": compared("less than", lambda v, r: v >= r),
    "maximum": compared("more than", lambda v, r: v <= r),
    "exclusiveMinimum": compared("not above", lambda v, r: v > r),
    "pattern": lambda r, v, s, root, w: told(
        not isinstance(v, str) or re.search(r, v), f"does not match {r}", w
    ),
    "enum": lambda r, v, s, root, w: told(
        v in r and not isinstance(v, bool), f"is not one of {r}", w
    ),
    "const": lambda r, v, s, root, w: told(v == r and type(v) is type(r), f"is not {r}", w),
    "anyOf": number_of_fits("anyOf", lambda n: n > 0),
    "oneOf": number_of_fits("oneOf", lambda n: n == 1),
    "not": lambda r, v, s, root, w: told(not fits(r, v, root), "not", w),
    "if": consequence,
    "$ref": lambda r, v, s, root, w: problems(
        root["$defs"][r.removeprefix("#/$defs/")], v, root, w
    ),
}


def properties_by_path(schema, root=None, where=""):
    """Yield where each mapping is and which fields it may have: `fleet.nodes[]`."""
    root = schema if root is None else root
    if "$ref" in schema:
        yield from properties_by_path(
            root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, where
        )
    if "properties" in schema:
        yield where, set(schema["properties"])
        for key, inner in schema["properties"].items():
            yield from properties_by_path(inner, root, f"{where}.{key}" if where else key)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from properties_by_path(schema["additionalProperties"], root, f"{where}.*")
    if "items" in schema:
        yield from properties_by_path(schema["items"], root, f"{where}[]")
    for each in schema.get("anyOf", []):
        yield from properties_by_path(each, root, where)


def broken(value):
    """Yield copies of a value that differ in one place, and what was done."""

    def changed(path, change):
        made = copy.deepcopy(value)
        inner = made
        for key in path[:-1]:
            inner = inner[key]
        change(inner, path[-1])
        return made

    def paths(inner, path):
        keys = inner if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            yield (*path, key)
            if isinstance(inner[key], (dict, list)):
                yield from paths(inner[key], (*path, key))

    for path in list(paths(value, ())):
        if path[-1] != "apiVersion" and path[-1] != "kind":
            yield path, "gone", changed(path, lambda inner, key: inner.pop(key))
            for wrong in WRONG:
                yield path, wrong, changed(path, lambda i, k, w=wrong: i.__setitem__(k, w))
        inner = value
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict):
            yield path, "more", changed((*path, "colour"), lambda i, k: i.__setitem__(k, "red"))
    yield (), "more", value | {"colour": "red"}


@dataclass
class SchemaComparison:
    """How often both refuse, how often only the reader does, and where it should not be so."""

    refused: int = 0
    beyond: int = 0
    odd: list = field(default_factory=list)


def compare(schema, whole, read, beyond, every=1):
    """Compare a schema with a reader; `beyond` matches what no schema can refuse."""
    found = SchemaComparison()
    for value in whole:
        for path, change, made in islice(broken(value), 0, None, every):
            wrong = problems(schema, made)
            try:
                read(made)
            except InputError as error:
                found.refused += bool(wrong)
                found.beyond += not wrong
                if not wrong and not re.search(beyond, error.problem):
                    found.odd.append((path, change, str(error)))
            else:
                if wrong:
                    found.odd.append((path, change, wrong))
    return found
