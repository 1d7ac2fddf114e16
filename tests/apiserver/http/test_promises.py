"""Answers without tasks, and the connections on which they are sent."""

import asyncio
import gc
import socket
from contextlib import suppress

import pytest

from apiserver.http.test_edge import Start, Tiny, start  # noqa: F401 - a fixture
from dralab.apiserver.http.connections.promises import DirectPromise

HEAD = b"PUT /%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n"


def put(number: int, body: bytes, more: bytes = b"") -> bytes:
    return HEAD % (number, len(body), more) + body


def answered(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Return the status and body of so many answers."""
    found = []
    with connection.makefile("rb") as file:
        for _ in range(count):
            status = int(file.readline().split()[1])
            length = 0
            while (line := file.readline().lower().strip()) and b":" in line:
                name, _, value = line.partition(b":")
                length = int(value) if name == b"content-length" else length
            found.append((status, file.read(length)))
    return found


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture
def connection(start: Start, tiny: Tiny):  # noqa: F811
    with socket.create_connection(("127.0.0.1", start(tiny).port), timeout=150) as found:
        yield found


def test_requests_in_one_segment_are_answered_in_their_order(connection, tiny):
    connection.sendall(b"".join(put(n, b"body %d" % n) for n in range(20)))
    answers = answered(connection, 20)
    assert [status for status, _ in answers] == [201] * 20
    assert [b"body %d" % n in body for n, (_, body) in enumerate(answers)] == [True] * 20
    assert [request.path for request in tiny.requests] == [f"/{n}" for n in range(20)]


def test_refusals_in_one_segment_do_not_nest(connection, tiny):
    refused = put(0, b"", b"refused: yes\r\n")
    connection.sendall(refused * 1200 + put(1, b"x"))
    answers = answered(connection, 1201)
    assert [status for status, _ in answers] == [403] * 1200 + [201]
    assert [request.path for request in tiny.requests] == ["/1"]


def test_a_body_that_comes_in_pieces_is_read_whole(connection, tiny):
    request = put(1, b"a" * 3000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for begin in range(0, len(request), 700):
        connection.sendall(request[begin : begin + 700])
    assert answered(connection, 1)[0][0] == 201
    assert tiny.requests[0].body == b"a" * 3000


def test_a_client_that_waits_for_a_hundred_is_told_to_go_on(connection, tiny):
    connection.sendall(HEAD % (1, 4, b"expect: 100-continue\r\n"))
    assert connection.recv(100).startswith(b"HTTP/1.1 100")
    connection.sendall(b"body")
    assert answered(connection, 1)[0][0] == 201
    assert tiny.requests[0].body == b"body"


def test_a_defect_is_answered_and_the_connection_goes_on(connection):
    connection.sendall(b"GET /boom HTTP/1.1\r\nhost: x\r\n\r\n" + put(1, b"x"))
    assert [status for status, _ in answered(connection, 2)] == [500, 201]


def test_an_answer_closes_the_connection_of_a_client_that_asks_for_it(connection):
    connection.sendall(put(1, b"x", b"connection: close\r\n"))
    assert answered(connection, 1)[0][0] == 201
    assert connection.recv(1) == b""


def test_a_promise_is_kept_once():
    sent, failed, told = [], [], []
    promise = DirectPromise(sent.append, failed.append)
    promise.add_done_callback(told.append)
    promise.set_result("answer")
    assert (promise.done(), promise.cancelled(), promise.cancel()) == (True, False, False)
    assert (sent, failed, told) == (["answer"], [], [promise])
    with pytest.raises(asyncio.InvalidStateError):
        promise.set_result("another")
    promise.add_done_callback(told.append)
    assert told == [promise, promise]


def test_a_promise_that_is_given_up_fails():
    failed = []
    promise = DirectPromise(list, failed.append)
    assert promise.cancel()
    assert (promise.done(), promise.cancelled()) == (True, True)
    assert [type(error) for error in failed] == [asyncio.CancelledError]


def test_requests_leave_nothing_to_the_garbage_collector(connection):
    connection.sendall(put(0, b"x"))
    assert answered(connection, 1)[0][0] == 201
    count = 100
    gc.freeze()  # what was there before is not looked at
    gc.disable()
    try:
        for _ in range(count):
            connection.sendall(b"GET /0 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert answered(connection, 1)[0][0] == 200
        # Cycles of references make pauses: with one for each request, of half a second.
        assert gc.collect() < count
    finally:
        gc.enable()


CHUNKED = b"PUT /1 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


def test_trailers_add_nothing_to_the_head(connection, tiny):
    # They say nothing about who asks: proxies check the heads of requests alone.
    connection.sendall(CHUNKED + b"x-remote-user: admin\r\nimpersonate-user: admin\r\n\r\n")
    assert answered(connection, 1)[0][0] == 201
    assert set(tiny.requests[0].headers) == {"host", "transfer-encoding"}
    connection.sendall(put(2, b"x"))
    assert answered(connection, 1)[0][0] == 201


def test_trailers_without_an_end_close_the_connection(connection):
    said = b""
    with suppress(ConnectionError):  # what it did not read resets the connection
        connection.sendall(CHUNKED + b"x: y\r\n" * 20_000)
        while piece := connection.recv(65536):
            said += piece
    assert b" 201 " not in said


def test_two_hosts_are_refused(connection, tiny):
    connection.sendall(b"GET /1 HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n")
    status, body = answered(connection, 1)[0]
    assert (status, b"too many Host headers" in body) == (400, True)
    assert tiny.requests == []
