"""The server's side of WebSockets (RFC 6455), for uvicorn: exec, attach and port-forward.

uvicorn brings none of its own, and what Kubernetes' clients need is little: binary messages, a
subprotocol, and an answer in HTTP where the upgrade is refused.
"""

import asyncio
import base64
import hashlib
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import uvicorn
from uvicorn.server import ServerState

Message = dict[str, Any]
MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MAX_MESSAGE: Final = 4 * 1024 * 1024
AHEAD: Final = 64  # messages that wait for the application before the client has to
NORMAL, PROTOCOL_ERROR, TOO_LARGE, ABNORMAL = 1000, 1002, 1009, 1006


class BrokenFrameError(Exception):
    """The peer broke the protocol; `code` goes into the close frame."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def frame(opcode: int, payload: bytes, *, mask: bytes = b"") -> bytes:
    """Return one final frame; clients mask theirs with four bytes."""
    size, flag = len(payload), 0x80 if mask else 0
    head = bytes([0x80 | opcode])
    if size < 126:
        head += bytes([flag | size])
    elif size < 1 << 16:
        head += bytes([flag | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([flag | 127]) + size.to_bytes(8, "big")
    return head + mask + (masked(payload, mask) if mask else payload)


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return a payload masked, or unmasked, by four bytes."""
    size = len(payload)
    long = (mask * (size // 4 + 1))[:size]
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(long, "little")
    return mixed.to_bytes(size, "little")


class Frames:
    """Bytes in, whole messages out: (opcode, payload), fragments put together.

    Those of clients are masked, those of servers are not.
    """

    def __init__(self, *, masked: bool = True) -> None:
        self._masked = masked
        self._buffer = bytearray()
        self._parts = bytearray()
        self._opcode = 0

    def feed(self, data: bytes) -> Iterable[tuple[int, bytes]]:
        """Yield the messages that data completes. BrokenFrameError."""
        self._buffer += data
        while (found := self._frame()) is not None:
            final, opcode, payload = found
            if opcode >= CLOSE:
                if not final or len(payload) > 125:
                    raise BrokenFrameError(PROTOCOL_ERROR, "a control frame in parts")
                yield opcode, payload
                continue
            if (opcode == CONTINUATION) != bool(self._opcode):
                raise BrokenFrameError(PROTOCOL_ERROR, "parts of messages are mixed up")
            self._opcode = self._opcode or opcode
            self._parts += payload
            if len(self._parts) > MAX_MESSAGE:
                raise BrokenFrameError(TOO_LARGE, "the message is too large")
            if final:
                whole, opcode = bytes(self._parts), self._opcode
                self._parts, self._opcode = bytearray(), 0
                yield opcode, whole

    def _frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode, size, at = first & 0x0F, second & 0x7F, 2
        if first & 0x70 or opcode not in {CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}:
            raise BrokenFrameError(PROTOCOL_ERROR, "a frame of an unknown kind")
        if bool(second & 0x80) != self._masked:
            who = "a client's frame without" if self._masked else "a server's frame with"
            raise BrokenFrameError(PROTOCOL_ERROR, f"{who} a mask")
        if size >= 126:
            long = 2 if size == 126 else 8
            if len(buffer) < at + long:
                return None
            size = int.from_bytes(buffer[at : at + long], "big")
            at += long
        if size > MAX_MESSAGE:
            raise BrokenFrameError(TOO_LARGE, "the frame is too large")
        mask = bytes(buffer[at : at + 4])
        at += 4 if self._masked else 0
        if len(buffer) < at + size:
            return None
        payload = bytes(buffer[at : at + size])
        if self._masked:
            payload = masked(payload, mask)
        del buffer[: at + size]
        return bool(first & 0x80), opcode, payload


class WebSocketProtocol(asyncio.Protocol):
    """uvicorn hands a connection over with the request that asked for the upgrade."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.config = config
        self.server_state = server_state
        self.app_state = app_state
        self.loop = _loop or asyncio.get_running_loop()
        self.frames = Frames()
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.writable = asyncio.Event()
        self.writable.set()
        self.head = b""
        self.key = ""
        self.accepted = self.closed = self.paused = False

    # --- the connection -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        if isinstance(transport, asyncio.Transport):
            self.transport = transport
        connections: set[Any] = self.server_state.connections  # of uvicorn's own protocols
        connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell the application."""
        connections: set[Any] = self.server_state.connections
        connections.discard(self)
        self.closed = True
        self.writable.set()
        self.messages.put_nowait({"type": "websocket.disconnect", "code": ABNORMAL})

    def pause_writing(self) -> None:
        """Wait with further messages until the client has read some."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self.writable.set()

    def shutdown(self) -> None:
        """Close: the server stops."""
        self._close(1001)

    def data_received(self, data: bytes) -> None:
        """Read the request, as uvicorn repeats it; then frames."""
        if not self.key:
            self.head += data
            head, end, rest = self.head.partition(b"\r\n\r\n")
            if end:
                self._begin(head)
                data = rest
            else:
                return
        try:
            for opcode, payload in self.frames.feed(data):
                self._message(opcode, payload)
        except BrokenFrameError as error:
            self._close(error.code)

    def _begin(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        target = first.split(b" ")[1]
        headers = []
        for line in lines:
            name, _, value = line.partition(b":")
            headers.append((name.strip().lower(), value.strip()))
        known = dict(headers)
        self.key = known.get(b"sec-websocket-key", b"").decode("latin-1") or "-"
        path, _, query = target.partition(b"?")
        offered = known.get(b"sec-websocket-protocol", b"").decode("latin-1")
        client, server = (self.transport.get_extra_info(n) for n in ("peername", "sockname"))
        scope: Message = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query,
            "root_path": self.config.root_path,
            "headers": headers,
            "client": client[:2] if client else None,
            "server": server[:2] if server else None,
            "subprotocols": [each.strip() for each in offered.split(",") if each.strip()],
            "state": self.app_state.copy(),
            "extensions": {"websocket.http.response": {}},
        }
        self.messages.put_nowait({"type": "websocket.connect"})
        task = self.loop.create_task(self._run(scope))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    async def _run(self, scope: Message) -> None:
        try:
            app: Any = self.config.loaded_app
            await app(scope, self.receive, self.send)
        finally:
            self._close(NORMAL)

    def _message(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.transport.write(frame(PONG, payload))
        elif opcode == CLOSE:
            self._close(NORMAL)
        elif opcode == TEXT:
            text = payload.decode("utf-8", errors="replace")
            self.messages.put_nowait({"type": "websocket.receive", "text": text})
        elif opcode == BINARY:
            self.messages.put_nowait({"type": "websocket.receive", "bytes": payload})
        if self.messages.qsize() > AHEAD and not self.paused:
            self.paused = True
            self.transport.pause_reading()

    # --- the application ------------------------------------------------------------------

    async def receive(self) -> Message:
        """Return what the client says next."""
        found = await self.messages.get()
        if self.paused and self.messages.qsize() < AHEAD and not self.closed:
            self.paused = False
            self.transport.resume_reading()
        return found

    async def send(self, message: Message) -> None:
        """Do what the application says."""
        if self.closed:
            return
        match message["type"]:
            case "websocket.accept":
                self._accept(message.get("subprotocol"))
            case "websocket.send":
                await self.writable.wait()
                content = message.get("bytes")
                if content is None:
                    self.transport.write(frame(TEXT, message["text"].encode()))
                else:
                    self.transport.write(frame(BINARY, content))
            case "websocket.http.response.start":
                self._head(message["status"], message.get("headers") or ())
            case "websocket.http.response.body":
                self.transport.write(message.get("body", b""))
                if not message.get("more_body"):
                    self.closed = True
                    self.transport.close()
            case "websocket.close" if not self.accepted:
                self._head(HTTPStatus.FORBIDDEN, [(b"content-length", b"0")])
                self.closed = True
                self.transport.close()
            case _:
                self._close(message.get("code", NORMAL))

    def _accept(self, protocol: str | None) -> None:
        digest = hashlib.sha1(self.key.encode() + MAGIC, usedforsecurity=False).digest()
        headers = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", base64.b64encode(digest)),
        ]
        if protocol:
            headers.append((b"sec-websocket-protocol", protocol.encode("latin-1")))
        self.accepted = True
        self._head(HTTPStatus.SWITCHING_PROTOCOLS, headers)

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        if status != HTTPStatus.SWITCHING_PROTOCOLS:
            lines.append(b"connection: close")
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def _close(self, code: int) -> None:
        if self.closed:
            return
        self.closed = True
        if self.accepted:
            self.transport.write(frame(CLOSE, code.to_bytes(2, "big")))
        self.messages.put_nowait({"type": "websocket.disconnect", "code": code})
        self.transport.close()
