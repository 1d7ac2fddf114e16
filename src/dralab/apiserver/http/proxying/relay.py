"""Relays a request to a node's endpoint over TLS, and streams the response back.

Everything is limited: connecting, waiting for the response headers, the size of an error, and the
buffer for a slow client (when it is full, the node waits).
"""

import asyncio
import base64
import contextlib
import os
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import orjson
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.messages import LARGEST_MESSAGE, ByteStream, Upgrade
from dralab.kernel.http_answers import HttpAnswer
from dralab.values.records import dataclass

CONNECT_TIME: Final = 5.0  # seconds
HEAD_TIME: Final = 30.0  # seconds until the node has begun to answer
LEAVING: Final = 30.0  # seconds that a node has to read what a client sent before it left
HEAD: Final = 64 * 1024  # bytes of status line and headers
REFUSAL: Final = 64 * 1024  # bytes of a refusal's body
PIECE: Final = 64 * 1024
MOST: Final = 1_000  # streams at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletEndpoint:
    """A node's endpoint: `host` is an address, `ca` the authority of its certificate (PEM)."""

    node: str
    host: str
    port: int
    token: str
    ca: str


class Relay:
    """Sends requests to nodes, with a limit on concurrent streams."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._open: set[object] = set()

    async def ask(
        self, endpoint: KubeletEndpoint, target: str, *, protocols: str = ""
    ) -> ByteStream | Upgrade:
        """Return what a node answers to a GET of `target`; over a WebSocket with `protocols`.

        ApiError: it refuses, or cannot be reached.
        """
        if len(self._open) >= self.most:
            raise ApiError(
                "TooManyRequests",
                f"{self.most} streams from nodes are open",
                details={"retryAfterSeconds": 1},
            )
        place = object()
        self._open.add(place)
        try:
            reader, writer = await _connect(endpoint)
        except BaseException:
            self._open.discard(place)
            raise
        link = _Link(endpoint, reader, writer, lambda: self._open.discard(place))
        return await _asked(link, endpoint, target, protocols)


async def _asked(
    link: "_Link", endpoint: KubeletEndpoint, target: str, protocols: str
) -> ByteStream | Upgrade:
    try:
        async with asyncio.timeout(HEAD_TIME):
            answer = await link.send_request(target, protocols)
            if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
                return link.upgraded(answer.named().get("sec-websocket-protocol", ""))
            if answer.status == HTTPStatus.OK and not protocols:
                return link.stream(answer)
            body = await link.rest(answer)
    except TimeoutError:
        link.close()
        raise _unreachable(endpoint, "it did not answer in time") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        link.close()
        raise _unreachable(endpoint, str(error) or type(error).__name__) from error
    except BaseException:
        link.close()
        raise
    raise _refusal(endpoint, answer.status, body)


async def _connect(endpoint: KubeletEndpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=endpoint.ca)
        async with asyncio.timeout(CONNECT_TIME):
            return await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=context, limit=HEAD
            )
    except TimeoutError:
        raise _unreachable(endpoint, "timeout while connecting") from None
    except ssl.SSLCertVerificationError:
        raise _unreachable(endpoint, "the endpoint is not the node") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _unreachable(endpoint, why.lower()) from error


class _Link:
    """One connection to a node."""

    def __init__(
        self,
        endpoint: KubeletEndpoint,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        closed: Callable[[], None],
    ) -> None:
        self._closed = closed
        self._endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._room = asyncio.Event()
        self._copying: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._websocket = Connection(ConnectionType.CLIENT)

    async def send_request(self, target: str, protocols: str) -> HttpAnswer:
        """Send the request; return the answer, of which the head has come."""
        endpoint = self._endpoint
        lines = [
            f"GET {target} HTTP/1.1",
            f"Host: {endpoint.node}",
            f"Authorization: Bearer {endpoint.token}",
        ]
        if protocols:
            key = base64.b64encode(os.urandom(16)).decode()
            lines += [
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Version: 13",
                f"Sec-WebSocket-Key: {key}",
                f"Sec-WebSocket-Protocol: {protocols}",
            ]
        else:
            lines.append("Connection: close")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        await self._writer.drain()
        answer = HttpAnswer(upgrades=bool(protocols))
        while not answer.status:
            # Not more: what follows may be a WebSocket's.
            answer.feed(await self._reader.readuntil(b"\r\n\r\n"))
        return answer

    def stream(self, answer: HttpAnswer) -> ByteStream:
        """Return the body as it comes."""
        feed = Feed(on_close=self.close, on_room=self._room.set)
        self._copying = asyncio.create_task(self._copy(feed, answer))
        media = answer.named().get("content-type", "text/plain")
        return ByteStream(source=feed, headers=(("Content-Type", media),))

    async def rest(self, answer: HttpAnswer) -> bytes:
        """Return the body of a refusal, truncated if it is long."""
        while not answer.over and answer.pending() < REFUSAL:
            if not (data := await self._reader.read(PIECE)):
                break
            answer.feed(data)
        self.close()
        return answer.take()[:REFUSAL]

    def upgraded(self, protocol: str) -> Upgrade:
        """Return the WebSocket, with what comes out of it."""
        feed = Feed(on_close=self._leave, on_room=self._room.set)
        self._copying = asyncio.create_task(self._messages(feed))
        return Upgrade(
            source=feed, receive=self._send, protocol=protocol, text="base64." in protocol
        )

    def close(self) -> None:
        """Close it: the client is gone, or everything was sent."""
        if self._copying is not None and not self._copying.done():
            self._copying.cancel()
        self._writer.close()
        self._closed()

    def _leave(self) -> None:
        """Tell the node that the client is gone, and close once it has read all input.

        Closed with bytes of the node unread, TCP would reset the connection, and drop what is on
        its way to the node.
        """
        if self._leaving is not None:
            return
        if self._copying is None or self._copying.done():
            self.close()
            return
        self._copying.cancel()
        self._leaving = asyncio.get_running_loop().create_task(self._read_out(self._copying))

    async def _read_out(self, copying: "asyncio.Task[None]") -> None:
        await asyncio.wait([copying])  # it reads the same stream
        with contextlib.suppress(OSError, ProtocolError, TimeoutError):
            async with asyncio.timeout(LEAVING):
                self._write(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
                while await self._reader.read(PIECE):
                    pass
        self.close()

    async def _send(self, message: bytes) -> None:
        try:
            self._write(Message(data=message))
            await self._writer.drain()
        except (OSError, ProtocolError):  # the node is gone, or has announced its end
            self.close()

    def _write(self, event: Event) -> None:
        self._writer.write(self._websocket.send(event))

    async def _pass_on(self, feed: Feed, items: list[bytes]) -> None:
        for item in items:
            feed.put(item)
        items.clear()
        while not feed.room and not feed.done:
            self._room.clear()
            await self._room.wait()

    async def _copy(self, feed: Feed, answer: HttpAnswer) -> None:
        try:
            while not answer.over and not feed.done:
                data = await self._reader.read(PIECE)
                if not data:
                    raise ConnectionError("the node disconnected")
                answer.feed(data)
                await self._pass_on(feed, [piece] if (piece := answer.take()) else [])
            feed.end()
        except (OSError, ValueError) as error:
            feed.abort(str(error))
        finally:
            self._writer.close()

    async def _messages(self, feed: Feed) -> None:
        parts, message = list[bytes](), bytearray()
        try:
            while data := await self._reader.read(PIECE):
                self._websocket.receive_data(data)
                for event in self._websocket.events():
                    if isinstance(event, CloseConnection):
                        await self._pass_on(feed, parts)
                        whole = event.code == CloseReason.NORMAL_CLOSURE
                        feed.end() if whole else feed.abort("the node closed the connection")
                        return
                    if isinstance(event, Ping):
                        self._write(event.response())
                    elif isinstance(event, (BytesMessage, TextMessage)):
                        _extend(message, event)
                        if event.message_finished:
                            parts.append(bytes(message))
                            message.clear()
                await self._pass_on(feed, parts)
            feed.abort("the node disconnected")
        except (OSError, ProtocolError, ValueError) as error:
            feed.abort(str(error))
        finally:
            if self._leaving is None:
                self._writer.close()


def _extend(message: bytearray, event: BytesMessage | TextMessage) -> None:
    """Add a piece to a message. ValueError if it grows too large."""
    message += event.data.encode() if isinstance(event.data, str) else event.data
    if len(message) > LARGEST_MESSAGE:
        raise ValueError(f"a message of more than {LARGEST_MESSAGE} bytes")


def _refusal(endpoint: KubeletEndpoint, status: int, body: bytes) -> ApiError:
    """Return a node's refusal, in its own words if they are a Status."""
    try:
        found = orjson.loads(body)
        if found["kind"] == "Status":
            return ApiError(found["reason"], found["message"], code=status)
    except (ValueError, KeyError, TypeError):
        pass
    text = body.decode(errors="replace").strip()[:500]
    message = f"node {endpoint.node} answered {status}: {text or HTTPStatus(status).phrase}"
    return ApiError("InternalError", f"Internal error occurred: {message}", code=500)


def _unreachable(endpoint: KubeletEndpoint, why: str) -> ApiError:
    where = f"node {endpoint.node} at {endpoint.host}:{endpoint.port}"
    message = f"Internal error occurred: error dialing backend: {where}: {why}"
    return ApiError("InternalError", message, code=500)
