"""ServedConnections of HTTP/1.1 on a transport that keeps what is written, without sockets."""

import asyncio
import contextlib
import gc
import socket

import pytest

from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.connections.exchanges import ServedConnections
from dralab.apiserver.http.connections.http_connections import HttpConnection
from dralab.apiserver.http.connections.listening import address, listen
from dralab.apiserver.http.connections.serving import HttpServer
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore


class Wire(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.written, self.closed, self.reading = b"", False, True

    def write(self, data):
        self.written += data

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = True

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def set_write_buffer_limits(self, high=None, low=None):
        pass


class Echo:
    """Answers with method, path and body; headers and length as the path says."""

    direct = False

    def __init__(self):
        self.gone = 0

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            body, more = body + message["body"], message["more_body"]
        text = f"{scope['method']} {scope['path']} ".encode() + body
        headers = {
            "/length": [(b"content-length", b"%d" % len(text))],
            "/short": [(b"content-length", b"100")],
            "/split": [(b"x", b"a\r\nb: c")],
            "/close": [(b"Connection", b"close")],
        }.get(scope["path"], [])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def answered(*pieces, lost=False, echo=None):
    """Return what is written for bytes that come in such pieces, and whether the end is closed."""

    async def run():
        wire, shared = Wire(), ServedConnections(echo or Echo())
        connection = HttpConnection(shared, asyncio.get_running_loop())
        connection.connection_made(wire)
        for piece in pieces:
            connection.data_received(piece)
            await asyncio.sleep(0)
        if lost:
            connection.connection_lost(None)
        for _ in range(20):
            await asyncio.sleep(0)
        return wire.written.decode(), wire.closed

    return asyncio.run(run())


def asked(path="/a", method="GET", *headers, body="", version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "host: x", *headers]
    return ("\r\n".join([*lines, "", ""]) + body).encode()


PUT = asked("/b", "PUT", "content-length: 3", body="abc")
CHUNKS = asked(
    "/c",
    "PUT",
    "transfer-encoding: chunked",
    body="2\r\nab\r\n1\r\nc\r\n0\r\nhost: trailer\r\n\r\n",
)


def test_pipelined_requests_are_answered_in_order_however_their_bytes_come():
    data = asked() + PUT + CHUNKS + asked("/d%20e?f")
    whole, closed = answered(data)
    places = [whole.index(text) for text in ("GET /a ", "PUT /b abc", "PUT /c abc", "GET /d e ")]
    assert places == sorted(places)
    assert not closed
    assert answered(*(data[at : at + 1] for at in range(len(data)))) == (whole, False)
    for at in range(0, len(data), 7):
        assert answered(data[:at], data[at:]) == (whole, False)


def test_a_request_for_another_protocol_is_answered_as_one_for_none():
    wish = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABk")
    data = asked("/a", "GET", *wish) + asked("/b", "PUT", "content-length: 3", *wish) + b"abc"
    data += asked("/c")
    whole, closed = answered(data)
    places = [whole.index(text) for text in ("GET /a ", "PUT /b abc", "GET /c ")]
    assert places == sorted(places)
    assert not closed
    for at in range(len(data)):
        assert answered(data[:at], data[at:]) == (whole, False)


def test_a_tunnel_is_refused():
    written, closed = answered(b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert written.startswith("HTTP/1.1 400 ")
    assert closed


def test_a_client_that_waits_to_go_on_is_told_to_once_its_body_is_wanted():
    head, body = asked("/b", "PUT", "content-length: 3", "expect: 100-continue"), b"abc"
    assert answered(head)[0] == "HTTP/1.1 100 Continue\r\n\r\n"
    assert answered(head, body)[0].startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_an_answer_to_head_has_a_length_and_no_body():
    written, closed = answered(asked("/length", "HEAD"))
    assert written.endswith("content-length: 13\r\n\r\n")
    assert not closed


@pytest.mark.parametrize(
    "request_",
    [asked(version="1.0"), asked("/a", "GET", "connection: close"), asked("/close")],
    ids=["1.0", "asked", "answered"],
)
def test_a_connection_closes_after_its_answer_where_one_side_wants_that(request_):
    written, closed = answered(request_)
    assert written.lower().count("connection: close\r\n") == 1
    assert closed


def test_an_answer_that_is_shorter_than_announced_does_not_look_complete():
    written, closed = answered(asked("/short"))
    assert "content-length: 100" in written
    assert closed


def test_a_header_with_a_line_break_is_a_defect_and_not_sent():
    written, closed = answered(asked("/split"))
    assert written.startswith("HTTP/1.1 500 ")
    assert "b: c" not in written
    assert closed


def test_who_waits_for_a_body_hears_that_the_client_is_gone():
    echo = Echo()
    assert answered(PUT[:-1], lost=True, echo=echo)[0] == ""
    assert echo.gone == 1


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_comes_just_before_the_server_stops_is_closed(turns):
    async def run():
        server = HttpServer(AsgiApp(ApiServer(MemoryStore())), listen("127.0.0.1", 0))
        await server.start()
        with socket.create_connection(address(server.listener), timeout=30) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            with contextlib.suppress(ConnectionError):  # still in the backlog
                assert client.recv(1) == b""

    asyncio.run(run())
    gc.collect()  # a transport that is not closed is a warning, and that an error
