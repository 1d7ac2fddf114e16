"""Functions of strings: of the CEL standard, cel-go's ext.Strings, Kubernetes' regex library.

Positions count code points. Formatting (`"%d".format([1])`) is in `formatting`.
"""

from collections.abc import Callable
from typing import Any, Final

from dralab.cel import regex
from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.functions.formatting import format_string

UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# What Unicode calls White_Space, which is what Go's strings.TrimSpace takes away.
SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
QUOTED: Final = str.maketrans(
    {
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
        "\v": "\\v", "\\": "\\\\", '"': '\\"',
    }
)  # fmt: skip


def _texts(*values: Any) -> None:
    for value in values:
        if type(value) is not str:
            raise no_such_overload()


def _numbers(*values: Any) -> None:
    for value in values:
        if type(value) is not int:
            raise no_such_overload()


def contains(text: Any, part: Any) -> bool:
    """Return whether a text contains another."""
    _texts(text, part)
    return part in text


def starts_with(text: Any, part: Any) -> bool:
    """Return whether a text starts with another."""
    _texts(text, part)
    return bool(text.startswith(part))


def ends_with(text: Any, part: Any) -> bool:
    """Return whether a text ends with another."""
    _texts(text, part)
    return bool(text.endswith(part))


def matches(text: Any, pattern: Any) -> bool:
    """Return whether a pattern matches anywhere in a text."""
    _texts(text, pattern)
    return regex.compiled(pattern).occurs(text)


def find(text: Any, pattern: Any) -> str:
    """Return the first match of a pattern, or nothing."""
    _texts(text, pattern)
    found = regex.compiled(pattern).found(text)
    return found[0] if found else ""


def find_all(text: Any, pattern: Any, limit: Any = -1) -> list[str]:
    """Return the matches of a pattern, at most `limit` of them if that is not negative."""
    _texts(text, pattern)
    _numbers(limit)
    found = regex.compiled(pattern).found(text)
    return found if limit < 0 else found[:limit]


def char_at(text: Any, position: Any) -> str:
    """Return one character; empty at the position after the end."""
    _texts(text)
    _numbers(position)
    if not 0 <= position <= len(text):
        raise CelError(f"index out of range: {position}")
    return str(text[position : position + 1])


def string_index(text: str, part: Any, start: Any = None) -> int:
    """Return where a part first occurs, or -1."""
    _texts(part)
    if start is None:
        return text.find(part)
    _numbers(start)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return min(int(start), len(text))
    # cel-go answers -1 behind the end, for any part.
    if start >= len(text):
        return -1
    return text.find(part, start)


def string_last_index(text: str, part: Any, start: Any = None) -> int:
    """Return where a part last occurs at or before a position, or -1."""
    _texts(part)
    if start is None:
        return text.rfind(part)
    _numbers(start)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return min(int(start), len(text))
    if start >= len(text):
        return -1
    return text.rfind(part, 0, start + len(part))


def lower_ascii(text: Any) -> str:
    """Return a text with ASCII letters lowered."""
    _texts(text)
    return str(text.lower() if text.isascii() else text.translate(LOWER))


def upper_ascii(text: Any) -> str:
    """Return a text with ASCII letters raised."""
    _texts(text)
    return str(text.upper() if text.isascii() else text.translate(UPPER))


def replace(text: Any, old: Any, new: Any, limit: Any = -1) -> str:
    """Return a text with parts replaced, at most `limit` of them if that is not negative."""
    _texts(text, old, new)
    _numbers(limit)
    return str(text.replace(old, new, max(limit, -1)))


def split(text: Any, separator: Any, limit: Any = -1) -> list[str]:
    """Return the parts of a text between separators; an empty one splits into characters."""
    _texts(text, separator)
    _numbers(limit)
    if limit == 0:
        return []
    if separator:
        return list(text.split(separator, limit - 1 if limit > 0 else -1))
    if limit > 0 and limit < len(text):
        return [*text[: limit - 1], text[limit - 1 :]]
    return list(text)


def substring(text: Any, start: Any, end: Any = None) -> str:
    """Return a part of a text."""
    _texts(text)
    _numbers(start)
    if end is None:
        if not 0 <= start <= len(text):
            raise CelError(f"index out of range: {start}")
        return str(text[start:])
    _numbers(end)
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if start < 0 or start > len(text):
        raise CelError(f"index out of range: {start}")
    if end > len(text):
        raise CelError(f"index out of range: {end}")
    return str(text[start:end])


def trim(text: Any) -> str:
    """Return a text without white space at its ends."""
    _texts(text)
    return str(text.strip(SPACE))


def join(parts: Any, separator: Any = "") -> str:
    """Return a list of texts as one."""
    if type(parts) is not list:
        raise no_such_overload()
    _texts(separator, *parts)
    return str(separator.join(parts))


def quote(text: Any) -> str:
    """Return a text in quotes, with escapes, for printing."""
    _texts(text)
    return f'"{text.translate(QUOTED)}"'


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "contains": contains, "startsWith": starts_with, "endsWith": ends_with,
    "matches": matches, "find": find, "findAll": find_all, "charAt": char_at,
    "lowerAscii": lower_ascii, "upperAscii": upper_ascii, "replace": replace, "split": split,
    "substring": substring, "trim": trim, "join": join, "strings.quote": quote,
    "format": format_string,
}  # fmt: skip

STANDARD_SIGNATURES: Final = """
contains_string string.contains(string) -> bool
ends_with_string string.endsWith(string) -> bool
starts_with_string string.startsWith(string) -> bool
matches matches(string, string) -> bool
matches_string string.matches(string) -> bool
"""
SIGNATURES: Final = """
string_find_string string.find(string) -> string
string_find_all_string string.findAll(string) -> list(string)
string_find_all_string_int string.findAll(string, int) -> list(string)
string_char_at_int string.charAt(int) -> string
string_index_of_string string.indexOf(string) -> int
string_index_of_string_int string.indexOf(string, int) -> int
string_last_index_of_string string.lastIndexOf(string) -> int
string_last_index_of_string_int string.lastIndexOf(string, int) -> int
string_lower_ascii string.lowerAscii() -> string
string_replace_string_string string.replace(string, string) -> string
string_replace_string_string_int string.replace(string, string, int) -> string
string_split_string string.split(string) -> list(string)
string_split_string_int string.split(string, int) -> list(string)
string_substring_int string.substring(int) -> string
string_substring_int_int string.substring(int, int) -> string
string_trim string.trim() -> string
string_upper_ascii string.upperAscii() -> string
string_format string.format(list(dyn)) -> string
strings_quote strings.quote(string) -> string
list_join list(string).join() -> string
list_join_string list(string).join(string) -> string
"""
