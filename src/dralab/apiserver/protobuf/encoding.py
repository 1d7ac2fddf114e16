"""Encoding: JSON mappings to the bytes that Go writes for the same objects.

Go writes the fields of a message by number, and every field that is not a pointer, a list or a map
whether it is zero or not: each message has a template with the bytes of its zero fields, in which
those that an object has are replaced. `decoding` reads what this writes.
"""

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import orjson

from dralab.api.messages import CRD, LISTS, META, MessageField, Messages
from dralab.apiserver.protobuf.decoding import BYTES, FIXED64, MAGIC, VARINT
from dralab.apiserver.protobuf.plans import SCALARS, SPECIAL, plan_of_object
from dralab.kernel.times import RFC3339, RFC3339_MICRO, SECOND, from_rfc3339
from dralab.values.remembering import KnownValues, json_key, remembered

Write = Callable[[Any], bytes]
SMALL: Final = 128  # numbers of one byte
CORE: Final = "k8s.io.api.core.v1."
# Parts that are the same in many objects: most pods are copies of a few.
ALIKE: Final = {
    f"{CORE}Affinity",
    f"{CORE}Container",
    f"{CORE}PodCondition",
    f"{CORE}Toleration",
    f"{CORE}Volume",
    f"{META}ManagedFieldsEntry",
}
KEPT_PARTS: Final = 256  # of each kind; none of them is long
SUFFIX: Final = b"\x1a\x00\x22\x00"  # Unknown.contentEncoding and contentType, both empty


def encode(value: Mapping[str, Any]) -> bytes:
    """Return an object in its envelope, by its apiVersion and kind. KeyError: no such message.

    >>> encode({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}})[6:10].hex()
    '0a027631'
    """
    api_version, kind = value["apiVersion"], value["kind"]
    return enveloped(api_version, kind, writer_of(api_version, kind).write(value))


def enveloped(api_version: str, kind: str, *raw: bytes) -> bytes:
    """Return the bytes of a message, given in parts, in the envelope."""
    type_meta = _chunk(b"\x0a", api_version.encode()) + _chunk(b"\x12", kind.encode())
    size = sum(map(len, raw))
    head = (MAGIC, _chunk(b"\x0a", type_meta), b"\x12", varint(size))
    return b"".join((*head, *raw, SUFFIX))


def frame(type_: str, enveloped_object: bytes) -> bytes:
    """Return an event of a watch: its length in four bytes, and a WatchEvent."""
    raw = _chunk(b"\x0a", enveloped_object)
    event = _chunk(b"\x0a", type_.encode()) + _chunk(b"\x12", raw)
    return len(event).to_bytes(4, "big") + event


def list_parts(metadata: Mapping[str, Any], items: Sequence[bytes]) -> list[bytes]:
    """Return the message of a list, in parts, of the messages of its items."""
    parts = [_chunk(b"\x0a", writer(f"{META}ListMeta")(metadata))]
    for item in items:
        parts += (b"\x12", varint(len(item)), item)
    return parts


def writer_of(api_version: str, kind: str) -> "MessageWriter":
    """Return the writer of a kind's message. KeyError if the kind has no message."""
    plan = plan_of_object(api_version, kind)
    if plan is None:
        raise KeyError(f"{api_version} {kind}")
    return _message(plan.name)


def has_message(api_version: str, kind: str) -> bool:
    """Whether a kind can be written."""
    return plan_of_object(api_version, kind) is not None


def writer(name: str) -> Write:
    """Return the writer of a message or special type by name. KeyError if unknown."""
    special = SPECIAL.get(name) or ("list" if name in LISTS else "")
    if special:
        return SPECIAL_WRITERS[special]
    return _alike(name) if name in ALIKE else _message(name).write


@cache
def _alike(name: str) -> Write:
    """Return the writer of a message that remembers what it wrote, by the JSON of the value."""
    write, known = _message(name).write, KnownValues[bytes, bytes](KEPT_PARTS)

    def write_alike(value: Any) -> bytes:
        key = json_key(value)
        found = known.get(key)
        if found is None:
            found = write(value)
            known.keep(key, found)
        return found

    return write_alike


def varint(value: int) -> bytes:
    """Return a number in as few bytes as it needs; ten if it is negative.

    >>> varint(300).hex()
    'ac02'
    """
    if 0 <= value < SMALL:
        return ONE_BYTE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value >= SMALL:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


ONE_BYTE: Final = [bytes([number]) for number in range(SMALL)]


class MessageWriter:
    """Writes one message; its fields are compiled at first use, since messages nest."""

    __slots__ = ("_fields", "_name", "_template", "_within")

    def __init__(self, name: str) -> None:
        self._name = name
        self._template: list[bytes] | None = None
        # JSON name → (place in the template, what writes its bytes)
        self._fields: dict[str, tuple[int, Write]] = {}
        # JSON name → (place, tag, writer) of the struct that Go spells inline and that has it
        self._within: dict[str, tuple[int, bytes, MessageWriter]] = {}

    def write(self, value: Mapping[str, Any]) -> bytes:
        """Return a mapping as the bytes of the message; what it has no field for is left out."""
        template = self._template or self._prepared()
        parts = template.copy()
        fields = self._fields
        for name, item in value.items():
            if item is None:
                continue
            found = fields.get(name)
            if found is not None:
                parts[found[0]] = found[1](item)
            elif name in self._within:
                at, tag, inner = self._within[name]
                parts[at] = _chunk(tag, inner.write(value))
        return b"".join(parts)

    @property
    def names(self) -> set[str]:
        """The JSON names of all fields, those of inline structs included."""
        if self._template is None:
            self._prepared()
        return {*self._fields, *self._within}

    def _prepared(self) -> list[bytes]:
        fields = sorted(Messages.standard().fields(self._name).items())
        template = []
        for at, (number, field) in enumerate(fields):
            if field.inline:
                tag, inner = _tag(number, BYTES), _message(field.type)
                self._within |= dict.fromkeys(inner.names, (at, tag, inner))
                template.append(b"" if field.pointer else _chunk(tag, inner.write({})))
            else:
                write = _field_writer(number, field)
                if field.name != "-":
                    self._fields[field.name] = (at, write)
                template.append(_zero(field, write))
        self._template = template
        return template


_MESSAGES: Final[dict[str, MessageWriter]] = {}


def _message(name: str) -> MessageWriter:
    found = _MESSAGES.get(name)
    if found is None:
        found = _MESSAGES[name] = MessageWriter(name)
    return found


# --- Fields -----------------------------------------------------------------------------------


def _zero(field: MessageField, write: Write) -> bytes:
    """Return the bytes of a field that an object does not have."""
    if field.pointer or field.list or field.map or field.type == "bytes" or field.type in LISTS:
        return b""
    special = SPECIAL.get(field.type)
    if field.type in SCALARS:
        return write("" if field.type == "string" else 0)
    if special in {"json", "time", "micro-time"}:
        return write(None)
    if special is not None:
        return write(SPECIAL_ZEROS.get(special, {}))
    return write({})


SPECIAL_ZEROS: Final[dict[str, Any]] = {
    "duration": "0s",
    "quantity": "0",
    "int-or-string": 0,
    "list": [],
    "schema-or-bool": False,
    "schema-or-list": [],
}


def _field_writer(number: int, field: MessageField) -> Write:
    if field.map:
        key, _, value = field.type.partition(",")
        return _map_writer(number, key, value)
    one = _value_writer(number, field.type)
    if not field.list:
        return one

    def write_all(items: Any) -> bytes:
        return b"".join([one(item) for item in items])

    return write_all


def _map_writer(number: int, key: str, value: str) -> Write:
    write_key, write_value = _value_writer(1, key), _value_writer(2, value)
    entry = _nested_writer(
        _tag(number, BYTES), lambda item: write_key(item[0]) + write_value(item[1])
    )

    def write(items: Any) -> bytes:
        # Go sorts the keys so that equal objects have equal bytes.
        return b"".join([entry(item) for item in sorted(items.items())])

    return write


def _value_writer(number: int, type_: str) -> Write:
    """Return the writer of one value with its tag."""
    match type_:
        case "string":
            return _text_writer(_tag(number, BYTES))
        case "bytes":
            tag = _tag(number, BYTES)
            return lambda text: _chunk(tag, base64.b64decode(text))
        case "double":
            tag = _tag(number, FIXED64)
            return lambda value: tag + struct.pack("<d", value)
        case "bool":
            tag = _tag(number, VARINT)
            return (tag + b"\x00", tag + b"\x01").__getitem__
        case _ if type_ in SCALARS:
            tag = _tag(number, VARINT)
            return lambda value: tag + varint(int(value))
        case _:
            return _nested_writer(_tag(number, BYTES), writer(type_))


def _text_writer(tag: bytes) -> Write:
    heads = _heads(tag)

    def write(text: Any) -> bytes:
        data: bytes = text.encode()
        size = len(data)
        return heads[size] + data if size < SMALL else _chunk(tag, data)

    return write


@lru_cache(maxsize=512)
def _heads(tag: bytes) -> Sequence[bytes]:
    """Return the tag with each one-byte length: most values are short."""
    return [tag + length for length in ONE_BYTE]


def _nested_writer(tag: bytes, inner: Write) -> Write:
    heads = _heads(tag)

    def write(value: Any) -> bytes:
        data = inner(value)
        size = len(data)
        return heads[size] + data if size < SMALL else _chunk(tag, data)

    return write


def _tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def _chunk(tag: bytes, data: bytes) -> bytes:
    return b"%b%b%b" % (tag, varint(len(data)), data)


# --- Types of their own -----------------------------------------------------------------------


@remembered(1024)
def _time(text: Any) -> bytes:
    return _moment(text, RFC3339)


@remembered(1024)
def _micro_time(text: Any) -> bytes:
    return _moment(text, RFC3339_MICRO)


def _moment(text: Any, layout: str) -> bytes:
    if not text:
        return b""
    seconds, nanos = divmod(from_rfc3339(text, layout), SECOND)
    return b"\x08%b\x10%b" % (varint(seconds), varint(nanos))


def _quantity(value: Any) -> bytes:
    return _chunk(b"\x0a", str(value).encode())


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + _chunk(b"\x1a", value.encode())
    return b"\x08\x00\x10%b\x1a\x00" % varint(int(value))


def _duration(text: Any) -> bytes:
    from dralab.cel.functions.times import duration

    return b"\x08" + varint(int(duration(text)))


def _json(value: Any) -> bytes:
    return b"" if value is None else _chunk(b"\x0a", orjson.dumps(value))


def _texts(items: Any) -> bytes:
    return b"".join([_chunk(b"\x0a", item.encode()) for item in items])


def _schema_or_bool(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x08\x01" if value else b"\x08\x00"
    return b"\x08\x01" + _chunk(b"\x12", _schema(value))


def _schema_or_list(value: Any) -> bytes:
    if isinstance(value, dict):
        return _chunk(b"\x0a", _schema(value))
    return b"".join(
        [
            _chunk(b"\x12", item.encode() if isinstance(item, str) else _schema(item))
            for item in value
        ]
    )


def _schema(value: Any) -> bytes:
    return _message(f"{CRD}JSONSchemaProps").write(value)


SPECIAL_WRITERS: Final[dict[str, Write]] = {
    "time": _time,
    "micro-time": _micro_time,
    "duration": _duration,
    "json": _json,
    "list": _texts,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "schema-or-bool": _schema_or_bool,
    "schema-or-list": _schema_or_list,
}
