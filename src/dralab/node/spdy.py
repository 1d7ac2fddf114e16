"""SPDY/3.1 frames, as far as port-forward needs them inside a WebSocket.

kubectl uses `SPDY/3.1+portforward.k8s.io`: the bytes of the WebSocket's messages are SPDY.
Source: SPDY Protocol Draft 3.1, sections 2.2 (frames) and 2.6.10.1 (compression); the peer is
moby/spdystream, which keeps no flow-control windows.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import IntEnum
from typing import Final

from dralab.values.records import dataclass

VERSION: Final = 3
CONTROL: Final = 0x80
LONGEST_FRAME: Final = 1024 * 1024
LONGEST_HEADERS: Final = 16 * 1024
FIN: Final = 0x01
CANCEL, REFUSED = 5, 3

# What both sides suppose to have been said already (2.6.10.1): words with their lengths in four
# bytes, then plain text.
_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base "
    "content-encoding content-language content-length content-location content-md5 "
    "content-range content-type date etag expect expires from host if-match if-modified-since "
    "if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status "
    "200_OK version HTTP/1.1 url public set-cookie keep-alive origin"
)
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(
        len(word).to_bytes(4, "big") + word.replace("_", " ").encode() for word in _WORDS.split()
    )
    + _REST.encode()
)


class FrameType(IntEnum):
    """Types of control frames; `DATA` is not one, and has no number of its own."""

    DATA = 0
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


class SpdyError(ValueError):
    """The peer broke the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame: `payload` is the data, or what follows the stream's number in a control frame."""

    type: FrameType
    stream: int = 0
    payload: bytes = b""
    fin: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


class FrameReader:
    """Parses frames from bytes; unknown control frames are skipped."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that data completes. SpdyError."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 8:
            size = int.from_bytes(buffer[5:8], "big")
            if size > LONGEST_FRAME:
                raise SpdyError(f"a frame has {size} bytes; at most {LONGEST_FRAME} are allowed")
            if len(buffer) < 8 + size:
                return
            head, payload = bytes(buffer[:8]), bytes(buffer[8 : 8 + size])
            del buffer[: 8 + size]
            if head[0] & CONTROL:
                if (frame := self._control(head, payload)) is not None:
                    yield frame
            else:
                number = int.from_bytes(head[:4], "big")
                yield Frame(
                    type=FrameType.DATA, stream=number, payload=payload, fin=bool(head[4] & FIN)
                )

    def _control(self, head: bytes, payload: bytes) -> Frame | None:
        if int.from_bytes(head[:2], "big") & 0x7FFF != VERSION:
            raise SpdyError("the version of a frame is not 3")
        try:
            kind = FrameType(int.from_bytes(head[2:4], "big"))
        except ValueError:
            return None
        fin = bool(head[4] & FIN)
        if kind in {FrameType.SETTINGS, FrameType.WINDOW_UPDATE, FrameType.DATA}:
            return None
        if kind is FrameType.PING:
            return Frame(type=kind, payload=payload)
        if len(payload) < 4:
            raise SpdyError("a truncated frame")
        number = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        # A new stream also names another, its priority and a slot.
        skip = {FrameType.SYN_STREAM: 10, FrameType.SYN_REPLY: 4, FrameType.HEADERS: 4}.get(kind)
        if skip is None:
            return Frame(type=kind, stream=number, payload=payload[4:])
        return Frame(type=kind, stream=number, headers=self._headers(payload[skip:]), fin=fin)

    def _headers(self, block: bytes) -> Mapping[str, str]:
        try:
            text = self._inflate.decompress(block, LONGEST_HEADERS)
        except zlib.error as error:
            raise SpdyError("headers with invalid compression") from error
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"more than {LONGEST_HEADERS} bytes of headers")
        words, at = [], 4
        for _ in range(2 * int.from_bytes(text[:4], "big")):
            size = int.from_bytes(text[at : at + 4], "big")
            at += 4
            if at + size > len(text):
                raise SpdyError("truncated headers")
            words.append(text[at : at + size].decode("latin-1"))
            at += size
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


class FrameWriter:
    """Frames as bytes; headers go on where those of the last frame ended."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def frame(self, frame: Frame) -> bytes:
        """Return a frame's bytes."""
        fin = FIN if frame.fin else 0
        number = frame.stream.to_bytes(4, "big")
        if frame.type is FrameType.DATA:
            return number + bytes([fin]) + len(frame.payload).to_bytes(3, "big") + frame.payload
        if frame.type is FrameType.PING:
            payload = frame.payload
        elif frame.type in {FrameType.SYN_STREAM, FrameType.SYN_REPLY, FrameType.HEADERS}:
            middle = bytes(6) if frame.type is FrameType.SYN_STREAM else b""
            payload = number + middle + self._headers(frame.headers)
        else:
            payload = number + frame.payload
        head = (0x8000 | VERSION).to_bytes(2, "big") + frame.type.to_bytes(2, "big")
        return head + bytes([fin]) + len(payload).to_bytes(3, "big") + payload

    def _headers(self, headers: Mapping[str, str]) -> bytes:
        text = len(headers).to_bytes(4, "big")
        for pair in headers.items():
            for word in pair:
                text += len(word).to_bytes(4, "big") + word.encode("latin-1")
        return self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
