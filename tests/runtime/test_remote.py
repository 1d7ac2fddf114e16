"""The client over HTTP: what it holds open, it lets go."""

import socket
import threading

import pytest

from dralab.api.status import ApiError
from dralab.kernel.http_client import CutOffError, HttpReply, UnansweredError
from dralab.runtime import remote
from dralab.runtime.kubeconfig import ClusterAccess
from dralab.runtime.remote import RemoteClient, RemoteWatch
from dralab.runtime.resources import PODS
from waiting import PATIENCE


class Stream:
    """An open answer to a watch, in which nothing ever comes."""

    def __init__(self):
        self.closed = threading.Event()

    def pieces(self):
        raise AssertionError("nobody may wait here: the watch is closed")

    def close(self):
        self.closed.set()

    shutdown = close


class Slow:
    """A client whose stream opens only when it is allowed to."""

    def __init__(self):
        self.asked, self.may = threading.Event(), threading.Event()
        self.answer = Stream()

    def stream(self, *_):
        self.asked.set()
        self.may.wait()
        return self.answer


def test_a_watch_that_is_closed_while_its_stream_opens_closes_the_stream():
    client = Slow()
    watch = RemoteWatch(client, "/api/v1/pods", {}, "1")
    assert client.asked.wait(PATIENCE)
    watch.close()
    client.may.set()
    assert client.answer.closed.wait(PATIENCE)


def test_a_client_that_is_closed_connects_no_more():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        client = RemoteClient(ClusterAccess(server=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        client.close()
        with pytest.raises(ApiError, match="the client is closed"):
            client.list(PODS)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_connection_made_while_its_client_is_closed_is_let_go():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = RemoteClient(ClusterAccess(server=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        asking = threading.Thread(target=client.list, args=(PODS,))
        asking.start()
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            client.close()
            body = b'{"items":[],"metadata":{"resourceVersion":"1"}}'
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            peer.sendall(head + body)
            asking.join(10)
            peer.settimeout(10)
            assert peer.recv(1) == b"", "the other side has closed"


class Unsteady:
    """Connections to a server, of which the first few end with an error."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = []

    def ask(self, method, path, _headers, _body):
        self.asked.append((method, path))
        if self.errors:
            raise self.errors.pop(0)
        return HttpReply(200, b'{"metadata":{"name":"a"},"items":[]}')


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)
    return RemoteClient(ClusterAccess(server="http://127.0.0.1:1"))


def test_a_read_whose_connection_breaks_is_sent_again(client):
    client._connections = Unsteady(*[CutOffError("cut")] * remote.READ_AGAIN)
    client.get(PODS, "a", "default")
    url = "/api/v1/namespaces/default/pods/a"
    assert client._connections.asked == [("GET", url)] * (remote.READ_AGAIN + 1)


def test_a_read_is_not_sent_for_ever(client):
    client._connections = Unsteady(*[CutOffError("cut")] * 99)
    with pytest.raises(ApiError, match="does not answer: cut"):
        client.list(PODS)
    assert len(client._connections.asked) == remote.READ_AGAIN + 1


def test_a_write_whose_connection_breaks_is_not_sent_again_since_it_may_have_happened(client):
    client._connections = Unsteady(CutOffError("cut"))
    with pytest.raises(ApiError, match="does not answer: cut"):
        client.create(PODS, {"metadata": {"name": "a"}}, "default")
    assert len(client._connections.asked) == 1


def test_a_server_that_is_not_there_is_said_at_once(client):
    client._connections = Unsteady(UnansweredError("connection refused"))
    with pytest.raises(ApiError, match="connection refused"):
        client.list(PODS)
    assert len(client._connections.asked) == 1
