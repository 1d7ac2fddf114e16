"""JSON files whose errors name a line: parsed fast, located only when something is wrong."""

import json
import re
from collections.abc import Sequence
from json.decoder import JSONDecoder
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, content_of

BLANK: Final = re.compile(r"[ \t\r\n]*")

Step = str | int


class JsonFile:
    """A JSON document and where in its text each part stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = content_of(path)
        try:
            self.value: Any = orjson.loads(self._raw)
        except orjson.JSONDecodeError as error:
            raise InputError(path, f"is not JSON: {error.msg}", line=error.lineno) from None
        except RecursionError:
            raise InputError(path, "is nested too deeply") from None

    def error(self, steps: Sequence[Step], problem: str) -> InputError:
        """Return the error about one part of the document, with its line."""
        where = ""
        for step in steps:
            where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
        return InputError(self.path, problem, line=self.line_of(steps), where=where)

    def line_of(self, steps: Sequence[Step]) -> int | None:
        """Return the line where a part begins; that of its nearest parent where it is missing."""
        text = self._raw.decode("utf-8", "replace")
        position = _past_blank(text, 0)
        for step in steps:
            found = _child(text, position, step)
            if found is None:
                break
            position = found
        return text.count("\n", 0, position) + 1


def _past_blank(text: str, position: int) -> int:
    found = BLANK.match(text, position)
    return position if found is None else found.end()


def _child(text: str, position: int, step: Step) -> int | None:
    """Return the start of a child of the container at `position`; the last one of a name wins."""
    closing = "}" if isinstance(step, str) else "]"
    if text[position] != ("{" if isinstance(step, str) else "["):
        return None
    decoder, index, found = JSONDecoder(), 0, None
    position = _past_blank(text, position + 1)
    while text[position] != closing:
        name: Step = index
        if isinstance(step, str):
            name, position = decoder.raw_decode(text, position)
            position = _past_blank(text, _past_blank(text, position) + 1)
        if name == step:
            found = position
            if isinstance(step, int):
                return found
        try:
            _, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            return found
        position = _past_blank(text, position)
        if text[position] == ",":
            position = _past_blank(text, position + 1)
        index += 1
    return found


def nanoseconds(seconds: float) -> int:
    """Return a number of seconds, rounded to the nanosecond.

    >>> nanoseconds(4.709164021244639), nanoseconds(7)
    (4709164021, 7000000000)
    """
    return seconds * SECOND if isinstance(seconds, int) else round(seconds * SECOND)
