"""Converts client objects to typed, canonical server objects, with errors and warnings."""

import re
from collections.abc import Sequence
from typing import Final

import orjson

from dralab.api.decoding import decoder_of
from dralab.api.kinds import Kind
from dralab.api.scalar_decoding import DecodingError
from dralab.api.status import ApiError
from dralab.apiserver.verbs.state.context import Scope
from dralab.values.json_syntax import strict_errors
from dralab.values.json_types import JsonDict

NUMBER: Final = re.compile(r"cannot unmarshal number\b.* of type int")
PARTS: Final = ("metadata", "spec", "status")
METADATA: Final = ("labels", "annotations", "ownerReferences", "managedFields")


def decoded(scope: Scope, kind: Kind, value: JsonDict) -> JsonDict:
    """Return an object as the server keeps it, before defaults.

    Unknown and repeated fields are dropped, and refused or warned of as the options say.
    ApiError BadRequest, in Go's words, where a value has the wrong type.
    """
    value["kind"], value["apiVersion"] = kind.kind, kind.api_version
    try:
        value, unknown = typed(scope, kind, value, converts=scope.options.applied)
    except DecodingError as error:
        if scope.options.applied:
            raise _unconvertible(kind, value, str(error)) from error
        raise unusable(kind, str(error)) from error
    if unknown or scope.options.repeats:
        complain(scope, unknown, kind)
    return value


def decoded_change(scope: Scope, kind: Kind, value: JsonDict, before: JsonDict) -> JsonDict:
    """Return an object that replaces the stored `before`, as `decoded` does.

    Its parts, and those of its metadata, are not decoded again where they are byte for byte as
    stored.
    """
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not scope.rules.decodes_alone(kind):
        return decoded(scope, kind, value)
    known = _taken(PARTS, value, before)
    within = {} if "metadata" in known else _taken(METADATA, metadata, before["metadata"])
    order, order_within = list(value), list(metadata)
    for parts, whole in ((known, value), (within, metadata)):
        for part in parts:
            del whole[part]
    found = decoded(scope, kind, value)
    if within:
        found["metadata"] = _joined(order_within, within, found["metadata"])
    return _joined(order, known, found) if known else found


def _taken(parts: Sequence[str], value: JsonDict, before: JsonDict) -> JsonDict:
    return {part: value[part] for part in parts if _unchanged(part, value, before)}


def _unchanged(part: str, value: JsonDict, before: JsonDict) -> bool:
    mine, theirs = value.get(part), before.get(part)
    if not mine or mine != theirs:
        return False
    # Python takes 1, 1.0 and true for the same.
    return mine is theirs or orjson.dumps(mine) == orjson.dumps(theirs)


def _joined(order: Sequence[str], known: JsonDict, found: JsonDict) -> JsonDict:
    """Return known and decoded fields, in the order in which they were sent."""
    result = {}
    for name in order:
        if name in known:
            result[name] = known[name]
        elif name in found:
            result[name] = found[name]
    for name in found:
        if name not in result:
            result[name] = found[name]
    return result


def typed(
    scope: Scope, kind: Kind, value: JsonDict, *, converts: bool = False
) -> tuple[JsonDict, list[str]]:
    """Return an object in its typed form and the paths of unknown fields; DecodingError.

    `converts` says that Go's converter of untyped objects reads it, which takes any number.
    """
    rules = scope.rules.strategy_of(kind)
    scope.warnings += rules.mend(value)
    custom = rules.decode(value, kind.version)
    if custom is not None:
        return custom
    decoder = decoder_of(kind.api_version, kind.kind, kind.release)
    if decoder is None:
        return value, []
    try:
        return decoder.decode(value, scope.options.empties, scope.options.gated)
    except DecodingError as error:
        if not converts or not NUMBER.search(str(error)):
            raise
    decoder.converted(value)
    return decoder.decode(value, scope.options.empties, scope.options.gated)


def complaints(unknown: Sequence[str], repeated: Sequence[str]) -> list[str]:
    """Return the messages about fields that strict validation refuses."""
    return [f'duplicate field "{path}"' for path in repeated] + [
        f'unknown field "{path}"' for path in unknown
    ]


def complain(scope: Scope, unknown: Sequence[str], kind: Kind) -> None:
    """Refuse, warn or ignore, as the client asked. ApiError."""
    repeats = scope.options.repeats
    if unknown and repeats.text and kind.custom is None:
        # Decoded at once into its type; a custom object is decoded first, and pruned then.
        sentences = [
            f'{word} field "{path}"' for word, path in strict_errors(repeats.text, unknown)
        ]
    else:
        sentences = complaints(unknown, repeats.paths)
    if scope.options.validation == "Strict":
        again = [already_set(repeats.lines)] if repeats.lines else []
        raise unusable(kind, f"strict decoding error: {', '.join([*again, *sentences])}")
    if scope.options.validation != "Ignore":
        scope.warnings += [*repeats.lines, *sentences]


def already_set(lines: Sequence[str]) -> str:
    """Return go-yaml's message about duplicate keys."""
    return "\n  ".join(["yaml: unmarshal errors:", *lines])


def converted_text(why: str) -> str:
    """Return an error of decoding as Go's converter of untyped objects has it."""
    return f"error decoding from json: {why}" if why.startswith("illegal base64") else why


def _unconvertible(kind: Kind, value: JsonDict, why: str) -> ApiError:
    """Return the error for an applied configuration that gives no object of its kind."""
    meta = value.get("metadata") or {}
    named = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    shown = f"{kind.group}/{kind.version}, Kind={kind.kind}"
    return ApiError.failed(
        f"failed to convert new object ({named}; {shown}) to proper version: unable to convert "
        f"unstructured object to {shown}: {converted_text(why)}"
    )


def unusable(kind: Kind, why: str) -> ApiError:
    """Return the error for an object that cannot be decoded as its kind."""
    return ApiError.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )
