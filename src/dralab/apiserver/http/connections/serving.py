"""Serves the application: sockets, TLS, and a clean stop in any thread that runs the loop."""

import asyncio
import contextlib
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from socket import socket
from typing import Any, Final

from dralab.apiserver.http.connections.asgi_base import AsgiBase
from dralab.apiserver.http.connections.exchanges import ServedConnections
from dralab.apiserver.http.connections.http_connections import HttpConnection
from dralab.apiserver.http.connections.listening import Listener, address
from dralab.kernel.clock import SECOND, WallClock
from dralab.values.records import dataclass

TLS_BUFFER: Final = 32 * 1024  # bytes; two records, and asyncio's 256 KiB are held from the start
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
        listener: socket,
        certificate: Certificate | None = None,
        *,
        client_authorities: Sequence[bytes] = (),
        others: Sequence[socket] = (),
    ) -> None:
        self.edge = edge
        self.listener = listener
        self._sockets = [listener, *others]
        self._shared = ServedConnections(edge)
        self._tls = None if certificate is None else _tls(certificate, client_authorities)
        for each in self._sockets:
            if isinstance(each, Listener):
                each.newcomers = self._shared.newcomers
        self._servers: list[asyncio.Server] = []
        self._looking: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where clients find the server."""
        host, port = address(self.listener)
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def accept(self, loop: asyncio.AbstractEventLoop) -> HttpConnection:
        """Return the protocol of one more connection."""
        return HttpConnection(self._shared, loop)

    async def start(self) -> None:
        """Begin to serve; requests are answered once it returns."""
        loop = asyncio.get_running_loop()
        self._looking = loop.create_task(self._look())
        for each in self._sockets:
            self._servers.append(
                await loop.create_server(
                    lambda: self.accept(loop), sock=each, ssl=self._tls, backlog=ACCEPTED
                )
            )

    async def _look(self) -> None:
        """Tell the connections the date, and look after slow ones, once a second."""
        while True:
            self._shared.stamp(formatdate(WallClock().now() / SECOND, usegmt=True).encode())
            for connection in list(self._shared.connections):
                connection.look()
            await asyncio.sleep(1)

    async def stop(self) -> None:
        """End the watches, finish the requests, close the connections."""
        self.edge.close()
        if self._looking is None:
            return
        self._looking.cancel()
        for each in self._sockets:
            if isinstance(each, Listener):
                each.accepts = False
        for _ in range(3):
            await asyncio.sleep(0)  # asyncio loses what it accepts for a server that is closed
        for server in self._servers:
            server.close()
        for each in self._sockets:
            each.close()
        shared, told = self._shared, set[Any]()
        for _ in range(20):  # a turn or two is enough for answers that are on their way
            for connection in shared.connections - told:  # some were accepted just before
                connection.shutdown()
            told |= shared.connections
            await asyncio.sleep(0.005)
            if not shared.connections and not shared.tasks:
                break
        while shared.newcomers.end_oldest() is not None:
            pass  # those in a handshake
        for connection in list(shared.connections):
            connection.transport.abort()
        for task in list(shared.tasks):
            task.cancel()
        await asyncio.sleep(0)  # what was aborted hears of it
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking
        await asyncio.gather(*shared.tasks, return_exceptions=True)


def _tls(certificate: Certificate, client_authorities: Sequence[bytes]) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(certificate.certificate, certificate.key)
    # Of each connection, even one that never says a word: thousands would take the memory.
    SSLProtocol.max_size = min(SSLProtocol.max_size, TLS_BUFFER)
    if client_authorities:
        found.load_verify_locations(cadata=b"".join(client_authorities))
        found.verify_mode = ssl.CERT_OPTIONAL
        # An intermediate authority in the list is trusted without its root.
        found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return found
