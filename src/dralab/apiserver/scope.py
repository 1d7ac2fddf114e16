"""What the thread of a request may do: wait for other servers, or compute for a long time.

A request begins in the loop, where it may do neither. If it has to, `MustWait` or `MustCompute`
ends it, and it begins again in a thread that may. Who may is decided once, before the work begins.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.long_work import LongWork, WaitedTooLong
from dralab.kernel.clock import SECOND, WallClock

LONGEST: Final = 34 * SECOND  # of a request (k8s.io/apiserver `endpoints/handlers`)


class MustWait(Exception):  # noqa: N818 - a condition, which no client sees
    """Another server has to be called, and this thread may not wait: retry in one that may."""


class MustCompute(MustWait):
    """The work takes long, and other requests wait for this thread: retry in another one."""


@dataclass(frozen=True, slots=True)
class ThreadScope:
    """What a thread may do until `until`, in nanoseconds of the wall clock.

    It may ask other servers if it `waits`, and compute for long if there is `work`, in its turn.
    """

    until: int = 0
    waits: bool = False
    work: LongWork | None = None

    @property
    def left(self) -> float:
        """The seconds until it ends; 0 if it is over."""
        return max(0.0, (self.until - WallClock().now()) / SECOND)


IN_LOOP: Final = ThreadScope()
_scope: ContextVar[ThreadScope] = ContextVar("scope", default=IN_LOOP)


def current() -> ThreadScope:
    """Return what this thread may do."""
    return _scope.get()


@contextmanager
def within(scope: ThreadScope) -> Iterator[None]:
    """Change what this thread may do, inside."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def check_waits() -> None:
    """Raise MustWait if this thread may not wait for others."""
    if not current().waits:
        raise MustWait


def deadline(asked: int | None = None) -> int:
    """Return until when a request that begins now may wait, in nanoseconds of the wall clock.

    `asked` is the time that its client gives it, in nanoseconds.
    """
    return WallClock().now() + min(LONGEST, asked or LONGEST)


def time_left(most: float) -> float:
    """Return how many seconds may be waited, `most` at the most; 0 if no time is left. MustWait."""
    check_waits()
    return min(most, current().left)


@contextmanager
def long_work(user: Hashable) -> Iterator[None]:
    """Allow a long computation inside, in the turn of a user. MustCompute, ApiError Timeout."""
    scope = current()
    if scope.work is None:
        raise MustCompute
    try:
        with scope.work.turn(user, scope.left):
            yield
    except WaitedTooLong:
        raise ApiError(
            "Timeout",
            "request did not complete within requested timeout - context deadline exceeded",
            details={},
        ) from None
