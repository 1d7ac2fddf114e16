"""CBOR (RFC 8949) as Kubernetes writes and reads it: values of JSON, and nothing else.

Texts and keys are byte strings, which Go need not check; bytes, which JSON has as base64, are byte
strings in tag 22. Both kinds of strings are read. Messages of errors are those of the library that
Kubernetes uses (github.com/fxamacker/cbor), which clients see.

Source: k8s.io/apimachinery `pkg/runtime/serializer/cbor/internal/modes`.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from dralab.values.json_syntax import MOST_VALUES

SELF_DESCRIBED: Final = b"\xd9\xd9\xf7"
LATER_BASE64: Final = 0xD6
# JSON that nests more deeply could not be written again; upstream's limit is 10,000.
DEEPEST: Final = 200
LEAST: Final = -(1 << 63)
MOST: Final = (1 << 63) - 1
TYPES: Final = (
    "positive integer", "negative integer", "byte string", "UTF-8 text string", "array", "map",
    "tag", "primitives",
)  # fmt: skip
INTEGER, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, PRIMITIVE = range(8)  # the major types
BREAK: Final = object()
# Which fields of a value are bytes: a tree of names; True for what is bytes itself.
BytesAt = Mapping[str, "BytesAt | bool"]
EVERY: Final = "*"  # the values of a map, and the items of a list


class CborError(ValueError):
    """Bytes that are not CBOR, or not a value of JSON."""


# --- writing ------------------------------------------------------------------------------------


def dumps(value: Any, bytes_at: "BytesAt | None" = None) -> bytes:
    """Return a value of JSON, with the tag that tells CBOR from other bytes.

    >>> dumps({"a": [1, None]}).hex(), dumps({"d": {"k": "cQ=="}}, {"d": {"*": True}}).hex()
    ('d9d9f7a141618201f6', 'd9d9f7a14164a1416bd64171')
    """
    out = bytearray(SELF_DESCRIBED)
    _write(value, bytes_at or {}, out)
    return bytes(out)


def event(type_: str, encoded_object: bytes) -> bytes:
    """Return an event of a watch; its object is written already."""
    out = bytearray(SELF_DESCRIBED)
    _head(MAP, 2, out)
    _text("object", out)
    out += encoded_object
    _text("type", out)
    _text(type_, out)
    return bytes(out)


def _write(value: Any, bytes_at: "BytesAt | bool", out: bytearray) -> None:
    if isinstance(value, str):
        if bytes_at is True:
            try:
                data = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                _text(value, out)
                return
            out.append(LATER_BASE64)
            _head(BYTES, len(data), out)
            out += data
        else:
            _text(value, out)
    elif value is None:
        out.append(0xF6)
    elif isinstance(value, bool):
        out.append(0xF5 if value else 0xF4)
    elif isinstance(value, int):
        _head(INTEGER, value, out) if value >= 0 else _head(NEGATIVE, -1 - value, out)
    elif isinstance(value, float):
        out += _float(value)
    elif isinstance(value, Mapping):
        _head(MAP, len(value), out)
        tree = bytes_at if isinstance(bytes_at, Mapping) else {}
        every = tree.get(EVERY, False)
        for name, item in value.items():
            _text(name, out)
            _write(item, tree.get(name, every) if tree else False, out)
    else:
        _head(ARRAY, len(value), out)
        for item in value:
            _write(item, bytes_at, out)


def _text(text: str, out: bytearray) -> None:
    data = text.encode(errors="surrogatepass")
    _head(BYTES, len(data), out)
    out += data


def _head(major: int, number: int, out: bytearray) -> None:
    first = major << 5
    if number < 24:
        out.append(first | number)
        return
    for at, size in enumerate((1, 2, 4, 8)):
        if number < 1 << (8 * size):
            out.append(first | (24 + at))
            out += number.to_bytes(size, "big")
            return
    raise CborError(f"{number} overflows 64 bits")


def _float(value: float) -> bytes:
    """Return a number in as few bytes as keep it."""
    for first, layout in ((0xF9, ">e"), (0xFA, ">f")):
        try:
            data = struct.pack(layout, value)
        except OverflowError:
            continue
        if struct.unpack(layout, data)[0] == value:
            return bytes([first]) + data
    return b"\xfb" + struct.pack(">d", value)


# --- reading ------------------------------------------------------------------------------------


def loads(data: bytes) -> Any:
    r"""Return the value of JSON in CBOR. CborError.

    >>> loads(bytes.fromhex("d9d9f7a14161d64171"))
    {'a': 'cQ=='}
    >>> loads(b"\xff")
    Traceback (most recent call last):
    dralab.values.cbor.CborError: cbor: unexpected "break" code
    """
    if not data:
        raise CborError("EOF")
    reader = _CborReader(data)
    value = reader.value(0)
    if value is BREAK:
        raise CborError('cbor: unexpected "break" code')
    if reader.at < len(data):
        raise CborError(
            f"cbor: {len(data) - reader.at} bytes of extraneous data starting at index {reader.at}"
        )
    return value


def sequence(data: bytes) -> list[bytes]:
    r"""Return the encoded items of a CBOR sequence (RFC 8742). CborError.

    >>> sequence(b"\x01\x61a\x80")
    [b'\x01', b'aa', b'\x80']
    """
    reader, found = _CborReader(data), []
    while (begin := reader.at) < len(data):
        reader.value(0)
        found.append(data[begin : reader.at])
    return found


class _CborReader:
    """Reads one value after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = self.values = 0

    def value(self, depth: int, later: str = "") -> Any:
        """Return the next value; BREAK where an open sequence ends.

        `later` is how a tag wants the byte string in it to be written.
        """
        self.values += 1
        if self.values > MOST_VALUES:
            raise CborError(f"cbor: exceeded max number of values {MOST_VALUES}")
        if depth > DEEPEST:
            raise CborError(f"cbor: exceeded max nested level {DEEPEST}")
        first = self._take(1)[0]
        major, short = first >> 5, first & 31
        if major == PRIMITIVE:
            return self._primitive(short)
        if 28 <= short <= 30 or (short == 31 and major in {INTEGER, NEGATIVE, TAG}):
            raise CborError(f"cbor: invalid additional information {short} for type {TYPES[major]}")
        number = None if short == 31 else self._number(short)
        match major:
            case 0:
                return self._whole(number or 0)
            case 1:
                return self._whole(-1 - (number or 0))
            case 2 | 3:
                return self._string(major, number, later)
            case 4:
                return self._items(number, depth)
            case 5:
                return self._pairs(number, depth)
            case _:
                return self._tagged(number or 0, depth)

    def _take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise CborError("unexpected EOF")
        self.at += size
        return found

    def _number(self, short: int) -> int:
        return short if short < 24 else int.from_bytes(self._take(1 << (short - 24)), "big")

    def _whole(self, number: int) -> int:
        if not LEAST <= number <= MOST:
            name = TYPES[INTEGER if number >= 0 else NEGATIVE]
            raise CborError(
                f"cbor: cannot unmarshal {name} into Go value of type int64 "
                f"({number} overflows Go's int64)"
            )
        return number

    def _string(self, major: int, size: int | None, later: str) -> str:
        data = self._take(size) if size is not None else b"".join(self._chunks(major))
        if later and major == BYTES:
            return WRITTEN_LATER[later](data)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise CborError("cbor: invalid UTF-8 string") from None

    def _chunks(self, major: int) -> list[bytes]:
        found = []
        while (first := self._take(1)[0]) != 0xFF:
            if first >> 5 != major or first & 31 == 31:
                raise CborError(
                    f"cbor: wrong element type {TYPES[first >> 5]} for indefinite-length "
                    f"{TYPES[major]}"
                )
            found.append(self._take(self._number(first & 31)))
        return found

    def _items(self, count: int | None, depth: int) -> list[Any]:
        found: list[Any] = []
        while count is None or len(found) < count:
            item = self.value(depth + 1)
            if item is BREAK:
                if count is None:
                    break
                raise CborError('cbor: unexpected "break" code')
            found.append(item)
        return found

    def _pairs(self, count: int | None, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        number = 0
        while count is None or number < count:
            key = self.value(depth + 1)
            if key is BREAK and count is None:
                break
            if not isinstance(key, str):
                raise CborError("cbor: cannot unmarshal a map key into Go value of type string")
            if key in found:
                where = f"at map element index {number}"
                raise CborError(f'cbor: found duplicate map key "{key}" {where}')
            item = self.value(depth + 1)
            if item is BREAK:
                raise CborError('cbor: unexpected "break" code')
            found[key] = item
            number += 1
        return found

    def _tagged(self, tag: int, depth: int) -> Any:
        later = {21: "base64url", 22: "base64", 23: "base16"}.get(tag, "")
        if tag in {2, 3}:
            raise CborError("cbor: cannot unmarshal a bignum into Go value of type int64")
        value = self.value(depth + 1, later)
        if value is BREAK:
            raise CborError('cbor: unexpected "break" code')
        return value

    def _primitive(self, short: int) -> Any:
        if short in {25, 26, 27}:
            size = 1 << (short - 24)
            (number,) = struct.unpack({2: ">e", 4: ">f", 8: ">d"}[size], self._take(size))
            if not math.isfinite(number):
                what = "NaN" if math.isnan(number) else "infinity"
                raise _unacceptable(f"floating-point {what}")
            return number
        if short == 31:
            return BREAK
        if 28 <= short <= 30:
            raise CborError(f"cbor: invalid additional information {short} for type primitives")
        simple = self._take(1)[0] if short == 24 else short
        if simple not in SIMPLE:
            raise _unacceptable(f"simple value {simple}")
        return SIMPLE[simple]


SIMPLE: Final = {20: False, 21: True, 22: None}
WRITTEN_LATER: Final[Mapping[str, Callable[[bytes], str]]] = {
    "base64url": lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    "base64": lambda data: base64.b64encode(data).decode(),
    "base16": lambda data: data.hex().upper(),
}


def _unacceptable(what: str) -> CborError:
    return CborError(f"cbor: data item of cbor type primitives is not accepted by protocol: {what}")
