"""The longest text of an event or condition that Kubernetes keeps, and how longer ones are cut."""

from typing import Final

LONGEST_MESSAGE: Final = 1024
"""Bytes of an event's message (core/v1 validation)."""


def shortened(message: str, limit: int = LONGEST_MESSAGE) -> str:
    """Return a message of at most `limit` bytes, cut at a character and marked with dots.

    >>> shortened("four words are here", 10)
    'four wo...'
    """
    encoded = message.encode()
    if len(encoded) <= limit:
        return message
    return encoded[: limit - 3].decode(errors="ignore") + "..."
