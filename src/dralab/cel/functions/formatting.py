"""`"%d of %s".format([3, x])`: the verbs of cel-go's ext.Strings, version 2.

Nothing depends on a locale.
"""

import math
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from dralab.cel.deep_recursion import Step, run
from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.functions.times import duration_text, timestamp_text
from dralab.cel.values import MAPS, Duration, Timestamp, TypeValue, Uint, items, type_name

MAX_PRECISION: Final = 1000


def format_string(text: Any, arguments: Any) -> str:
    """Return a text with its clauses replaced by arguments."""
    if type(text) is not str or type(arguments) is not list:
        raise no_such_overload()
    parts: list[str] = []
    used = position = 0
    while (percent := text.find("%", position)) >= 0:
        parts.append(text[position:percent])
        if text.startswith("%%", percent):
            parts.append("%")
            position = percent + 2
            continue
        verb, precision, position = _clause(text, percent + 1)
        if used >= len(arguments):
            raise CelError(f"index {used} out of range")
        parts.append(_formatted(verb, precision, arguments[used]))
        used += 1
    return "".join(parts) + text[position:]


def verbs(text: str) -> list[str]:
    """Return the verbs of a text's clauses; CelError if a clause is invalid."""
    found: list[str] = []
    position = 0
    while (percent := text.find("%", position)) >= 0:
        if text.startswith("%%", percent):
            position = percent + 2
            continue
        verb, _, position = _clause(text, percent + 1)
        found.append(verb)
    return found


def _clause(text: str, position: int) -> tuple[str, int | None, int]:
    """Return verb, precision and the text after a clause."""
    precision = None
    if text.startswith(".", position):
        end = position + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        digits = text[position + 1 : end]
        precision = int(digits[:6]) if digits else 6
        if precision > MAX_PRECISION:
            raise CelError(f"precision {precision} is too large")
        position = end
    if position >= len(text):
        raise CelError("unexpected end of string")
    if text[position] not in "sdfebxXo":
        raise CelError(
            f'could not parse formatting clause: unrecognized formatting clause "{text[position]}"'
        )
    return text[position], precision, position + 1


def _formatted(verb: str, precision: int | None, value: Any) -> str:
    kind = type(value)
    if verb == "s":
        return _shown(value)
    if verb == "d":
        if kind in {int, Uint}:
            return str(int(value))
        if kind is float and not math.isfinite(value):
            return _infinite(value)
        raise wrong(verb, type_name(value))
    if verb in "fe":
        return _floating(verb, 6 if precision is None else precision, value)
    if verb == "b":
        if kind in {int, Uint, bool}:
            return format(int(value), "b")
        raise wrong(verb, type_name(value))
    if verb == "o":
        if kind in {int, Uint}:
            return format(int(value), "o")
        raise wrong(verb, type_name(value))
    digits = ""
    if kind in {int, Uint}:
        digits = format(int(value), "x")
    elif kind is str:
        digits = value.encode("utf-8", "surrogatepass").hex()
    elif kind is bytes:
        digits = value.hex()
    else:
        raise wrong(verb, type_name(value))
    return digits.upper() if verb == "X" else digits


WRONG: Final = {
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "o": "octal clause can only be used on integers",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
    "types, durations, and timestamps",
}


def wrong(verb: str, given: str) -> CelError:
    """Return the error of a clause with an argument of a type that it does not take."""
    return CelError(f"error during formatting: {WRONG[verb]}, was given {given}")


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _floating(verb: str, precision: int, value: Any) -> str:
    kind = type(value)
    if kind is str and value in {"NaN", "Infinity", "-Infinity"}:
        return str(value)
    if kind not in {float, int, Uint}:
        raise wrong(verb, type_name(value))
    number = float(value)
    if not math.isfinite(number):
        return _infinite(number)
    return f"{number:.{precision}{verb}}"


def _shown(value: Any) -> str:
    return run(_show(value))


def _plain(value: Any) -> str | None:
    """Return the text of a scalar, or None."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return _double(value)
    if value is None:
        return "null"
    if kind is bytes:
        return str(value, "utf-8", "replace")
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is Duration:
        return duration_text(value)
    if kind is TypeValue:
        return str(value.name)
    return None


def _show(value: Any) -> Step[str]:
    plain = _plain(value)
    if plain is not None:
        return plain
    if type(value) is list:
        shown = []
        for element in value:
            shown.append((yield _show(element)))  # noqa: PERF401 - a step is yielded
        return f"[{', '.join(shown)}]"
    if type(value) in MAPS:
        entries = []
        for key, element in items(value):
            if type(key) not in {str, bool, int, Uint}:
                raise wrong("s", type_name(key))
            entries.append((_plain(key), (yield _show(element))))
        return "{" + ", ".join(f"{key}: {text}" for key, text in sorted(entries)) + "}"
    raise wrong("s", type_name(value))


def _double(value: float) -> str:
    if not math.isfinite(value):
        return _infinite(value)
    if value == int(value):
        return (
            str(Decimal(value).quantize(Decimal(1), ROUND_HALF_EVEN))
            if value
            else ("-0" if math.copysign(1, value) < 0 else "0")
        )
    text = repr(value)
    return f"{Decimal(text):f}" if "e" in text else text
