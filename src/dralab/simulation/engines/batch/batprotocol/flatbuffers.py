"""The part of flatbuffers that batprotocol uses: tables, unions, vectors, strings, scalars.

A table is a mapping of its fields, spelled as flatbuffers' own JSON: enumerations by their names, a
union as two fields, `X_type` and `X`. The layout is that of flatbuffers' documentation
("FlatBuffer internals").

>>> decode("OneShot", encode("OneShot", {"time": 5, "time_unit": "Millisecond"}))
{'time': 5, 'time_unit': 'Millisecond'}
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.simulation.engines.batch.batprotocol.schema import (
    ENUMERATIONS,
    SIZES,
    TABLES,
    UNIONS,
    Field,
)

Table = dict[str, Any]
FORMATS: Final[Mapping[str, str]] = {
    "bool": "<?", "byte": "<B", "uint32": "<I", "uint64": "<Q", "float64": "<d",
}  # fmt: skip
DEEPEST: Final = 64  # tables within tables


class FlatbufferError(ValueError):
    """The bytes are not such a message."""


# --- writing --------------------------------------------------------------------------------------


def encode(table: str, value: Mapping[str, Any]) -> bytes:
    """Return a table as bytes; KeyError or ValueError for a name that the schema does not have."""
    buffer = bytearray(4)
    _patch(buffer, 0, _write_table(buffer, table, value))
    return bytes(buffer)


def _write_table(buffer: bytearray, name: str, value: Mapping[str, Any]) -> int:
    slots = _slots(TABLES[name])
    present = [
        (number, field, kind, found)
        for number, (field, kind) in enumerate(slots)
        if (found := _slot(field, kind, value)) is not None
    ]
    # The largest first: then each is aligned to its own size.
    present.sort(key=lambda one: -_size(one[2]))
    inline = 4 + sum(_size(kind) for _, _, kind, _ in present)
    vtable = [4 + 2 * len(slots), inline, *(0 for _ in slots)]
    _align(buffer, 2)
    start = len(buffer)
    buffer += bytes(vtable[0])
    while len(buffer) % 8 != 4:
        buffer += b"\0"
    at = len(buffer)
    buffer += struct.pack("<i", at - start)
    later = []
    for number, field, kind, found in present:
        vtable[2 + number] = len(buffer) - at
        if kind in FORMATS:
            buffer += struct.pack(FORMATS[kind], found)
        else:
            later.append((len(buffer), field, kind, found))
            buffer += bytes(4)
    struct.pack_into(f"<{len(vtable)}H", buffer, start, *vtable)
    for place, field, kind, found in later:
        _patch(buffer, place, _write_apart(buffer, field, kind, found))
    return at


def _write_apart(buffer: bytearray, field: Field, kind: str, value: Any) -> int:
    if kind == "vector":
        return _write_vector(buffer, field.kind, value)
    if kind == "string":
        return _write_string(buffer, value)
    if kind == "union":
        return _write_table(buffer, value["table"], value["value"])
    return _write_table(buffer, kind, value)


def _write_vector(buffer: bytearray, kind: str, values: Sequence[Any]) -> int:
    if kind in FORMATS:
        while len(buffer) % 8 != 4:
            buffer += b"\0"
        at = len(buffer)
        buffer += struct.pack("<I", len(values))
        for value in values:
            buffer += struct.pack(FORMATS[kind], value)
        return at
    _align(buffer, 4)
    at = len(buffer)
    buffer += struct.pack("<I", len(values)) + bytes(4 * len(values))
    for number, value in enumerate(values):
        write = _write_string if kind == "string" else None
        made = write(buffer, value) if write else _write_table(buffer, kind, value)
        _patch(buffer, at + 4 + 4 * number, made)
    return at


def _write_string(buffer: bytearray, value: str) -> int:
    _align(buffer, 4)
    at = len(buffer)
    data = str(value).encode()
    buffer += struct.pack("<I", len(data)) + data + b"\0"
    return at


def _align(buffer: bytearray, size: int) -> None:
    buffer += bytes(-len(buffer) % size)


def _patch(buffer: bytearray, place: int, target: int) -> None:
    struct.pack_into("<I", buffer, place, target - place)


def _slots(fields: Sequence[Field]) -> list[tuple[Field, str]]:
    """Return the slots of a table: a union has two, its type and its value."""
    found: list[tuple[Field, str]] = []
    for field in fields:
        if field.kind in UNIONS:
            found.append((field, "byte"))
            found.append((field, "union"))
        else:
            kind = "byte" if field.kind in ENUMERATIONS else field.kind
            found.append((field, "vector" if field.repeated else kind))
    return found


def _slot(field: Field, kind: str, value: Mapping[str, Any]) -> Any:
    """Return a slot's content; None if it is omitted."""
    if field.kind in UNIONS:
        member = value.get(f"{field.name}_type", "NONE")
        if member == "NONE":
            return None
        if kind == "byte":
            return UNIONS[field.kind].index(member) + 1
        return {"table": member, "value": value.get(field.name) or {}}
    found = value.get(field.name)
    if found is None or (not field.repeated and found == field.default):
        return None
    return ENUMERATIONS[field.kind].index(found) if field.kind in ENUMERATIONS else found


def _size(kind: str) -> int:
    return SIZES.get(kind, 4)


# --- reading --------------------------------------------------------------------------------------


def decode(table: str, data: bytes) -> Table:
    """Return a table from bytes, with its defaults; FlatbufferError if they are not one.

    Vectors and tables may share parts, so little data may mean much: what is read is at most as
    long as the data themselves, as it is in data that no one has crafted.
    """
    reader = _TableReader(data)
    try:
        return reader.table(table, reader.follow(0), 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FlatbufferError(f"it breaks off, or points outside itself ({error})") from None


class _TableReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = 2 * len(data) + 64

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise FlatbufferError("its parts overlap")

    def number(self, kind: str, at: int) -> Any:
        if at < 0:
            raise FlatbufferError("it points outside itself")
        return struct.unpack_from(FORMATS[kind], self.data, at)[0]

    def follow(self, at: int) -> int:
        return at + int(self.number("uint32", at))

    def table(self, name: str, at: int, depth: int) -> Table:
        if depth > DEEPEST:
            raise FlatbufferError(f"more than {DEEPEST} tables are within each other")
        if at < 0:
            raise FlatbufferError("it points outside itself")
        start = at - struct.unpack_from("<i", self.data, at)[0]
        if start < 0:
            raise FlatbufferError("it points outside itself")
        (size,) = struct.unpack_from("<H", self.data, start)
        self._take(4)
        count = (size - 4) // 2
        places = struct.unpack_from(f"<{max(count, 0)}H", self.data, start + 4)
        found: Table = {}
        number = 0
        for field in TABLES[name]:
            if field.kind in UNIONS:
                kind = self._slot(places, number, at)
                value = self._slot(places, number + 1, at)
                number += 2
                member = 0 if kind is None else self.number("byte", kind)
                found[f"{field.name}_type"] = told = _member(field.kind, member)
                if told != "NONE":
                    if value is None:
                        raise FlatbufferError(f"{name}.{field.name} is missing")
                    found[field.name] = self.table(told, self.follow(value), depth + 1)
                continue
            place = self._slot(places, number, at)
            number += 1
            if place is not None:
                found[field.name] = self._value(field, place, depth)
            elif field.default is not None:
                found[field.name] = field.default
        return found

    @staticmethod
    def _slot(places: Sequence[int], number: int, at: int) -> int | None:
        return at + places[number] if number < len(places) and places[number] else None

    def _value(self, field: Field, at: int, depth: int) -> Any:
        if field.repeated:
            return self._vector(field, self.follow(at), depth)
        if field.kind in ENUMERATIONS:
            return _named(field.kind, self.number("byte", at))
        if field.kind in FORMATS:
            return self.number(field.kind, at)
        return self._apart(field.kind, self.follow(at), depth)

    def _apart(self, kind: str, at: int, depth: int) -> Any:
        if kind != "string":
            return self.table(kind, at, depth + 1)
        size = self.number("uint32", at)
        self._take(size)
        if at + 4 + size > len(self.data):
            raise FlatbufferError("it breaks off")
        return self.data[at + 4 : at + 4 + size].decode()

    def _vector(self, field: Field, at: int, depth: int) -> list[Any]:
        count = self.number("uint32", at)
        self._take(4 * count)
        if field.kind in FORMATS:
            self._take(_size(field.kind) * count)
            letter = FORMATS[field.kind][1]
            return list(struct.unpack_from(f"<{count}{letter}", self.data, at + 4))
        places = (at + 4 + 4 * number for number in range(count))
        return [self._apart(field.kind, self.follow(place), depth) for place in places]


def _member(union: str, number: int) -> str:
    if number > len(UNIONS[union]):
        raise FlatbufferError(f"{union} has no member {number}")
    return UNIONS[union][number - 1] if number else "NONE"


def _named(enumeration: str, number: int) -> str:
    names = ENUMERATIONS[enumeration]
    if number >= len(names):
        raise FlatbufferError(f"{enumeration} has no value {number}")
    return names[number]
