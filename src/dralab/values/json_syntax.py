"""Syntax errors in JSON, and duplicate keys, in Go's words.

`orjson` reads bodies fast but words its errors in its own way and drops the first of two equal
keys in silence. These run only once something is known, or likely, to be wrong.
Source of the rules and the words: Go's `encoding/json` scanner, `sigs.k8s.io/json`.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from dralab.values.go_text import go_quoted

VALUE: Final = "looking for beginning of value"
KEY: Final = "looking for beginning of object key string"
WORDS: Final = {"t": "true", "f": "false", "n": "null"}
MAX_STRICT_ERRORS: Final = 100
# Objects, lists and items of one body, in any form. An object of the 1.5 MiB that etcd takes has
# fewer, unless it is made of numbers; reading, checking and freeing this many takes tenths of a
# second, most of it without a pause for other threads.
MOST_VALUES: Final = 160_000
MAX_DEPTH: Final = 200  # Go allows 10,000; the walk here is recursive
# Plain values with a comma after each: a long list is not walked one by one.
ELEMENTS: Final = re.compile(
    r"(?:[ \t\r\n]*+(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
    r"[ \t\r\n]*+,)*+"
)
DIGITS: Final = re.compile(r"[0-9]*")
STRING: Final = re.compile(r'[^"\\\x00-\x1f]*')


class _GoSyntaxError(Exception):
    """An error with Go's message."""


def go_error(data: bytes) -> str:
    """Return Go's message about the first error in a text that is not JSON.

    >>> go_error(b"{nope")
    "invalid character 'n' looking for beginning of object key string"
    >>> go_error(b"")
    'unexpected end of JSON input'
    """
    text = data.decode("latin-1")  # Go's scanner goes by bytes
    try:
        _Scanner(text).document()
    except _GoSyntaxError as error:
        return str(error)
    return "invalid JSON"


def has_more_values(data: bytes, most: int = MOST_VALUES) -> bool:
    """Return whether a text has more objects, lists and items than that, before it is read.

    >>> has_more_values(b'{"a": [1, 2, 3]}', 4), has_more_values(b'{"a": "[,,,,{"}', 4)
    (False, False)
    >>> has_more_values(b"[1, 2, 3, 4, 5]", 4)
    True
    """
    if len(data) <= 2 * most or sum(map(data.count, (b",", b"[", b"{"))) <= most:
        return False
    # Some may be in texts; here others get a turn after each. The last match is the end.
    return any(count > most for count, _ in enumerate(_SEPARATED.finditer(data)))


def duplicate_fields(data: bytes) -> list[str]:
    """Return the paths of keys that an object gives more than once, in the order of the text.

    Each once, and of many the first (as sigs.k8s.io/json). Empty if there are none, or where
    the text is not JSON.

    >>> duplicate_fields(b'{"spec": {"a": 1, "a": 2}}')
    ['spec.a']
    """
    try:
        found = json.loads(data, object_pairs_hook=_as_pairs)
    except (ValueError, RecursionError):
        return []
    paths: dict[str, None] = {}
    if type(found) in NESTED:
        _collect(found, None, paths)
    return list(paths)


def strict_errors(data: bytes, unknown: Collection[str]) -> list[tuple[str, str]]:
    """Return the messages of a strict decoder about an object of a known type, in order.

    Each is a word and a path: a path that is `unknown`, where it is given first, or a key of a
    known field that is given again. What is below an unknown field is not looked at.

    >>> strict_errors(b'{"x": 1, "a": 1, "a": 2, "y": {"b": 1, "b": 2}}', {"x", "y"})
    [('unknown', 'x'), ('duplicate', 'a'), ('unknown', 'y')]
    """
    # What an unknown path may end with: keys have dots, too.
    ends = {path[at:] for path in unknown for at in _beginnings(path)}
    found: dict[tuple[str, str], None] = {}
    _judge(json.loads(data, object_pairs_hook=_as_pairs), "", (frozenset(unknown), ends), found)
    return list(found)[:MAX_STRICT_ERRORS]


def may_have_duplicates(data: bytes, encoded: bytes) -> bool:
    """Return whether a text may give a key twice; `encoded` is its value, written again.

    Cheap, never wrong where it says no: it compares how many keys either text has.
    """
    if data == encoded:  # most clients write JSON without spaces
        return False
    if data.count(b'":') != encoded.count(b'":'):
        return True
    # Looking for the rare space before a colon costs ten times as much as looking for a space.
    return any(space in data for space in _SPACES) and _SPACED.search(data) is not None


# It always matches: one that failed would be tried again from each byte.
_SEPARATED: Final = re.compile(
    rb'(?!\Z)(?:[^"\[{,]++|"(?:[^"\\]++|\\.)*+"?+)*+(?:[,\[{]|\Z)', re.DOTALL
)
_SPACES: Final = (b'" ', b'"\t', b'"\n', b'"\r')
_SPACED: Final = re.compile(rb'"\s+:')


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs."""


def _as_pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    """Return an object as its pairs; being Python, it lets other threads have a turn."""
    return _Pairs(pairs)


NESTED: Final = frozenset({_Pairs, list})
# The steps to a value, the last one first: (steps before it, key or index).
Steps = tuple["Steps", str] | None


def _collect(value: Any, above: Steps, found: dict[str, None]) -> None:
    """Gather the paths of repeated keys; steps become a text only for those."""
    if isinstance(value, _Pairs):
        times: dict[str, int] = {}
        for key, item in value:
            times[key] = count = times.get(key, 0) + 1
            here = (above, f".{key}" if above else key)
            if count == 2 and len(found) < MAX_STRICT_ERRORS:
                found[_path(here)] = None
            if type(item) in NESTED:
                _collect(item, here, found)
    elif len(found) < MAX_STRICT_ERRORS:
        for index, item in enumerate(value):
            if type(item) in NESTED:
                _collect(item, (above, f"[{index}]"), found)


def _beginnings(path: str) -> Iterator[int]:
    """Yield where a key may begin in a path."""
    yield 0
    for found in re.finditer(r"\.", path):
        yield found.end()


def _judge(
    value: Any,
    path: str,
    unknown: tuple[Collection[str], Collection[str]],
    found: dict[tuple[str, str], None],
) -> None:
    """Collect unknown and repeated fields with their paths."""
    paths, ends = unknown
    begin = f"{path}." if path else ""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            if key in ends and begin + key in paths:
                found["unknown", begin + key] = None
                continue
            if key in seen:
                found["duplicate", begin + key] = None
            seen.add(key)
            if type(item) in NESTED:
                _judge(item, begin + key, unknown, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) in NESTED:
                _judge(item, f"{path}[{index}]", unknown, found)


def _path(steps: Steps) -> str:
    parts: list[str] = []
    while steps is not None:
        steps, step = steps
        parts.append(step)
    return "".join(reversed(parts))


class _Scanner:
    """Scans a text like Go's scanner, to the first error."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> None:
        self.value(0)
        self.space()
        if self.at < len(self.text):
            self.fail("after top-level value")

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def peek(self) -> str:
        if self.at >= len(self.text):
            raise _GoSyntaxError("unexpected end of JSON input")
        return self.text[self.at]

    def fail(self, context: str) -> None:
        character = self.peek()
        shown = {"'": r"'\''", '"': "'\"'"}.get(character) or f"'{go_quoted(character)[1:-1]}'"
        if not character.isprintable() and ord(character) > 0xFF:
            shown = f"'\\u{ord(character):04x}'"
        raise _GoSyntaxError(f"invalid character {shown} {context}")

    def value(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _GoSyntaxError("exceeded max depth")
        self.space()
        character = self.peek()
        if character == "{":
            self.object(depth)
        elif character == "[":
            self.array(depth)
        elif character == '"':
            self.string()
        elif character in WORDS:
            self.word(WORDS[character])
        elif character == "-" or character in "0123456789":
            self.number()
        else:
            self.fail(VALUE)

    def object(self, depth: int) -> None:
        self.at += 1
        self.space()
        if self.peek() == "}":
            self.at += 1
            return
        while True:
            self.space()
            if self.peek() != '"':
                self.fail(KEY)
            self.string()
            self.space()
            if self.peek() != ":":
                self.fail("after object key")
            self.at += 1
            self.value(depth + 1)
            self.space()
            character = self.peek()
            if character == "}":
                self.at += 1
                return
            if character != ",":
                self.fail("after object key:value pair")
            self.at += 1

    def array(self, depth: int) -> None:
        self.at += 1
        self.space()
        if self.peek() == "]":
            self.at += 1
            return
        while True:
            whole = ELEMENTS.match(self.text, self.at)
            self.at = whole.end() if whole else self.at
            self.value(depth + 1)
            self.space()
            character = self.peek()
            if character == "]":
                self.at += 1
                return
            if character != ",":
                self.fail("after array element")
            self.at += 1

    def string(self) -> None:
        self.at += 1
        while True:
            run = STRING.match(self.text, self.at)
            self.at = run.end() if run else self.at
            character = self.peek()
            if character == '"':
                self.at += 1
                return
            if character != "\\":
                self.fail("in string literal")
            self.at += 1
            if self.peek() not in 'bfnrt\\/"u':
                self.fail("in string escape code")
            unicode = self.peek() == "u"
            self.at += 1
            for _ in range(4 if unicode else 0):
                if self.peek() not in "0123456789abcdefABCDEF":
                    self.fail(r"in \u hexadecimal character escape")
                self.at += 1

    def word(self, word: str) -> None:
        for position, expected in enumerate(word):
            if self.peek() != expected:
                self.fail(f"in literal {word} (expecting {expected!r})")
            if position < len(word):
                self.at += 1

    def number(self) -> None:
        if self.peek() == "-":
            self.at += 1
            if self.peek() not in "0123456789":
                self.fail("in numeric literal")
        if self.peek() == "0":
            self.at += 1
        else:
            self.digits()
        if self.text[self.at : self.at + 1] == ".":
            self.at += 1
            if self.peek() not in "0123456789":
                self.fail("after decimal point in numeric literal")
            self.digits()
        if self.text[self.at : self.at + 1] in {"e", "E"}:
            self.at += 1
            if self.peek() in "+-":
                self.at += 1
            if self.peek() not in "0123456789":
                self.fail("in exponent of numeric literal")
            self.digits()

    def digits(self) -> None:
        found = DIGITS.match(self.text, self.at)
        self.at = found.end() if found else self.at
