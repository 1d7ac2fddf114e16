"""One socket with two multiplexed connections: runtime to plugin, and plugin to runtime.

Sources: ttrpc's PROTOCOL.md, and `pkg/net/multiplex` of github.com/containerd/nri 0.12.
"""

import contextlib
import itertools
import logging
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, Final

from dralab.contracts import wire

logger = logging.getLogger(__name__)
# The connections in the trunk; other numbers are skipped.
TO_PLUGIN: Final = 1
TO_RUNTIME: Final = 2
FRAME: Final = struct.Struct(">II")  # connection, length
HEADER: Final = struct.Struct(">IIBB")  # length, stream, type, flags
REQUEST: Final = 1
RESPONSE: Final = 2
LARGEST: Final = 4 << 20
# Go's end reads a frame into a buffer of this size, and fails where it does not fit.
LARGEST_FRAME: Final = 4096
MOST_SERVED: Final = 64  # calls of the other end at a time: each has a thread
SENDING: Final = 10.0  # seconds for which the other end may read nothing
UNKNOWN: Final = 2
UNIMPLEMENTED: Final = 12
OK: Final = 0

Handler = Callable[[bytes], bytes]


class TrunkError(Exception):
    """A call that failed: the other end said so, or is gone."""


class TrunkTimeoutError(TrunkError):
    """A call without an answer in time."""


class CallError(TrunkError):
    """The other end answered with an error; `code` is gRPC's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Trunk:
    """A connected socket; `handlers` answer the calls of the other end, by service/method.

    `calls_on` and `serves_on` are the connections that carry calls to the other end, and from it.
    """

    def __init__(
        self,
        connection: socket.socket,
        handlers: Mapping[str, Handler] | None = None,
        *,
        calls_on: int = TO_PLUGIN,
        serves_on: int = TO_RUNTIME,
    ) -> None:
        self._socket = connection
        self.handlers = handlers or {}
        self._calls_on, self._serves_on = calls_on, serves_on
        self._lock = threading.Lock()
        self._streams = itertools.count(1, 2)
        self._waiting: dict[int, Future[Any]] = {}
        self._buffers = {calls_on: bytearray(), serves_on: bytearray()}
        self._free = threading.BoundedSemaphore(MOST_SERVED)
        limit = struct.pack("ll", *divmod(int(SENDING * 1_000_000), 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.closed = threading.Event()
        # Told once, from the reader's thread, when the other end is gone.
        self.on_close: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to read, in a thread."""
        threading.Thread(target=self._run, name="nri-trunk", daemon=True).start()

    def close(self) -> None:
        """End the connection; calls that wait fail."""
        self.closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def call(self, service: str, method: str, payload: bytes, timeout: float) -> bytes:
        """Return the answer to a call. TrunkError: there is none."""
        stream, answer = next(self._streams), Future[Any]()
        with self._lock:
            self._waiting[stream] = answer
        request = wire.ttrpc().Request(
            service=service, method=method, payload=payload, timeout_nano=int(timeout * 1e9)
        )
        try:
            if self.closed.is_set():
                raise TrunkError("the connection is closed")
            self._send(self._calls_on, stream, REQUEST, request.SerializeToString())
            response = answer.result(timeout)
        except LateError as error:
            raise TrunkTimeoutError(f"{method}: no answer within {timeout:g} s") from error
        except (OSError, CancelledError) as error:
            raise TrunkError(f"{method}: the connection is closed") from error
        finally:
            with self._lock:
                self._waiting.pop(stream, None)
        if response.status.code != OK:
            raise CallError(f"{method}: {response.status.message}", response.status.code)
        found: bytes = response.payload
        return found

    def _send(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        if len(data) > LARGEST:
            raise TrunkError(f"a message of {len(data)} bytes, the maximum is {LARGEST}")
        message = HEADER.pack(len(data), stream, kind, 0) + data
        pieces = (message[at : at + LARGEST_FRAME] for at in range(0, len(message), LARGEST_FRAME))
        with self._lock:
            try:
                self._socket.sendall(
                    b"".join(FRAME.pack(connection, len(piece)) + piece for piece in pieces)
                )
            except OSError:
                self.close()  # what was sent of the message is no message
                raise

    def _run(self) -> None:
        try:
            while not self.closed.is_set():
                self._frame()
        # A bad message ends this connection only.
        except Exception as error:  # noqa: BLE001 - see above; who waits for an answer is told
            logger.debug("a trunk ends: %s", error)
        finally:
            self.close()
            with self._lock:
                waiting = list(self._waiting.values())
            for each in waiting:
                each.cancel()
            self.on_close()

    def _frame(self) -> None:
        connection, length = FRAME.unpack(self._read(FRAME.size))
        if length > LARGEST + HEADER.size:
            raise TrunkError(f"a frame of {length} bytes")
        data = self._read(length)
        if connection in self._buffers:
            self._buffers[connection] += data
            self._take(connection)

    def _read(self, length: int) -> bytes:
        found = bytearray()
        while len(found) < length:
            data = self._socket.recv(length - len(found))
            if not data:
                raise TrunkError("the other end has closed the connection")
            found += data
        return bytes(found)

    def _take(self, connection: int) -> None:
        """Handle complete messages."""
        buffer = self._buffers[connection]
        while len(buffer) >= HEADER.size:
            length, stream, kind, _ = HEADER.unpack_from(buffer)
            if length > LARGEST:
                raise TrunkError(f"a message of {length} bytes")
            if len(buffer) < HEADER.size + length:
                return
            data = bytes(buffer[HEADER.size : HEADER.size + length])
            del buffer[: HEADER.size + length]
            if connection == self._calls_on and kind == RESPONSE:
                self._answered(stream, data)
            elif connection == self._serves_on and kind == REQUEST:
                # In a thread: what answers may itself call the other end.
                if not self._free.acquire(blocking=False):
                    raise TrunkError(f"more than {MOST_SERVED} calls at a time")
                threading.Thread(target=self._serve, args=(stream, data), daemon=True).start()

    def _answered(self, stream: int, data: bytes) -> None:
        with self._lock:
            waiting = self._waiting.get(stream)
        if waiting is not None:
            waiting.set_result(wire.ttrpc().Response.FromString(data))

    def _serve(self, stream: int, data: bytes) -> None:
        m = wire.ttrpc()
        response = m.Response()
        try:
            request = m.Request.FromString(data)
            handler = self.handlers.get(f"{request.service}/{request.method}")
            if handler is None:
                response.status.code = UNIMPLEMENTED
                response.status.message = f"service {request.service} has no {request.method}"
            else:
                response.payload = handler(request.payload)
        except Exception as error:  # noqa: BLE001 - the other end is told
            response.status.code, response.status.message = UNKNOWN, str(error)
        try:
            with contextlib.suppress(OSError, TrunkError):
                self._send(self._serves_on, stream, RESPONSE, response.SerializeToString())
        finally:
            self._free.release()
