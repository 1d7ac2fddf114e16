"""Helpers for JSON schemas (draft 2020-12) of files that people write in an editor.

Schemas of Kubernetes kinds are data of `api`; what a file may say is decided by those who read it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

JsonSchema = dict[str, Any]

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
TEXT: Final[JsonSchema] = {"type": "string"}
FLAG: Final[JsonSchema] = {"type": "boolean"}
FILE: Final[JsonSchema] = {"type": "string", "description": "A file, in the folder of this one."}
PYTHON: Final[JsonSchema] = {
    "type": "string",
    "pattern": r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$",
    "description": "file.py:Name, in the folder of this file.",
}


def document(title: str, description: str, schema: JsonSchema, **definitions: Any) -> JsonSchema:
    """Return the schema of a whole file; `definitions` are what `$ref`s in it lead to."""
    found = {"$schema": DRAFT, "title": title, "description": description, **schema}
    return found | ({"$defs": definitions} if definitions else {})


def about(description: str, schema: JsonSchema) -> JsonSchema:
    """Return a schema with a description, which editors show.

    >>> about("Of the run.", {"type": "string"})
    {'type': 'string', 'description': 'Of the run.'}
    """
    return {**schema, "description": description}


def mapping(
    properties: Mapping[str, JsonSchema], required: Iterable[str] = (), **rules: Any
) -> JsonSchema:
    """Return a mapping with these fields and no others."""
    found: JsonSchema = {"type": "object", "additionalProperties": False}
    found["properties"] = dict(properties)
    needed = list(required)
    return found | ({"required": needed} if needed else {}) | rules


def listing(items: JsonSchema, least: int = 0) -> JsonSchema:
    """Return a list with at least so many items."""
    return {"type": "array", "items": items} | ({"minItems": least} if least else {})


def choice(values: Iterable[str]) -> JsonSchema:
    """Return one of these texts."""
    return {"enum": list(values)}


def any_of(*schemas: JsonSchema) -> JsonSchema:
    """Return a schema for values of one of some schemas."""
    return {"anyOf": list(schemas)}


def whole(least: int = 0, most: int | None = None) -> JsonSchema:
    """Return a whole number, within bounds that belong to it."""
    found: JsonSchema = {"type": "integer", "minimum": least}
    return found | ({} if most is None else {"maximum": most})


def number(least: float = 0, most: float | None = None) -> JsonSchema:
    """Return a number, within bounds that belong to it."""
    found: JsonSchema = {"type": "number", "minimum": least}
    return found | ({} if most is None else {"maximum": most})


def one_of_fields(*fields: str | Sequence[str]) -> list[JsonSchema]:
    """Return the rule `oneOf`: exactly one of these fields, or groups of fields, is given.

    >>> one_of_fields("name", ("patch", "with"))
    [{'required': ['name']}, {'required': ['patch', 'with']}]
    """
    return [{"required": [each] if isinstance(each, str) else list(each)} for each in fields]
