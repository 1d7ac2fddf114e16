"""The headers of answers as they are sent. Status line, date and length are left to `serving`."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

LONGEST_KEPT: Final = 256  # characters of all headers of an answer


def head_of(headers: Sequence[tuple[str, str]], audit_id: str = "") -> bytes | None:
    """Return headers as they are sent; None if they are about the connection, too.

    `audit_id` must not have line breaks.

    ValueError: one would end before its end.
    """
    if sum([len(value) for _, value in headers]) > LONGEST_KEPT:
        found = _spelled(headers)
    else:
        found = _kept(tuple(headers))  # nearly all answers have the same few
    if audit_id and found is not None:
        return b"%baudit-id: %b\r\n" % (found, audit_id.encode("latin-1"))
    return found


def _spelled(headers: Sequence[tuple[str, str]]) -> bytes | None:
    if any(name.lower() == "connection" for name, _ in headers):
        return None
    text = "".join([f"{name.lower()}: {value}\r\n" for name, value in headers])
    if not text.count("\r") == text.count("\n") == len(headers) or "\0" in text:
        raise ValueError(f"a header of an answer has a line break: {headers}")
    return text.encode("latin-1")


_kept = lru_cache(maxsize=256)(_spelled)
