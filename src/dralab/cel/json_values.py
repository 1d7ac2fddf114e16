"""JSON values as values of expressions, and back."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.cel.errors import CelError
from dralab.cel.functions.times import duration_text, timestamp_text
from dralab.cel.values import MAPS, Duration, Map, Optional, Quantity, Timestamp, items
from dralab.values.quantity import render

PLAIN: Final = frozenset({str, int, bool, float, type(None)})


def from_json(value: Any) -> Any:
    """Return a JSON value as expressions see it.

    >>> from_json({"a": [1]}) == Map({"a": [1]})
    True
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return Map({k: v if type(v) in PLAIN else from_json(v) for k, v in value.items()})
    if isinstance(value, Mapping):
        return Map({key: from_json(item) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [from_json(item) for item in value]
    return value


class Converted:
    """A JSON value as expressions see it, with its size.

    `parts` is how many values there are in it, `longest` the length of its longest text.
    """

    __slots__ = ("longest", "parts", "value")

    def __init__(self, value: Any) -> None:
        self.parts = self.longest = 0
        self.value = self._convert(value)

    def _convert(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            self.longest = max(self.longest, len(value))
            return value
        if kind is dict:
            self.parts += 2 * len(value)
            return Map({key: self._convert(item) for key, item in value.items()})
        if kind is list:
            self.parts += len(value)
            return [self._convert(item) for item in value]
        return value if kind in PLAIN else from_json(value)


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
