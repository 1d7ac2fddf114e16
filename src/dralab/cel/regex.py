"""Regular expressions with the meaning of RE2: linear time, no look-around, no back-references."""

from typing import Any, Final

import re2

from dralab.cel.errors import CelError
from dralab.values.remembering import remembered

OPTIONS: Final = re2.Options()
OPTIONS.log_errors = False
# Attribute values repeat over a fleet; answering from a dictionary is ten times faster than
# calling the library. The bound keeps a hostile stream of values from growing it.
REMEMBERED: Final = 4096
LONGEST: Final = 256  # characters of a text that is remembered


class Pattern:
    """A compiled pattern that remembers its answers."""

    __slots__ = ("_answers", "compiled")

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self._answers: dict[str, bool] = {}

    def occurs(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text."""
        answer = self._answers.get(text)
        if answer is None:
            answer = self.compiled.search(_encodable(text)) is not None
            if len(self._answers) >= REMEMBERED:
                self._answers = {}
            if len(text) <= LONGEST:
                self._answers[text] = answer
        return answer

    def found(self, text: str) -> list[str]:
        """Return the matched texts from left to right, without overlaps."""
        return [match.group(0) for match in self.compiled.finditer(_encodable(text))]


@remembered(512)
def compiled(pattern: str) -> Pattern:
    """Return a compiled pattern; raise CelError if it is invalid."""
    try:
        return Pattern(re2.compile(_encodable(pattern), options=OPTIONS))
    except re2.error as error:
        reason = error.args[0] if error.args else "invalid pattern"
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise CelError(f"error parsing regexp: {shown}") from None


def _encodable(text: str) -> str:
    """Return a text that has UTF-8; lone surrogates, which only JSON can bring in, have none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
