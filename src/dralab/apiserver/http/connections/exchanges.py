"""Requests of an HTTP/1.1 connection and their answers: in one piece, or by the messages of ASGI.

What is read of a connection is left to `http_connections`.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, Protocol

from dralab.apiserver.http.connections.asgi_base import WHOLE_BODY, Answering, AsgiBase
from dralab.apiserver.http.connections.listening import Newcomers
from dralab.apiserver.http.connections.sending import WHOLE_ANSWER, Message
from dralab.apiserver.http.connections.stream_turns import DIRECT_STREAM

logger = logging.getLogger(__name__)

BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # not in the headers of an answer
STATUS_LINES: Final = {
    int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class ServedConnections:
    """The connections of a server, and what they share."""

    def __init__(self, edge: AsgiBase) -> None:
        self.edge = edge
        self.connections: set[Any] = set()  # of this module, and WebSockets
        self.tasks: set[asyncio.Task[None]] = set()
        self.newcomers = Newcomers()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self.date_line = b""

    def stamp(self, date: bytes) -> None:
        """Let answers have this date from now on."""
        self.default_headers = [(b"date", date)]
        self.date_line = b"date: %b\r\n" % date


class AnsweringConnection(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    shared: ServedConnections
    loop: asyncio.AbstractEventLoop
    write_paused: bool

    async def writable(self, exchange: "HttpExchange") -> None:
        """Wait until the client has read most of what was written, or is gone."""
        ...

    def resume_reading(self) -> None:
        """Read on, where the client was faster than its requests were answered."""
        ...

    def answered(self) -> None:
        """Go on with the next request that came meanwhile."""
        ...


def nothing() -> None:
    """Do nothing."""


class HttpExchange:
    """A request on its connection, and its answer. It is the outlet of a stream, too."""

    __slots__ = (
        "_chunked", "_connection", "_left", "_news", "body", "complete", "disconnected",
        "keep_alive", "more_body", "ready", "scope", "started", "transport", "unread",
        "waits_to_go_on",
    )  # fmt: skip

    def __init__(
        self,
        connection: AnsweringConnection,
        scope: Message,
        *,
        keep_alive: bool,
        waits_to_go_on: bool,
    ) -> None:
        self._connection, self.transport, self.scope = connection, connection.transport, scope
        self.keep_alive, self.waits_to_go_on = keep_alive, waits_to_go_on
        self.body, self.more_body, self.unread = b"", True, False
        self.started = self.complete = self.disconnected = False
        self._chunked, self._left = False, 0  # how the answer ends: bytes that are still to come
        self._news: asyncio.Event | None = None
        self.ready: Callable[[], None] = nothing

    # --- the whole answer at once ---------------------------------------------------------

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Send an answer in one piece, which takes one call of the system, and one record of TLS.

        False: it has to be sent by messages.
        """
        connection = self._connection
        if (
            connection.write_paused
            or self.disconnected
            or self.started
            or not self.keep_alive
            or self.scope["method"] == "HEAD"
            or status in BODILESS
        ):
            return False
        line, date = STATUS_LINES[status], connection.shared.date_line
        length = b"content-length: %d\r\n\r\n" % len(body)
        self.transport.write(b"".join((line, date, head, length, body)))
        self.started = True
        self._end()
        return True

    def take_whole(self) -> bytes | None:
        """Return the body if all of it has come: a small one comes with its head, nearly always."""
        if self.more_body or self.disconnected or self.complete:
            return None
        body, self.body, self.unread = self.body, b"", False
        return body

    # --- by the messages of ASGI ----------------------------------------------------------

    def go_on(self, answering: Answering) -> None:
        """Answer in a task."""
        tasks = self._connection.shared.tasks
        task = self._connection.loop.create_task(self._run(answering))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _run(self, answering: Answering) -> None:
        self.scope["extensions"] = {
            WHOLE_ANSWER: self.send_whole,
            WHOLE_BODY: self.take_whole,
            DIRECT_STREAM: self.outlet,
        }
        try:
            await answering(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self.transport.close()
            raise
        except Exception:
            logger.exception("%s %s failed", self.scope["method"], self.scope["path"])
            await self._fail()
        else:
            if not self.complete and not self.disconnected:
                logger.error("%s %s got no answer", self.scope["method"], self.scope["path"])
                await self._fail()
        finally:
            self.scope["extensions"] = {}  # a cycle of references less

    async def _fail(self) -> None:
        """Answer for a defect; cut an answer off that has begun."""
        if self.started:
            self.transport.close()
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        text = b"Internal Server Error"
        headers.append((b"content-length", b"%d" % len(text)))
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": text})

    async def receive(self) -> Message:
        """Return the next part of the body; http.disconnect once the client is gone or answered."""
        if self.waits_to_go_on and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waits_to_go_on = False
        while not (self.unread or self.disconnected or self.complete):
            self._connection.resume_reading()
            self._news = self._news or asyncio.Event()
            await self._news.wait()
            self._news.clear()
        if self.disconnected or self.complete:
            return {"type": "http.disconnect"}
        body, self.body, self.unread = self.body, b"", False
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def wake(self) -> None:
        """Let `receive` look again."""
        if self._news is not None:
            self._news.set()

    async def send(self, message: Message) -> None:
        """Send the head of the answer, or a part of its body."""
        await self._connection.writable(self)
        if self.disconnected:
            return
        if self.complete or self.started == (message["type"] == "http.response.start"):
            raise RuntimeError(f"{message['type']} is not what comes next in an answer")
        if not self.started:
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._go_on(message.get("body", b""), more=message.get("more_body", False))

    def _begin(self, status: int, headers: Any) -> None:
        parts = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        closes = sized = False
        for name, value in [*self._connection.shared.default_headers, *headers]:
            if CONTROL.search(name) or CONTROL.search(value):
                raise RuntimeError(f"a header of an answer has a control character: {name!r}")
            name = name.lower()  # noqa: PLW2901 - as it is sent
            if name == b"content-length" and not self._chunked:
                self._left, sized = int(value), True
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                self._chunked, self._left = True, 0
            elif name == b"connection" and b"close" in map(bytes.strip, value.lower().split(b",")):
                self.keep_alive, closes = False, True
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive and not closes:
            parts.append(b"connection: close\r\n")
        bodiless = self.scope["method"] == "HEAD" or status in BODILESS
        if not (self._chunked or sized or bodiless):
            self._chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        self.started, self.waits_to_go_on = True, False
        self.transport.write(b"".join(parts))

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._left = 0
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self.transport.write(chunk if more else b"%b0\r\n\r\n" % chunk)
        else:
            self._left -= len(body)
            if self._left < 0:
                raise RuntimeError("an answer is longer than its Content-Length")
            self.transport.write(body)
        if not more:
            if self._left:
                raise RuntimeError("an answer is shorter than its Content-Length")
            self._end()

    def _end(self) -> None:
        self.complete = True
        self.wake()
        if not self.keep_alive:
            self.transport.close()
        self._connection.answered()

    # --- a stream -------------------------------------------------------------------------

    def outlet(self) -> "HttpExchange | None":
        """Return the outlet for the chunks of an answer that has begun; None: it has no chunks."""
        return self if self._chunked else None

    @property
    def is_full(self) -> bool:
        """Whether the client still has to read what was written, or is gone."""
        return self._connection.write_paused or self.disconnected

    @property
    def is_gone(self) -> bool:
        """Whether the client is gone."""
        return self.disconnected

    def write(self, chunk: bytes) -> None:
        """Write a chunk, framed."""
        self.transport.write(chunk)

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time it is no longer full, and when the client is gone."""
        self.ready = ready

    def close(self) -> None:
        """Notify no more."""
        self.ready = nothing
