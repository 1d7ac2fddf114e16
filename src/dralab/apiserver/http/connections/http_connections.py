"""HTTP/1.1 connections, which httptools parses: heads and idle connections have limits.

A request is an `HttpExchange`. Sockets are left to `serving`.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import httptools

from dralab.apiserver.http.connections.asgi_base import SMALL
from dralab.apiserver.http.connections.exchanges import (
    STATUS_LINES,
    HttpExchange,
    ServedConnections,
)
from dralab.apiserver.http.connections.listening import ADMITTED
from dralab.apiserver.http.connections.scopes import CLIENT_CERTIFICATE
from dralab.apiserver.http.connections.sending import Message

UNSENT: Final = 16 * 1024  # bytes; asyncio's 64 KiB are 640 MB for 10,000 watchers
UNREAD: Final = 64 * 1024  # bytes of a body that wait to be read
HEAD: Final = 64 * 1024  # bytes of request line and headers
HEAD_TIME: Final = 30.0  # seconds for a head to arrive
IDLE: Final = 120.0  # seconds that a connection without a request is kept
ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)
INVALID: Final = b"Invalid HTTP request received."


class HttpConnection(asyncio.Protocol):
    """A connection of HTTP/1.1, with an end to heads (64 KiB, and 30 seconds) and to idle ones.

    Time is counted in looks, one a second: a timer for each request costs as much as its route.
    """

    transport: asyncio.Transport

    def __init__(self, shared: ServedConnections, loop: asyncio.AbstractEventLoop) -> None:
        self.shared, self.loop = shared, loop
        self._parser: Any = httptools.HttpRequestParser(self)
        # A client may send a request behind one that closes the connection.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        # The requests that are not answered: the first is being answered, the last may be read.
        self._open: deque[HttpExchange] = deque()
        self._last: HttpExchange | None = None  # whose body is read
        self._expected: HttpExchange | None = None  # a small request that is to come whole
        self._state: dict[str, Any] = {}
        self._ends: dict[str, Any] = {}  # both ends, as scopes have them
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head = 0  # bytes of a head that is not complete, or of trailers
        self._looks = 0  # since the head began, or the last answer was sent
        self._in_body = self._waits_to_go_on = self._upgrades = False
        self._length: bytes | None = b"0"  # of the body that a head announces; None: in chunks
        self._small = False  # the last request whose head has come, by what that announces
        self._reading = True
        self.write_paused = False
        self._writable = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        self.transport = transport
        self.shared.connections.add(self)
        tls = transport.get_extra_info("ssl_object")
        self._ends = {
            "scheme": "http" if tls is None else "https",
            "server": _end_of(transport, "sockname"),
            "client": _end_of(transport, "peername"),
        }
        # What a client that reads nothing has in the process, beside the system's buffers.
        transport.set_write_buffer_limits(high=UNSENT)
        if (own := transport.get_extra_info("socket")) is not None:
            newcomers = self.shared.newcomers
            newcomers.connected(own.fileno(), transport.abort)
            self._state[ADMITTED] = partial(newcomers.admitted, own.fileno())
        if tls is not None and (shown := tls.getpeercert(binary_form=True)):
            self._state[CLIENT_CERTIFICATE] = shown

    def connection_lost(self, exc: Exception | None) -> None:
        """Let those that answer know."""
        self.shared.connections.discard(self)
        lost, self._open, self._last = self._open, deque(), None
        self._parser = None
        self._writable.set()
        for exchange in lost:
            exchange.disconnected = True
            exchange.wake()
            exchange.ready()
        if exc is None:
            self.transport.close()

    def pause_writing(self) -> None:
        """Let answers wait for the client."""
        self.write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let answers go on."""
        self.write_paused = False
        self._writable.set()
        if self._open:
            self._open[0].ready()

    async def writable(self, exchange: HttpExchange) -> None:
        """Wait until the client has read most of what was written, or is gone."""
        while self.write_paused and not exchange.disconnected:
            await self._writable.wait()

    def resume_reading(self) -> None:
        """Read on, where the client was faster than its requests were answered."""
        if not self._reading:
            self._reading = True
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    # --- what is read ---------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has come, by the methods `on_` below."""
        if not self._in_body:
            if not self._head:
                self._looks = 0
            self._head += len(data)
        try:
            while data:
                data = self._feed(data)
            if self._upgrades:
                self._become_websocket()
                return
        except httptools.HttpParserError:
            self._refuse(
                b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (STATUS_LINES[400], len(INVALID), INVALID)
            )
        if self._expected is not None:
            expected, self._expected = self._expected, None
            expected.go_on(self.shared.edge)
        if self._head > HEAD and not self.transport.is_closing():
            self._refuse(TOO_LONG)

    def _feed(self, data: bytes) -> bytes:
        """Parse bytes; return those that are to be parsed next. HttpParserError.

        A request for another protocol than WebSocket, as Java's client makes them, is parsed again
        as one for none: a server may ignore what it is asked there (RFC 9110, 7.8).
        """
        parser = self._parser
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            if self._wants_websocket():
                self._upgrades = True
                return b""
            if parser.get_method() == b"CONNECT":
                raise httptools.HttpParserInvalidMethodError from error
            self._parser, self._in_body = httptools.HttpRequestParser(self), False
            version = parser.get_http_version().encode()
            head = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self._url, version)
            kept = [each for each in self._headers if each[0] != b"upgrade"]
            fields = b"".join(b"%b: %b\r\n" % each for each in kept)
            return head + fields + b"\r\n" + data[error.args[0] :]
        return b""

    def _refuse(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()

    def on_message_begin(self) -> None:
        """Begin with a head."""
        self._url, self._headers, self._waits_to_go_on = b"", [], False

    def on_url(self, url: bytes) -> None:
        """Add a part of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        if self._in_body:
            # A trailer, which says nothing about who asks.
            self._head += len(name) + len(value) + 4
            return
        name = name.lower()
        self._headers.append((name, value))
        if name == b"content-length":
            if self._length is not None:
                self._length = value
        elif name == b"transfer-encoding":
            self._length = None
        elif name == b"expect" and value.lower() == b"100-continue":
            self._waits_to_go_on = True

    def on_headers_complete(self) -> None:
        """Begin with the request of a head that is complete."""
        self._in_body, self._head = True, 0
        length, self._length = self._length, b"0"
        self._small = (
            length is not None and length.isdigit() and len(length) < 6 and int(length) <= SMALL
        )
        parser = self._parser
        version = parser.get_http_version()
        if parser.should_upgrade():
            return
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        scope: Message = {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            **self._ends,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self._headers,
            "state": self._state,
        }
        found = self._last = HttpExchange(
            self,
            scope,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            waits_to_go_on=self._waits_to_go_on,
        )
        self._open.append(found)
        if len(self._open) == 1:
            self._begin(found)
        else:
            self._pause_reading()  # pipelined: the others are answered first

    def _begin(self, exchange: HttpExchange) -> None:
        """Begin with a request whose head has come; with a small one when the rest has come, too.

        The rest of a small one is in the same bytes, nearly always.
        """
        edge = self.shared.edge
        if (
            self._small
            and edge.direct
            and exchange is self._last
            and exchange.more_body
            and not exchange.waits_to_go_on
        ):
            self._expected = exchange
        else:
            exchange.go_on(edge)

    def on_body(self, body: bytes) -> None:
        """Add a part of a body."""
        exchange = self._last
        if exchange is not None and not exchange.complete:
            exchange.body = exchange.body + body if exchange.body else body
            if len(exchange.body) > UNREAD:
                self._pause_reading()
            exchange.unread = True
            exchange.wake()

    def on_message_complete(self) -> None:
        """Answer a small request that has come whole."""
        self._in_body, self._head = False, 0
        exchange = self._last
        if exchange is None or exchange.complete or self._parser.should_upgrade():
            return
        exchange.more_body, exchange.unread = False, True
        exchange.wake()
        if self._expected is not None:
            self._expected = None
            self.shared.edge.answer_directly(exchange, exchange.take_whole() or b"")

    def answered(self) -> None:
        """Go on with the next request that came meanwhile."""
        self._looks = 0
        if self._open:  # or the client is gone
            self._open.popleft()
        if not self.transport.is_closing():
            self.resume_reading()
            if self._open:
                self._begin(self._open[0])

    # --- WebSockets -----------------------------------------------------------------------

    def _wants_websocket(self) -> bool:
        found = dict(self._headers)
        tokens = [each.strip() for each in found.get(b"connection", b"").lower().split(b",")]
        return b"upgrade" in tokens and found.get(b"upgrade", b"").lower() == b"websocket"

    def _become_websocket(self) -> None:
        """Give the connection to a WebSocket, with the head that was read."""
        # Imported with the first of them: 0.1 s that few servers need.
        from dralab.apiserver.http.connections.websocket_connections import websocket

        self.shared.connections.discard(self)
        lines = [b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)]
        lines += [b"%b: %b" % header for header in self._headers]
        protocol = websocket(self.shared, self._state)
        protocol.connection_made(self.transport)
        protocol.data_received(b"\r\n".join([*lines, b"", b""]))
        self.transport.set_protocol(protocol)

    # --- from outside ---------------------------------------------------------------------

    def look(self) -> None:
        """Close the connection if its head, or its next request, does not come. Once a second."""
        self._looks += 1
        if self._head or self._last is None:
            if self._looks > HEAD_TIME:
                self.transport.abort()
        elif not self._open and self._looks > IDLE:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection once its request is answered."""
        if self._open:
            self._open[0].keep_alive = False
        else:
            self.transport.close()


def _end_of(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    """Return an address of a connection, as scopes have it."""
    found = transport.get_extra_info(name)
    return (str(found[0]), int(found[1])) if isinstance(found, (tuple, list)) else None
