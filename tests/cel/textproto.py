"""A reader of protobuf's text format, as far as the CEL specification's tests use it.

Messages become dicts from field to the list of its values; enums are strings.
"""

import re
from typing import Any

TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*(?:
        (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<type>\[[^\]\s"']+\])
      | (?P<number>-?(?:0[xX][0-9a-fA-F]+|[0-9.][0-9.eE+\-]*|inf|infinity|nan)\b)
      | (?P<name>[A-Za-z_][\w.]*)
      | (?P<sign>[{}<>\[\]:,;-])
    )""",
    re.VERBOSE,
)
ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
ONE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def read(text: str) -> dict[str, list[Any]]:
    """Return the message of a text."""
    tokens = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = TOKEN.match(text, position)
        if match is None:
            if not re.sub(r"\s|#[^\n]*", "", text[position:]):
                break
            raise ValueError(f"cannot read {text[position : position + 40]!r}")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    tokens.append(("end", ""))
    message, _ = _message(tokens, 0, {"end"})
    return message


def _message(tokens, at, closing):
    found: dict[str, list[Any]] = {}
    while tokens[at][1] not in closing and tokens[at][0] not in closing:
        kind, name = tokens[at]
        if kind == "sign" and name in ",;":
            at += 1
            continue
        assert kind in {"name", "type"}, tokens[at]
        at += 1
        if tokens[at][1] == ":":
            at += 1
        value, at = _value(tokens, at)
        values = value if isinstance(value, list) else [value]
        found.setdefault(name, []).extend(values)
    return found, at + 1


def _value(tokens, at):
    kind, text = tokens[at]
    if kind == "type":
        inside = text[1:-1]
        numbers = [part for part in inside.split(",") if part]
        return [int(part) for part in numbers], at + 1
    if text in "{<" and kind == "sign":
        return _message(tokens, at + 1, {"}", ">"})
    if text == "[":
        values = []
        at += 1
        while tokens[at][1] != "]":
            if tokens[at][1] == ",":
                at += 1
                continue
            value, at = _value(tokens, at)
            values.append(value)
        return values, at + 1
    if kind == "text":
        octets = b""
        while tokens[at][0] == "text":
            octets += _octets(tokens[at][1])
            at += 1
        return octets, at
    if text == "-":
        value, at = _value(tokens, at + 1)
        return ("-" + value if isinstance(value, str) else -value), at
    return text, at + 1


def _octets(literal: str) -> bytes:
    def one(match):
        octal, hexadecimal, short, long, other = match.groups()
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if short or long:
            return chr(int(short or long, 16)).encode()
        return ONE.get(other, other)

    return ESCAPE.sub(one, literal[1:-1].encode())
