"""cel-go's math and encoders extensions, for environments other than Kubernetes'."""

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any, Final

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.functions.arithmetic import checked_int, checked_uint, less
from dralab.cel.values import INT_MIN, NUMERIC, UINT_MAX, Uint


def _numbers(values: tuple[Any, ...]) -> list[Any]:
    found = values[0] if len(values) == 1 and type(values[0]) is list else list(values)
    if not found:
        raise CelError("math.@max(list) argument must not be empty")
    if any(type(value) not in NUMERIC for value in found):
        raise no_such_overload()
    return list(found)


def greatest(*values: Any) -> Any:
    """Return the greatest number."""
    first, *others = _numbers(values)
    for value in others:
        if less(first, value):
            first = value
    return first


def least(*values: Any) -> Any:
    """Return the least number."""
    first, *others = _numbers(values)
    for value in others:
        if less(value, first):
            first = value
    return first


def _double(value: Any) -> float:
    if type(value) is not float:
        raise no_such_overload()
    return value


def _of_double(function: Callable[[float], Any]) -> Callable[[Any], Any]:
    def applied(value: Any) -> Any:
        return function(_double(value))

    return applied


def _rounded(function: Callable[[float], int]) -> Callable[[Any], float]:
    def applied(value: Any) -> float:
        number = _double(value)
        if not math.isfinite(number):
            return number
        return math.copysign(float(function(number)), number)

    return applied


def _half_away(value: float) -> int:
    # Adding a half would be wrong just below one half.
    whole = math.floor(abs(value))
    return (whole + (abs(value) - whole >= 0.5)) * (1 if value >= 0 else -1)


def absolute(value: Any) -> Any:
    """Return the distance from zero."""
    kind = type(value)
    if kind is int:
        return checked_int(abs(value))
    if kind is float or kind is Uint:
        return abs(value) if kind is float else value
    raise no_such_overload()


def sign(value: Any) -> Any:
    """Return -1, 0 or 1 in the type of the number."""
    kind = type(value)
    if kind is int or kind is Uint:
        return kind((value > 0) - (value < 0))
    number = _double(value)
    return number if math.isnan(number) else float((number > 0) - (number < 0))


def square_root(value: Any) -> float:
    """Return the square root, NaN below zero."""
    if type(value) not in NUMERIC:
        raise no_such_overload()
    number = float(value)
    return math.nan if number < 0 or math.isnan(number) else math.sqrt(number)


def _bits(left: Any, right: Any) -> Callable[[int], Any]:
    kind = type(left)
    if kind is not type(right) or kind not in {int, Uint}:
        raise no_such_overload()
    return checked_int if kind is int else checked_uint


def bit_and(left: Any, right: Any) -> Any:
    """Return the bits set in both."""
    return _bits(left, right)(int(left) & int(right))


def bit_or(left: Any, right: Any) -> Any:
    """Return the bits set in either."""
    return _bits(left, right)(int(left) | int(right))


def bit_xor(left: Any, right: Any) -> Any:
    """Return the bits set in one of both."""
    return _bits(left, right)(int(left) ^ int(right))


def bit_not(value: Any) -> Any:
    """Return all bits inverted."""
    if type(value) is int:
        return ~value
    if type(value) is Uint:
        return Uint(UINT_MAX ^ int(value))
    raise no_such_overload()


def _shift(value: Any, places: Any) -> tuple[int, int]:
    if type(value) not in {int, Uint} or type(places) is not int:
        raise no_such_overload()
    if places < 0:
        raise CelError(f"math.bitShift() negative offset: {places}")
    return int(value) & UINT_MAX, min(int(places), 64)


def _typed(bits: int, kind: type) -> Any:
    bits &= UINT_MAX
    if kind is Uint:
        return Uint(bits)
    return bits + 2 * INT_MIN if bits >= -INT_MIN else bits


def shift_left(value: Any, places: Any) -> Any:
    """Return bits moved to the left."""
    bits, count = _shift(value, places)
    return _typed(bits << count, type(value))


def shift_right(value: Any, places: Any) -> Any:
    """Return bits moved to the right, zeros coming in."""
    bits, count = _shift(value, places)
    return _typed(bits >> count, type(value))


def encode(value: Any) -> str:
    """Return octets in base64."""
    if type(value) is not bytes:
        raise no_such_overload()
    return base64.b64encode(value).decode()


def decode(text: Any) -> bytes:
    """Return the octets of a base64 text, with or without padding."""
    if type(text) is not str:
        raise no_such_overload()
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise CelError("illegal base64 data") from None


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "math.@max": greatest, "math.@min": least, "math.abs": absolute, "math.sign": sign,
    "math.sqrt": square_root, "math.ceil": _rounded(math.ceil),
    "math.floor": _rounded(math.floor), "math.trunc": _rounded(math.trunc),
    "math.round": _rounded(_half_away), "math.isNaN": _of_double(math.isnan),
    "math.isInf": _of_double(math.isinf), "math.isFinite": _of_double(math.isfinite),
    "math.bitAnd": bit_and, "math.bitOr": bit_or, "math.bitXor": bit_xor,
    "math.bitNot": bit_not, "math.bitShiftLeft": shift_left,
    "math.bitShiftRight": shift_right, "base64.encode": encode, "base64.decode": decode,
}  # fmt: skip

_NUMBERS: Final = ("int", "uint", "double")

SIGNATURES: Final = "\n".join(
    [
        *(
            f"math_@{word}_{left}_{right} math.@{word}({left}, {right}) -> "
            + (left if left == right else "dyn")
            for word in ("max", "min")
            for left in _NUMBERS
            for right in _NUMBERS
        ),
        *(f"math_@{w}_{n} math.@{w}({n}) -> {n}" for w in ("max", "min") for n in _NUMBERS),
        *(
            f"math_@{word}_list_{name} math.@{word}(list({name})) -> {name}"
            for word in ("max", "min")
            for name in _NUMBERS
        ),
        *(f"math_{w}_{n} math.{w}({n}) -> {n}" for w in ("abs", "sign") for n in _NUMBERS),
        *(f"math_sqrt_{name} math.sqrt({name}) -> double" for name in _NUMBERS),
        *(
            f"math_{word}_double math.{word}(double) -> double"
            for word in ("ceil", "floor", "trunc", "round")
        ),
        *(
            f"math_{word}_double math.{word}(double) -> bool"
            for word in ("isNaN", "isInf", "isFinite")
        ),
        *(
            f"math_{word}_{name} math.{word}({name}, {name}) -> {name}"
            for word in ("bitAnd", "bitOr", "bitXor")
            for name in ("int", "uint")
        ),
        *(f"math_bitNot_{name} math.bitNot({name}) -> {name}" for name in ("int", "uint")),
        *(
            f"math_{word}_{name} math.{word}({name}, int) -> {name}"
            for word in ("bitShiftLeft", "bitShiftRight")
            for name in ("int", "uint")
        ),
        "base64_encode_bytes base64.encode(bytes) -> string",
        "base64_decode_string base64.decode(string) -> bytes",
    ]
)
