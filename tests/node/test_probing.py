"""Probes of real containers: the health service of gRPC, and ports by name."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest

from dralab.contracts.plugin import LONGEST_TEXT, readable
from dralab.kernel import http_client
from dralab.kernel.clock import SECOND
from dralab.kernel.http_client import UnansweredError
from dralab.node.container_runs import ProbeRecord
from dralab.node.containers import ContainerStartError
from dralab.node.http_gets import http_status
from dralab.node.lifecycle_hooks import _work
from dralab.node.probing import probe, with_port

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")


class Real:
    real = True


@pytest.fixture
def served():
    """A health server that answers by the service that it is asked about."""
    answers = {b"": b"\x08\x01", b"\x0a\x08liveness": b"\x08\x02"}

    def check(request, context):
        if request not in answers:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return answers[request]

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None)


def test_a_probe_counts_from_its_last_change_on():
    record = ProbeRecord({"failureThreshold": 2, "successThreshold": 2, "periodSeconds": 5}, 0)
    for success, failed, good in (
        (True, False, False),
        (False, False, False),  # and the successes begin anew
        (True, False, False),
        (True, False, True),
        (False, False, True),
        (True, False, True),  # and the failures begin anew
        (False, False, True),
        (False, True, False),
    ):
        assert record.take_answer(success=success, now=SECOND) is failed
        assert record.good is good
    assert record.next == 6 * SECOND
    assert ProbeRecord({}, 0).take_answer(success=True, now=0) is False


def test_a_text_is_shortened_only_where_it_is_too_long():
    assert readable("x" * LONGEST_TEXT) == "x" * LONGEST_TEXT
    assert readable("x" * LONGEST_TEXT + "y") == "x" * LONGEST_TEXT + "..."


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ("", None),
        ("liveness", 'service unhealthy (responded with "NOT_SERVING")'),
        ("other", "unknown service"),
    ],
)
def test_a_grpc_probe_asks_the_health_service(served, service, says):
    found = probe(Real(), {"grpc": {"port": served, "service": service}, "timeoutSeconds": 5})
    assert found == says if says is None else says in found


def test_a_grpc_probe_without_a_server_fails():
    found = probe(Real(), {"grpc": {"port": 9}})
    assert found.startswith('timeout: failed to connect service "127.0.0.1:9"')


@pytest.fixture
def heads():
    """What a port was asked, whole."""
    return []


@pytest.fixture
def answering(heads):
    """Return a port that answers each request with the same bytes, and what it was asked."""
    asked, listener = [], socket.create_server(("127.0.0.1", 0))
    answer = [b""]

    def serve():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    heads.append(connection.recv(4096))
                    asked.append(heads[-1].split(b"\r\n")[0])
                    connection.sendall(answer[0])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], answer, asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def get(port, path="/"):
    return probe(Real(), {"httpGet": {"port": port, "path": path}, "timeoutSeconds": 20})


def test_a_probe_follows_no_redirect_and_asks_no_proxy(answering, monkeypatch):
    port, answer, asked = answering
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    answer[0] = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    assert get(port, "/a b?x=1") is None
    assert asked == [b"GET /a%20b?x=1 HTTP/1.1"]
    answer[0] = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    assert get(port) == "HTTP probe failed with statuscode: 500"


def test_what_is_not_http_fails_the_probe_and_nothing_else(answering):
    port, answer, _ = answering
    answer[0] = b"SSH-2.0-OpenSSH\r\n"
    assert get(port).startswith(f'Get "http://127.0.0.1:{port}/": ')


def test_a_probe_on_the_machines_network_asks_no_other_host(answering):
    port, answer, asked = answering
    answer[0] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    for how in ("httpGet", "tcpSocket"):
        spec = {how: {"port": port, "host": "192.0.2.1"}, "timeoutSeconds": 20}
        assert probe(Real(), spec) is None
    assert asked[0] == b"GET / HTTP/1.1"


def test_a_probe_sends_the_headers_of_its_pod(answering, heads):
    port, answer, _ = answering
    answer[0] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    headers = [{"name": "accept", "value": ""}, {"name": "X-Own", "value": "a"}]
    spec = {"httpGet": {"port": port, "httpHeaders": headers}, "timeoutSeconds": 20}
    assert probe(Real(), spec) is None
    lines = heads[0].decode().splitlines()
    assert "X-Own: a" in lines
    assert not [line for line in lines if line.lower().startswith("accept:")]
    headers.append({"name": "X-Bad", "value": "a\nHost: other"})
    assert probe(Real(), spec).startswith(
        f'Get "http://127.0.0.1:{port}/": a header has a line break'
    )


def test_a_probe_speaks_tls_where_its_pod_says_so(answering):
    port, answer, _ = answering
    answer[0] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    spec = {"httpGet": {"port": port, "scheme": "HTTPS"}, "timeoutSeconds": 20}
    assert probe(Real(), spec).startswith(f'Get "https://127.0.0.1:{port}/": ')


def test_a_hook_reaches_no_other_host(answering):
    port, answer, asked = answering
    answer[0] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    container = {"ports": [{"name": "web", "containerPort": port}]}
    for wanted, done in ((port, True), ("web", True), (f"80@127.0.0.1:{port}", False)):
        hook = {"httpGet": {"port": wanted, "path": "/stop"}}
        assert _work(Real(), container, hook, 20)() is done
    assert asked == [b"GET /stop HTTP/1.1"] * 2


def test_any_answer_is_good_enough_for_a_hook(answering):
    port, answer, _ = answering
    answer[0] = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
    assert _work(Real(), {}, {"httpGet": {"port": port}}, None)() is True


@pytest.mark.parametrize(("code", "done"), [(0, True), (1, False), (None, False)])
def test_a_hook_is_done_where_its_command_succeeds(code, done):
    class Runs(Real):
        def run(self, command, output, session=None, *, timeout=None):
            assert (command, timeout) == (["stop"], 20)
            output(1, b"bye")
            if code is None:
                raise ContainerStartError("it is not there")
            return code

    assert _work(Runs(), {}, {"exec": {"command": ["stop"]}}, 20)() is done


def test_a_probe_ends_in_its_time_however_slowly_it_is_answered(monkeypatch):
    ticks = iter(range(0, 10 * SECOND, SECOND // 4))
    monkeypatch.setattr(http_client, "CLOCK", SimpleNamespace(now=lambda: next(ticks)))
    asked, pod = socket.socketpair()
    with pod:
        pod.sendall(b"HTTP/1.1 200 OK")
        sandbox = SimpleNamespace(node=None, address="127.0.0.1", connect=lambda *_: asked)
        with pytest.raises(UnansweredError, match="timed out"):
            http_status(sandbox, {}, 80, 1)


def test_a_hook_without_a_server_fails():
    assert _work(Real(), {}, {"httpGet": {"port": 9}}, 1)() is False
    assert _work(Real(), {}, {}, 1)() is False


def test_a_port_may_be_given_by_its_name():
    container = {
        "ports": [{"name": "health", "containerPort": 8080}],
        "livenessProbe": {"httpGet": {"port": "health", "path": "/x"}},
        "readinessProbe": {"tcpSocket": {"port": 80}},
        "startupProbe": {"exec": {"command": ["true"]}},
    }
    assert with_port(container, "livenessProbe")["httpGet"] == {"port": 8080, "path": "/x"}
    for kind in ("readinessProbe", "startupProbe"):
        assert with_port(container, kind) is container[kind]
