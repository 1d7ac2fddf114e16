"""Ports of a pod's processes, forwarded to a client over one WebSocket.

Two protocols carry the connections: kubectl's SPDY inside the messages, where each connection is
a pair of streams (data and error), and the channels of the Python clients, two for each port.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.connections.port_wire import PortFailure
from dralab.apiserver.http.messages import Answer, Upgrade
from dralab.apiserver.http.proxying.nodes import NodeRequest, chosen, connected
from dralab.node.spdy import CANCEL, REFUSED, Frame, FrameReader, FrameType, FrameWriter, SpdyError
from dralab.values.records import dataclass

TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
CHANNELS: Final = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io", "portforward.k8s.io")
MOST_CONNECTIONS: Final = 256  # of one client at a time
MOST_PORTS: Final = 64
CONNECT_TIME: Final = 10.0
PIECE: Final = 32 * 1024


def forwarded(
    wanted: NodeRequest,
    host: str,
    owns: Callable[[int], bool],
    new_socket: Callable[[], socket.socket] | None = None,
) -> Answer:
    """Return the WebSocket that leads to ports at `host`, in the protocol that a client speaks.

    `owns` says whether a port is the pod's own; it is called in a thread, for each connection.
    `new_socket` returns a TCP socket in the pod's network; None: that is the machine's.
    """
    protocol = chosen(wanted, [TUNNEL, *CHANNELS])
    target = _Target(host, owns, new_socket)
    if protocol == TUNNEL:
        return _Tunnel(target).upgrade(protocol)
    return connected(protocol, _Channels(target, _ports(wanted)).upgrade)


def _ports(wanted: NodeRequest) -> list[int]:
    texts = [
        text for name in ("ports", "port") for each in wanted.query.get(name, ())
        for text in each.split(",")
    ]  # fmt: skip
    if not texts or len(texts) > MOST_PORTS:
        raise ApiError.bad_request(f"ports: between 1 and {MOST_PORTS} can be forwarded at a time")
    return [_port(text) for text in texts]


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise ApiError.bad_request(f'ports: "{text}" is not a port number from 1 to 65535')
    return int(text)


class PortForwardEvents(Protocol):
    """Receives the data of a connection to a port, by the connection's number."""

    def came(self, number: int, data: bytes) -> None:
        """There is data."""
        ...

    def port_closed(self, number: int, problem: str) -> None:
        """The connection has ended; `problem` says why, if it failed."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the ports are."""

    host: str
    owns: Callable[[int], bool]
    new_socket: Callable[[], socket.socket] | None

    async def open(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port. OSError."""
        if self.new_socket is None:
            return await asyncio.open_connection(self.host, port, limit=PIECE)
        found = self.new_socket()
        try:
            found.settimeout(0)
            await asyncio.get_running_loop().sock_connect(found, (self.host, port))
            return await asyncio.open_connection(sock=found, limit=PIECE)
        except BaseException:
            found.close()
            raise


class _Connection:
    """One connection to a port; data sent before it is open is buffered."""

    def __init__(self, client: "_Client", number: int, port: int) -> None:
        self.client, self.number, self.port = client, number, port
        self.opened: asyncio.Future[asyncio.StreamWriter | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def send(self, data: bytes) -> None:
        """Send data; it is buffered until the process reads it."""
        writer = await asyncio.shield(self.opened)
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()

    async def finish(self) -> None:
        """Say that no more data comes from the client."""
        writer = await asyncio.shield(self.opened)
        if writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()

    async def _run(self) -> None:
        client, target, problem = self.client, self.client.target, ""
        where = f"{target.host}:{self.port}"
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_TIME):
                # Containers share the machine's network: other programs' ports are not the pod's.
                if not await asyncio.to_thread(target.owns, self.port):
                    raise PermissionError(errno.EACCES, "no process of the pod listens there")
                reader, writer = await target.open(self.port)
            self.opened.set_result(writer)
            while data := await reader.read(PIECE):
                client.ends.came(self.number, data)
                await client.wait_for_room()
        except TimeoutError:
            problem = PortFailure.TIMEOUT.message(f"nothing answers at {where}")
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            refused = PortFailure.REFUSED.message(f"failed to connect to {where}: {why}")
            problem = refused if writer is None else why
        finally:
            if not self.opened.done():
                self.opened.set_result(None)
            if writer is not None:
                writer.close()
        client.connections.pop(self.number, None)
        client.ends.port_closed(self.number, problem)


class _Client:
    """One WebSocket and its connections."""

    def __init__(self, target: "_Target", ends: PortForwardEvents) -> None:
        self.target = target
        self.ends = ends
        self.connections: dict[int, _Connection] = {}
        self._room = asyncio.Event()
        self.feed = Feed(on_close=self._close, on_room=self._room.set)

    def connect(self, number: int, port: int) -> None:
        """Begin a connection."""
        self.connections[number] = _Connection(self, number, port)

    async def send(self, number: int, data: bytes) -> None:
        """Hand data to a connection, if it is still there."""
        found = self.connections.get(number)
        if found is not None:
            await found.send(data)

    def end_connection(self, number: int) -> None:
        """End a connection at once, without telling."""
        found = self.connections.pop(number, None)
        if found is not None:
            found.task.cancel()

    async def wait_for_room(self) -> None:
        """Wait until the client has read enough of what came."""
        while not self.feed.room and not self.feed.done:
            self._room.clear()
            await self._room.wait()

    def _close(self) -> None:
        for number in list(self.connections):
            self.end_connection(number)


class _Tunnel:
    """kubectl's protocol: for each connection two streams, which share a request's number."""

    def __init__(self, target: "_Target") -> None:
        self._client = _Client(target, self)
        self._reader, self._writer = FrameReader(), FrameWriter()
        self._errors: dict[str, int] = {}  # request -> its error stream
        self._pairs: dict[int, int] = {}  # data stream -> its error stream

    def upgrade(self, protocol: str) -> Upgrade:
        """Return the WebSocket."""
        return Upgrade(source=self._client.feed, receive=self._receive, protocol=protocol)

    def came(self, number: int, data: bytes) -> None:
        """Pass on what a port says."""
        self._say(Frame(type=FrameType.DATA, stream=number, payload=data))

    def port_closed(self, number: int, problem: str) -> None:
        """End both streams; the reason, if there is one, is what the error stream says."""
        error = self._pairs.pop(number, None)
        self._say(Frame(type=FrameType.DATA, stream=number, fin=True))
        if error is not None:
            text = problem.encode()
            self._say(Frame(type=FrameType.DATA, stream=error, payload=text, fin=True))

    async def _receive(self, message: bytes) -> None:
        try:
            for frame in self._reader.feed(message):
                await self._take(frame)
        except SpdyError as error:
            self._client.feed.abort(str(error))

    async def _take(self, frame: Frame) -> None:
        client, number = self._client, frame.stream
        match frame.type:
            case FrameType.SYN_STREAM:
                self._begin(number, frame.headers)
            case FrameType.DATA if number in self._pairs:
                if frame.payload:
                    await client.send(number, frame.payload)
                if frame.fin and (found := client.connections.get(number)) is not None:
                    await found.finish()
            case FrameType.RST_STREAM if number in self._pairs:
                client.end_connection(number)
                self.port_closed(number, "")
            case FrameType.PING:
                self._say(frame)
            case FrameType.GOAWAY:
                client.feed.end()
            case _:
                pass

    def _begin(self, number: int, headers: Mapping[str, str]) -> None:
        kind, request = headers.get("streamtype", ""), headers.get("requestid", "")
        try:
            port = _port(headers.get("port", ""))
        except ApiError:
            port = 0
        known = self._errors.get(request)
        busy = len(self._errors) + len(self._pairs) >= MOST_CONNECTIONS
        if not port or (kind == "error" and (busy or known is not None)) or (
            kind == "data" and known is None
        ) or kind not in {"data", "error"}:  # fmt: skip
            status = CANCEL if port else REFUSED
            self._say(
                Frame(type=FrameType.RST_STREAM, stream=number, payload=status.to_bytes(4, "big"))
            )
            return
        self._say(Frame(type=FrameType.SYN_REPLY, stream=number))
        if kind == "error":
            self._errors[request] = number
        else:
            self._pairs[number] = self._errors.pop(request)
            self._client.connect(number, port)

    def _say(self, frame: Frame) -> None:
        self._client.feed.put(self._writer.frame(frame))


class _Channels:
    """Two channels for each port, data and errors, each begun by the port as two bytes."""

    def __init__(self, target: "_Target", ports: list[int]) -> None:
        self._client = _Client(target, self)
        for number, port in enumerate(ports):
            for channel in (2 * number, 2 * number + 1):
                self._client.feed.put(bytes([channel]) + port.to_bytes(2, "little"))
            self._client.connect(number, port)

    def upgrade(self, protocol: str) -> Upgrade:
        """Return the WebSocket."""
        return Upgrade(source=self._client.feed, receive=self._receive, protocol=protocol)

    def came(self, number: int, data: bytes) -> None:
        """Pass on what a port says."""
        self._client.feed.put(bytes([2 * number]) + data)

    def port_closed(self, number: int, problem: str) -> None:
        """Send what was wrong; the last connection that ends closes all."""
        if problem:
            self._client.feed.put(bytes([2 * number + 1]) + problem.encode())
        if not self._client.connections:
            self._client.feed.end()

    async def _receive(self, message: bytes) -> None:
        if message and message[0] % 2 == 0:
            await self._client.send(message[0] // 2, message[1:])
