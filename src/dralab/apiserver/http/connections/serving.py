"""Serves the application with uvicorn: sockets, TLS, and limits on headers and connections.

uvicorn parses HTTP and keeps connections alive. This module adds limits for headers that are too
large or never end, and a clean stop in any thread that runs the loop.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import weakref
from asyncio.sslproto import SSLProtocol
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from dralab.apiserver.http.connections.asgi_base import SMALL, WHOLE_BODY, Answering, AsgiBase
from dralab.apiserver.http.connections.listening import ADMITTED, Listener, Newcomers, address
from dralab.apiserver.http.connections.scopes import CLIENT_CERTIFICATE
from dralab.apiserver.http.connections.sending import WHOLE_ANSWER
from dralab.apiserver.http.connections.stream_turns import DIRECT_STREAM
from dralab.apiserver.http.connections.uvicorn_answers import (
    ChunkOutlet,
    nothing,
    open_outlet,
    send_whole,
    sent_whole,
    take_whole,
)
from dralab.apiserver.http.messages import LARGEST_MESSAGE
from dralab.values.records import dataclass

# What uvicorn says of clients that do not speak HTTP: anyone may make it say so without end.
CLIENT_ERRORS: Final = logging.getLogger(f"{__name__}.clients")
CLIENT_ERRORS.setLevel(logging.ERROR)

UNSENT: Final = 16 * 1024  # bytes; asyncio's 64 KiB are 640 MB for 10,000 watchers
TLS_BUFFER: Final = 32 * 1024  # bytes; two records, and asyncio's 256 KiB are held from the start
HEAD: Final = 64 * 1024  # bytes of request line and headers
HEAD_TIME: Final = 30.0  # seconds for a head to arrive
IDLE: Final = 120.0  # seconds that a connection without a request is kept
DAY: Final = 86_400.0
ACCEPTED: Final = 16  # connections in a turn of the loop: of a thousand, few delay others


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The files of a TLS server: its certificate and key, and the CA that clients trust."""

    certificate: Path
    key: Path
    ca: Path


class HttpServer:
    """A listening socket, and `others`, served on the running loop until `stop`.

    With TLS and `client_authorities` (DER) it asks clients for a certificate, which they need not
    have; one that none of these has signed ends the connection.
    """

    def __init__(
        self,
        edge: AsgiBase,
        listener: socket.socket,
        certificate: Certificate | None = None,
        *,
        client_authorities: Sequence[bytes] = (),
        others: Sequence[socket.socket] = (),
    ) -> None:
        self.edge = edge
        self.listener = listener
        self._others = list(others)
        config = _config(edge, certificate)
        config.load()
        # Of each connection, even one that never says a word: thousands would take the memory.
        SSLProtocol.max_size = min(SSLProtocol.max_size, TLS_BUFFER)
        if config.ssl is not None and client_authorities:
            config.ssl.load_verify_locations(cadata=b"".join(client_authorities))
            config.ssl.verify_mode = ssl.CERT_OPTIONAL
            # An intermediate authority in the list is trusted without its root.
            config.ssl.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        self._server = _Server(config)
        for each in (listener, *others):
            if isinstance(each, Listener):
                each.newcomers = self._server.server_state.newcomers
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where clients find the server."""
        host, port = address(self.listener)
        scheme = "https" if self._server.config.is_ssl else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        """Begin to serve; returns once requests are answered."""
        self._serving = asyncio.create_task(
            self._server.serve(sockets=[self.listener, *self._others])
        )
        ready = asyncio.ensure_future(self._server.ready.wait())
        await asyncio.wait((ready, self._serving), return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            ready.cancel()
            await self._serving

    async def stop(self) -> None:
        """End the watches, finish the requests, close the connections."""
        self.edge.close()
        self._server.should_exit = True
        self._server.force_exit = True
        if self._serving is not None:
            await self._serving


class SocketlessServer:
    """Connections without a socket: the server's end of what the caller connects."""

    def __init__(self, edge: AsgiBase) -> None:
        self._config = _config(edge)
        self._config.load()
        self._state = _State()

    def accept(self, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        """Return the protocol of one more connection, which is served on `loop`."""
        return _LimitedProtocol(
            config=self._config, server_state=self._state, app_state={}, _loop=loop
        )


def _config(edge: AsgiBase, certificate: Certificate | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        edge,
        http=_LimitedProtocol,
        ws=_websocket,  # type: ignore[arg-type]  # it calls the class, and needs nothing else
        ws_max_size=LARGEST_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # kube-apiserver sends none either
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Any client could say that it is another: what a proxy says is for the audit log.
        proxy_headers=False,
        timeout_keep_alive=int(IDLE if edge.limits.timers else DAY),
        timeout_graceful_shutdown=1,
        backlog=ACCEPTED,
        ssl_certfile=str(certificate.certificate) if certificate else None,
        ssl_keyfile=str(certificate.key) if certificate else None,
    )


class _State(ServerState):
    """What the connections of a server share."""

    def __init__(self) -> None:
        super().__init__()
        self.newcomers = Newcomers()


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to the caller and looks after slow heads."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.server_state: _State = _State()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                connection.look()  # type: ignore[union-attr]  # all are of the classes below
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(20):  # a turn or two is enough for answers that are on their way
            if not self.server_state.connections and not self.server_state.tasks:
                break
            await asyncio.sleep(0.005)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)


def _websocket(**options: Any) -> asyncio.Protocol:
    """Return uvicorn's WebSockets, imported with the first of them: 0.1 s that few servers need."""
    from dralab.apiserver.http.connections.websocket_connections import LimitedSocket

    return LimitedSocket(**options)


class _LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with an end to heads (64 KiB, and 30 seconds) and to idle connections.

    Time is counted in looks, one a second: a timer for each request costs as much as its route.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = CLIENT_ERRORS
        self.head = 0  # bytes of a head that is not complete, or of trailers
        self.looks = 0  # since the head began, or the last answer was sent
        self.in_body = False
        self.small = False  # the last request whose head has come, by what that announces
        self._length: bytes | None = b"0"  # of the body that a head announces; None: in chunks
        self.expected: RequestResponseCycle | None = None  # a small request that is to come whole
        self.outlet: ChunkOutlet | None = None  # of a stream that is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # What a client that reads nothing has in the process, beside the system's buffers.
        transport.set_write_buffer_limits(high=UNSENT)
        if (own := transport.get_extra_info("socket")) is not None:
            newcomers = cast("_State", self.server_state).newcomers
            newcomers.connected(own.fileno(), transport.abort)
            # uvicorn copies it into the scope of each request, and of the WebSocket.
            admitted = partial(newcomers.admitted, own.fileno())
            self.app_state = {**self.app_state, ADMITTED: admitted}
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (shown := tls.getpeercert(binary_form=True)):
            self.app_state = {**self.app_state, CLIENT_CERTIFICATE: shown}

    def data_received(self, data: bytes) -> None:
        if not self.in_body:
            if not self.head:
                self.looks = 0
            self.head += len(data)
        super().data_received(data)
        if self.expected is not None:
            expected, self.expected = self.expected, None
            self.go_on(expected, self.app)
        if self.head > HEAD and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                b"content-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_body:
            # A trailer: it says nothing about who asks, though uvicorn would add it to the head.
            self.head += len(name) + len(value) + 4
            return
        # Hot, so it is not uvicorn's own that is called.
        name = name.lower()
        self.headers.append((name, value))
        if name == b"content-length":
            if self._length is not None:
                self._length = value
        elif name == b"transfer-encoding":
            self._length = None
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        self.in_body = True
        self.head = 0
        length, self._length = self._length, b"0"
        self.small = (
            length is not None and length.isdigit() and len(length) < 6 and int(length) <= SMALL
        )
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.in_body = False
        self.head = 0
        super().on_message_complete()
        if (expected := self.expected) is not None:
            self.expected = None
            body, expected.body = bytes(expected.body), bytearray()
            self.app.answer_directly(_Exchange(self, expected), body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin with a request whose head has come; with a small one when the rest has come, too.

        The rest of a small one is in the same bytes, nearly always.
        """
        if (
            self.small
            and cycle is self.cycle
            and cycle.more_body
            and not self.expect_100_continue
            and isinstance(app, AsgiBase)
            and app.direct
        ):
            self.expected = cycle
        else:
            self.go_on(cycle, app)

    def go_on(self, cycle: RequestResponseCycle, answering: Answering) -> None:
        """Answer a request in a task."""
        # Weakly: a cycle of references for each request would be the garbage collector's.
        this = weakref.ref(cycle)
        cycle.scope["extensions"] = {
            WHOLE_ANSWER: partial(send_whole, this),  # type: ignore[dict-item]  # it is a dict of anything
            WHOLE_BODY: partial(take_whole, this),  # type: ignore[dict-item]
            DIRECT_STREAM: partial(open_outlet, weakref.ref(self), this),  # type: ignore[dict-item]
        }
        super()._start_asgi_task(cycle, answering)  # type: ignore[arg-type]  # of uvicorn's own types

    def on_response_complete(self) -> None:
        self.looks = 0
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.outlet is not None:
            self.outlet.ready()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.outlet is not None:
            self.outlet.ready()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing here: the answer tells a client that asks for SPDY."""

    def look(self) -> None:
        """Close the connection if its head, or its next request, does not come. Once a second."""
        self.looks += 1
        if self.head or self.cycle is None:
            if self.looks > HEAD_TIME:
                self.transport.abort()
        elif self.cycle.response_complete and self.looks > IDLE:
            self.transport.close()


class _Exchange:
    """A request that has come whole, on its connection."""

    __slots__ = ("_cycle", "_protocol", "scope")

    def __init__(self, protocol: _LimitedProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle
        self.scope = cycle.scope

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Send an answer in one piece. False: that cannot be done here."""
        if not sent_whole(self._cycle, status, head, body):
            return False
        self._cycle.on_response = nothing  # as uvicorn does when a task ends: a cycle less
        return True

    def go_on(self, answering: Answering) -> None:
        """Answer in a task, by the messages of ASGI."""
        self._protocol.go_on(self._cycle, answering)
