"""OpenAPI documents in protobuf: the messages of gnostic (openapi.v3, openapi.v2), for Go clients.

Field numbers are those of gnostic-models 0.7 (`OpenAPIv3.proto`, `OpenAPIv2.proto`). Extensions are
YAML texts there; what is written is JSON, which YAML includes.
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
METHODS2: Final = {
    "get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8,
}  # fmt: skip
SCHEMA_NUMBERS2: Final = {
    "$ref": 1, "format": 2, "title": 3, "description": 4, "multipleOf": 6, "maximum": 7,
    "exclusiveMaximum": 8, "minimum": 9, "exclusiveMinimum": 10, "maxLength": 11, "minLength": 12,
    "pattern": 13, "maxItems": 14, "minItems": 15, "uniqueItems": 16, "maxProperties": 17,
    "minProperties": 18,
}  # fmt: skip
API_KEY2: Final = ("type", "name", "in", "description")
# The message of a parameter that is not a body, and where it says its type and that it is unique.
PARAMETERS2: Final = {"query": (3, 6, 20), "path": (4, 5, 19)}
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


def encode_version2(document: Mapping[str, Any]) -> bytes:
    """Return an OpenAPI 2 document as an openapi.v2.Document."""
    info = document["info"]
    schemes = document.get("securityDefinitions") or {}
    return b"".join(
        [
            _text(1, document["swagger"]),
            _chunk(2, _text(1, info["title"]) + _text(2, info["version"])),
            _chunk(8, _named(2, document["paths"], _path_item2)),
            _chunk(9, _named(1, document["definitions"], _schema2)),
            # One is enough: it is every requirement's only member.
            *[
                _chunk(12, _chunk(1, _text(1, name) + _chunk(2, b"")))
                for required in document.get("security") or ()
                for name in required
            ],
            _chunk(13, _named(1, schemes, _security_scheme2)),
        ]
    )


def _path_item2(item: Mapping[str, Any]) -> bytes:
    found = [
        _chunk(number, _operation2(item[method]))
        for method, number in METHODS2.items()
        if method in item
    ]
    return b"".join([*found, *_parameters2(9, item.get("parameters") or ())])


def _operation2(operation: Mapping[str, Any]) -> bytes:
    parts = [_text(1, tag) for tag in operation.get("tags") or ()]
    parts.append(_text(3, operation.get("description") or ""))
    parts.append(_text(5, operation.get("operationId") or ""))
    parts += [_text(6, each) for each in operation.get("produces") or ()]
    parts += [_text(7, each) for each in operation.get("consumes") or ()]
    parts += _parameters2(8, operation.get("parameters") or ())
    parts.append(_chunk(9, _named(1, operation.get("responses") or {}, _response2)))
    return b"".join([*parts, *_extensions(13, operation)])


def _parameters2(number: int, parameters: Iterable[Mapping[str, Any]]) -> list[bytes]:
    return [_chunk(number, _chunk(1, _parameter2(each))) for each in parameters]


def _parameter2(each: Mapping[str, Any]) -> bytes:
    where, required = each["in"], bool(each.get("required"))
    description = each.get("description") or ""
    if where == "body":
        named = _text(1, description) + _text(2, each["name"]) + _text(3, where)
        return _chunk(1, named + _flag(4, set_=required) + _chunk(5, _schema2(each["schema"])))
    message, of_type, unique = PARAMETERS2[where]
    named = _flag(1, set_=required) + _text(2, where) + _text(3, description)
    named += _text(4, each["name"]) + _text(of_type, each.get("type") or "")
    named += _flag(unique, set_=bool(each.get("uniqueItems")))
    return _chunk(2, _chunk(message, named))


def _response2(response: Mapping[str, Any]) -> bytes:
    found, schema = _text(1, response.get("description") or ""), response.get("schema")
    if schema is not None:
        found += _chunk(2, _chunk(1, _schema2(schema)))
    return _chunk(1, found)


def _security_scheme2(scheme: Mapping[str, Any]) -> bytes:
    texts = [_text(n, scheme.get(key) or "") for n, key in enumerate(API_KEY2, start=1)]
    return _chunk(2, b"".join(texts))


def _schema2(schema: Mapping[str, Any]) -> bytes:
    parts = [
        _scalar(number, schema[key], double=key in DOUBLES)
        for key, number in SCHEMA_NUMBERS2.items()
        if key in schema
    ]
    if "default" in schema:
        parts.append(_chunk(5, _any(schema["default"])))
    parts += [_text(19, name) for name in schema.get("required") or ()]
    parts += [_chunk(20, _any(each)) for each in schema.get("enum") or ()]
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        parts.append(_chunk(21, _chunk(1, _schema2(extra))))
    elif extra is not None:
        parts.append(_chunk(21, b"\x10\x01" if extra else b"\x10\x00"))
    if "type" in schema:
        parts.append(_chunk(22, _text(1, schema["type"])))
    if isinstance(schema.get("items"), Mapping):
        parts.append(_chunk(23, _chunk(1, _schema2(schema["items"]))))
    parts += [_chunk(24, _schema2(each)) for each in schema.get("allOf") or ()]
    if schema.get("properties"):
        parts.append(_chunk(25, _named(1, schema["properties"], _schema2)))
    return b"".join([*parts, *_extensions(31, schema)])


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
