"""Decoding: the wire format, and the types whose JSON is not that of their fields.

A value that Go would leave out of its JSON is left out here: an empty one, unless the field is
a pointer or always written. Hostile input ends in a ProtobufError: sizes, depth and the number
of values are bounded.
"""

import base64
import math
import struct
from typing import Any, Final

import orjson

from dralab.apiserver.protobuf.plans import FieldPlan, MessagePlan, plan_of_object
from dralab.kernel.times import EARLIEST, LATEST, SECOND, rfc3339, rfc3339_micro
from dralab.values.json_syntax import MOST_VALUES

MAGIC: Final = b"k8s\x00"
MAX_DEPTH: Final = 100
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class ProtobufError(ValueError):
    """A body that is not a protobuf, or not of a type that is known."""


def decode(data: bytes) -> dict[str, Any]:
    """Return the object in an envelope (`k8s`, a zero byte, runtime.Unknown).

    ProtobufError if it cannot be read.
    """
    return _Decoder(data).envelope(0, len(data), 0)


class _Decoder:
    """Reads one body."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.values = 0

    def envelope(self, at: int, end: int, depth: int) -> dict[str, Any]:
        data = self.data
        if data[at : at + 4] != MAGIC:
            raise ProtobufError(
                "provided data does not appear to be a protobuf message, expected prefix "
                f"[{' '.join(map(str, MAGIC))}]"
            )
        at += 4
        api_version = kind = ""
        inside = (at, at)
        while at < end:
            number, wire, at = self.tag(at, end)
            if wire != BYTES:
                at = self.skipped(wire, at, end)
                continue
            start, at = self.span(at, end)
            if number == 1:
                api_version, kind = self.type_meta(start, at)
            elif number == 2:
                inside = (start, at)
            elif number == 3 and at > start:
                raise ProtobufError("encoded content in the envelope is not supported")
        plan = plan_of_object(api_version, kind)
        if plan is None:
            raise ProtobufError(f'no kind "{kind}" is known in version "{api_version}"')
        found: dict[str, Any] = {"apiVersion": api_version, "kind": kind}
        self.message(*inside, plan, found, depth + 1)
        return found

    def type_meta(self, at: int, end: int) -> tuple[str, str]:
        found = {1: "", 2: ""}
        while at < end:
            number, wire, at = self.tag(at, end)
            if wire == BYTES and number in found:
                start, at = self.span(at, end)
                found[number] = self.text(start, at)
            else:
                at = self.skipped(wire, at, end)
        return found[1], found[2]

    # --- the wire -----------------------------------------------------------------------

    def varint(self, at: int, end: int) -> tuple[int, int]:
        data = self.data
        value = shift = 0
        while at < end:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
            if shift > 63:
                raise ProtobufError("a number is too long")
        raise ProtobufError("unexpected EOF")

    def tag(self, at: int, end: int) -> tuple[int, int, int]:
        byte = self.data[at]
        if byte < 0x80:
            return byte >> 3, byte & 7, at + 1
        value, at = self.varint(at, end)
        return value >> 3, value & 7, at

    def span(self, at: int, end: int) -> tuple[int, int]:
        """Return the start and the end of the bytes that follow a length."""
        if at < end and (size := self.data[at]) < 0x80:
            at += 1
        else:
            size, at = self.varint(at, end)
        stop = at + size
        if stop > end:
            raise ProtobufError("unexpected EOF")
        return at, stop

    def skipped(self, wire: int, at: int, end: int) -> int:
        """Return where the field after an unknown one begins."""
        if wire == VARINT:
            return self.varint(at, end)[1]
        if wire == BYTES:
            return self.span(at, end)[1]
        size = {FIXED64: 8, FIXED32: 4}.get(wire)
        if size is None:
            raise ProtobufError(f"illegal wire type {wire}")
        if at + size > end:
            raise ProtobufError("unexpected EOF")
        return at + size

    def text(self, at: int, end: int) -> str:
        try:
            return self.data[at:end].decode()
        except UnicodeDecodeError:
            raise ProtobufError("a string is not valid UTF-8") from None

    def count(self) -> None:
        self.values += 1
        if self.values > MOST_VALUES:
            raise ProtobufError(f"the body holds more than {MOST_VALUES} values")

    # --- messages -----------------------------------------------------------------------

    def message(
        self, at: int, end: int, plan: MessagePlan, found: dict[str, Any], depth: int
    ) -> None:
        """Read a message's fields into `found`."""
        if depth > MAX_DEPTH:
            raise ProtobufError(f"the body is nested more than {MAX_DEPTH} deep")
        fields, data = plan.fields, self.data
        self.values += 1
        if self.values > MOST_VALUES:
            raise ProtobufError(f"the body holds more than {MOST_VALUES} values")
        while at < end:
            byte = data[at]
            if byte < 0x80:
                number, wire, at = byte >> 3, byte & 7, at + 1
            else:
                number, wire, at = self.tag(at, end)
            field = fields.get(number)
            if field is None or field.name == "-":
                at = self.skipped(wire, at, end)
            elif wire == BYTES:
                start, at = self.span(at, end)
                if field.plain_text:
                    # The common case, by itself: it is most of every object.
                    try:
                        text = data[start:at].decode()
                    except UnicodeDecodeError:
                        raise ProtobufError("a string is not valid UTF-8") from None
                    if text or field.keeps:
                        found[field.name] = text
                else:
                    self.field(start, at, field, found, depth)
            elif field.scalar and field.scalar not in {"string", "bytes"}:
                value, at = self.number(wire, at, end, field.scalar)
                self.put(field, value, found)
            else:
                raise ProtobufError(f"wrong wire type {wire} for field {field.name}")

    def number(self, wire: int, at: int, end: int, scalar: str) -> tuple[Any, int]:
        """Return a number or a bool, and where the next field begins."""
        if scalar == "double":
            if wire != FIXED64 or at + 8 > end:
                raise ProtobufError(f"wrong wire type {wire} for a double")
            return _double(self.data[at : at + 8]), at + 8
        if wire != VARINT:
            raise ProtobufError(f"wrong wire type {wire} for {scalar}")
        value, at = self.varint(at, end)
        if scalar == "bool":
            return value != 0, at
        if scalar == "int32":
            value &= 0xFFFF_FFFF
            return (value - (1 << 32) if value >> 31 else value), at
        return (value - (1 << 64) if value >> 63 else value), at

    def put(self, field: FieldPlan, value: Any, found: dict[str, Any]) -> None:
        self.count()
        if field.repeated:
            found.setdefault(field.name, []).append(value)
        elif value or field.keeps:
            found[field.name] = value
        else:
            found.pop(field.name, None)

    def field(self, at: int, end: int, field: FieldPlan, found: dict[str, Any], depth: int) -> None:
        """Read one length-delimited field."""
        plan = field.plan
        if plan is not None and not plan.special and not field.inline:
            below: dict[str, Any] = {}
            self.message(at, end, plan, below, depth + 1)
            if field.repeated:
                found.setdefault(field.name, []).append(below)
            elif below or field.keeps:
                found[field.name] = below
        elif field.map_value is not None:
            self.count()
            key, value = self.entry(at, end, field.map_value, depth)
            found.setdefault(field.name, {})[key] = value
        elif field.plan is not None and field.inline:
            self.message(at, end, field.plan, found, depth + 1)
        elif field.repeated and field.scalar not in {"", "string", "bytes"}:
            while at < end:
                wire = FIXED64 if field.scalar == "double" else VARINT
                value, at = self.number(wire, at, end, field.scalar)
                self.put(field, value, found)
        else:
            value = self.value(at, end, field, depth)
            if value is not None or field.repeated:
                self.put(field, value, found)

    def entry(self, at: int, end: int, plan: FieldPlan, depth: int) -> tuple[str, Any]:
        key, value = "", _zero(plan)
        while at < end:
            number, wire, at = self.tag(at, end)
            if number == 1 and wire == BYTES:
                start, at = self.span(at, end)
                key = self.text(start, at)
            elif number == 2 and wire == BYTES:
                start, at = self.span(at, end)
                value = self.value(start, at, plan, depth)
            elif number == 2 and plan.scalar:
                value, at = self.number(wire, at, end, plan.scalar)
            else:
                at = self.skipped(wire, at, end)
        return key, value

    def value(self, at: int, end: int, field: FieldPlan, depth: int) -> Any:
        """Return a text, bytes or a message; None for an absent value."""
        if field.scalar == "string":
            return self.text(at, end)
        if field.scalar == "bytes":
            return base64.b64encode(self.data[at:end]).decode()
        plan = field.plan
        if plan is None:
            raise ProtobufError(f"wrong wire type for field {field.name}")
        if plan.special:
            return self.special(at, end, plan, depth)
        found: dict[str, Any] = {}
        self.message(at, end, plan, found, depth + 1)
        return found

    # --- types of their own ---------------------------------------------------------------

    def special(self, at: int, end: int, plan: MessagePlan, depth: int) -> Any:
        """Return the JSON of a type that is not the JSON of its fields."""
        if plan.special in {"schema-or-bool", "schema-or-list"}:
            return self.schema_or(at, end, plan, depth)
        parts = self.parts(at, end)
        match plan.special:
            case "quantity":
                return self.part_text(parts, 1, "0")
            case "time" | "micro-time":
                if not parts:
                    return None
                return _time(parts, micro=plan.special == "micro-time")
            case "duration":
                return duration(_signed(_number(parts, 1)))
            case "int-or-string":
                if _number(parts, 1):
                    return self.part_text(parts, 3, "")
                return _int32(_number(parts, 2))
            case "list":
                return [self.text(*item) for item in self.all_parts(at, end)]
            case _:
                return self.raw_json(parts, depth)

    def parts(self, at: int, end: int) -> dict[int, Any]:
        """Return a small message's fields: numbers, and (begin, end) of bytes."""
        found: dict[int, Any] = {}
        while at < end:
            number, wire, at = self.tag(at, end)
            if wire == VARINT:
                found[number], at = self.varint(at, end)
            elif wire == BYTES:
                start, at = self.span(at, end)
                found[number] = (start, at)
            else:
                at = self.skipped(wire, at, end)
        return found

    def all_parts(self, at: int, end: int) -> list[tuple[int, int]]:
        found = []
        while at < end:
            number, wire, at = self.tag(at, end)
            if number == 1 and wire == BYTES:
                start, at = self.span(at, end)
                self.count()
                found.append((start, at))
            else:
                at = self.skipped(wire, at, end)
        return found

    def part_text(self, parts: dict[int, Any], number: int, absent: str) -> str:
        part = parts.get(number)
        return self.text(*part) if isinstance(part, tuple) else absent

    def raw_json(self, parts: dict[int, Any], depth: int) -> Any:
        part = parts.get(1)
        if not isinstance(part, tuple) or part[0] == part[1]:
            return None
        at, end = part
        if self.data[at : at + 4] == MAGIC:
            if depth > MAX_DEPTH:
                raise ProtobufError(f"the body is nested more than {MAX_DEPTH} deep")
            return self.envelope(at, end, depth + 1)
        try:
            return orjson.loads(self.data[at:end])
        except orjson.JSONDecodeError as error:
            raise ProtobufError(f"embedded JSON: {error}") from None

    def schema_or(self, at: int, end: int, plan: MessagePlan, depth: int) -> Any:
        """Return a CRD's schema where one is given, else the bool or the list beside it."""
        found: dict[str, Any] = {}
        names = {number: field.name for number, field in plan.fields.items()}
        self.message(at, end, plan, found, depth + 1)
        if plan.special == "schema-or-bool":
            return found.get(names.get(2, ""), found.get(names.get(1, ""), False))
        return found.get(names.get(1, ""), found.get(names.get(2, ""), []))


def _zero(plan: FieldPlan) -> Any:
    if plan.plan is not None:
        return "0" if plan.plan.special == "quantity" else {}
    return {"string": "", "bytes": "", "bool": False}.get(plan.scalar, 0)


def _double(data: bytes) -> float:
    value: float = struct.unpack("<d", data)[0]
    if not math.isfinite(value):
        raise ProtobufError("a number is not finite")
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _number(parts: dict[int, Any], number: int) -> int:
    value = parts.get(number, 0)
    if not isinstance(value, int):
        raise ProtobufError("a number was expected")
    return value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _int32(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _time(parts: dict[int, Any], *, micro: bool) -> str:
    seconds, nanos = _signed(_number(parts, 1)), _int32(_number(parts, 2))
    when = seconds * SECOND + nanos
    if not (EARLIEST <= when <= LATEST and 0 <= nanos < SECOND):
        raise ProtobufError("a time is out of range")
    return rfc3339_micro(when) if micro else rfc3339(when)


def duration(nanoseconds: int) -> str:
    """Return a duration as Go writes it.

    >>> duration(90_000_000_000), duration(1_500_000), duration(0)
    ('1m30s', '1.5ms', '0s')
    """
    if not nanoseconds:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    if rest < SECOND:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= size:
                return f"{sign}{_decimal(rest, size)}{unit}"
    seconds, fraction = divmod(rest, SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds * SECOND + fraction, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
