"""Notifies pages of changes: a stream of server-sent events without content.

The page then asks its questions, with its user's rights of that moment. So nothing waits for a slow
page but one word, and a stream tells its user no more than that something may have changed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.asgi_base import AsgiBase, Outcome, disconnected
from dralab.apiserver.http.connections.sending import Message, Receive, Send, started
from dralab.apiserver.http.messages import Upgrade
from dralab.apiserver.http.trying import refusal
from dralab.kernel.clock import SECOND
from dralab.web.page import SAFE

LOOK: Final = b"event: look\ndata:\n\n"
HEADERS: Final = (("Content-Type", "text/event-stream"), *SAFE)


@runtime_checkable
class LiveAnswers(Protocol):
    """The desk of a source that changes."""

    def changes(self) -> bytes:
        """Check that the source may be followed. ApiError: it may not."""
        ...

    @property
    def follows(self) -> bool:
        """Whether the source tells of its changes."""
        ...

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in any thread, after each change; return how to stop."""
        ...

    def until_next(self) -> int:
        """Return the nanoseconds before which nothing is read anew."""
        ...

    def release(self) -> None:
        """Release what only followers need. Called in the thread of the questions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Limits of streams; times in seconds.

    `quiet` is how long a page hears nothing where the source tells of its changes, `listed` where
    it does not. A stream ends after `longest`, and where its page reads nothing for `slow`.
    `after` the last one has ended, the source is let go.
    """

    streams: int = 32
    quiet: float = 15.0
    listed: float = 5.0
    longest: float = 300.0
    slow: float = 30.0
    after: float = 30.0


class LiveStreams:
    """The streams of one server. `later` runs something in the thread of the questions."""

    def __init__(
        self, later: Callable[[Callable[[], None]], None], limits: StreamLimits | None = None
    ) -> None:
        self.limits = limits or StreamLimits()
        self._later = later
        self._streams: set[LiveStream] = set()

    def open(self, desk: LiveAnswers) -> Outcome:
        """Return the stream of a page; 429 where there are too many."""
        if len(self._streams) >= self.limits.streams:
            text = "too many pages follow this server; look again later"
            return refusal(ApiError("TooManyRequests", text, details={"retryAfterSeconds": 10}))
        stream = LiveStream(desk, self)
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.close()

    def forget(self, stream: "LiveStream") -> None:
        """Record the end of a stream; the source is released later, if nothing else follows it."""
        if stream not in self._streams:
            return
        self._streams.remove(stream)
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop = asyncio.get_running_loop()
            loop.call_later(self.limits.after, self._later, stream.desk.release)


class LiveStream:
    """The stream of one page."""

    def __init__(self, desk: LiveAnswers, streams: LiveStreams) -> None:
        self.desk = desk
        self._streams = streams
        self._limits = streams.limits
        self._news = asyncio.Event()
        self._told = False
        self._over = False

    def over_socket(self, headers: Mapping[str, str], offered: Sequence[str]) -> Upgrade:
        """Pages read it as an EventSource. ApiError."""
        del headers, offered
        raise ApiError.bad_request("this path does not support WebSockets")

    async def answer(
        self,
        answering: AsgiBase,
        scope: Message,  # noqa: ARG002 - as all that is opened
        receive: Receive,
        send: Send,
    ) -> None:
        """Send an event for each change, until the page is gone or the timeout."""

        def changed() -> None:
            if not self._told:
                self._told = True
                answering.soon(self._news.set)

        loop = asyncio.get_running_loop()
        ends = loop.time() + self._limits.longest
        gone = loop.create_task(disconnected(receive))
        gone.add_done_callback(lambda _: self.close())
        stop = self.desk.follow(changed)
        try:
            await self._send(send, started(200, HEADERS))
            while not self._over and loop.time() < ends:
                await self._send(send, _piece(LOOK, more=True))
                await self._wait(gone, ends - loop.time())
            if not gone.done():
                await self._send(send, _piece(b"", more=False))
        except TimeoutError:
            pass  # the page reads nothing: the connection is dropped
        finally:
            stop()
            gone.cancel()
            self._streams.forget(self)

    def close(self) -> None:
        """End the stream."""
        self._over = True
        self._news.set()
        self._streams.forget(self)

    async def _wait(self, gone: "asyncio.Task[None]", left: float) -> None:
        """Wait for a change, then until it can be read; or for the next regular check."""
        longest = self._limits.quiet if self.desk.follows else self._limits.listed
        with suppress(TimeoutError):
            async with asyncio.timeout(min(longest, left)):
                await self._news.wait()
        rest = self.desk.until_next() / SECOND
        if rest > 0 and not self._over:
            await asyncio.wait({gone}, timeout=rest)
        if not self._over:
            self._news.clear()
            self._told = False

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._limits.slow):
            await send(message)


def _piece(body: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
