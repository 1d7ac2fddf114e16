"""A message as bytes: binary or JSON, both with the names of the schema."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch.batprotocol import flatbuffers
from dralab.simulation.engines.batch.batprotocol.schema import (
    ENUMERATIONS,
    JSON_ONLY,
    TABLES,
    UNIONS,
    Field,
)

Message = dict[str, Any]
BINARY: Final = 1  # the flags with which a component says how it wants to be spoken to
JSON: Final = 2
FORMS: Final[Mapping[str, int]] = {"binary": BINARY, "json": JSON}


def event(when: float, kind: str, value: Mapping[str, Any] | None = None) -> Message:
    """Return one event of a message."""
    return {"timestamp": when, "event_type": kind, "event": dict(value or {})}


def written(message: Mapping[str, Any], form: int) -> bytes:
    """Return a message as bytes; JSON ends with a null byte, as Batsim writes and reads it."""
    if form == JSON:
        return orjson.dumps(message) + b"\0"
    for one in message["events"]:
        if one["event_type"] in JSON_ONLY:
            kind = one["event_type"]
            raise DecisionError(
                f"a {kind} has no binary form here (its number is not in the published schema): "
                "ask for JSON",
                scheduler="dralab",
            )
    return flatbuffers.encode("Message", message)


def read(data: bytes, form: int, *, sender: str) -> Message:
    """Return a message with its defaults. DecisionError, which names the sender."""
    try:
        if form == JSON:
            value = orjson.loads(data.rstrip(b"\0"))
            return _completed("Message", value)
        return flatbuffers.decode("Message", data)
    except orjson.JSONDecodeError as error:
        problem = f"sent invalid JSON: {error.msg}"
    except flatbuffers.FlatbufferError as error:
        problem = f"sent an invalid message: {error}"
    except RecursionError:
        problem = "sent an invalid message: its tables are too deep"
    raise DecisionError(problem, scheduler=sender)


def _completed(table: str, value: Any) -> Message:
    """Return a table of JSON as `flatbuffers.decode` would; unknown fields stay as they are."""
    if not isinstance(value, dict):
        raise flatbuffers.FlatbufferError(f"{value!r:.40} is not a {table}")
    found: Message = dict(value)
    for field in TABLES.get(table, ()):
        if field.kind in UNIONS:
            _complete_union(field, found)
        elif (given := found.get(field.name)) is None:
            found.pop(field.name, None)
            if field.default is not None:
                found[field.name] = field.default
        else:
            found[field.name] = _complete_field(table, field, given)
    return found


def _complete_union(field: Field, found: Message) -> None:
    kind = found.get(f"{field.name}_type", "NONE")
    if isinstance(kind, int):
        names = ("NONE", *UNIONS[field.kind])
        kind = names[kind] if 0 <= kind < len(names) else str(kind)
    found[f"{field.name}_type"] = kind
    if kind != "NONE":
        found[field.name] = _completed(str(kind), found.get(field.name) or {})


def _complete_field(table: str, field: Field, given: Any) -> Any:
    where = f"{table}.{field.name}"
    if field.repeated:
        if not isinstance(given, list):
            raise flatbuffers.FlatbufferError(f"{where} is not an array")
        return [_complete_value(where, field, item) for item in given]
    return _complete_value(where, field, given)


def _complete_value(where: str, field: Field, given: Any) -> Any:
    kind = field.kind
    if kind in TABLES:
        return _completed(kind, given)
    if kind in ENUMERATIONS:
        names = ENUMERATIONS[kind]
        if isinstance(given, int) and 0 <= given < len(names):
            return names[given]
        good = given in names
    elif kind == "string":
        good = isinstance(given, str)
    elif kind == "bool":
        good = isinstance(given, bool)
    elif kind == "float64":
        good = isinstance(given, int | float) and not isinstance(given, bool)
    else:
        good = isinstance(given, int) and not isinstance(given, bool) and given >= 0
    if not good:
        raise flatbuffers.FlatbufferError(f"{where} must be of type {kind}, and is {given!r:.40}")
    return given
