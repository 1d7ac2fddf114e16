"""Operators on numbers, texts and times, and conversions between types.

Every function answers operands of other types with "no such overload".
"""

import math
from collections.abc import Callable
from typing import Any, Final

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.functions import times
from dralab.cel.values import (
    INT_MAX,
    INT_MIN,
    MAPS,
    NUMERIC,
    UINT_MAX,
    Address,
    Cidr,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    type_name,
)


def checked_int(value: int) -> int:
    """Return an int, unless it has more than 64 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise CelError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    """Return a uint, unless it is negative or has more than 64 bits."""
    if not 0 <= value <= UINT_MAX:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def add(left: Any, right: Any) -> Any:
    """Return `left + right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left + right)
        if kind is str or kind is float or kind is bytes or kind is list:
            return left + right
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind is Duration:
            return times.in_range(int(left) + int(right))
    elif {kind, other} == {Timestamp, Duration}:
        return times.instant(int(left) + int(right))
    raise no_such_overload()


def subtract(left: Any, right: Any) -> Any:
    """Return `left - right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left - right)
        if kind is float:
            return left - right
        if kind is Uint:
            return checked_uint(int(left) - int(right))
        if kind is Duration or kind is Timestamp:
            return times.in_range(int(left) - int(right))
    elif kind is Timestamp and other is Duration:
        return times.instant(int(left) - int(right))
    raise no_such_overload()


def multiply(left: Any, right: Any) -> Any:
    """Return `left * right`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)
        if kind is float:
            return left * right
        if kind is Uint:
            return checked_uint(int(left) * int(right))
    raise no_such_overload()


def divide(left: Any, right: Any) -> Any:
    """Return `left / right`; whole numbers are divided towards zero."""
    kind = type(left)
    if kind is type(right):
        if kind is float:
            if right:
                return left / right
            if not left or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        if kind is int or kind is Uint:
            if not right:
                raise CelError("division by zero")
            quotient = abs(left) // abs(right)
            if kind is Uint:
                return Uint(quotient)
            return checked_int(quotient if (left < 0) == (right < 0) else -quotient)
    raise no_such_overload()


def modulo(left: Any, right: Any) -> Any:
    """Return `left % right`, with the sign of the dividend."""
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if not right:
            raise CelError("modulus by zero")
        if kind is Uint:
            return Uint(int(left) % int(right))
        if left == INT_MIN and right == -1:
            raise CelError("integer overflow")
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    raise no_such_overload()


def negate(value: Any) -> Any:
    """Return `-value`."""
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    raise no_such_overload()


def logical_not(value: Any) -> bool:
    """Return `!value`."""
    if value is True:
        return False
    if value is False:
        return True
    raise no_such_overload()


ORDERED: Final = frozenset({str, bytes, bool, Timestamp, Duration})


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    kind, other = type(left), type(right)
    if kind is other and kind in ORDERED:
        return left, right
    if kind in NUMERIC and other in NUMERIC:
        if kind is not other and (kind is float or other is float):
            # As cel-go does it: a whole number beside a double loses what a double cannot hold.
            return float(left), float(right)
        return left, right
    raise no_such_overload()


def less(left: Any, right: Any) -> bool:
    """Return `left < right`."""
    left, right = _comparable(left, right)
    answer: bool = left < right
    return answer


def less_equal(left: Any, right: Any) -> bool:
    """Return `left <= right`."""
    left, right = _comparable(left, right)
    answer: bool = left <= right
    return answer


def greater(left: Any, right: Any) -> bool:
    """Return `left > right`."""
    left, right = _comparable(left, right)
    answer: bool = left > right
    return answer


def greater_equal(left: Any, right: Any) -> bool:
    """Return `left >= right`."""
    left, right = _comparable(left, right)
    answer: bool = left >= right
    return answer


def size(value: Any) -> int:
    """Return the number of code points, octets, elements or entries."""
    kind = type(value)
    if kind is str or kind is list or kind is bytes or kind in MAPS:
        return len(value)
    raise no_such_overload()


def to_bool(value: Any) -> bool:
    """Convert to bool."""
    if type(value) is bool:
        return value
    if type(value) is str:
        if value in {"1", "t", "true", "TRUE", "True", "T"}:
            return True
        if value in {"0", "f", "false", "FALSE", "False", "F"}:
            return False
        raise not_converted("bool")
    raise no_such_overload()


def not_converted(wanted: str) -> CelError:
    """Return the error for a text that is not of another type (cel-go, ConvertToType)."""
    return CelError(f"type conversion error from 'string' to '{wanted}'")


def _decimal(text: str, wanted: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        raise not_converted(wanted)
    found = int(text)
    if not low <= found <= high:
        raise not_converted(wanted)
    return found


def _whole(value: float) -> int:
    if math.isnan(value) or math.isinf(value):
        raise CelError("integer overflow")
    return int(value)


def to_int(value: Any) -> int:
    """Convert to int; doubles are cut off, timestamps become Unix seconds."""
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is Uint:
        return checked_int(int(value))
    if kind is float:
        # The ends are out: neither has a double that converts back (cel-go).
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return checked_int(_whole(value))
    if kind is str:
        return _decimal(value, "int", INT_MIN, INT_MAX)
    if kind is Timestamp:
        return int(value) // times.SECOND
    if kind is Duration:
        return int(value)
    raise no_such_overload()


def to_uint(value: Any) -> Uint:
    """Convert to uint."""
    kind = type(value)
    if kind is Uint:
        return Uint(value)
    if kind is int:
        return checked_uint(value)
    if kind is float:
        return checked_uint(_whole(value))
    if kind is str:
        if value[:1] in {"-", "+"}:
            raise not_converted("uint")
        return Uint(_decimal(value, "uint", 0, UINT_MAX))
    raise no_such_overload()


def to_double(value: Any) -> float:
    """Convert to double."""
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is int or kind is Uint:
        return float(value)
    if kind is str:
        problem = not_converted("double")
        # Python would also read these.
        if "_" in value or value != value.strip():
            raise problem
        try:
            return float(value)
        except ValueError:
            raise problem from None
    raise no_such_overload()


def double_text(value: float) -> str:
    """Return a double as Go's shortest %g writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    mantissa, letter, exponent = text.partition("e")
    mantissa = mantissa.removesuffix(".0")
    if letter:
        return f"{mantissa}e{exponent}"
    digits = mantissa.lstrip("-")
    whole = digits.partition(".")[0]
    # %g leaves positional notation at 21 digits.
    if len(whole) > 21:
        return f"{value:e}"
    return mantissa


def to_string(value: Any) -> str:
    """Convert to string."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return double_text(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Timestamp:
        return times.timestamp_text(value)
    if kind is Duration:
        return times.duration_text(value)
    if kind is Address:
        return str(value.value)
    if kind is Cidr:
        return str(value.value)
    raise no_such_overload()


def to_bytes(value: Any) -> bytes:
    """Convert to bytes."""
    if type(value) is bytes:
        return bytes(value)
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    raise no_such_overload()


def to_dyn(value: Any) -> Any:
    """Return the value itself; the type checker forgets what it knew of it."""
    return value


def to_type(value: Any) -> TypeValue:
    """Return the type of a value."""
    return TypeValue(type_name(value))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "_+_": add, "_-_": subtract, "_*_": multiply, "_/_": divide, "_%_": modulo,
    "-_": negate, "!_": logical_not, "_<_": less, "_<=_": less_equal, "_>_": greater,
    "_>=_": greater_equal, "size": size, "bool": to_bool, "int": to_int, "uint": to_uint,
    "double": to_double, "string": to_string, "bytes": to_bytes, "dyn": to_dyn,
    "type": to_type, "duration": times.duration, "timestamp": times.timestamp,
    "getFullYear": times.full_year, "getMonth": times.month,
    "getDayOfYear": times.day_of_year, "getDayOfMonth": times.day_of_month,
    "getDate": times.date, "getDayOfWeek": times.day_of_week, "getHours": times.hours,
    "getMinutes": times.minutes, "getSeconds": times.seconds,
    "getMilliseconds": times.milliseconds,
}  # fmt: skip

_ORDER = """
{0}_bool {1}(bool, bool) -> bool
{0}_int64 {1}(int, int) -> bool
{0}_int64_double {1}(int, double) -> bool
{0}_int64_uint64 {1}(int, uint) -> bool
{0}_uint64 {1}(uint, uint) -> bool
{0}_uint64_double {1}(uint, double) -> bool
{0}_uint64_int64 {1}(uint, int) -> bool
{0}_double {1}(double, double) -> bool
{0}_double_int64 {1}(double, int) -> bool
{0}_double_uint64 {1}(double, uint) -> bool
{0}_string {1}(string, string) -> bool
{0}_bytes {1}(bytes, bytes) -> bool
{0}_timestamp {1}(timestamp, timestamp) -> bool
{0}_duration {1}(duration, duration) -> bool
"""
_CALENDAR = """
timestamp_to_{0} timestamp.{1}() -> int
timestamp_to_{0}_with_tz timestamp.{1}(string) -> int
"""

SIGNATURES: Final = "".join(
    [
        """
conditional _?_:_(bool, A, A) -> A
logical_and _&&_(bool, bool) -> bool
logical_or _||_(bool, bool) -> bool
logical_not !_(bool) -> bool
not_strictly_false @not_strictly_false(bool) -> bool
equals _==_(A, A) -> bool
not_equals _!=_(A, A) -> bool
add_bytes _+_(bytes, bytes) -> bytes
add_double _+_(double, double) -> double
add_duration_duration _+_(duration, duration) -> duration
add_duration_timestamp _+_(duration, timestamp) -> timestamp
add_timestamp_duration _+_(timestamp, duration) -> timestamp
add_int64 _+_(int, int) -> int
add_list _+_(list(A), list(A)) -> list(A)
add_string _+_(string, string) -> string
add_uint64 _+_(uint, uint) -> uint
divide_double _/_(double, double) -> double
divide_int64 _/_(int, int) -> int
divide_uint64 _/_(uint, uint) -> uint
modulo_int64 _%_(int, int) -> int
modulo_uint64 _%_(uint, uint) -> uint
multiply_double _*_(double, double) -> double
multiply_int64 _*_(int, int) -> int
multiply_uint64 _*_(uint, uint) -> uint
negate_double -_(double) -> double
negate_int64 -_(int) -> int
subtract_double _-_(double, double) -> double
subtract_duration_duration _-_(duration, duration) -> duration
subtract_int64 _-_(int, int) -> int
subtract_timestamp_duration _-_(timestamp, duration) -> timestamp
subtract_timestamp_timestamp _-_(timestamp, timestamp) -> duration
subtract_uint64 _-_(uint, uint) -> uint
index_list _[_](list(A), int) -> A
index_map _[_](map(A, B), A) -> B
in_list @in(A, list(A)) -> bool
in_map @in(A, map(A, B)) -> bool
size_bytes size(bytes) -> int
bytes_size bytes.size() -> int
size_list size(list(A)) -> int
list_size list(A).size() -> int
size_map size(map(A, B)) -> int
map_size map(A, B).size() -> int
size_string size(string) -> int
string_size string.size() -> int
type type(A) -> type(A)
bool_to_bool bool(bool) -> bool
string_to_bool bool(string) -> bool
bytes_to_bytes bytes(bytes) -> bytes
string_to_bytes bytes(string) -> bytes
double_to_double double(double) -> double
int64_to_double double(int) -> double
string_to_double double(string) -> double
uint64_to_double double(uint) -> double
duration_to_duration duration(duration) -> duration
string_to_duration duration(string) -> duration
to_dyn dyn(A) -> dyn
int64_to_int64 int(int) -> int
double_to_int64 int(double) -> int
duration_to_int64 int(duration) -> int
string_to_int64 int(string) -> int
timestamp_to_int64 int(timestamp) -> int
uint64_to_int64 int(uint) -> int
string_to_string string(string) -> string
bool_to_string string(bool) -> string
bytes_to_string string(bytes) -> string
double_to_string string(double) -> string
duration_to_string string(duration) -> string
int64_to_string string(int) -> string
timestamp_to_string string(timestamp) -> string
uint64_to_string string(uint) -> string
timestamp_to_timestamp timestamp(timestamp) -> timestamp
int64_to_timestamp timestamp(int) -> timestamp
string_to_timestamp timestamp(string) -> timestamp
uint64_to_uint64 uint(uint) -> uint
double_to_uint64 uint(double) -> uint
int64_to_uint64 uint(int) -> uint
string_to_uint64 uint(string) -> uint
duration_to_hours duration.getHours() -> int
duration_to_minutes duration.getMinutes() -> int
duration_to_seconds duration.getSeconds() -> int
duration_to_milliseconds duration.getMilliseconds() -> int
""",
        *(
            _ORDER.format(word, function)
            for word, function in (
                ("less", "_<_"),
                ("less_equals", "_<=_"),
                ("greater", "_>_"),
                ("greater_equals", "_>=_"),
            )
        ),
        *(
            _CALENDAR.format(word, function)
            for word, function in (
                ("year", "getFullYear"),
                ("month", "getMonth"),
                ("day_of_year", "getDayOfYear"),
                ("day_of_month", "getDayOfMonth"),
                ("day_of_month_1_based", "getDate"),
                ("day_of_week", "getDayOfWeek"),
                ("hours", "getHours"),
                ("minutes", "getMinutes"),
                ("seconds", "getSeconds"),
                ("milliseconds", "getMilliseconds"),
            )
        ),
    ]
)
