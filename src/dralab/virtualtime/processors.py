"""Keeps programs that take turns, and the thread that owns their clock, on one processor.

Only one of them runs at a time, so others would gain nothing from more processors. A switch between
two threads is several times faster on one, and programs find one, whatever machine they run on.
"""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterable
from typing import Final

LOOK: Final = 0.5  # real seconds between looks at whether this processor is a busy one
CROWDED: Final = 0.3  # part of that time in which we were ready to run, and others ran
WAITED: Final = 1  # the field of schedstat that counts that

_libc = ctypes.CDLL(None)


class OneProcessor:
    """A processor of those that we may use; another one where others have much to do on it."""

    def __init__(self) -> None:
        self._allowed = sorted(os.sched_getaffinity(0))
        here = _libc.sched_getcpu()
        self._chosen = here if here in self._allowed else self._allowed[0]
        self._looked, self._waited = time.perf_counter(), _waited()
        self._keep(_our_threads(), {self._chosen})

    def review(self, programs: Iterable[int]) -> None:
        """Move with all threads of the programs, if it is time to look and this one is crowded."""
        now = time.perf_counter()
        if now - self._looked < LOOK or len(self._allowed) == 1:
            return
        waited = _waited()
        crowded = (waited - self._waited) / 1e9 > CROWDED * (now - self._looked)
        self._looked, self._waited = now, waited
        if crowded:
            at = self._allowed.index(self._chosen) + 1
            self._chosen = self._allowed[at % len(self._allowed)]
            self._keep([*_our_threads(), *programs], {self._chosen})

    def close(self) -> None:
        """Let our own threads run on all processors again."""
        self._keep(_our_threads(), set(self._allowed))

    @staticmethod
    def _keep(threads: Iterable[int], processors: set[int]) -> None:
        for tid in threads:
            with contextlib.suppress(OSError):  # it has ended, or is not ours any more
                os.sched_setaffinity(tid, processors)


def _our_threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208  # not a folder


def _waited() -> int:
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[WAITED])
