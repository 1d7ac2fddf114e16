"""Objects as a Go server reads and writes them: typed, canonical, with Go's error messages.

A server decodes JSON into structs and encodes these again. So unknown fields are found and
dropped, wrong types refused, quantities and times rewritten, plain zero values dropped, and
fields without `omitempty` always shown. A `Decoder` does the same to plain mappings. Decoders
are compiled once per definition: every write goes through one.

Sources: Go's encoding/json (texts), sigs.k8s.io/json (strict errors), the tags of k8s.io/api.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Final

import orjson

from dralab.api.gated_fields import gated_in
from dralab.api.go_structs import embedded_in, types_of
from dralab.api.messages import Messages, message_of
from dralab.api.releases import MIXED
from dralab.api.scalar_decoding import (
    Decode,
    DecodingError,
    DecodingNotes,
    EmptyField,
    Unclear,
    as_it_is,
    base64_text,
    corrupt_base64,
    exactly,
    int_or_string,
    integer_below,
    micro_time,
    number,
    quantity,
    texts,
    time,
)
from dralab.api.schemas import Schema, Schemas
from dralab.kernel.times import (
    RFC3339,
    RFC3339_MICRO,
    TimeError,
    from_rfc3339,
)
from dralab.values.quantity import QuantityError
from dralab.values.records import dataclass
from dralab.values.remembering import KnownValues, json_key, remembered

MICRO_TIME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
INT_LIMITS: Final = {"int32": 2**31, "int64": 2**63}
# Formats whose types in Go read themselves.
OWN_READERS: Final = frozenset({"quantity", "date-time", "int-or-string"})
MAX_DEPTH: Final = 150
MAX_STRICT_ERRORS: Final = 100  # sigs.k8s.io/json: no more are gathered


@dataclass(frozen=True, slots=True)
class Presence:
    """Which fields of a struct are always written, and which distinguish zero from absent."""

    always: tuple[str, ...] = ()
    pointers: frozenset[str] = frozenset()


@dataclass(slots=True)
class Decoder:
    """Decodes the objects of one kind."""

    schema: Schema
    kind: str
    _decode: Decode = field(init=False)
    # Specs as a server keeps them, in JSON, by what was sent: those of which nothing is noted.
    _specs: KnownValues[bytes, bytes] | None = field(init=False)

    def __post_init__(self) -> None:
        self._decode = _compiled(self.schema)
        self._specs = KnownValues() if self.schema.copied else None

    def decode(
        self,
        value: Any,
        empties: list[EmptyField] | None = None,
        gated: list[str] | None = None,
    ) -> tuple[Any, list[str]]:
        """Return the value as a server keeps it, and the paths of fields it does not know.

        `empties` gets what was sent empty and is not kept, `gated` the fields that need a feature
        gate, if this is a release's decoder.

        The value is changed in place where it can be. DecodingError in Go's words.

        >>> Decoder(Schemas.standard().schema_of("v1", "ConfigMap"), "ConfigMap").decode(
        ...     {"data": {}, "bogus": 1}
        ... )
        ({'metadata': {}}, ['bogus'])
        """
        seen = DecodingNotes(empties=empties, gated=gated)
        unknown: list[str] = []
        try:
            if self._specs is not None and empties is not None and gated is not None:
                return self._decoded_copy(value, seen, self._specs), unknown
            return self._decode(value, seen), unknown
        except Unclear:
            # Something is wrong: walk again, this time knowing where.
            _Walk(self.kind, unknown).check(self.schema, value)
        return self._decode(value, DecodingNotes(empties=empties, gated=gated)), unknown

    def _decoded_copy(
        self, value: Any, seen: DecodingNotes, specs: KnownValues[bytes, bytes]
    ) -> Any:
        """Decode a value whose spec may be that of others, which is not decoded again then."""
        spec = value.get("spec") if type(value) is dict else None
        key = json_key(spec) if type(spec) is dict else None
        known = specs.get(key)
        if known is not None:
            if known != key:
                spec = value["spec"] = orjson.loads(known)
            seen.canonical = spec
        found = self._decode(value, seen)
        if known is None and not seen.empties and not seen.gated and (kept := json_key(spec)):
            specs.keep(key, kept)
        return found

    def converted(self, value: Any) -> None:
        """Change numbers in a value to what Go's converter of untyped objects makes of them.

        It takes what is too large for its type as the machine does, and 2.0 for 2.
        """
        _convert(self.schema, value)


def _convert(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        for name, item in value.items():
            part = schema.properties.get(name) if schema.is_struct else schema.values
            if part is not None:
                value[name] = _convert(part, item)
    elif isinstance(value, list) and schema.item is not None:
        value[:] = [_convert(schema.item, item) for item in value]
    elif schema.type == "integer" and isinstance(value, (int, float)) and value == value // 1:
        limit = INT_LIMITS.get(schema.format, 2**63)
        return value if isinstance(value, bool) else (int(value) + limit) % (2 * limit) - limit
    return value


@remembered(4096)
def decoder_of(api_version: str, kind: str, release: str = MIXED) -> Decoder | None:
    """Return the decoder of a built-in kind of a release; None if nothing is known of it."""
    schema = Schemas.standard(release).schema_of(api_version, kind)
    return None if schema is None else Decoder(schema, kind)


@lru_cache(maxsize=4096)
def presence_of(definition: str) -> Presence | None:
    """Return what is known of the fields of a definition; None for nothing."""
    messages = Messages.standard()
    message = message_of(definition)
    if message not in messages:
        return None
    return Presence(tuple(messages.zeros(message)), frozenset(_pointers(messages, message)))


def _pointers(messages: Messages, message: str) -> Iterator[str]:
    for part in messages.fields(message).values():
        if part.inline and part.type in messages:
            yield from _pointers(messages, part.type)
        elif part.pointer:
            yield part.name


# --- the fast way -----------------------------------------------------------------------------

# By release and name.
_structs: dict[tuple[str, str], Decode] = {}


def _compiled(schema: Schema) -> Decode:
    """Return the decoder of a schema; those of named structs are shared, so they may recurse."""
    if schema.is_struct:
        if schema.name:
            key = schema.release, schema.name
            found = _structs.get(key)
            if found is None:
                found = _structs[key] = _Struct(schema)
            return found
        return _Struct(schema)
    return _simple(schema)


def _simple(schema: Schema) -> Decode:  # noqa: PLR0911 - one line per type
    match schema.format:
        case "quantity":
            return quantity
        case "int-or-string":
            return int_or_string
        case "date-time":
            return micro_time if schema.name == MICRO_TIME else time
        case "byte":
            return base64_text
        case _:
            pass
    if schema.free:
        return as_it_is
    match schema.type:
        case "string":
            return exactly(str)
        case "boolean":
            return exactly(bool)
        case "integer":
            return integer_below(INT_LIMITS.get(schema.format, 2**63))
        case "number":
            return number
        case "array":
            return _list(schema.item)
        case "object":
            return _map(schema.values)
        case _:
            return as_it_is


def _list(item: Schema | None) -> Decode:
    decode_item: Decode = as_it_is if item is None else _compiled(item)
    zero = _zero_of(item)

    def decode(value: Any, seen: DecodingNotes) -> Any:
        if type(value) is not list:
            raise Unclear
        for index, each in enumerate(value):
            found = zero() if each is None else decode_item(each, seen)
            if found is not each:
                value[index] = found
        return value

    return decode


def _map(item: Schema | None) -> Decode:
    if item is None:
        return exactly(dict)
    if item.type == "string" and not item.format:
        return texts
    decode_item = _compiled(item)
    # No bytes in a map are read back from protobuf, in which a real server stores, as empty bytes.
    zero = str if item.format == "byte" else _zero_of(item)

    def decode(value: Any, seen: DecodingNotes) -> Any:
        if type(value) is not dict:
            raise Unclear
        for key, each in value.items():
            found = zero() if each is None else decode_item(each, seen)
            if found is not each:
                value[key] = found
        return value

    return decode


def _zero_of(schema: Schema | None) -> Callable[[], Any]:
    """Return what makes Go's zero value of a type."""
    if schema is None or schema.free:
        return _none
    if schema.format == "quantity":
        return _zero_quantity
    if schema.format in {"date-time", "byte"}:
        return _none
    if schema.format == "int-or-string":
        return int
    if schema.is_struct:
        decode = _compiled(schema)
        return lambda: decode({}, DecodingNotes())
    return ZEROES.get(schema.type, _none)


def _noted(name: str, decode: Decode) -> Decode:
    """Return a decoder that notes that a field was there."""

    def noted(value: Any, seen: DecodingNotes) -> Any:
        if seen.gated is not None:
            seen.gated.append(name)
        return decode(value, seen)

    return noted


def _none() -> None:
    return None


def _zero_quantity() -> str:
    return "0"


ZEROES: Final[Mapping[str, Callable[[], Any]]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": int,
}


class _Struct:
    """Decodes a struct; its fields are compiled on first use, since structs hold each other."""

    __slots__ = ("_schema", "always", "fields", "whole")

    def __init__(self, schema: Schema) -> None:
        self._schema: Schema | None = schema
        # name → (type that needs no decoding, or None; decoder; whether its zero is kept)
        self.fields: dict[str, tuple[type | None, Decode, bool]] = {}
        self.always: list[tuple[str, Callable[[], Any]]] = []
        self.whole: set[str] = set()  # those that are something where they are empty, too

    def _compile(self) -> None:
        schema = self._schema
        if schema is None:
            return
        # Two threads may compile at once: each makes its own lists, and both are the same.
        facts = presence_of(schema.name) if schema.name else None
        fields: dict[str, tuple[type | None, Decode, bool]] = {}
        shown: list[tuple[str, Callable[[], Any]]] = []
        gated = gated_in(schema.name)
        for name, part in schema.properties.items():
            plain: type | None = str if part.type == "string" and not part.format else None
            if part.type == "boolean":
                plain = bool
            nested = part.is_struct
            pointer = facts is None or name in facts.pointers
            always = facts is not None and name in facts.always and schema.shows(name)
            keep = pointer or always or nested
            decode = _compiled(part)
            if decode is as_it_is or isinstance(decode, _Struct):
                self.whole.add(name)
            if name in gated:
                plain, decode = None, _noted(name, decode)
            fields[name] = (plain, decode, keep)
            if always:
                shown.append((name, _none if pointer else _zero_of(part)))
        if facts is not None:
            shown.sort(key=lambda field: facts.always.index(field[0]))
        self.fields, self.always = fields, shown
        self._schema = None

    def __call__(self, value: Any, seen: DecodingNotes) -> Any:  # noqa: C901 - calls cost most
        if self._schema is not None:
            self._compile()
        if type(value) is not dict:
            raise Unclear
        if value is seen.canonical:
            return value
        seen.depth += 1
        if seen.depth > MAX_DEPTH:
            raise DecodingError("exceeded max depth")
        fields = self.fields
        dropped: list[str] | None = None
        for name, item in value.items():
            found = fields.get(name)
            if found is None:
                raise Unclear
            plain, decode, keep = found
            if type(item) is plain:
                # Most fields are texts: nothing is called for them.
                if not item and not keep:
                    dropped = [*dropped, name] if dropped else [name]
                continue
            if item is None:
                dropped = [*dropped, name] if dropped else [name]
                continue
            new = decode(item, seen)
            if new is not item:
                value[name] = new
            if not new and self._goes(name, new):
                dropped = [*dropped, name] if dropped else [name]
                self._note_empty(value, name, new, seen)
        if dropped:
            for name in dropped:
                del value[name]
        for name, zero in self.always:
            if name not in value:
                value[name] = zero()
        seen.depth -= 1
        return value

    def _note_empty(self, holder: Any, name: str, value: Any, seen: DecodingNotes) -> None:
        if seen.empties is not None and isinstance(value, (list, dict)):
            shown = any(name == each for each, _ in self.always)
            seen.empties.append(EmptyField(holder, name, value, shown))

    def _goes(self, name: str, zero: Any) -> bool:
        """Return whether a field with this zero value is dropped."""
        if not self.fields[name][2] or zero is None:
            return True
        # An empty list or map is as good as none; a struct is not, nor what is kept as it is.
        return name not in self.whole and zero in ([], {})


# --- the slow way -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Whereabouts:
    """Where a value is: `path` names fields as Go does, `at` with the indexes of lists.

    `owner` is the struct that has the field, `type` Go's name of its type if it has its own.
    """

    path: tuple[str, ...] = ()
    at: str = ""
    owner: str = ""
    type: str = ""


class _Walk:
    """Walks a value with its path: drops unknown fields, finds the first wrong type.

    `unknown` gets the paths of the first of them. What a type of Go reads by itself, such as
    a time, ends the walk at once; any other wrong type is told of at its end.
    """

    def __init__(self, kind: str, unknown: list[str]) -> None:
        self.kind = kind
        self.unknown = unknown
        self.wrong: DecodingError | None = None

    def check(self, schema: Schema, value: Any) -> None:
        """Check a whole object. DecodingError: the error that Go reports first."""
        self.value(schema, value, _Whereabouts())
        if self.wrong is not None:
            raise self.wrong

    def value(self, schema: Schema, value: Any, place: "_Whereabouts") -> None:
        """Check a value, and note the first wrong type."""
        if value is None or schema.free:
            return
        if len(place.path) > MAX_DEPTH:
            raise DecodingError("exceeded max depth")
        if schema.is_struct:
            self._struct(schema, value, place)
        elif schema.type == "array":
            if self._is(list, schema, value, place) and schema.item is not None:
                below = place.type.removeprefix("[]") if place.type.startswith("[]") else ""
                for index, item in enumerate(value):
                    at = f"{place.at}[{index}]"
                    self.value(schema.item, item, replace(place, at=at, type=below))
        elif schema.type == "object":
            if self._is(dict, schema, value, place) and schema.values is not None:
                below = place.type.partition("]")[2] if place.type.startswith("map[") else ""
                for key, item in value.items():
                    at = f"{place.at}.{key}"
                    self.value(schema.values, item, replace(place, at=at, type=below))
        else:
            self._leaf(schema, value, place)

    def _struct(self, schema: Schema, value: Any, place: "_Whereabouts") -> None:
        if not self._is(dict, schema, value, place):
            return
        name = schema.name.rpartition(".")[2] or place.owner or self.kind
        message = message_of(schema.name) if schema.name else ""
        types, embedded = types_of(message), embedded_in(message)
        dropped = [key for key in value if key not in schema.properties]
        for key, item in value.items():
            part = schema.properties.get(key)
            where = f"{place.at}.{key}" if place.at else key
            if part is not None:
                path = (*place.path, *embedded.get(key, ()), key)
                below = _Whereabouts(path, where, name, types.get(key, ""))
                self.value(part, item, below)
            elif len(self.unknown) < MAX_STRICT_ERRORS:
                self.unknown.append(where)
        for key in dropped:
            del value[key]

    def _leaf(self, schema: Schema, value: Any, place: "_Whereabouts") -> None:
        try:
            _simple(schema)(value, DecodingNotes())
        except Unclear:
            pass
        else:
            return
        match schema.format:
            case "quantity":
                raise DecodingError(str(QuantityError(str(value))))
            case "date-time" if isinstance(value, str):
                layout = RFC3339_MICRO if schema.name == MICRO_TIME else RFC3339
                try:
                    from_rfc3339(value, layout)
                except TimeError as error:
                    raise DecodingError(str(error)) from error
            case "byte" if isinstance(value, str):
                self._note(f"illegal base64 data at input byte {corrupt_base64(value.encode())}")
                return
            case _:
                pass
        self._refuse(schema, value, place)

    def _is(self, kind: type, schema: Schema, value: Any, place: "_Whereabouts") -> bool:
        if isinstance(value, kind):
            return True
        self._refuse(schema, value, place)
        return False

    def _note(self, text: str) -> None:
        """Remember the first wrong type: Go reads on to find syntax errors."""
        if self.wrong is None:
            self.wrong = DecodingError(text)

    def _refuse(self, schema: Schema, value: Any, place: "_Whereabouts") -> None:
        shown, wanted = _go_value(value), place.type or _go_type(schema)
        if shown == "number" and schema.format != "int-or-string" and schema.type == "integer":
            shown = _go_number(value)
        if schema.format == "int-or-string":
            wanted = "int32"
        where = f"{place.owner or self.kind}.{'.'.join(place.path)}"
        place_text = f"struct field {where}" if place.path else "value"
        text = f"json: cannot unmarshal {shown} into Go {place_text} of type {wanted}"
        if schema.format in OWN_READERS:
            error = DecodingError(text)
            error.alone = True
            raise error
        self._note(text)


def _go_value(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go_number(value: float) -> str:
    """Return how a number is named that an integer cannot hold."""
    fits = isinstance(value, int) and abs(value) < 2**31
    return "number" if fits else f"number {value!r}"


def _go_type(schema: Schema) -> str:
    if schema.is_struct:
        parts = schema.name.split(".")
        return ".".join(parts[-2:]) if len(parts) > 1 else "struct"
    if schema.format in {"int32", "int64"}:
        return schema.format
    match schema.type:
        case "boolean":
            return "bool"
        case "string" if schema.format == "byte":
            return "[]uint8"
        case "integer":
            return "int64"
        case "number":
            return "float64"
        case "array":
            return f"[]{_go_type(schema.item)}" if schema.item else "[]interface {}"
        case "object":
            return f"map[string]{_go_type(schema.values)}" if schema.values else "map[string]string"
        case _:
            return "string"
