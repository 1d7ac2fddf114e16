"""Watches over WebSocket: each event is a message, as kube-apiserver sends them."""

import base64
import json
import socket as sockets

import pytest
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.frame_protocol import Opcode

from apiserver.http.test_edge import Running
from dralab.api.resource.features import with_gates
from dralab.apiserver.http.connections.asgi import AsgiLimits
from dralab.apiserver.http.connections.websocket_connections import LimitedSocket
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.storage.watching import WatchLimits
from waiting import until
from websockets import CLOSED, WebSocket

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NORMAL = (Opcode.CLOSE, (1000).to_bytes(2, "big"))


class Lab:
    """A server, and watches of it."""

    def __init__(self, **options):
        self.api = ApiServer(MemoryStore(), **options)
        self.running = Running(self.api, AsgiLimits(timers=True))
        self.host = f"127.0.0.1:{self.running.port}"
        self.sockets = []

    def ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        status, found = self.running.ask(method, path, text, **{"Content-Type": JSON})
        assert status < 300, found
        return json.loads(found)

    def add(self, name, **labels):
        return self.ask("POST", CONFIG_MAPS, {"metadata": {"name": name, "labels": labels}})

    def open(self, path, protocol="", **headers):
        headers = {"Origin": f"http://{self.host}", **headers}
        if not headers["Origin"]:
            del headers["Origin"]
        self.sockets.append(WebSocket(self.host, path, protocol, **headers))
        return self.sockets[-1]

    def watch(self, path, protocol="", **headers):
        client = self.open(path, protocol, **headers)
        assert client.status == 101
        return client

    def refusal(self, path, protocol="", **headers):
        """Return the code and the message of the Status that refuses a watch."""
        socket = self.open(path, protocol, **headers)
        body = json.loads(socket.file.read(int(socket.headers["content-length"])))
        assert (body["kind"], body["code"]) == ("Status", socket.status)
        assert socket.headers["content-type"] == JSON
        return socket.status, body["message"]

    def close(self):
        for each in self.sockets:
            each.close()
        self.running.close()


JSON = "application/json"


@pytest.fixture
def lab():
    found = Lab()
    yield found
    found.close()


def event(socket):
    """Return the type and the object of the next message, which is text."""
    opcode, payload = socket.receive_frame()
    assert opcode == Opcode.TEXT, payload
    assert payload.endswith(b"}\n")
    found = json.loads(payload)
    return found["type"], found["object"]


def named(socket):
    """Return the type and the name of the next event."""
    type_, found = event(socket)
    return type_, found["metadata"]["name"]


@pytest.mark.parametrize(
    "path", [f"{CONFIG_MAPS}?watch=true", "/api/v1/watch/namespaces/default/configmaps"]
)
def test_each_event_is_a_text_message(lab, path):
    lab.add("a")
    lab.add("b")
    socket = lab.watch(path)
    assert [named(socket), named(socket)] == [("ADDED", "a"), ("ADDED", "b")]
    lab.ask("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"key": "l1\nl2\u2028"}})
    type_, found = event(socket)
    assert (type_, found["kind"], found["data"]) == (
        "MODIFIED",
        "ConfigMap",
        {"key": "l1\nl2\u2028"},
    )
    lab.ask("DELETE", f"{CONFIG_MAPS}/b")
    assert named(socket) == ("DELETED", "b")


def test_the_parameters_of_a_watch_count(lab):
    first = lab.add("a", app="web")["metadata"]["resourceVersion"]
    lab.add("b", app="db")
    lab.add("c", app="web")
    labelled = lab.watch(f"{CONFIG_MAPS}?watch=1&labelSelector=app%3Dweb&resourceVersion={first}")
    assert named(labelled) == ("ADDED", "c")
    by_field = lab.watch(f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db")
    assert named(by_field) == ("ADDED", "b")
    one = lab.watch("/api/v1/watch/namespaces/default/configmaps/c")
    assert named(one) == ("ADDED", "c")


def test_a_list_as_a_watch_ends_with_its_bookmark(lab):
    lab.add("a")
    socket = lab.watch(
        f"{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        "&allowWatchBookmarks=true"
    )
    assert named(socket) == ("ADDED", "a")
    type_, found = event(socket)
    assert type_ == "BOOKMARK"
    assert found["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_it_closes_normally_at_its_timeout(lab):
    lab.add("a")
    socket = lab.watch(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1")
    assert named(socket) == ("ADDED", "a")
    assert socket.receive_frame() == NORMAL


def test_it_closes_when_the_client_does(lab):
    socket = lab.watch(f"{CONFIG_MAPS}?watch=1")
    assert lab.api.hub.watchers == 1
    socket.send((1000).to_bytes(2, "big"), Opcode.CLOSE)
    assert socket.receive_frame() == NORMAL
    until(lambda: lab.api.hub.watchers == 0)


def test_a_revision_that_is_forgotten_is_an_error_event(lab):
    old = lab.add("a")["metadata"]["resourceVersion"]
    lab.add("b")
    lab.api.store.compact(lab.api.store.revision)
    socket = lab.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={old}")
    type_, found = event(socket)
    assert (type_, found["code"], found["reason"]) == ("ERROR", 410, "Expired")
    assert socket.receive_frame() == NORMAL


def test_a_ping_is_answered_and_what_a_client_says_is_ignored(lab):
    socket = lab.watch(f"{CONFIG_MAPS}?watch=1")
    socket.send(b"hello")
    socket.send(b"hello", Opcode.TEXT)
    socket.send(b"are you there", Opcode.PING)
    assert socket.receive_frame() == (Opcode.PONG, b"are you there")
    lab.add("a")
    assert named(socket) == ("ADDED", "a")


def test_protobuf_comes_in_binary_messages_without_lengths(lab):
    lab.add("a")
    lab.add("b")
    protobuf = "application/vnd.kubernetes.protobuf;stream=watch"
    socket = lab.watch(f"{CONFIG_MAPS}?watch=1", Accept=protobuf)
    for name in (b"a", b"b"):
        opcode, payload = socket.receive_frame()
        assert opcode == Opcode.BINARY
        assert payload.startswith(b"\x0a\x05ADDED\x12")
        assert b"\x0a\x01" + name in payload


def test_cbor_comes_in_binary_messages():
    lab = Lab(features=with_gates("CBORServingAndStorage=true"))
    try:
        lab.add("a")
        lab.add("b")
        socket = lab.watch(f"{CONFIG_MAPS}?watch=1", Accept="application/cbor")
        for _ in range(2):
            opcode, payload = socket.receive_frame()
            assert opcode == Opcode.BINARY
            assert payload.startswith(b"\xd9\xd9\xf7")
    finally:
        lab.close()


def test_tables_and_metadata_are_watched_too(lab):
    lab.add("a")
    for kind in ("Table", "PartialObjectMetadata"):
        accept = f"application/json;as={kind};v=v1;g=meta.k8s.io"
        type_, found = event(lab.watch(f"{CONFIG_MAPS}?watch=1", Accept=accept))
        assert (type_, found["kind"]) == ("ADDED", kind)


@pytest.mark.parametrize("protocol", ["binary.k8s.io", "base64.binary.k8s.io", "mine"])
def test_any_one_protocol_is_accepted_and_changes_nothing(lab, protocol):
    lab.add("a")
    socket = lab.watch(f"{CONFIG_MAPS}?watch=1", protocol)
    assert socket.headers["sec-websocket-protocol"] == protocol
    assert named(socket) == ("ADDED", "a")


def test_a_slow_watcher_is_closed_normally_and_watches_again():
    lab = Lab(limits=WatchLimits(each=100_000))
    try:
        socket = lab.watch(f"{CONFIG_MAPS}?watch=1")
        data = {"key": "x" * 500_000}
        for number in range(40):
            lab.ask("POST", CONFIG_MAPS, {"metadata": {"name": f"m{number}"}, "data": data})
            if not lab.api.hub.watchers:
                break
        assert not lab.api.hub.watchers
        while (payload := socket.receive()) is not CLOSED:
            assert json.loads(payload)["type"] == "ADDED"
    finally:
        lab.close()


@pytest.mark.parametrize(
    ("headers", "protocol", "code", "text"),
    [
        ({"Origin": ""}, "", 403, "needs the header Origin with a URL"),
        ({"Origin": "localhost"}, "", 403, "may not use this server"),
        ({"Origin": "http://evil.example"}, "", 403, "may not use this server"),
        ({"Origin": "null"}, "", 403, "may not use this server"),
        ({"Sec-Fetch-Site": "cross-site"}, "", 403, "web pages from other servers"),
        ({"Host": "rebound.example", "Origin": "http://rebound.example"}, "", 403, "not a name of"),
        ({}, "one, two", 400, "takes one protocol at most, not one, two"),
    ],
)
def test_a_refused_watch_is_answered_with_a_status(lab, headers, protocol, code, text):
    found, message = lab.refusal(f"{CONFIG_MAPS}?watch=1", protocol, **headers)
    assert (found, text in message) == (code, True), message


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{CONFIG_MAPS}?watch=1&labelSelector=%21%21", 400),
        (f"{CONFIG_MAPS}?watch=1&sendInitialEvents=true", 422),
        (f"{CONFIG_MAPS}?watch=1&timeoutSeconds=x", 400),
        ("/api/v1/nothing?watch=1", 404),
    ],
)
def test_a_bad_watch_is_refused_before_the_upgrade(lab, path, code):
    assert lab.refusal(path)[0] == code


def test_a_program_with_a_token_may_come_from_anywhere(lab):
    token = base64.urlsafe_b64encode(b"secret").decode().rstrip("=")
    offered = f"base64url.bearer.authorization.k8s.io.{token}, mine"
    socket = lab.open(f"{CONFIG_MAPS}?watch=1", offered)
    assert (socket.status, socket.headers["sec-websocket-protocol"]) == (101, "mine")


def test_what_needs_no_websocket_is_answered_without_one(lab):
    lab.add("a")
    socket = lab.open(CONFIG_MAPS)
    assert socket.status == 200
    found = json.loads(socket.file.read(int(socket.headers["content-length"])))
    assert found["kind"] == "ConfigMapList"


@pytest.mark.thorough  # connections are looked at once a second
def test_a_watcher_that_reads_nothing_at_all_loses_its_connection(monkeypatch):
    monkeypatch.setattr("dralab.apiserver.http.connections.asgi_base.LAST_WORDS", 0.05)
    monkeypatch.setattr("dralab.apiserver.http.connections.websocket_connections.CLOSE_TIME", 0)
    lost = []

    def connection_lost(self, error):
        lost.append(self)
        WSProtocol.connection_lost(self, error)

    def narrow(address, timeout=None, *_):
        found = sockets.socket()
        found.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        found.settimeout(timeout)
        found.connect(address)
        return found

    monkeypatch.setattr(LimitedSocket, "connection_lost", connection_lost, raising=False)
    monkeypatch.setattr("websockets.socket.create_connection", narrow)
    lab = Lab(limits=WatchLimits(each=2_000_000))
    try:
        lab.watch(f"{CONFIG_MAPS}?watch=1")
        data = {"key": "x" * 900_000}
        for number in range(40):
            lab.ask("POST", CONFIG_MAPS, {"metadata": {"name": f"m{number}"}, "data": data})
            if not lab.api.hub.watchers:
                break
        until(lambda: lost)
    finally:
        lab.close()
