"""Answers that go on: followed logs, and the two sides of a WebSocket."""

import base64
import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from wsproto.frame_protocol import Opcode

from apiserver.http.test_edge import Running, Tiny
from dralab.api.status import ApiError
from dralab.apiserver.http.connections.byte_feeds import ROOM, Feed
from dralab.apiserver.http.connections.read_sockets import read_socket
from dralab.apiserver.http.messages import (
    LARGEST_MESSAGE,
    Answer,
    ByteStream,
    HttpRequest,
    HttpResponse,
    Upgrade,
)
from websockets import frame

BINARY, CLOSE, CONTINUATION, PING, PONG = (
    Opcode.BINARY,
    Opcode.CLOSE,
    Opcode.CONTINUATION,
    Opcode.PING,
    Opcode.PONG,
)


class Streaming(Tiny):
    """/log follows a log; /echo answers each message by itself, and ends at "bye"."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = Feed(limit=1_000_000)
        self.closed = threading.Event()

    def handle(self, request: HttpRequest) -> Answer:
        if request.path == "/log":
            self.feed = Feed(limit=1_000_000, on_close=self.closed.set)
            self.feed.put(b"first\n")
            return ByteStream(source=self.feed, headers=[("content-type", "text/plain")])
        if request.path == "/echo":
            offered = request.headers.get("sec-websocket-protocol", "")
            feed = Feed(on_close=self.closed.set)

            def receive(message: bytes) -> None:
                if message == b"bye":
                    feed.end()
                else:
                    feed.put(b"echo " + message)

            feed.put(b"welcome")
            return Upgrade(source=feed, receive=receive, protocol=offered.split(",")[0].strip())
        if request.path == "/forbidden":
            error = ApiError.forbidden("pods", "p", "no exec for you")
            body = json.dumps(error.status()).encode()
            return HttpResponse(status=403, headers=[("content-length", str(len(body)))], body=body)
        return super().handle(request)


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running(Streaming())
    yield running
    running.close()


class WebSocket:
    """The smallest of clients."""

    def __init__(self, port: int, path: str, protocol: str = "v5.channel.k8s.io") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=150)
        self.file = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Protocol: {protocol}, other\r\n\r\n".encode()
        )
        self.status = int(self.file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value

    def send(self, payload: bytes, opcode: Opcode = BINARY) -> None:
        self.socket.sendall(frame(opcode, payload))

    def receive(self) -> tuple[int, bytes]:
        first, size = self.file.read(2)
        if size == 126:
            size = int.from_bytes(self.file.read(2), "big")
        elif size == 127:
            size = int.from_bytes(self.file.read(8), "big")
        return first & 0x0F, self.file.read(size)

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def test_a_log_is_followed_line_by_line_to_its_end(server: Running) -> None:
    connection = server.connect()
    connection.request("GET", "/log")
    answer = connection.getresponse()
    assert answer.readline() == b"first\n"
    server.tiny.feed.put(b"second\n")
    assert answer.readline() == b"second\n"
    server.tiny.feed.end()
    assert answer.read() == b""
    connection.request("GET", "/none")
    assert connection.getresponse().status == 404, "the connection goes on"
    connection.close()


def test_a_producer_learns_that_nobody_reads(server: Running) -> None:
    connection = server.connect()
    connection.request("GET", "/log")
    answer = connection.getresponse()
    answer.readline()
    answer.close()
    connection.close()
    assert server.tiny.closed.wait(150)
    assert server.tiny.feed.put(b"more") is False


def test_a_reader_that_is_too_slow_is_cut_off() -> None:
    feed = Feed(limit=10)
    assert feed.put(b"12345")
    assert not feed.put(b"678901")
    assert feed.done
    assert feed.cut == "the client reads too slowly: 11 bytes are queued for it"
    assert feed.take_items() == ()


def test_a_producer_that_offers_waits_for_its_reader() -> None:
    feed, piece = Feed(limit=10 * ROOM), b"x" * ROOM
    assert feed.offer(piece)
    offering = threading.Thread(target=feed.offer, args=(b"more",))
    offering.start()
    offering.join(0.05)
    assert offering.is_alive()
    assert feed.take_items() == (piece,)
    offering.join(150)
    assert feed.take_items() == (b"more",)
    assert feed.offer(piece)
    offering = threading.Thread(target=feed.offer, args=(b"more",))
    offering.start()
    feed.close()
    offering.join(150)
    assert not feed.offer(b"nobody reads")


def test_a_stream_that_breaks_off_does_not_look_complete(server: Running) -> None:
    for _ in range(20):  # it may break off while what came before is still being sent
        connection = server.connect()
        connection.request("GET", "/log")
        answer = connection.getresponse()
        try:
            assert answer.readline() == b"first\n"
            server.tiny.feed.abort("its source is gone")
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        finally:
            answer.close()
            connection.close()


def test_messages_go_both_ways(server: Running) -> None:
    client = WebSocket(server.port, "/echo")
    assert client.status == 101
    assert client.headers["sec-websocket-protocol"] == "v5.channel.k8s.io"
    assert client.receive() == (BINARY, b"welcome")
    for size in (0, 1, 125, 126, 70_000):
        client.send(b"x" * size)
        assert client.receive() == (BINARY, b"echo " + b"x" * size)
    client.send(b"are you there", PING)
    assert client.receive() == (PONG, b"are you there")
    client.send(b"bye")
    assert client.receive() == (CLOSE, (1000).to_bytes(2, "big"))
    client.close()


@pytest.mark.parametrize(
    ("protocol", "first"),
    [
        ("binary.k8s.io", (BINARY, b"first\n")),
        ("base64.binary.k8s.io", (Opcode.TEXT, b"Zmlyc3QK")),
    ],
)
def test_a_log_can_be_read_over_a_websocket(
    server: Running, protocol: str, first: tuple[int, bytes]
) -> None:
    client = WebSocket(server.port, "/log", protocol)
    assert (client.status, client.headers["sec-websocket-protocol"]) == (101, protocol)
    assert client.receive() == first
    server.tiny.feed.end()
    assert client.receive() == (CLOSE, (1000).to_bytes(2, "big"))
    client.close()


def test_a_log_is_not_read_by_a_protocol_of_commands(server: Running) -> None:
    client = WebSocket(server.port, "/log", "v5.channel.k8s.io")
    assert client.status == 403
    refusal = json.loads(client.file.read(int(client.headers["content-length"])))
    assert refusal["message"] == (
        "a log is read with the WebSocket protocol binary.k8s.io or base64.binary.k8s.io, not "
        "v5.channel.k8s.io, other"
    )
    client.close()
    assert server.tiny.closed.wait(150)


def test_a_whole_text_can_be_read_over_a_websocket() -> None:
    text = HttpResponse(headers=[("Content-Type", "text/plain")], body=b"all")
    found = read_socket(text, [])
    assert isinstance(found, Upgrade)
    assert (list(found.source.take_items()), found.source.done) == ([b"all"], True)
    plain = HttpResponse(body=b"{}")
    assert read_socket(plain, []) is plain


def test_a_client_that_leaves_ends_the_session(server: Running) -> None:
    client = WebSocket(server.port, "/echo")
    client.send(b"", CLOSE)
    assert server.tiny.closed.wait(150)
    client.close()


def test_a_refused_upgrade_is_answered_in_http(server: Running) -> None:
    client = WebSocket(server.port, "/forbidden")
    assert client.status == 403
    assert b"no exec for you" in client.file.read(int(client.headers["content-length"]))
    client.close()
    client = WebSocket(server.port, "/log")
    assert client.status == 403
    client.close()
    status, body = server.ask("GET", "/echo")
    assert (status, json.loads(body)["message"]) == (400, "Upgrade request required")


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x07no mask",
        b"\xf2\x80" + b"\0" * 4,
        b"\x83\x80" + b"\0" * 4,
        frame(CONTINUATION, b"of nothing"),
        b"\x89\xfe\x00\x7e" + b"\0" * 130,
        frame(BINARY, b"x" * (LARGEST_MESSAGE + 1)),
    ],
    ids=["no mask", "reserved bits", "unknown kind", "no beginning", "long ping", "huge"],
)
def test_a_broken_frame_closes_the_connection(server: Running, data: bytes) -> None:
    client = WebSocket(server.port, "/echo")
    assert client.receive() == (BINARY, b"welcome")
    with contextlib.suppress(ConnectionError):  # it closes before it has read everything
        client.socket.sendall(data)
        rest = client.file.read()
        assert rest == b"" or rest[0] & 0x0F == CLOSE
    assert server.tiny.closed.wait(150)
    client.close()


def test_fragments_are_put_together(server: Running) -> None:
    client = WebSocket(server.port, "/echo")
    client.receive()
    client.socket.sendall(
        frame(BINARY, b"one ", final=False)
        + frame(PING, b"")
        + frame(CONTINUATION, b"two ", final=False)
        + frame(CONTINUATION, b"three")
    )
    assert client.receive() == (PONG, b"")
    assert client.receive() == (BINARY, b"echo one two three")
    client.close()
