"""OpenAPI 3 documents in protobuf: the messages of gnostic (openapi.v3), for Go clients.

Field numbers are those of gnostic-models 0.7 (`openapiv3/OpenAPIv3.proto`). Extensions are YAML
texts there; what is written is JSON, which YAML includes.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from dralab.apiserver.protobuf.encoding import varint

METHODS: Final = {
    "get": 4, "put": 5, "post": 6, "delete": 7, "options": 8, "head": 9, "patch": 10,
}  # fmt: skip
SCHEMA_NUMBERS: Final = {
    "nullable": 1, "title": 9, "multipleOf": 10, "maximum": 11, "exclusiveMaximum": 12,
    "minimum": 13, "exclusiveMinimum": 14, "maxLength": 15, "minLength": 16, "pattern": 17,
    "maxItems": 18, "minItems": 19, "uniqueItems": 20, "maxProperties": 21, "minProperties": 22,
    "type": 25, "description": 34, "format": 35,
}  # fmt: skip
DOUBLES: Final = frozenset({"multipleOf", "maximum", "minimum"})
LISTS: Final = {"allOf": 26, "oneOf": 27, "anyOf": 28}


def encode(document: Mapping[str, Any]) -> bytes:
    """Return a document as an openapi.v3.Document."""
    info, components = document["info"], document.get("components") or {}
    return b"".join(
        [
            _text(1, document["openapi"]),
            _chunk(2, _text(1, info["title"]) + _text(6, info["version"])),
            _chunk(4, _named(1, document["paths"], _path_item)),
            _chunk(
                5,
                _chunk(1, _named(1, components.get("schemas") or {}, _schema_or_reference))
                + _chunk(7, _named(1, components.get("securitySchemes") or {}, _security_scheme)),
            ),
        ]
    )


def _path_item(item: Mapping[str, Any]) -> bytes:
    found = [
        _chunk(number, _operation(item[method]))
        for method, number in METHODS.items()
        if method in item
    ]
    return b"".join([*found, *_parameters(13, item.get("parameters") or ())])


def _operation(operation: Mapping[str, Any]) -> bytes:
    parts = [_text(1, tag) for tag in operation.get("tags") or ()]
    parts.append(_text(3, operation.get("description") or ""))
    parts.append(_text(5, operation.get("operationId") or ""))
    parts += _parameters(6, operation.get("parameters") or ())
    if (body := operation.get("requestBody")) is not None:
        content = _chunk(2, _content(body.get("content") or {}))
        parts.append(_chunk(7, _chunk(1, content + _flag(3, set_=bool(body.get("required"))))))
    parts.append(_chunk(8, _named(2, operation.get("responses") or {}, _response)))
    return b"".join([*parts, *_extensions(13, operation)])


def _parameters(number: int, parameters: Iterable[Mapping[str, Any]]) -> list[bytes]:
    return [
        _chunk(
            number,
            _chunk(
                1,
                _text(1, each["name"])
                + _text(2, each["in"])
                + _text(3, each.get("description") or "")
                + _flag(4, set_=bool(each.get("required")))
                + _chunk(10, _schema_or_reference(each.get("schema") or {})),
            ),
        )
        for each in parameters
    ]


def _response(response: Mapping[str, Any]) -> bytes:
    content = response.get("content")
    found = _text(1, response.get("description") or "")
    return _chunk(1, found + (_chunk(3, _content(content)) if content else b""))


def _content(content: Mapping[str, Any]) -> bytes:
    return _named(1, content, lambda media: _chunk(1, _schema_or_reference(media["schema"])))


def _security_scheme(scheme: Mapping[str, Any]) -> bytes:
    numbers = {"type": 1, "description": 2, "name": 3, "in": 4, "scheme": 5, "bearerFormat": 6}
    texts = [_text(number, scheme.get(key) or "") for key, number in numbers.items()]
    return _chunk(1, b"".join(texts))


def _schema_or_reference(schema: Mapping[str, Any]) -> bytes:
    if "$ref" in schema:
        return _chunk(2, _text(1, schema["$ref"]))
    return _chunk(1, _schema(schema))


def _schema(schema: Mapping[str, Any]) -> bytes:
    parts = []
    for key, number in SCHEMA_NUMBERS.items():
        if key in schema:
            parts.append(_scalar(number, schema[key], double=key in DOUBLES))
    parts += [_text(23, name) for name in schema.get("required") or ()]
    parts += [_chunk(24, _any(each)) for each in schema.get("enum") or ()]
    for key, number in LISTS.items():
        parts += [_chunk(number, _schema_or_reference(each)) for each in schema.get(key) or ()]
    if isinstance(schema.get("not"), Mapping):
        parts.append(_chunk(29, _schema(schema["not"])))
    if isinstance(schema.get("items"), Mapping):
        parts.append(_chunk(30, _chunk(1, _schema_or_reference(schema["items"]))))
    if schema.get("properties"):
        parts.append(_chunk(31, _named(1, schema["properties"], _schema_or_reference)))
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        parts.append(_chunk(32, _chunk(1, _schema_or_reference(extra))))
    elif extra is not None:
        parts.append(_chunk(32, b"\x10\x01" if extra else b"\x10\x00"))
    default = schema.get("default")
    if isinstance(default, bool):
        parts.append(_chunk(33, b"\x10\x01" if default else b"\x10\x00"))
    elif isinstance(default, (int, float)):
        parts.append(_chunk(33, b"\x09" + struct.pack("<d", default)))
    elif isinstance(default, str):
        parts.append(_chunk(33, _chunk(3, default.encode())))
    return b"".join([*parts, *_extensions(36, schema)])


def _extensions(number: int, holder: Mapping[str, Any]) -> list[bytes]:
    return [
        _chunk(number, _text(1, key) + _chunk(2, _any(value)))
        for key, value in sorted(holder.items())
        if key.startswith("x-")
    ]


def _any(value: Any) -> bytes:
    return _chunk(2, orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def _named(number: int, items: Mapping[str, Any], write: Callable[[Any], bytes]) -> bytes:
    """Return a mapping as messages of a name and a value."""
    return b"".join(
        [_chunk(number, _text(1, name) + _chunk(2, write(item))) for name, item in items.items()]
    )


def _scalar(number: int, value: Any, *, double: bool) -> bytes:
    if isinstance(value, str):
        return _text(number, value)
    if double:
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(int(value)) if value else b""


def _flag(number: int, *, set_: bool) -> bytes:
    return varint(number << 3) + b"\x01" if set_ else b""


def _text(number: int, text: str) -> bytes:
    return _chunk(number, text.encode()) if text else b""


def _chunk(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data
