"""Audit IDs: each request has one, which the answer names in its header `Audit-Id`."""

import itertools
from collections.abc import Mapping
from typing import Final

from dralab.kernel.randomness import Randomness

LONGEST: Final = 64  # characters of a client's own ID (k8s.io/apiserver `pkg/audit`)
COUNTED: Final = 12  # hexadecimal digits


class AuditIds:
    """Names requests: a UUID whose first half is random, once per server, and whose end counts.

    A random UUID for each request would take longer than its route.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._start = randomness.uuid("audit-ids")[:-COUNTED]
        self._numbers = itertools.count()

    def of(self, headers: Mapping[str, str]) -> str:
        """Return the ID of a request: the client's own if it sends one."""
        if "audit-id" in headers and (found := given_id(headers)):
            return found
        return f"{self._start}{next(self._numbers):012x}"


def given_id(headers: Mapping[str, str]) -> str:
    """Return the ID that a client has chosen, shortened; empty if it may not be sent back."""
    found = headers.get("audit-id", "")[:LONGEST]
    return found if found.isprintable() else ""
