"""Values in the texts that Go prints, which errors of a Kubernetes server carry.

Rules: Go's `fmt` verbs `%v` and `%q`.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    '"': '\\"', "\\": "\\\\",
}  # fmt: skip


def go_value(value: Any) -> str:
    """Return a value of JSON as Go prints it.

    >>> go_value({"b": [1, None], "a": True})
    'map[a:true b:[1 <nil>]]'
    """
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_value(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_value, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def aggregate(errors: Sequence[str]) -> str:
    """Return several errors as one text, as an Aggregate of k8s.io/apimachinery has them.

    >>> aggregate(["a"]), aggregate(["a", "b"])
    ('a', '[a, b]')
    """
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""


def go_quoted(text: str) -> str:
    r"""Return a text in quotation marks.

    >>> go_quoted("a\x00é")
    '"a\\x00é"'
    """
    if text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if escape := ESCAPES.get(character):
        return escape
    if character.isprintable():
        return character
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
