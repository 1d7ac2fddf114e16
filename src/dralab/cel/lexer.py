"""Texts into tokens.

Grammar: the CEL language definition, "Syntax". One alternation finds the tokens; the escapes of
string and bytes literals are read here too.
"""

import re
from typing import Any, Final, NamedTuple

from dralab.cel.errors import Issue
from dralab.cel.values import INT_MAX, UINT_MAX, Uint

TOKEN: Final = re.compile(
    r"""
    (?P<space>[\t\n\f\r ]+|//[^\n]*)
  | (?P<text>[bB]?[rR]?(?:'''|\"\"\"|'|\"))
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<int>(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)
  | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
  | `(?P<quoted>[a-zA-Z0-9_.\-/ ]+)`
  | (?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%!?:.,()\[\]{}<>])
    """,
    re.VERBOSE | re.ASCII,
)
ESCAPE: Final = re.compile(
    r"\\(?:(?P<one>[abfnrtv\\?\"'`])|x(?P<x>[0-9a-fA-F]{2})|X(?P<y>[0-9a-fA-F]{2})"
    r"|u(?P<u>[0-9a-fA-F]{4})|U(?P<w>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2}))"
)
ONE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
KEYWORDS: Final = {"true": True, "false": False, "null": None}


class LexicalToken(NamedTuple):
    """A piece of text; `kind` is literal, name, quoted, sign or end."""

    kind: str
    text: str
    offset: int
    value: Any = None


class LexicalError(Exception):
    """An invalid character or literal."""

    def __init__(self, problem: Issue) -> None:
        super().__init__(problem.message)
        self.problem = problem


def tokens(text: str, strays: list[Issue]) -> list[LexicalToken]:
    """Return the tokens of an expression, ended by one of kind "end".

    Characters that begin no token are noted in `strays` and stepped over, as cel-go does.
    """
    found: list[LexicalToken] = []
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            # A half of `==`, `&&` or `||` is only known to be one when the next character is read.
            size = 2 if text[position] in "=&|" else 1
            stray = text[position : position + size]
            message = f"Syntax error: token recognition error at: '{stray}'"
            strays.append(Issue(message, position))
            position += size
            continue
        kind = match.lastgroup or ""
        word = match[0]
        if kind == "text":
            end, whole = _end_of_quoted(text, match)
            if whole:
                found.append(_quoted(text, match, end))
            else:
                message = f"Syntax error: token recognition error at: '{text[position:end]}'"
                strays.append(Issue(message, position))
            position = end
            continue
        if kind == "int":
            found.append(LexicalToken("literal", word, position, _integer(word, position)))
        elif kind == "float":
            found.append(LexicalToken("literal", word, position, float(word)))
        elif kind == "name" and word in KEYWORDS:
            found.append(LexicalToken("literal", word, position, KEYWORDS[word]))
        elif kind == "quoted":
            found.append(LexicalToken("quoted", match["quoted"], position))
        elif kind != "space":
            found.append(LexicalToken("sign" if word == "in" else kind, word, position))
        position = match.end()
    found.append(LexicalToken("end", "<EOF>", len(text)))
    return found


def _integer(word: str, offset: int) -> int:
    unsigned = word[-1] in "uU"
    digits = word[:-1] if unsigned else word
    # Python refuses to read very long decimal numbers at all; these are too large anyway.
    value = int(digits, 16 if digits.startswith("0x") else 10) if len(digits) < 400 else 1 << 99
    if unsigned:
        if value > UINT_MAX:
            raise LexicalError(Issue("invalid uint literal", offset))
        return Uint(value)
    # One more than the largest: the minus before it belongs to the literal (see the parser).
    if value > INT_MAX + 1:
        raise LexicalError(Issue("invalid int literal", offset))
    return value


def _end_of_quoted(text: str, match: re.Match[str]) -> tuple[int, bool]:
    """Return where a string ends, and whether a quote ends it: else the line does."""
    opening = match["text"]
    quote = opening.lstrip("bBrR")
    raw = "r" in opening.lower()
    end = match.end()
    while end < len(text) and not (len(quote) == 1 and text[end] in "\r\n"):
        if text[end] == "\\" and not raw:
            end += 2
        elif text.startswith(quote, end):
            return end + len(quote), True
        else:
            end += 1
    return min(end, len(text)), False


def _quoted(text: str, match: re.Match[str], end: int) -> LexicalToken:
    """Return the token of a string or of bytes that end at `end`."""
    opening, start = match["text"], match.start()
    prefix = opening.rstrip("'\"").lower()
    raw = "r" in prefix
    body = text[match.end() : end - len(opening) + len(prefix)]
    value: str | bytes
    if "b" in prefix:
        value = body.encode() if raw else _octets(body, start)
    else:
        value = body if raw else _characters(body, start)
    return LexicalToken("literal", text[start:end], start, value)


def _characters(body: str, offset: int) -> str:
    if "\\" not in body:
        return body
    parts, position = [], 0
    while (slash := body.find("\\", position)) >= 0:
        parts.append(body[position:slash])
        found = _escape(body, slash, offset)
        if found["one"]:
            parts.append(ONE[found["one"]])
        elif found["octal"]:
            parts.append(chr(int(found["octal"], 8)))
        else:
            code = int(found["x"] or found["y"] or found["u"] or found["w"], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise LexicalError(Issue("Syntax error: invalid unicode code point", offset))
            parts.append(chr(code))
        position = found.end()
    return "".join(parts) + body[position:]


def _octets(body: str, offset: int) -> bytes:
    parts, position = [], 0
    while (slash := body.find("\\", position)) >= 0:
        parts.append(body[position:slash].encode())
        found = _escape(body, slash, offset)
        if found["one"]:
            parts.append(ONE[found["one"]].encode())
        elif found["u"] or found["w"]:
            raise LexicalError(Issue("Syntax error: unicode escape in a bytes literal", offset))
        else:
            code = int(found["octal"], 8) if found["octal"] else int(found["x"] or found["y"], 16)
            parts.append(bytes([code]))
        position = found.end()
    return b"".join(parts) + body[position:].encode()


def _escape(body: str, slash: int, offset: int) -> re.Match[str]:
    found = ESCAPE.match(body, slash)
    if found is None:
        raise LexicalError(
            Issue(f"Syntax error: invalid escape {body[slash : slash + 2]!r}", offset)
        )
    return found
