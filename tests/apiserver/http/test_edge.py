"""The edge over real sockets, in front of the smallest of servers."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from dralab.api.status import ApiError
from dralab.apiserver.access.fairness.flow_control import DEFAULT_LEVEL, Flow
from dralab.apiserver.http.connections.asgi import AsgiApp, AsgiLimits
from dralab.apiserver.http.connections.listening import AddressInUse, address, listen
from dralab.apiserver.http.connections.sending import head_of
from dralab.apiserver.http.connections.serving import HttpServer
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse, WatchStream
from dralab.apiserver.storage import Key, MemoryStore, StorageUnavailable, Stored
from dralab.apiserver.storage.watching import Hub, WatchLimits
from dralab.apiserver.storage.watching.interfaces import Watching
from dralab.kernel.clock import ManualClock
from waiting import until


class Lines:
    """Events as short lines."""

    shared = True

    def event(self, type: str, stored: Stored) -> bytes:
        return b"%b %b %d\n" % (type.encode(), stored.key.name.encode(), stored.revision)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        return b"%b %d\n" % (b"END" if initial_end else b"BOOKMARK", revision)


LINES = Lines()
ONE_FLOW = Flow(DEFAULT_LEVEL, "")


class Tiny:
    """PUT /name stores the body, GET /name reads it, GET /?watch=1 watches, all else has its use."""

    def __init__(self, store: MemoryStore | None = None, **limits: int) -> None:
        self.store = store or MemoryStore()
        self.hub = Hub(self.store, ManualClock(), WatchLimits(**limits))
        self.requests: list[HttpRequest] = []
        self.batches: list[int] = []
        self.store.subscribe(lambda changes: self.batches.append(len(changes)))

    def admit(self, request: HttpRequest) -> None:
        if "refused" in request.headers:
            raise ApiError("Forbidden", "not you", details={})

    def flow_of(self, request: HttpRequest) -> Flow:
        return ONE_FLOW

    def began(self, request: HttpRequest, status: int) -> None:
        pass

    def ended(self, request: HttpRequest, status: int) -> None:
        pass

    def handle_apart(self, request: HttpRequest) -> Answer:
        return self.handle(request)

    def handle(self, request: HttpRequest) -> Answer:
        self.requests.append(request)
        key = Key("pods", "", request.path[1:])
        if request.path == "/boom":
            raise ValueError("a defect")
        if request.path == "/deep":
            raise RecursionError
        if request.path == "/big":
            return HttpResponse(body=[b"x" * 100_000] * 3)
        if "watch" in request.query:
            wanted = Watching(
                resource="pods",
                initial=self.store.list("pods").items,
                since=self.store.revision,
                bookmarks=True,
                timeout=0.2 if "timeout" in request.query else None,
            )
            return WatchStream(watching=wanted, encoder=LINES)
        if request.method == "PUT":
            value = {"metadata": {}, "body": request.body.decode()}
            stored = (self.store.update if self.store.get(key) else self.store.create)(key, value)
            return HttpResponse(status=201, body=stored.encoded)
        found = self.store.get(key)
        return HttpResponse(status=404) if found is None else HttpResponse(body=found.encoded)


@pytest.fixture(autouse=True)
def watches_that_are_short_count_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dralab.apiserver.http.connections.asgi.SHORT", 0.1)


class Running:
    """A server in a thread of its own."""

    def __init__(self, tiny: Tiny, limits: AsgiLimits | None = None) -> None:
        self.tiny = tiny
        self.loop = asyncio.new_event_loop()
        self.listener = listen("127.0.0.1", 0)
        self.port = address(self.listener)[1]
        self.edge = AsgiApp(tiny, limits)
        started = threading.Event()
        self.stop: Callable[[], None] = lambda: None

        async def main() -> None:
            server = HttpServer(self.edge, self.listener)
            over = asyncio.Event()
            self.stop = lambda: self.loop.call_soon_threadsafe(over.set) and None
            await server.start()
            started.set()
            await over.wait()
            await server.stop()

        def run() -> None:
            self.loop.run_until_complete(main())
            self.loop.close()

        self.thread = threading.Thread(target=run)
        self.thread.start()
        assert started.wait(150)

    def close(self) -> None:
        self.stop()
        self.thread.join(150)
        assert not self.thread.is_alive()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=150)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection = self.connect()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def begin(tiny: Tiny | None = None, limits: AsgiLimits | None = None) -> Running:
        running.append(Running(tiny or Tiny(), limits))
        return running[-1]

    yield begin
    for one in running:
        one.close()


Start = Callable[..., Running]


def test_a_request_is_handed_over_as_plain_values(start: Start) -> None:
    server = start()
    server.ask("PUT", "/a%20b?x=1&y=%2F", b"body", **{"X-Custom": "Value"})
    request = server.tiny.requests[0]
    assert (request.method, request.path, request.query) == ("PUT", "/a b", "x=1&y=%2F")
    assert (request.body, request.peer) == (b"body", "127.0.0.1")
    assert request.headers["x-custom"] == "Value"


def test_connections_are_kept_alive(start: Start) -> None:
    connection = start().connect()
    for index in range(3):
        connection.request("PUT", f"/p{index}", b"x")
        answer = connection.getresponse()
        assert answer.status == 201
        assert json.loads(answer.read())["metadata"]["resourceVersion"] == str(index + 2)
    connection.close()


def test_requests_of_one_turn_are_one_batch(start: Start) -> None:
    server = start()
    count = 8
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    with server.tiny.store.lock:  # the loop waits for it with its first request; more arrive
        for index, one in enumerate(sockets):
            one.sendall(b"PUT /p%d HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx" % index)
    for one in sockets:
        assert one.recv(1000).startswith(b"HTTP/1.1 201")
        one.close()
    assert sum(server.tiny.batches) == count
    assert len(server.tiny.batches) < count


def test_decisions_do_not_wait_behind_records_and_records_are_not_forgotten() -> None:
    tiny = Tiny()
    edge = AsgiApp(tiny, AsgiLimits(batch=4, records=2))
    paths = [f"/events-{n}" for n in range(5)] + [f"/pod-{n}" for n in range(5)]

    async def all_at_once() -> None:
        requests = [HttpRequest(method="GET", path=path) for path in paths]
        answers = [edge.submit(request) for request in requests]
        assert not edge.idle
        await asyncio.gather(*answers)
        assert edge.idle

    asyncio.run(all_at_once())
    edge.close()
    assert [request.path for request in tiny.requests] == [
        "/pod-0", "/pod-1", "/pod-2", "/pod-3", "/events-0", "/events-1",
        "/pod-4", "/events-2", "/events-3",
        "/events-4",
    ]  # fmt: skip


def test_a_watch_is_flushed_event_by_event_and_ends_properly(start: Start) -> None:
    server = start()
    server.ask("PUT", "/a", b"x")
    connection = server.connect()
    connection.request("GET", "/?watch=1&timeout=1")
    answer = connection.getresponse()
    assert answer.readline() == b"ADDED a 2\n"
    server.ask("PUT", "/b", b"x")
    assert answer.readline() == b"ADDED b 3\n"
    server.tiny.store.create(Key("pods", "", "c"), {"metadata": {}})  # from another thread
    assert answer.readline() == b"ADDED c 4\n"
    assert answer.read() == b"BOOKMARK 4\n", "shortly before its timeout has expired"
    connection.request("GET", "/c")
    assert connection.getresponse().status == 200, "the connection goes on"
    connection.close()


def test_a_very_short_watch_ends_without_a_bookmark(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dralab.apiserver.http.connections.asgi.SHORT", 2.0)
    server = start()
    connection = server.connect()
    connection.request("GET", "/?watch=1&timeout=1")
    assert connection.getresponse().read() == b""
    connection.close()


def test_watches_end_properly_when_the_server_stops(caplog: pytest.LogCaptureFixture) -> None:
    server = Running(Tiny())
    connection = server.connect()
    connection.request("GET", "/?watch=1")
    answer = connection.getresponse()
    server.ask("PUT", "/a", b"x")
    server.close()
    assert answer.read() == b"ADDED a 2\n", "to the last chunk, which says that it is the last"
    connection.close()
    assert caplog.messages == []


def test_a_watcher_that_leaves_is_forgotten(start: Start) -> None:
    server = start()
    connection = server.connect()
    connection.request("GET", "/?watch=1")
    answer = connection.getresponse()
    assert server.tiny.hub.watchers == 1
    answer.close()
    connection.close()
    until(lambda: not server.tiny.hub.watchers)


def test_a_watcher_that_reads_nothing_is_cut_off_and_stops_no_other(start: Start) -> None:
    server = start(Tiny(each=200_000))
    slow = socket.create_connection(("127.0.0.1", server.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(b"GET /?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n")
    quick = server.connect()
    quick.request("GET", "/?watch=1")
    answer = quick.getresponse()
    name = "n" * 20_000
    for index in range(1_000):
        server.tiny.store.create(Key("pods", "", f"{name}{index}"), {"metadata": {}})
        assert answer.readline().endswith(b"%d\n" % (index + 2))
        if server.tiny.hub.watchers == 1:
            break
    assert server.tiny.hub.watchers == 1
    slow.close()
    quick.close()


def test_too_many_watches_are_told_to_come_again(start: Start) -> None:
    server = start(Tiny(watchers=0))
    status, body = server.ask("GET", "/?watch=1")
    assert status == 429
    assert orjson.loads(body)["details"] == {"retryAfterSeconds": 1}


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [("/boom", 500, "InternalError"), ("/deep", 400, "BadRequest")],
)
def test_a_defect_is_a_status_and_not_the_end(
    start: Start, path: str, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    found, body = server.ask("GET", path)
    assert (found, orjson.loads(body)["reason"]) == (status, reason)
    assert server.ask("GET", "/none")[0] == 404


class FullStore(MemoryStore):
    """A store whose disk is full."""

    def _persist(self, changes: Any) -> None:
        raise StorageUnavailable("the disk is full")


def test_with_a_full_disk_reads_go_on_and_writes_say_so(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    store = FullStore()
    server = start(Tiny(store), limits=AsgiLimits(timers=False))
    for _ in range(3):
        status, body = server.ask("PUT", "/a", b"x")
        assert status == 503
        found = orjson.loads(body)
        assert found["message"] == "the store does not accept writes: the disk is full"
        assert found["details"] == {"retryAfterSeconds": 1}
    assert server.ask("GET", "/a")[0] == 404
    # Not a line for each write: the log may be on the same disk.
    assert [each.getMessage() for each in caplog.records] == [found["message"]]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(start: Start) -> None:
    server = start(limits=AsgiLimits(body=1_000))
    with socket.create_connection(("127.0.0.1", server.port)) as plain:
        plain.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n")
        answer = plain.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"limit is 1000" in answer
    with socket.create_connection(("127.0.0.1", server.port)) as chunked:
        chunked.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            chunked.sendall(b"ff\r\n" + b"x" * 255 + b"\r\n")
        assert chunked.recv(10_000).startswith(b"HTTP/1.1 413")
    assert server.ask("PUT", "/a", b"x" * 1_000)[0] == 201


def test_half_a_body_is_not_taken_for_a_whole_one(start: Start) -> None:
    server = start()
    with socket.create_connection(("127.0.0.1", server.port)) as gone:
        gone.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
    assert server.ask("PUT", "/b", b"body")[0] == 201
    assert [request.path for request in server.tiny.requests] == ["/b"]


def test_a_body_of_which_nothing_comes_is_not_waited_for(start: Start) -> None:
    server = start(limits=AsgiLimits(body_time=0.05))
    with socket.create_connection(("127.0.0.1", server.port), timeout=150) as slow:
        slow.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        assert slow.recv(10_000).startswith(b"HTTP/1.1 408")


def test_a_large_body_waits_for_room(start: Start) -> None:
    server = start(limits=AsgiLimits(body_time=0.05, bodies=100_000))
    head = b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 80000\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=150) as first,
        socket.create_connection(("127.0.0.1", server.port), timeout=150) as second,
    ):
        first.sendall(head)
        # Two of one user do not fit, and the first does not come: then there is room again.
        second.sendall(head + b"x" * 80_000)
        assert first.recv(10_000).startswith(b"HTTP/1.1 408")
        answer = second.recv(10_000)
    assert answer.startswith((b"HTTP/1.1 201", b"HTTP/1.1 429"))
    assert server.ask("PUT", "/b", b"x" * 80_000)[0] == 201
    assert server.edge.bodies.used == 0


def test_a_body_that_does_not_come_is_not_waited_for(start: Start) -> None:
    server = start(limits=AsgiLimits(body_time=0.05))
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        slow.settimeout(10)
        assert slow.recv(10_000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000,
        b"GET /" + b"y" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
    ],
    ids=["a long header", "a long path", "many headers"],
)
def test_a_head_without_end_is_refused(start: Start, head: bytes) -> None:
    server = start()
    with socket.create_connection(("127.0.0.1", server.port)) as endless:
        endless.settimeout(10)
        try:
            endless.sendall(head)
            answer = endless.recv(1_000)
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
    assert server.ask("GET", "/none")[0] == 404


def test_what_is_not_http_is_refused(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start()
    with socket.create_connection(("127.0.0.1", server.port)) as strange:
        strange.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert strange.recv(1_000).startswith(b"HTTP/1.1 400")
    assert not caplog.records, "anyone may do that, as often as they like"


def test_parts_are_sent_as_one_body(start: Start) -> None:
    assert start().ask("GET", "/big") == (200, b"x" * 300_000)


def test_answers_are_compressed_for_other_machines_alone(start: Start) -> None:
    server = start()
    connection = server.connect()
    connection.request("GET", "/big", headers={"accept-encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.getheader("content-encoding") is None
    assert len(answer.read()) == 300_000
    connection.close()


def test_large_answers_are_compressed_on_request() -> None:
    async def call(peer: str) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/big",
            "query_string": b"",
            "headers": [(b"accept-encoding", b"gzip, br")],
            "client": (peer, 1),
        }
        edge = AsgiApp(Tiny())
        await edge(scope, receive, send)
        edge.close()
        return sent

    start, body = asyncio.run(call("10.0.0.1"))
    assert (b"content-encoding", b"gzip") in start["headers"]
    assert len(body["body"]) < 3_000


def test_a_taken_port_is_told_in_one_line() -> None:
    first = listen("127.0.0.1", 0)
    port = address(first)[1]
    with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is in use: stop the other program"):
        listen("127.0.0.1", port)
    first.close()


def test_a_watch_opened_in_the_turn_of_a_write_sees_it_once(start: Start) -> None:
    server = start()
    with socket.create_connection(("127.0.0.1", server.port)) as one:
        one.settimeout(10)
        with server.tiny.store.lock:
            one.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
            watcher = socket.create_connection(("127.0.0.1", server.port))
            watcher.settimeout(10)
            watcher.sendall(b"GET /?watch=1&timeout=1 HTTP/1.1\r\nhost: x\r\n\r\n")
        one.recv(1_000)
        text = b""
        while b"\r\n0\r\n" not in text:  # the last chunk: its timeout has passed
            text += watcher.recv(1_000)
        watcher.close()
    assert text.count(b"ADDED a 2") == 1


def test_head_and_body_of_an_answer_come_as_one_piece(start: Start) -> None:
    server = start()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=150)
    connection.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody")
    head, _, body = connection.recv(4_000).partition(b"\r\n\r\n")
    connection.close()
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body)["body"] == "body"


def test_a_client_does_not_choose_its_address(start: Start) -> None:
    server = start()
    server.ask("GET", "/none", **{"x-forwarded-for": "192.0.2.7"})
    assert server.tiny.requests[-1].peer == "127.0.0.1"


@pytest.mark.parametrize("text", ["a\r\nset-cookie: b", "a\nb", "a\0"])
def test_a_header_with_a_line_break_is_not_sent(text: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_of([("Content-Type", "text/plain"), ("Warning", text)])


def test_what_never_comes_is_not_waited_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dralab.apiserver.http.connections.http_connections.HEAD_TIME", 0.1)
    monkeypatch.setattr("dralab.apiserver.http.connections.http_connections.IDLE", 0.1)
    server = start()
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    connections[1].sendall(b"GET /slo")  # the rest of a head
    connections[2].sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    assert b" 201 " in connections[2].recv(4_000)  # the next request
    for connection in connections:
        connection.settimeout(10)
        with contextlib.suppress(ConnectionError):  # aborted when the server looks, once a second
            assert connection.recv(100) == b""
        connection.close()
    assert server.ask("GET", "/none")[0] == 404
