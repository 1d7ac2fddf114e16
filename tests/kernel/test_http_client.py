"""HTTP/1.1 as servers speak it: what ends an answer, and what becomes of the connection."""

import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from dralab.kernel.clock import SECOND
from dralab.kernel.http_client import CutOffError, HttpConnections, UnansweredError, until

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def serving(*answers, each=1):
    """Serve these answers, `each` on a connection; yield a client and the requests that came."""
    heard = []

    def serve():
        left = list(answers)
        while left:
            peer, _ = listener.accept()
            with peer:
                for answer in left[:each]:
                    heard.append(peer.recv(65536))
                    for part in answer if isinstance(answer, list) else [answer]:
                        peer.sendall(part)
                del left[:each]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/base"
        connections = HttpConnections(address, timeout=10)
        yield connections, heard
        connections.close()
        server.join(10)


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN,
        [PLAIN[:9], PLAIN[9:20], PLAIN[20:-1], PLAIN[-1:]],
        b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
    ],
)
def test_an_answer_ends_where_its_head_says(answer):
    with serving(answer) as (connections, _):
        assert connections.ask("GET", "/x")[:2] == (200, b"ok")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        PLAIN[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n",
    ],
)
def test_half_an_answer_is_none_and_may_be_asked_for_again(answer):
    with serving(answer) as (connections, _), pytest.raises(CutOffError):
        connections.ask("GET", "/x", {})


def test_what_is_not_http_is_not_an_answer():
    with serving(b"SSH-2.0-OpenSSH\r\n") as (connections, _):
        with pytest.raises(UnansweredError) as raised:
            connections.ask("GET", "/x", {})
        assert not isinstance(raised.value, CutOffError)


def test_requests_share_a_connection_and_carry_their_heads():
    with serving(PLAIN, PLAIN, each=2) as (connections, heard):
        connections.ask("GET", "/x?a=b", [("Accept", "application/json")])
        connections.ask("POST", "/y", [("Accept", "application/json")], b"{}")
        host = heard[0].split(b"\r\n")[1]
        assert heard == [
            b"GET /base/x?a=b HTTP/1.1\r\n%b\r\nAccept: application/json\r\n\r\n" % host,
            b"POST /base/y HTTP/1.1\r\n%b\r\nAccept: application/json\r\n"
            b"Content-Length: 2\r\n\r\n{}" % host,
        ]


def test_a_connection_that_the_server_closed_is_not_used_again(monkeypatch):
    monkeypatch.setattr("dralab.kernel.http_client.FRESH", 0)
    with serving(PLAIN, PLAIN) as (connections, heard):
        connections.ask("GET", "/x", {})
        while not connections._idle[0].has_news():
            pass  # until the end has come
        assert connections.ask("GET", "/x")[:2] == (200, b"ok")
        assert len(heard) == 2


def test_a_stream_is_read_as_it_comes_and_shut_by_another_thread():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = HttpConnections(f"http://127.0.0.1:{listener.getsockname()[1]}")
        peers = []

        def serve():
            peers.append(listener.accept()[0])
            peers[0].sendall(head + b"2\r\nok\r\n")

        server = threading.Thread(target=serve)
        server.start()
        stream = connections.open("GET", "/watch", timeout=10)
        pieces = stream.pieces()
        assert (stream.status, next(pieces)) == (200, b"ok")
        threading.Thread(target=stream.shutdown).start()
        with pytest.raises(UnansweredError):
            next(pieces)
        stream.close()
        server.join(10)
        peers[0].close()


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/x y", {}), ("/x\r\nHost: y", {}), ("/x", {"Authorization": "Bearer a\r\nHost: y"})],
)
def test_nothing_that_would_begin_another_header_is_sent(path, headers):
    with pytest.raises(UnansweredError, match="control character"):
        HttpConnections("http://127.0.0.1:9").ask("GET", path, headers.items())


@pytest.mark.parametrize("server", ["127.0.0.1:6443", "ftp://127.0.0.1", "https://"])
def test_an_address_that_is_not_of_http_is_refused(server):
    with pytest.raises(ValueError, match="is not an address"):
        HttpConnections(server)


def test_a_server_that_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = HttpConnections(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.01)
        with pytest.raises(UnansweredError, match="timed out"):
            silent.ask("GET", "/x", {})


def test_an_error_says_what_failed_and_where():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        addresses = [closed.getsockname()]
    with pytest.raises(UnansweredError) as raised:
        HttpConnections("http://name.example", addresses=addresses).ask("GET", "/x")
    assert (raised.value.step, raised.value.address) == ("connect", addresses[0])
    with serving(PLAIN, b"", each=2) as (connections, _):
        connections.ask("GET", "/x")
        with pytest.raises(CutOffError) as raised:
            connections.ask("GET", "/x")
        error = raised.value
        assert (error.step, error.begun, error.reused) == ("answer", False, True)


def test_the_first_address_that_answers_is_asked_by_the_name_of_the_url():
    with serving(PLAIN) as (connections, heard), socket.create_server(("127.0.0.1", 0)) as other:
        nobody = other.getsockname()
        other.close()
        both = [nobody, *connections._addresses]
        named = HttpConnections("http://name.example:81", addresses=both)
        assert named.ask("GET", "/x", left=until(10))[:2] == (200, b"ok")
        assert b"Host: name.example:81" in heard[0].split(b"\r\n")
        named.close()


def test_nothing_is_sent_after_its_time(monkeypatch):
    ticks = iter(range(0, 10 * SECOND, SECOND))
    monkeypatch.setattr("dralab.kernel.http_client.CLOCK", SimpleNamespace(now=lambda: next(ticks)))
    with pytest.raises(UnansweredError) as raised:
        HttpConnections("http://127.0.0.1:9").ask("GET", "/x", left=until(1))
    assert isinstance(raised.value.cause, TimeoutError)
