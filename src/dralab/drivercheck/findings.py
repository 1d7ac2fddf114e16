"""What the checks of a run share: a check that needs a finding computes it once for all."""

import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


class Shared:
    """Findings that several checks use, each found once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, object] = {}

    def once(self, key: str, find: Callable[[], T]) -> T:
        """Return the finding of a key; the first caller computes it, others wait."""
        with self._lock:
            if key not in self._found:
                self._found[key] = find()
            return cast("T", self._found[key])
