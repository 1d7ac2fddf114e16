"""Values at run time.

CEL       Python                    CEL           Python
bool      bool                      duration      Duration (nanoseconds)
int       int                       timestamp     Timestamp (nanoseconds since 1970)
uint      Uint                      type          TypeValue
double    float                     optional      Optional
string    str                       Quantity      Quantity
bytes     bytes                     Semver        dralab.values.version.Version
null      None                      IP, CIDR      Address, Network
list      list                      URL           Url
map       Map                       Format        Format

A list or map is never changed once an expression can see it.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dralab.cel.errors import CelError, NoSuchKeyError, no_such_overload
from dralab.values.quantity import Number
from dralab.values.records import dataclass
from dralab.values.version import Version

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
UINT_MAX: Final = 2**64 - 1


class Uint(int):
    """An unsigned integer of 64 bits; equal to the int or double of the same value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Timestamp(int):
    """An instant: nanoseconds since 1970-01-01T00:00:00Z."""

    __slots__ = ()


class Duration(int):
    """A span of time in nanoseconds."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value; equal by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: Any = None


NOTHING: Final = Optional(present=False)


class Quantity:
    """A Kubernetes quantity; only its number counts in comparisons.

    `scale` is the decimal exponent with which the API server keeps it in 64 bits, None if it
    cannot; only a quantity with a scale of at least 0 is an integer there.
    """

    __slots__ = ("number", "scale")

    def __init__(self, number: Number, scale: int | None = 0) -> None:
        self.number = number
        self.scale = scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"Quantity({self.number})"


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address."""

    value: ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Cidr:
    """A CIDR: an address and the length of its prefix; host bits are kept."""

    value: ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL or an absolute path, kept with its text; equal if that is equal."""

    text: str
    scheme: str
    host: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class Format:
    """A named format of Kubernetes; `problems` returns the problems of a text.

    `pattern_size` is the length of its pattern, on which costs depend.
    """

    name: str
    problems: Callable[[str], list[str]]
    pattern_size: int


class Map(dict[Any, Any]):
    """A map; a key that it lacks is an error of the expression."""

    __slots__ = ()

    def __missing__(self, key: object) -> Any:
        raise NoSuchKeyError(shown_key(key))


class BoolKey:
    """A bool as a key; as a Python bool it would coincide with 0 or 1."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:  # noqa: FBT001 - it is the value
        self.value = value


TRUE_KEY: Final = BoolKey(value=True)
FALSE_KEY: Final = BoolKey(value=False)


class BoolMap(Map):
    """A map that has bools among its keys, kept as `BoolKey`."""

    __slots__ = ()


class DefaultMap(Map):
    """A map that answers a missing key with a default, though it does not contain the key."""

    __slots__ = ("default",)

    def __init__(self, items: Mapping[str, Any], default: Any) -> None:
        super().__init__(items)
        self.default = default

    def __missing__(self, key: object) -> Any:
        if type(key) is str:
            return self.default
        raise NoSuchKeyError(shown_key(key))


class LazyMap(Map):
    """A map whose values are found when they are first asked for.

    Each value begins as a function; what that raises is raised again whenever it is asked for.
    """

    __slots__ = ("_makers",)

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__()
        self._makers = makers

    def knows(self, name: str) -> bool:
        """Whether there is a value of that name, found or not."""
        return name in self._makers

    def __missing__(self, key: object) -> Any:
        maker = self._makers.get(key) if type(key) is str else None
        if maker is None:
            raise NoSuchKeyError(shown_key(key))
        found = maker()
        if isinstance(found, CelError):
            raise found
        self[key] = found
        return found


class Message(Map):
    """A message that an expression has constructed; fields that it does not set are absent."""

    __slots__ = ("name",)

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.name = name


EMPTY_MAP: Final = Map()


def key_of(value: Any) -> Any:
    """Return the key under which a map keeps a value; raise where it is not a key.

    Int, uint and a whole double are one key; a bool is not a number.
    """
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value
    if kind is bool:
        return TRUE_KEY if value else FALSE_KEY
    if kind is float:
        return value
    raise CelError(f"unsupported key type: {type_name(value)}")


def keys(map_: Map) -> Iterator[Any]:
    """Yield the keys of a map as values."""
    if type(map_) is BoolMap:
        return (key.value if type(key) is BoolKey else key for key in map_)
    return iter(map_)


def items(map_: Map) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a map as values."""
    if type(map_) is BoolMap:
        return ((key.value if type(key) is BoolKey else key, value) for key, value in map_.items())
    return iter(map_.items())


def new_map(entries: dict[Any, Any]) -> Map:
    """Return a map of entries whose keys went through `key_of`."""
    if TRUE_KEY in entries or FALSE_KEY in entries:
        return BoolMap(entries)
    return Map(entries)


TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes",
    type(None): "null_type", list: "list", Map: "map", BoolMap: "map", DefaultMap: "map",
    LazyMap: "map", Message: "object",
    Timestamp: "google.protobuf.Timestamp", Duration: "google.protobuf.Duration",
    TypeValue: "type", Optional: "optional_type", Quantity: "kubernetes.Quantity",
    Version: "kubernetes.Semver", Address: "net.IP", Cidr: "net.CIDR",
    Url: "kubernetes.URL", Format: "kubernetes.NamedFormat",
}  # fmt: skip
# What cel-go calls its values where an error message names them.
NATIVE_NAMES: Final[Mapping[str, str]] = {
    "bool": "types.Bool", "int": "types.Int", "uint": "types.Uint", "double": "types.Double",
    "string": "types.String", "bytes": "types.Bytes", "null_type": "types.Null",
    "google.protobuf.Timestamp": "types.Timestamp",
    "google.protobuf.Duration": "types.Duration", "type": "*types.Type",
    "optional_type": "*types.Optional", "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver", "net.IP": "cel.IP", "net.CIDR": "cel.CIDR",
    "kubernetes.URL": "cel.URL", "kubernetes.NamedFormat": "*cel.Format",
}  # fmt: skip


def type_name(value: object) -> str:
    """Return the name of a value's type."""
    return TYPE_NAMES.get(type(value), "dyn")


def native_name(value: object) -> str:
    """Return what cel-go calls the class of a value."""
    name = type_name(value)
    return NATIVE_NAMES.get(name, name)


def not_iterable(value: object) -> CelError:
    """Return the error of a macro over something that has no elements."""
    return CelError(f"got '{native_name(value)}', expected iterable type")


def shown_key(key: object) -> str:
    """Return a key as error messages show it."""
    if isinstance(key, BoolKey):
        key = key.value
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(int(key))
    return str(key)


NUMERIC: Final = frozenset({int, Uint, float})
MAPS: Final = frozenset({Map, BoolMap, DefaultMap, LazyMap, Message})


def equals(left: Any, right: Any) -> bool:  # noqa: C901, PLR0912 - one branch per kind
    """Return whether two values are equal; values of different types are not, save numbers.

    Lists and maps compare element by element, without recursion.
    """
    waiting = [(left, right)]
    while waiting:
        left, right = waiting.pop()
        kind, other = type(left), type(right)
        if kind in NUMERIC and other in NUMERIC:
            # A whole number is compared with a double as a double, like cel-go does.
            mixed = kind is not other and (kind is float or other is float)
            if (float(left) != float(right)) if mixed else (left != right):
                return False
        elif kind in MAPS and other in MAPS:
            if len(left) != len(right):
                return False
            for key, value in left.items():
                if key not in right:
                    return False
                waiting.append((value, right[key]))
        elif kind is not other:
            return False
        elif kind is list:
            if len(left) != len(right):
                return False
            waiting.extend(zip(left, right, strict=True))
        elif kind is Optional:
            if left.present != right.present:
                return False
            if left.present:
                waiting.append((left.value, right.value))
        elif kind is Url:
            if left.text != right.text:
                return False
        elif left != right:
            return False
    return True


def contains(element: Any, collection: Any) -> bool:
    """Return `element in collection` for a list or a map."""
    kind = type(collection)
    if kind is list:
        if type(element) is str:
            return element in collection
        return any(equals(element, item) for item in collection)
    if kind in MAPS:
        key = type(element)
        if key is bool:
            return (TRUE_KEY if element else FALSE_KEY) in collection
        return (key is str or key in NUMERIC) and element in collection
    raise no_such_overload()


def field(operand: Any, name: str) -> Any:
    """Return `operand.name`; an optional operand gives an optional result."""
    kind = type(operand)
    if kind in MAPS:
        return operand[name]
    if kind is Optional:
        return optional_field(operand, name)
    if kind is list:
        raise CelError("unsupported index type 'string' in list")
    raise NoSuchKeyError(name)


def has_field(operand: Any, name: str) -> bool:
    """Return `has(operand.name)`."""
    kind = type(operand)
    if kind in MAPS:
        # A map with a default finds every key, as the API server's does.
        return name in operand or kind is DefaultMap or (kind is LazyMap and operand.knows(name))
    if kind is Optional:
        return operand.present and has_field(operand.value, name)
    return False


def index(operand: Any, key: Any) -> Any:
    """Return `operand[key]` for a list, a map or an optional one."""
    kind = type(operand)
    if kind in MAPS:
        kind = type(key)
        if kind is str:
            return operand[key]
        if kind is bool or kind in NUMERIC:
            return operand[key_of(key)]
        raise no_such_overload()
    if kind is list:
        return operand[position(key, len(operand))]
    if kind is Optional:
        return optional_index(operand, key)
    raise NoSuchKeyError(shown_key(key))


def position(key: Any, size: int) -> int:
    """Return a list index as a Python index."""
    kind = type(key)
    if kind is float:
        if not key.is_integer():
            raise CelError(f"unsupported index value: {key}")
        key = int(key)
    elif kind is not int and kind is not Uint:
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    if not 0 <= key < size:
        raise CelError(f"index out of bounds: {int(key)}")
    place: int = key
    return place


def optional_field(operand: Any, name: str) -> Optional:
    """Return `operand.?name`."""
    if type(operand) is Optional:
        if not operand.present:
            return NOTHING
        operand = operand.value
    if type(operand) not in MAPS:
        raise no_such_overload()
    if name in operand or type(operand) is DefaultMap:
        return Optional(present=True, value=operand[name])
    return NOTHING


def optional_index(operand: Any, key: Any) -> Optional:
    """Return `operand[?key]`."""
    if type(operand) is Optional:
        if not operand.present:
            return NOTHING
        operand = operand.value
    kind = type(operand)
    if kind is list:
        try:
            return Optional(present=True, value=operand[position(key, len(operand))])
        except CelError:
            if type(key) in NUMERIC:
                return NOTHING
            raise
    if kind in MAPS:
        if kind is DefaultMap and type(key) is str:
            return Optional(present=True, value=operand[key])
        if contains(key, operand):
            return Optional(present=True, value=operand[key_of(key)])
        return NOTHING
    raise no_such_overload()
