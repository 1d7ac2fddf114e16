"""Whether a request's thread may wait for other servers, and until when.

A request begins in the loop, where nothing may wait. If another server has to be asked, MustWait
ends it, and it begins again in a thread that may.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from dralab.kernel.clock import SECOND, WallClock

LONGEST: Final = 34 * SECOND  # of a request (k8s.io/apiserver `endpoints/handlers`)
_until: ContextVar[int] = ContextVar("until", default=0)


class MustWait(Exception):  # noqa: N818 - a condition, which no client sees
    """Another server has to be asked, and this thread may not wait: begin again in one that may."""


def deadline(asked: int | None = None) -> int:
    """Return until when a request that begins now may wait, in nanoseconds of the wall clock.

    `asked` is the time that its client gives it, in nanoseconds.
    """
    return WallClock().now() + min(LONGEST, asked or LONGEST)


@contextmanager
def waiting_until(until: int) -> Iterator[None]:
    """Let the calls inside wait until then; 0: they may not wait."""
    token = _until.set(until)
    try:
        yield
    finally:
        _until.reset(token)


def allowed_until() -> int:
    """Return until when the calls of this thread may wait; 0: they may not."""
    return _until.get()


def time_left(most: float) -> float:
    """Return how many seconds may be waited, `most` at the most; 0 if no time is left. MustWait."""
    until = _until.get()
    if not until:
        raise MustWait
    return max(0.0, min(most, (until - WallClock().now()) / SECOND))
