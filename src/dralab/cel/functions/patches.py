"""Kubernetes' library `jsonpatch`, for mutating admission policies."""

from collections.abc import Callable
from typing import Any, Final

from dralab.cel.errors import no_such_overload

SIGNATURES: Final = "jsonpatch_escapekey_string jsonpatch.escapeKey(string) -> string"


def escape_key(key: Any) -> str:
    """Return a key as a step of a JSON pointer.

    >>> escape_key("example.com/a~b")
    'example.com~1a~0b'
    """
    if type(key) is not str:
        raise no_such_overload()
    return key.replace("~", "~0").replace("/", "~1")


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"jsonpatch.escapeKey": escape_key}
