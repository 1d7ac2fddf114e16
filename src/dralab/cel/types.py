"""Static types, and the signatures of functions.

A type prints as cel-go prints it, since error messages name types.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from dralab.values.records import dataclass


class CelType(NamedTuple):
    """A static type.

    `kind` is one of dyn, any, error, bool, int, uint, double, string, bytes, null, duration,
    timestamp, list, map, type, struct, opaque, param; `name` tells structs, opaque types and
    parameters apart.
    """

    kind: str
    name: str = ""
    params: tuple["CelType", ...] = ()

    def __str__(self) -> str:
        """Write the type as cel-go does; nesting is bounded by the depth of an expression."""
        if self.kind in {"struct", "param"}:
            return self.name
        if self.kind == "opaque":
            inner = ", ".join(map(str, self.params))
            return f"{self.name}({inner})" if inner else self.name
        if self.params:
            return f"{NAMES.get(self.kind, self.kind)}({', '.join(map(str, self.params))})"
        return NAMES.get(self.kind, self.kind)


def shown(type_: CelType) -> str:
    """Write a type as the messages of the checker do, which know shorter names."""
    if type_.kind in SHORT_NAMES:
        return SHORT_NAMES[type_.kind]
    if type_.params:
        inner = ", ".join(map(shown, type_.params))
        name = type_.name or NAMES.get(type_.kind, type_.kind)
        return f"{name}({inner})"
    return str(type_)


SHORT_NAMES: Final = {
    "any": "any",
    "null": "null",
    "duration": "duration",
    "timestamp": "timestamp",
    "error": "!error!",
}

NAMES: Final = {
    "null": "null_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "any": "google.protobuf.Any",
    "error": "*error*",
}

DYN: Final = CelType("dyn")
ANY: Final = CelType("any")
ERROR: Final = CelType("error")
BOOL: Final = CelType("bool")
INT: Final = CelType("int")
UINT: Final = CelType("uint")
DOUBLE: Final = CelType("double")
STRING: Final = CelType("string")
BYTES: Final = CelType("bytes")
NULL: Final = CelType("null")
DURATION: Final = CelType("duration")
TIMESTAMP: Final = CelType("timestamp")
QUANTITY: Final = CelType("struct", "kubernetes.Quantity")
SEMVER: Final = CelType("struct", "kubernetes.Semver")
URL: Final = CelType("struct", "kubernetes.URL")
FORMAT: Final = CelType("struct", "kubernetes.NamedFormat")
AUTHORIZER: Final = CelType("opaque", "kubernetes.authorization.Authorizer")
PATH_CHECK: Final = CelType("opaque", "kubernetes.authorization.PathCheck")
GROUP_CHECK: Final = CelType("opaque", "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK: Final = CelType("opaque", "kubernetes.authorization.ResourceCheck")
DECISION: Final = CelType("opaque", "kubernetes.authorization.Decision")
IP: Final = CelType("opaque", "net.IP")
CIDR: Final = CelType("opaque", "net.CIDR")

BY_NAME: Final = {
    "dyn": DYN, "any": ANY, "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE,
    "string": STRING, "bytes": BYTES, "null": NULL, "duration": DURATION,
    "timestamp": TIMESTAMP, "Quantity": QUANTITY, "Semver": SEMVER, "URL": URL,
    "Format": FORMAT, "IP": IP, "CIDR": CIDR, "Authorizer": AUTHORIZER,
    "PathCheck": PATH_CHECK, "GroupCheck": GROUP_CHECK, "ResourceCheck": RESOURCE_CHECK,
    "Decision": DECISION,
}  # fmt: skip

SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
NUMBERS: Final = frozenset({"int", "uint", "double"})


def list_of(element: CelType) -> CelType:
    """Return the type of lists of an element type."""
    return CelType("list", "", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    """Return the type of maps."""
    return CelType("map", "", (key, value))


def optional_of(value: CelType) -> CelType:
    """Return the type of optional values."""
    return CelType("opaque", "optional_type", (value,))


def type_of(value: CelType) -> CelType:
    """Return the type of types."""
    return CelType("type", "", (value,))


def is_optional(type_: CelType) -> bool:
    """Return whether a type is that of optional values."""
    return type_.kind == "opaque" and type_.name == "optional_type"


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function; of a member function the receiver is the first argument."""

    id: str
    function: str
    member: bool
    args: tuple[CelType, ...]
    result: CelType


@lru_cache(maxsize=1024)
def read_type(text: str) -> CelType:
    """Return the type that a text such as `map(string, list(A))` writes.

    Words of one capital letter are parameters.
    """
    head, bracket, rest = text.strip().partition("(")
    if not bracket:
        if len(head) == 1 and head.isupper():
            return CelType("param", head)
        return BY_NAME[head]
    params = tuple(read_type(part) for part in _parts(rest[:-1]))
    if head == "optional":
        return optional_of(*params)
    return CelType(head, "", params)


def read_overload(line: str) -> Overload:
    """Return the signature in a line such as `string_char_at_int string.charAt(int) -> string`.

    What stands before a dot with a type in front is the receiver; other dots belong to the name.
    """
    identifier, _, signature = line.strip().partition(" ")
    left, _, result = signature.rpartition("->")
    left = left.strip()
    opening = _opening(left)
    head, arguments = left[:opening], left[opening + 1 : -1]
    receiver, dot, name = head.rpartition(".")
    member = bool(dot) and _is_type(receiver)
    args = tuple(read_type(part) for part in _parts(arguments))
    if member:
        args = (read_type(receiver), *args)
    else:
        name = head
    return Overload(identifier, name, member, args, read_type(result))


def _opening(text: str) -> int:
    """Return where the bracket opens that the last character closes."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError(text)


def _is_type(text: str) -> bool:
    head, bracket, _ = text.partition("(")
    if bracket:
        return head in {"list", "map", "optional"}
    return head in BY_NAME


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if text[start:].strip():
        yield text[start:].strip()
