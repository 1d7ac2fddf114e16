"""JSON values as values of expressions, and back."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from dralab.cel.errors import CelError
from dralab.cel.functions.times import duration_text, timestamp_text
from dralab.cel.values import MAPS, Duration, Map, Optional, Quantity, Timestamp, items
from dralab.values.quantity import render


def from_json(value: Any) -> Any:
    """Return a JSON value as expressions see it.

    >>> from_json({"a": [1]}) == Map({"a": [1]})
    True
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if isinstance(value, Mapping):
        return Map({key: from_json(item) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [from_json(item) for item in value]
    return value


def to_json(value: Any) -> Any:
    """Return the value of an expression as JSON; CelError for one that JSON does not have.

    Source: cel-go `ConvertToNative` to structpb.Value.
    """
    kind = type(value)
    if kind in MAPS:
        return {_key(key): to_json(item) for key, item in items(value)}
    if kind is list:
        return [to_json(item) for item in value]
    if value is None or kind in {str, bool, int, float}:
        return value
    if isinstance(value, int):
        return int(value)
    if kind is bytes:
        return base64.b64encode(value).decode("ascii")
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is Duration:
        return duration_text(value)
    if kind is Quantity:
        return render(value.number)
    if kind is Optional:
        return to_json(value.value) if value.present else None
    raise CelError(f"unsupported conversion to JSON: {kind.__name__}")


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    raise CelError("unsupported conversion to JSON: a key that is not a string")
