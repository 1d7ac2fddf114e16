"""Request bodies: JSON, YAML and protobuf to plain mappings, with a server's error messages."""

from typing import Any, Final

import orjson

from dralab.api import fields
from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError
from dralab.apiserver.verbs.state.options import NO_REPEATS, Repeats
from dralab.values.json_syntax import (
    MOST_VALUES,
    duplicate_fields,
    go_error,
    has_more_values,
    may_have_duplicates,
)
from dralab.values.records import dataclass

MAX_BODY: Final = 3 * 1024 * 1024
SHOWN: Final = 30
NO_JSON: Final = "couldn't get version/kind; json parse error: "
NO_YAML: Final = "couldn't get version/kind; yaml parse error: "
ORDERED: Final = 64 * 1024
MAX_DEPTH: Final = 200
JSON_TYPES: Final = frozenset({"", "application/json", "*/*"})
YAML_TYPES: Final = frozenset({"application/yaml", "application/x-yaml"})
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
# Kinds that every group and version has.
META_KINDS: Final = frozenset(
    {
        "CreateOptions", "DeleteOptions", "ExportOptions", "GetOptions", "ListOptions",
        "PatchOptions", "Status", "UpdateOptions", "WatchEvent",
    }
)  # fmt: skip
ACCEPTED: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@dataclass(slots=True)
class Body:
    """A decoded body, and the keys that it gave twice."""

    value: Any
    repeats: Repeats = NO_REPEATS


class UnrecognizedBody(ApiError):  # noqa: N818 - a fact about a body
    """A body that is not an object; `problem` is the parser's message."""

    def __init__(
        self, data: bytes, expected: str, why: str, *, syntax: str = "", problem: str = ""
    ) -> None:
        super().__init__(
            "BadRequest",
            f"the object provided is unrecognized (must be of type {expected}): {why}{syntax} "
            f"({summary(data)})",
        )
        self.why = why + syntax
        self.problem = problem or syntax or why


def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters; as it is where these cannot be read."""
    media, *parameters = content_type.split(";")
    if any("=" not in each and each.strip() for each in parameters):
        return content_type
    return media.strip().lower()


def decode(
    data: bytes,
    content_type: str,
    expected: str,
    *,
    count_repeats: bool = True,
    accepted: str = ACCEPTED,
) -> Body:
    """Return the object in a body; `expected` is the Kind that it should be.

    `count_repeats` looks for keys that are given twice: JSON parsers drop all but the last.
    """
    media = media_type(content_type)
    if len(data) > MAX_BODY:
        raise ApiError(
            "RequestEntityTooLarge",
            f"Request entity too large: limit is {MAX_BODY}",
            details={},
        )
    if media in JSON_TYPES or (media in YAML_TYPES and data[:1] == b"{"):
        _check_values(data)
    if media in JSON_TYPES:
        return _json(data, expected, count_repeats=count_repeats)
    if media in YAML_TYPES:
        return load_yaml(data, expected, count_repeats=count_repeats)
    if media == PROTOBUF:
        from dralab.apiserver import protobuf

        try:
            return Body(protobuf.decode(data))
        except protobuf.ProtobufError as error:
            raise UnrecognizedBody(data, expected, str(error)) from error
    raise unknown_format(accepted)


def check_form(content_type: str, accepted: str) -> None:
    """Refuse a body of a type that cannot be read, whatever is in it. ApiError."""
    media = media_type(content_type)
    if media not in JSON_TYPES and media not in YAML_TYPES and media != PROTOBUF:
        raise unknown_format(accepted)


def decode_options(data: bytes, content_type: str, expected: str) -> dict[str, Any] | None:
    """Return the options in a body, which a server's errors do not name."""
    try:
        value = decode(data, content_type, expected).value
    except UnrecognizedBody as error:
        raise ApiError.bad_request(error.why) from None
    if value is None or isinstance(value, dict):
        kind = (value or {}).get("kind") or expected
        if kind == expected:
            return value
        version = (value or {}).get("apiVersion") or "v1"
        raise ApiError.bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    raise ApiError.bad_request(_not_a_struct(value))


def unknown_format(accepted: str) -> ApiError:
    """Return the error for a body in a form that is not supported."""
    return ApiError(
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        f"{accepted}",
    )


def _check_values(data: bytes) -> None:
    """Refuse JSON that would take long to read: a real server reads it. ApiError."""
    if has_more_values(data):
        raise ApiError(
            "RequestEntityTooLarge",
            f"Request entity too large: the body has more than {MOST_VALUES} objects, lists and "
            "items",
            details={},
        )


def _json(data: bytes, expected: str, *, count_repeats: bool) -> Body:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnrecognizedBody(data, expected, NO_JSON, syntax=go_error(data)) from error
    repeats = NO_REPEATS
    # A body that nests too deeply to be encoded again is refused before it is stored.
    if count_repeats or data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        try:
            encoded = orjson.dumps(value)
        except orjson.JSONEncodeError as error:
            raise UnrecognizedBody(data, expected, NO_JSON, syntax="exceeded max depth") from error
        if count_repeats and may_have_duplicates(data, encoded):
            paths = tuple(duplicate_fields(data))
            # The text tells their order among other complaints; a long one is not read again.
            text = data if paths and len(data) <= ORDERED else b""
            repeats = Repeats(paths=paths, text=text)
    return Body(value, repeats)


def load_yaml(data: bytes, expected: str, *, count_repeats: bool = False) -> Body:
    """Return the value of a YAML text, with the types of JSON."""
    from dralab.apiserver.http.encodings import yaml_text

    try:
        value, lines = yaml_text.load(data, count_repeats=count_repeats)
        return Body(value, Repeats(lines=tuple(lines)) if count_repeats else NO_REPEATS)
    except yaml_text.NoYamlError as error:
        raise UnrecognizedBody(
            data, expected, NO_YAML, syntax=str(error), problem=error.problem
        ) from error


def summary(data: bytes) -> str:
    """Return the beginning of a body as a server shows it: text if JSON, else hexadecimal."""
    if not data:
        return "<empty>"
    shown = data[:SHOWN]
    text = shown.decode("utf-8", errors="replace") if data[:1] == b"{" else shown.hex()
    return f"{text} ..." if len(data) > SHOWN else text


def check_type(value: Any, data: bytes, kind: Kind, kinds: Kinds) -> dict[str, Any]:
    """Return the object of a body if it is one of `kind`; built-in ones may leave that out."""
    if value is None and kind.custom is None:
        return {}
    if not isinstance(value, dict):
        raise UnrecognizedBody(
            data,
            kind.kind,
            _not_a_struct(value),
        )
    version, name = value.get("apiVersion"), value.get("kind")
    if version == kind.api_version and name == kind.kind:
        return value
    for part in (version, name):
        if part is not None and not isinstance(part, str):
            raise UnrecognizedBody(
                data,
                kind.kind,
                "couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{go_type(part)} into Go struct field .apiVersion of type string",
            )
    if kind.custom is not None:
        for part in ("Kind", "apiVersion"):
            if not value.get("kind" if part == "Kind" else part):
                shown = data.decode("utf-8", errors="replace")
                raise UnrecognizedBody(data, kind.kind, f"Object '{part}' is missing in '{shown}'")
    version, name = version or kind.api_version, name or kind.kind
    if version.count("/") > 1:
        raise UnrecognizedBody(data, kind.kind, f"unexpected GroupVersion string: {version}")
    if kind.custom is not None and version == kind.api_version:
        metadata = value.get("metadata")
        given = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
        error = fields.invalid_value("kind", name, f"must be {kind.kind}")
        raise fields.invalid(name, given, [error], group=kind.group)
    if kind.custom is None and (
        name != kind.kind
        or (version.rpartition("/")[0] == kind.group and kinds.of_object(version, name) is None)
    ):
        raise _wrong_kind(version, name, kind.group, kind.kind, kinds)
    if version != kind.api_version:
        raise ApiError.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    return value


def _not_a_struct(value: Any) -> str:
    return (
        "couldn't get version/kind; json parse error: json: cannot unmarshal "
        f"{go_type(value)} into Go value of type struct "
        '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
        '"json:\\"kind,omitempty\\"" }'
    )


def check_name_of_kind(value: Any, group: str, expected: str, kinds: Kinds) -> None:
    """Refuse the object of a subresource if it says that it is of another kind. ApiError.

    Its version may be another one: clients send evictions of policy/v1beta1 to this day.
    """
    name = value.get("kind") if isinstance(value, dict) else None
    if isinstance(name, str) and name not in {"", expected}:
        version = value.get("apiVersion")
        raise _wrong_kind(version if isinstance(version, str) else "", name, group, expected, kinds)


def _wrong_kind(version: str, name: str, group: str, expected: str, kinds: Kinds) -> ApiError:
    short = version.rpartition("/")[2]
    known = kinds.of_object(version, name) or kinds.of_object(version, name.removesuffix("List"))
    if known is None and name not in META_KINDS and (version, name) != ("v1", "List"):
        why = (
            f'no kind "{name}" is registered for version "{version}" in scheme '
            '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
        )
    else:
        package = (group or "core").partition(".")[0]
        why = f"converting ({short}.{name}) to ({package}.{expected}): unknown conversion"
    return ApiError.bad_request(
        f'{name} in version "{short}" cannot be handled as a {expected}: {why}'
    )


def go_type(value: Any) -> str:
    """Return what Go's decoder calls the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
