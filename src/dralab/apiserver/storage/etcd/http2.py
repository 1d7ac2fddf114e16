"""gRPC over one HTTP/2 connection, as far as calls to a member of etcd need it.

A connection has no thread: whoever sees that it can be read calls `pump`, so the event loop of a
server needs no other thread for its calls. grpcio's take 1 ms of CPU time for a call that waits
beside a busy interpreter: `docs/decisions/etcd.md`. Source: RFC 9113, gRPC's `PROTOCOL-HTTP2.md`.
"""

import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from hpack import Decoder, Encoder, HPACKError

from dralab.kernel.clock import SECOND, stopwatch
from dralab.values.records import dataclass

# Codes of gRPC for what happens here.
UNKNOWN: Final = 2
DEADLINE_EXCEEDED: Final = 4
UNAVAILABLE: Final = 14

READ: Final = 256 * 1024  # bytes read at a time
FRAME: Final = 16_384  # bytes of a frame, which every peer takes
LARGEST_FRAME: Final = 1 << 20  # of those that are accepted
WINDOW: Final = (1 << 31) - 1  # bytes that the member may send without being told to go on
RENEWED: Final = 1 << 24  # bytes after which it is told
FIRST_WINDOW: Final = 65_535
# etcd closes connections that ask more often than every 5 seconds.
IDLE: Final = 6 * SECOND  # without a byte, until the member is asked whether it is there,
SILENT: Final = 3 * SECOND  # and for which it may not answer
HANDSHAKE: Final = 2.0  # seconds

_HEAD: Final = struct.Struct(">BHBBI")  # length (24 bits), type, flags, stream
_MESSAGE: Final = struct.Struct(">BI")  # compressed, length
_SETTING: Final = struct.Struct(">HI")
_NUMBER: Final = struct.Struct(">I")
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _MORE_WINDOW, _CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
_END_STREAM: Final = 1
_ACK: Final = 1
_END_HEADERS: Final = 4
_PADDED_OR_PRIORITY: Final = 0x28
_CANCEL: Final = 8
# No table of header fields: the same fields are the same bytes in each call.
_OPENING: Final = {1: 0, 2: 0, 4: WINDOW}  # HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class BrokenError(OSError):
    """The connection cannot be used any more."""


@dataclass(eq=False, slots=True)
class Stream:
    """One call: the messages that have come, and how it ended."""

    ended: Callable[["Stream"], object]  # called once, from any thread
    until: int = 0  # when it has to have ended, by the stopwatch; 0: never
    number: int = 0
    messages: deque[bytes] = field(default_factory=deque)
    code: int = -1  # while it goes on
    details: str = ""
    window: int = FIRST_WINDOW
    unsent: bytes = b""
    closes: bool = False  # no message follows
    taken: int = 0  # bytes since the member was last told to go on
    part: bytearray = field(default_factory=bytearray)  # of a message

    def feed(self, data: bytes) -> None:
        """Take in some bytes of messages. BrokenError."""
        if self.part:
            self.part += data
            data = bytes(self.part)
        at = 0
        while len(data) - at >= _MESSAGE.size:
            compressed, size = _MESSAGE.unpack_from(data, at)
            if compressed:
                raise BrokenError("the member compresses what it was not asked to")
            if len(data) - at - _MESSAGE.size < size:
                break
            at += _MESSAGE.size
            self.messages.append(data[at : at + size])
            at += size
        self.part[:] = data[at:]


class Connection:
    """A connection to `endpoint`, with TLS where there is a context. OSError: it cannot be made."""

    def __init__(self, endpoint: str, context: ssl.SSLContext | None) -> None:
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        self.socket: socket.socket = socket.create_connection((host, int(port)), HANDSHAKE)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self.socket = context.wrap_socket(self.socket, server_hostname=host)
            self.socket.setblocking(False)  # noqa: FBT003 - its only form
        except BaseException:
            self.socket.close()
            raise
        self._secure = context is not None
        self.lost = ""  # why it is broken
        self._prefix = f"{'https' if context else 'http'}://{endpoint}"
        self._lock = threading.Lock()
        self._in, self._out = bytearray(), bytearray()
        self._streams: dict[int, Stream] = {}
        self._ended: list[Stream] = []
        self._next = 1
        self._window, self._first_window, self._taken = FIRST_WINDOW, FIRST_WINDOW, 0
        self._block: tuple[int, int, bytes] | None = None  # header fields that go on
        self._heard, self._asked = stopwatch(), 0
        settings = b"".join(_SETTING.pack(*each) for each in _OPENING.items())
        more = _NUMBER.pack(WINDOW - FIRST_WINDOW)
        self._out += _PREFACE + _frame(_SETTINGS, 0, 0, settings)
        self._out += _frame(_MORE_WINDOW, 0, 0, more)

    def call(self, path: str, message: bytes, stream: Stream, *, more: bool = False) -> None:
        """Begin a call with one message; with `more`, others may follow."""
        with self._lock:
            if not self.lost:
                stream.number, self._next = self._next, self._next + 2
                stream.window, stream.closes = self._first_window, not more
                self._streams[stream.number] = stream
                fields = _fields(self._prefix, path, timed=stream.until > 0)
                self._out += _frame(_HEADERS, _END_HEADERS, stream.number, fields)
                self._put(stream, message)
                self._flush()
            else:
                stream.code, stream.details = UNAVAILABLE, self.lost
                self._ended.append(stream)
        self._tell()

    def send(self, stream: Stream, message: bytes) -> None:
        """Send a further message of a call."""
        with self._lock:
            if stream.code < 0 and not self.lost:
                self._put(stream, message)
                self._flush()

    def cancel(self, stream: Stream, code: int, details: str) -> None:
        """End a call, if it goes on."""
        with self._lock:
            self._cancel(stream, code, details)
            self._flush()
        self._tell()

    def pump(self) -> None:
        """Process what has arrived, without waiting, and report the calls that have ended."""
        with self._lock:
            self._receive()
            self._flush()
        self._tell()

    def look(self) -> None:
        """End calls that take too long, and the connection where the member is gone."""
        now = stopwatch()
        with self._lock:
            for stream in list(self._streams.values()):
                if stream.until and stream.until < now:
                    self._cancel(stream, DEADLINE_EXCEEDED, "no answer in time")
            if self._asked and now - self._asked > SILENT:
                self._lose("no answer to a ping")
            elif not self._asked and now - self._heard > IDLE:
                self._asked = now
                self._out += _frame(_PING, 0, 0, bytes(8))
            self._flush()
        self._tell()

    def close(self, why: str) -> None:
        """End all calls. The socket is closed by who reads from it, once it sees the end."""
        with self._lock:
            self._lose(why)
        self._tell()

    # --- sending --------------------------------------------------------------------------

    def _put(self, stream: Stream, message: bytes) -> None:
        stream.unsent += _MESSAGE.pack(0, len(message)) + message
        self._push(stream)

    def _push(self, stream: Stream) -> None:
        """Send as much of a call as the member takes."""
        while stream.unsent:
            size = min(len(stream.unsent), self._window, stream.window, FRAME)
            if size <= 0:
                return
            part, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._window -= size
            stream.window -= size
            last = stream.closes and not stream.unsent
            self._out += _frame(_DATA, _END_STREAM if last else 0, stream.number, part)

    def _flush(self) -> None:
        try:
            while self._out and not self.lost:
                sent = self.socket.send(self._out)
                del self._out[:sent]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass  # the rest goes when the member has read, or with the next look
        except OSError as error:
            self._lose(_reason(error))

    # --- receiving ------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            while not self.lost:
                data = self.socket.recv(READ)
                if not data:
                    raise BrokenError("the member closed the connection")
                self._in += data
                self._take_frames()
                self._heard, self._asked = stopwatch(), 0
                if len(data) < READ and not self._secure:
                    break  # who waits for more is told again; TLS may hold some back
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (OSError, HPACKError, struct.error, ValueError) as error:
            self._lose(_reason(error))

    def _take_frames(self) -> None:
        read, at = self._in, 0
        while len(read) - at >= _HEAD.size:
            high, low, kind, flags, number = _HEAD.unpack_from(read, at)
            size = high << 16 | low
            if size > LARGEST_FRAME:
                raise BrokenError("the member sent a frame that is too large")
            end = at + _HEAD.size + size
            if len(read) < end:
                break
            self._take(kind, flags, number & WINDOW, bytes(read[at + _HEAD.size : end]))
            at = end
        del read[:at]

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind in {_DATA, _HEADERS} and flags & _PADDED_OR_PRIORITY:
            raise BrokenError("the member sent a frame with padding")
        stream = self._streams.get(number)
        if kind == _DATA:
            self._take_data(stream, payload)
            if stream is not None and flags & _END_STREAM:
                self._end(stream, UNKNOWN, "an answer without a status")
        elif kind == _HEADERS:
            self._take_fields(number, flags, payload, last=bool(flags & _END_HEADERS))
        elif kind == _CONTINUATION and self._block is not None:
            number, before, begun = self._block
            self._take_fields(number, before, begun + payload, last=bool(flags & _END_HEADERS))
        elif kind == _SETTINGS and not flags & _ACK:
            self._take_settings(payload)
        elif kind == _PING and not flags & _ACK:
            self._out += _frame(_PING, _ACK, 0, payload)
        elif kind == _GOAWAY:
            raise BrokenError("the member ends the connection")
        elif kind == _RESET and stream is not None:
            self._end(stream, UNAVAILABLE, "the member broke the call off")
        elif kind == _MORE_WINDOW:
            (more,) = _NUMBER.unpack(payload)
            if stream is not None:
                stream.window += more
                self._push(stream)
            elif not number:
                self._window += more
                for each in self._streams.values():
                    self._push(each)

    def _take_data(self, stream: Stream | None, payload: bytes) -> None:
        self._taken += len(payload)
        if self._taken > RENEWED:
            self._out += _frame(_MORE_WINDOW, 0, 0, _NUMBER.pack(self._taken))
            self._taken = 0
        if stream is not None:
            stream.feed(payload)
            stream.taken += len(payload)
            if stream.taken > RENEWED:
                more = _NUMBER.pack(stream.taken)
                self._out += _frame(_MORE_WINDOW, 0, stream.number, more)
                stream.taken = 0

    def _take_fields(self, number: int, flags: int, block: bytes, *, last: bool) -> None:
        if len(block) > LARGEST_FRAME:
            raise BrokenError("the member sent too many header fields")
        self._block = None if last else (number, flags, block)
        stream = self._streams.get(number)
        if not last or stream is None:
            return
        fields = _decoded(block)
        if "grpc-status" in fields:
            self._end(stream, int(fields["grpc-status"]), unquote(fields.get("grpc-message", "")))
        elif fields.get(":status") != "200" or flags & _END_STREAM:
            self._end(stream, UNAVAILABLE, f"the member answers {fields}, which is not gRPC")

    def _take_settings(self, payload: bytes) -> None:
        for what, value in _SETTING.iter_unpack(payload):
            if what == 4:  # INITIAL_WINDOW_SIZE
                for stream in self._streams.values():
                    stream.window += value - self._first_window
                    self._push(stream)
                self._first_window = value
        self._out += _frame(_SETTINGS, _ACK, 0, b"")

    # --- ends -----------------------------------------------------------------------------

    def _cancel(self, stream: Stream, code: int, details: str) -> None:
        if stream.code < 0 and not self.lost:
            self._out += _frame(_RESET, 0, stream.number, _NUMBER.pack(_CANCEL))
            self._end(stream, code, details)

    def _end(self, stream: Stream, code: int, details: str) -> None:
        if self._streams.pop(stream.number, None) is not None:
            stream.code, stream.details = code, details
            self._ended.append(stream)

    def _lose(self, why: str) -> None:
        if self.lost:
            return
        self.lost = why
        for stream in list(self._streams.values()):
            self._end(stream, UNAVAILABLE, why)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # which wakes who waits for it to be readable

    def _tell(self) -> None:
        """Report calls that have ended, outside of the lock: a report may begin another call."""
        while self._ended:
            try:
                stream = self._ended.pop(0)
            except IndexError:  # another thread was faster
                return
            stream.ended(stream)


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, number) + payload


@lru_cache(64)
def _fields(prefix: str, path: str, *, timed: bool) -> bytes:
    """Return the header fields of a call. No table is used, so they can be sent again."""
    scheme, _, authority = prefix.partition("://")
    encoder = Encoder()
    encoder.header_table_size = 0
    return bytes(
        encoder.encode([
            (":method", "POST"),
            (":scheme", scheme),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            # A member that has lost its leader says so at once instead of waiting for one.
            ("hasleader", "true"),
            *([("grpc-timeout", "2S")] if timed else []),
        ])
    )  # fmt: skip


@lru_cache(64)
def _decoded(block: bytes) -> dict[str, str]:
    """Return header fields. HPACKError. No table is used, so the same bytes mean the same."""
    decoder = Decoder()
    decoder.header_table_size = decoder.max_allowed_table_size = 0
    return {str(name): str(value) for name, value in decoder.decode(block)}


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
