"""Answers written to uvicorn's connections in one piece, and streams in chunks.

uvicorn's own way are messages of ASGI: several calls of the system for an answer, and a task for
each piece of a stream. What is done here to its cycle of a request is what its `send` does.
"""

import weakref
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class StreamingProtocol(Protocol):
    """A connection that tells an outlet when it is no longer full, and when it is lost."""

    outlet: "ChunkOutlet | None"


def nothing() -> None:
    """Do nothing."""


def take_whole(this: "weakref.ref[RequestResponseCycle]") -> bytes | None:
    """Return the body of a request if all of it has come, as ASGI's messages would.

    A small one comes with its head, nearly always: it needs neither a wait nor a timer.
    """
    cycle = this()
    if cycle is None or cycle.more_body or cycle.disconnected or cycle.response_complete:
        return None
    body, cycle.body = bytes(cycle.body), bytearray()
    cycle.message_event.clear()
    cycle.flow.resume_reading()
    return body


def send_whole(
    this: "weakref.ref[RequestResponseCycle]", status: int, head: bytes, body: bytes
) -> bool:
    """Send an answer as `sent_whole` does; False where its request is gone."""
    cycle = this()
    return cycle is not None and sent_whole(cycle, status, head, body)


def open_outlet(
    connection: "weakref.ref[StreamingProtocol]", this: "weakref.ref[RequestResponseCycle]"
) -> "ChunkOutlet | None":
    """Return the outlet for the chunks of an answer that has begun; None if it is not chunked."""
    protocol, cycle = connection(), this()
    if protocol is None or cycle is None or not cycle.chunked_encoding:
        return None
    protocol.outlet = ChunkOutlet(protocol, cycle)
    return protocol.outlet


class ChunkOutlet:
    """The connection of a stream, for `stream_turns`."""

    __slots__ = ("_cycle", "_protocol", "ready")

    def __init__(self, protocol: StreamingProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle
        self.ready: Callable[[], None] = nothing

    @property
    def is_full(self) -> bool:
        """Whether the client still has to read what was written, or is gone."""
        return self._cycle.flow.write_paused or self._cycle.disconnected

    @property
    def is_gone(self) -> bool:
        """Whether the client is gone."""
        return self._cycle.disconnected

    def write(self, chunk: bytes) -> None:
        """Write a chunk, framed."""
        self._cycle.transport.write(chunk)

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time it is no longer full, and when the client is gone."""
        self.ready = ready

    def close(self) -> None:
        """Notify no more."""
        self.ready = nothing
        self._protocol.outlet = None


def sent_whole(cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> bool:
    """Send an answer in one piece, as ASGI's two messages would. False: send it by these.

    uvicorn writes head and body apart, which takes two calls of the system and, with TLS, two
    records: half of what a get costs.
    """
    if (
        cycle.flow.write_paused
        or cycle.disconnected
        or cycle.response_started
        or not cycle.keep_alive
        or cycle.scope["method"] == "HEAD"
        or status in BODILESS
    ):
        return False
    parts = [STATUS_LINE[status]]
    for name, value in cycle.default_headers:
        parts += (name, b": ", value, b"\r\n")
    parts += (head, b"content-length: %d\r\n\r\n" % len(body), body)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(parts))
    cycle.message_event.set()
    cycle.on_response()
    return True
