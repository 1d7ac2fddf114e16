"""YAML as Kubernetes reads it: documents as plain JSON values, within limits, with positions.

Built on the events of PyYAML's parser with its own stack, so that depth, size and aliases
are bounded before anything is built. Scalars are resolved as by go-yaml for Kubernetes: dates
and times stay texts, `yes` and `on` are true, numbers have no underscores and no colons.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import yaml

from dralab.values.go_text import go_quoted
from dralab.values.records import dataclass

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_DEPTH: Final = 200
MAX_ALREADY_SET: Final = 100
MAX_ALIASED: Final = 200_000
"""The total number of values that the aliases of one document may expand to."""

TRUE: Final = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
FALSE: Final = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
NO_JSON: Final = frozenset({".nan", ".inf", "+.inf", "-.inf"})
INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
OTHER_INT: Final = re.compile(r"([-+]?)0(?:[oO]?([0-7]+)|[xX]([0-9a-fA-F]+)|[bB]([01]+))", re.ASCII)
FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
TAGS: Final = {
    "tag:yaml.org,2002:str": "str",
    "tag:yaml.org,2002:map": "map",
    "tag:yaml.org,2002:seq": "seq",
    "tag:yaml.org,2002:int": "plain",
    "tag:yaml.org,2002:float": "plain",
    "tag:yaml.org,2002:bool": "plain",
    "tag:yaml.org,2002:null": "plain",
    "tag:yaml.org,2002:timestamp": "str",
    "!": "str",
}
MERGE: Final = "<<"


class YamlError(ValueError):
    """A document that cannot be read; `line` counts from 1, 0 if it is not known.

    `problem` is what a parser says of a text that is not YAML.
    """

    def __init__(self, message: str, line: int = 0, *, problem: str = "") -> None:
        message = message or f"is not YAML: {problem}"
        super().__init__(message)
        self.message = message
        self.line = line
        self.problem = problem or message


@dataclass(slots=True)
class Document:
    """One document: its value, where it begins, keys that were given twice, and positions.

    `number` counts from 1 and includes empty documents. `positions` maps field paths to lines;
    it is filled only when asked for. `already_set` says of the first repeated keys what go-yaml
    says of them.
    """

    number: int
    value: Any
    line: int
    repeated: list[tuple[str, int]] = field(default_factory=list)
    already_set: list[str] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)


def documents(
    text: str | bytes, *, positions: bool = False, most: int = sys.maxsize
) -> Iterator[Document]:
    r"""Yield the documents of a YAML stream; YamlError ends it where it cannot be read.

    `most` is how many scalars, lists and mappings the text may have: reading them takes time.

    >>> [document.value for document in documents("a: 1\n---\nb: [x, 2020-01-01]")]
    [{'a': 1}, {'b': ['x', '2020-01-01']}]
    """
    builder: _Builder | None = None
    number, left = 0, most
    try:
        for event in yaml.parse(text, Loader=Loader):
            kind = type(event)
            left -= 1
            if left < 0:
                raise YamlError(f"contains more than {most} values")
            if builder is not None and kind is not yaml.DocumentEndEvent:
                builder.take_event(kind, event)
            elif kind is yaml.DocumentStartEvent:
                number += 1
                builder = _Builder(number, positions=positions)
            elif builder is not None:
                yield builder.document
                builder = None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 0
        raise YamlError("", line, problem=str(error.problem or error.context)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError("", problem=str(error).splitlines()[0]) from None


def single(text: str | bytes) -> Any:
    r"""Return the value of a text's only document, None for an empty text; YamlError says why not.

    >>> single("{a: 1}")
    {'a': 1}
    """
    return only_document(text).value


def only_document(text: str | bytes, *, most: int = sys.maxsize) -> Document:
    """Return a text's only document, one of None for an empty text; YamlError says why not."""
    found = list(documents(text, most=most))
    if len(found) > 1:
        raise YamlError("contains several documents; only one is allowed", found[1].line)
    return found[0] if found else Document(0, None, 0)


@dataclass(slots=True)
class _Open:
    """A mapping or list that is being built."""

    value: Any
    anchor: str | None
    key: Any = None
    go_key: str = ""
    has_key: bool = False
    size: int = 1
    merged: list[Mapping[str, Any]] = field(default_factory=list)


class _Builder:
    """Builds one document from its events."""

    def __init__(self, number: int, *, positions: bool) -> None:
        self.document = Document(number, None, 0)
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.keeps_positions = positions
        self.aliased = 0

    def take_event(self, kind: type, event: Any) -> None:
        """Take the next event of the document; large files have millions of them."""
        line = event.start_mark.line + 1
        if not self.document.line:
            self.document.line = line
        if kind is yaml.ScalarEvent:
            if event.tag is None and event.implicit[0]:
                self._add(resolved(event.value), line, event.anchor, 1)
            else:
                self._add(self._tagged(event, line), line, event.anchor, 1)
        elif kind is yaml.MappingStartEvent:
            self._open({}, event, line)
        elif kind is yaml.SequenceStartEvent:
            self._open([], event, line)
        elif kind is yaml.AliasEvent:
            self._alias(event.anchor, line)
        else:
            done = self.stack.pop()
            for other in done.merged:
                self._count(len(other), line)
                for key, item in other.items():
                    done.value.setdefault(key, item)
            self._add(done.value, line, done.anchor, done.size)

    def _open(self, value: Any, event: Any, line: int) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise YamlError(f"is nested more than {MAX_DEPTH} levels deep", line)
        if event.tag is not None and TAGS.get(event.tag) not in {"map", "seq"}:
            raise YamlError(f"has an unsupported tag: {event.tag}", line)
        if self.keeps_positions:
            self.document.positions.setdefault(self._path(), line)
        self.stack.append(_Open(value, event.anchor))

    def _alias(self, anchor: str | None, line: int) -> None:
        if anchor is None or anchor not in self.anchors:
            raise YamlError(f"refers to an anchor that does not exist: *{anchor}", line)
        value, size = self.anchors[anchor]
        self._count(size, line)
        self._add(value, line, None, size)

    def _count(self, size: int, line: int) -> None:
        """Count what aliases and merged keys expand to, before they are expanded."""
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            raise YamlError(f"has aliases that expand to more than {MAX_ALIASED} values", line)

    def _tagged(self, event: Any, line: int) -> Any:
        kind = TAGS.get(event.tag, "") if event.tag is not None else ""
        if event.tag is not None and not kind:
            raise YamlError(f"has an unsupported tag: {event.tag}", line)
        if kind == "str" or (not event.implicit[0] and kind != "plain"):
            return event.value
        return resolved(event.value)

    def _path(self) -> str:
        """Return the path of the value that comes next."""
        path = ""
        for each in self.stack:
            if isinstance(each.value, list):
                path += f"[{len(each.value)}]"
            else:
                path += f".{each.key}" if path else str(each.key)
        return path

    def _add(self, value: Any, line: int, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, size)
        if not self.stack:
            self.document.value = value
            return
        top = self.stack[-1]
        top.size += size
        if isinstance(top.value, list):
            if self.keeps_positions:
                self.document.positions.setdefault(self._path(), line)
            top.value.append(value)
        elif not top.has_key:
            if isinstance(value, (dict, list)):
                raise YamlError("has a key that is not a string", line)
            top.key, top.has_key = _key(value), True
            top.go_key = go_quoted(value) if isinstance(value, str) else top.key
        else:
            self._set(top, value, line)

    def _set(self, top: _Open, value: Any, line: int) -> None:
        key = top.key
        if key == MERGE:
            merged = value if isinstance(value, list) else [value]
            if not all(isinstance(item, dict) for item in merged):
                raise YamlError("merges a value that is not a mapping", line)
            top.merged += merged
        else:
            if key in top.value:
                self.document.repeated.append((self._path(), line))
                if len(self.document.already_set) < MAX_ALREADY_SET:
                    text = f"line {line}: key {top.go_key} already set in map"
                    self.document.already_set.append(text)
            if self.keeps_positions:
                path = self._path()
                self.document.positions[path] = min(line, self.document.positions.get(path, line))
            top.value[key] = value
        top.key, top.has_key = None, False


def resolved(text: str) -> Any:
    """Return the value of a plain scalar.

    >>> [resolved(text) for text in ("12", "0x1f", "1.5", "yes", "~", "12:30", "v1")]
    [12, 31, 1.5, True, None, '12:30', 'v1']
    """
    if INT.fullmatch(text):
        return _number(int(text)) if len(text) < 300 else text
    if text in NULL:
        return None
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    if text[0] in "+-.0123456789":
        other = OTHER_INT.fullmatch(text)
        if other is not None:
            sign, octal, hexadecimal, binary = other.groups()
            digits, base = (
                (octal, 8) if octal else (hexadecimal, 16) if hexadecimal else (binary, 2)
            )
            return _number(int(sign + digits, base)) if len(digits) < 300 else text
        if FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
            return number
        if text.lower() in NO_JSON:
            raise YamlError(f"has a value that JSON does not support: {text}")
    return text


def _number(value: int) -> int | float:
    """Return an integer as JSON has it: what 64 bits cannot hold is a float."""
    return value if value.bit_length() < 64 else float(value)


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
