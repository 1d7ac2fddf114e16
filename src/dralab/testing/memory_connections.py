"""Connections in memory between two event loops of one process.

Bytes arrive in a later turn of the reader's loop, at the same instant and in their order. Nothing
limits what is under way: a reader that pauses finds it all when it goes on.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, cast

CLIENT = ("192.0.2.2", 50_000)
SERVER = ("192.0.2.1", 80)


def connected(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    other_loop: asyncio.AbstractEventLoop,
    other_protocol: asyncio.BaseProtocol,
) -> "MemoryTransport":
    """Connect a client's protocol with a server's; return the transport of the client."""
    client = MemoryTransport(loop, protocol, CLIENT, SERVER)
    server = MemoryTransport(other_loop, other_protocol, SERVER, CLIENT)
    client.peer, server.peer = server, client
    other_loop.call_soon(other_protocol.connection_made, server)
    protocol.connection_made(client)
    return client


class MemoryTransport(asyncio.Transport):
    """One end of a connection; `peer` is the other."""

    peer: "MemoryTransport"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        own: tuple[str, int],
        other: tuple[str, int],
    ) -> None:
        self._socket = _SocketFacts(own, other)
        super().__init__({"socket": self._socket, "sockname": own, "peername": other})
        self._loop = loop
        self._protocol = protocol
        self._unread: deque[bytes] = deque()
        self._paused = False
        self._reading = False  # a turn of the loop will read
        self._closing = False
        self._ended = False  # the peer writes no more
        self._lost = False
        self._told: Callable[[MemoryTransport], object] = id

    def on_lost(self, told: "Callable[[MemoryTransport], object]") -> None:
        """Call `told` with this transport when the connection is gone."""
        self._told = told

    # --- what protocols ask -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; they are lost if the connection is closing, as with a socket."""
        if data and not self._closing and not self._lost:
            self.peer._arrive(bytes(data))  # noqa: SLF001 - the same class

    def can_write_eof(self) -> bool:
        """Return True: one direction can be closed."""
        return True

    def write_eof(self) -> None:
        """Close the direction to the peer."""
        self.peer._end()  # noqa: SLF001

    def get_write_buffer_size(self) -> int:
        """Return 0: written data is delivered at once."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: no write has to wait."""

    def is_reading(self) -> bool:
        """Whether arriving data is read."""
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        """Pause reading."""
        self._paused = True

    def resume_reading(self) -> None:
        """Resume reading."""
        self._paused = False
        self._wake()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing or self._lost

    def close(self) -> None:
        """Close it; what was written still arrives."""
        if self._closing or self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, None)
        self.peer._end()  # noqa: SLF001

    def abort(self) -> None:
        """Break it: the peer gets a reset, and its unread data is lost."""
        self.lose()
        self._loop.call_soon(self._lose, None)

    def lose(self) -> None:
        """Signal the peer that this end is gone, as when its process was killed."""
        self._closing = True
        reset = ConnectionResetError("Connection reset by peer")
        self.peer._loop.call_soon(self.peer._lose, reset)  # noqa: SLF001

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that receives data."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives data."""
        return self._protocol

    # --- what arrives -----------------------------------------------------------------------------

    def _arrive(self, data: bytes) -> None:
        self._unread.append(data)
        self._wake()

    def _end(self) -> None:
        self._ended = True
        self._socket.readable = True
        self._wake()

    def _wake(self) -> None:
        if not self._reading and not self._paused and (self._unread or self._ended):
            self._reading = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._reading = False
        protocol = cast("asyncio.Protocol", self._protocol)
        while self._unread and not self._paused and not self.is_closing():
            protocol.data_received(self._unread.popleft())
            protocol = cast("asyncio.Protocol", self._protocol)  # an upgrade exchanges it
        if self._ended and not self._unread and not self.is_closing():
            self._ended = False
            if not protocol.eof_received():
                self.close()

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = self._socket.readable = True
        self._unread.clear()
        self._told(self)
        self._protocol.connection_lost(error)


class _SocketFacts:
    """A minimal socket object for libraries that ask for it."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, own: tuple[str, int], other: tuple[str, int]) -> None:
        self._own, self._other = own, other
        self.readable = False

    def getsockname(self) -> tuple[str, int]:
        return self._own

    def getpeername(self) -> tuple[str, int]:
        return self._other

    def fileno(self) -> int:
        """Return a descriptor on which nothing arrives; -1 once the connection is gone.

        Pools of connections poll it, and drop a connection on which something is to be read.
        """
        return -1 if self.readable else _silent()

    def setsockopt(self, *_: Any) -> None:
        """Do nothing: there is nothing below."""

    def getsockopt(self, *_: Any) -> int:
        return 0


@cache
def _silent() -> int:
    """Return the end of a pipe that nothing is written to, one for the whole process."""
    return os.pipe()[0]
