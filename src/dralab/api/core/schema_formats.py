"""Formats in the schema of a custom resource that a real server ignores.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/validation/formats.go`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

TEXTS: Final = frozenset(
    {
        "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3",
        "uuid4", "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor",
        "byte", "password", "date", "duration", "datetime", "k8sshortname", "k8slongname",
    }
)  # fmt: skip
NUMBERS: Final = {
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
MAX_DEPTH: Final = 100


def unrecognized_formats(schema: Any, depth: int = 0) -> Iterator[str]:
    """Yield the formats of a schema and its parts that are not checked."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    given, kind = schema.get("format"), schema.get("type") or ""
    if given and kind in {"", "string"}:
        if str(given).replace("-", "") not in TEXTS:
            yield str(given)
    elif given and given not in NUMBERS.get(kind, ()):
        yield str(given)
    for name in ("items", "additionalProperties", "not"):
        yield from unrecognized_formats(schema.get(name), depth + 1)
    for name in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(name) or ():
            yield from unrecognized_formats(part, depth + 1)
    for part in (schema.get("properties") or {}).values():
        yield from unrecognized_formats(part, depth + 1)


def format_warnings(spec: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the warnings about formats that a definition did not have before."""
    known = set(_formats_of(before))
    return [f'unrecognized format "{each}"' for each in _formats_of(spec) if each not in known]


def _formats_of(spec: Mapping[str, Any]) -> Iterator[str]:
    for version in spec.get("versions") or ():
        yield from unrecognized_formats((version.get("schema") or {}).get("openAPIV3Schema"))
