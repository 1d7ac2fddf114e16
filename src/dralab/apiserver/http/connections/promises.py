"""Answers that are sent as soon as they are known, without a task that waits for them.

What decides about an answer is left to `asgi`, and how it is sent to `asgi_base`.
"""

from asyncio import CancelledError, Future, InvalidStateError
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Awaited = TypeVar("Awaited")


class DirectPromise(Generic[Awaited]):
    """Passes what it is given to `send` at once, or an error to `fail`.

    A future calls what awaits it in a later turn of the loop, by a task: with both, a get takes
    half as long again.
    """

    __slots__ = ("_afterwards", "_cancelled", "_done", "_fail", "_send")

    def __init__(
        self, send: Callable[[Awaited], object], fail: Callable[[BaseException], object]
    ) -> None:
        self._send, self._fail = send, fail
        self._done = self._cancelled = False
        self._afterwards: list[Callable[[Any], object]] | None = None

    def done(self) -> bool:
        """Whether it has been given something."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it has been cancelled."""
        return self._cancelled

    def cancel(self) -> bool:
        """Give it up; returns whether there was something to give up."""
        if self._done:
            return False
        self._cancelled = True
        self.set_exception(CancelledError())
        return True

    def set_result(self, result: Awaited, /) -> None:
        """Pass on an answer. InvalidStateError: it has one."""
        self._finish()
        self._send(result)

    def set_exception(self, exception: BaseException, /) -> None:
        """Pass on an error. InvalidStateError: it has an answer."""
        self._finish()
        self._fail(exception)

    def add_done_callback(self, call: Callable[[Any], object], /) -> None:
        """Call something with this promise once it has been given something."""
        if self._done:
            call(self)
        elif self._afterwards is None:
            self._afterwards = [call]
        else:
            self._afterwards.append(call)

    def _finish(self) -> None:
        if self._done:
            raise InvalidStateError
        self._done = True
        for call in self._afterwards or ():
            call(self)


# What an answer is given to, in the thread of the loop.
Promise = Future[Awaited] | DirectPromise[Awaited]
