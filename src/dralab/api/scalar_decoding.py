"""How a Go server reads single values: texts, numbers, quantities, times.

Each function returns the value in its final form, or raises Unclear. `decoding` puts them together
to structs, lists and maps.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dralab.kernel.times import (
    RFC3339,
    RFC3339_MICRO,
    TimeError,
    from_rfc3339,
    rfc3339,
    rfc3339_micro,
)
from dralab.values.quantity import QuantityError, canonical
from dralab.values.records import dataclass

Decode = Callable[[Any, "DecodingNotes"], Any]
# What is in its final form already. The last days of a month, and the first year with Go's zero
# time, are looked at more closely.
_DAY: Final = r"(?!0001)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
SECONDS: Final = re.compile(rf"{_DAY}T{_CLOCK}Z", re.ASCII)
MICROS: Final = re.compile(rf"{_DAY}T{_CLOCK}\.\d{{6}}Z", re.ASCII)
ZERO_TIME: Final = from_rfc3339("0001-01-01T00:00:00Z")


class DecodingError(ValueError):
    """A value of the wrong type; `str` is Go's sentence.

    `alone` says that the type reads itself: Go knows no field then.
    """

    alone = False


class EmptyField(NamedTuple):
    """An empty list or map that a client sent and a server does not store.

    `shown` says that JSON has the field even if it is not there.
    """

    holder: dict[str, Any]
    name: str
    value: Any
    shown: bool


@dataclass(slots=True)
class DecodingNotes:
    """What a decoder noticed: whether there were unknown fields, and how deep it is.

    `empties` gets the empty lists and maps that it drops, if it is asked for them, `gated` the
    fields that need a feature gate. `canonical` is a struct that is as a server keeps it.
    """

    unknown: bool = False
    depth: int = 0
    empties: "list[EmptyField] | None" = None
    gated: list[str] | None = None
    canonical: Any = None


class Unclear(Exception):  # noqa: N818 - no error yet: a second look will tell
    """The fast way found a problem."""


def as_it_is(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Accept anything."""
    return value


def exactly(kind: type) -> Decode:
    """Return a decoder of values of one type."""

    def decode(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
        if type(value) is not kind:
            raise Unclear
        return value

    return decode


def integer_below(limit: int) -> Decode:
    """Return a decoder of integers of the size; it accepts 1.0."""

    def decode(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
        if type(value) is int and -limit <= value < limit:
            return value
        # 1.0 is an integer to Go's JSON of Kubernetes, 1.5 is not.
        if type(value) is float and value.is_integer() and -limit <= value < limit:
            return int(value)
        raise Unclear

    return decode


def number(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Take a number."""
    if type(value) is int or type(value) is float:
        return value
    raise Unclear


def quantity(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Take a quantity, and write it as Kubernetes does."""
    if type(value) is not str:
        if type(value) is not int and type(value) is not float:
            raise Unclear
        value = repr(value).replace("e+", "e")
    try:
        return canonical(value)
    except QuantityError as error:
        raise Unclear from error


def int_or_string(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Take a text, or an integer of 32 bits."""
    if type(value) is str or (type(value) is int and -(2**31) <= value < 2**31):
        return value
    raise Unclear


def time(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Take a metav1.Time, and write it in UTC and whole seconds."""
    return _rewritten(value, SECONDS, RFC3339, rfc3339)


def micro_time(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Take a metav1.MicroTime, and write it in UTC."""
    return _rewritten(value, MICROS, RFC3339_MICRO, rfc3339_micro)


def _rewritten(
    value: Any, canonical: re.Pattern[str], layout: str, write: Callable[[int], str]
) -> str | None:
    if type(value) is not str:
        raise Unclear
    if canonical.fullmatch(value):
        return value
    when = _moment(value, layout)
    return None if when is None else write(when)


def _moment(text: str, layout: str) -> int | None:
    """Return a time; None for Go's zero time, which is written as null."""
    try:
        when = from_rfc3339(text, layout)
    except TimeError as error:
        raise Unclear from error
    return None if when == ZERO_TIME else when


BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
PAD: Final = ord("=")


def base64_text(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Take bytes in base64; line breaks in it are dropped, as by Go's decoder."""
    if type(value) is not str:
        raise Unclear
    if "\n" in value or "\r" in value:
        value = value.replace("\n", "").replace("\r", "")
    try:
        b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unclear from error
    return value


def corrupt_base64(text: bytes) -> int:
    """Return where Go's decoder finds that a text is not base64; its length if it is.

    >>> corrupt_base64(b"Always"), corrupt_base64(b"a.b"), corrupt_base64(b"YQ=")
    (4, 1, 3)
    """
    places = [at for at, byte in enumerate(text) if byte not in b"\r\n"]
    for number, at in enumerate(places):
        if text[at] in BASE64:
            continue
        held, rest = number % 4, places[number + 1 :]
        if text[at] != PAD or held < 2:
            return at
        if held == 2:
            if not rest:
                return len(text)
            if text[rest[0]] != PAD:
                return rest[0] - 1
            rest = rest[1:]
        return rest[0] if rest else len(text)
    return len(text) - len(places) % 4 if places else 0


def texts(value: Any, seen: DecodingNotes) -> Any:  # noqa: ARG001 - the shape of every decoder
    """Decode a map of texts: labels, annotations, data."""
    if type(value) is not dict:
        raise Unclear
    for key, each in value.items():
        if type(each) is not str:
            if each is not None:
                raise Unclear
            value[key] = ""
    return value
