"""Requests for the processes of pods, through the server. The answers are those of 1.36.2."""

import http.server
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.apiserver.http import access
from dralab.apiserver.http.connections.port_wire import PortFailure
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.node.forwarding import forwarded
from dralab.runtime.resources import ENDPOINTS, NAMESPACES, NODES, PODS, SERVICES

BASE = "/api/v1/namespaces/proxy"
SILENT = 2  # a port that takes longer than there is time to connect
LATE = threading.Event()
REFUSED = "dial tcp 10.8.0.1:{}: connect: connection refused"


class Process(http.server.BaseHTTPRequestHandler):
    """What runs in the pod: it tells what it was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        match self.path:
            case "/redirect":
                return self.give("", status=302, Location="/there/")
            case "/page":
                return self.give("<a href='/x'><img src=y>", "text/html; charset=utf-8")
            case "/large":
                return self.give("x" * 3_000_000)
            case "/cut":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"only this")
                self.close_connection = True
            case "/nonsense":
                self.wfile.write(b"220 smtp ready\r\n\r\n")
                self.close_connection = True
            case "/silence":
                self.close_connection = True
            case _:
                status = 418 if self.path == "/tea" else 200
                self.give(f"{self.command} {self.path}\n{self.headers}{body}", status=status)
        return None

    def give(self, text, media="text/plain", *, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": media, "Set-Cookie": "a=b", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
    setattr(Process, f"do_{method}", Process.answer)


class Node:
    """A node of the server's process: port-forward reaches the pod's own ports, as it does."""

    def __init__(self, port):
        self.port = port

    def answer(self, node, wanted):
        if node == "pretend":
            raise ApiError.bad_request("pod x has no ports: the simulated runtime runs none")
        return forwarded(wanted, "127.0.0.1", self.owns)

    def owns(self, port):
        if port == SILENT:
            LATE.wait(5)
        return port == self.port

    def page(self, node, request):
        return HttpResponse(body=f"{request.path}?{request.query}".encode())


@pytest.fixture(scope="module")
def process():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Process) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def ask(cluster, client, process):
    cluster.server.nodes.here.append(Node(process))
    client.create(NAMESPACES, {"metadata": {"name": "proxy"}})
    for name, node in (("web", "n"), ("toy", "pretend"), ("far", "elsewhere")):
        container = {"name": "m", "image": "x", "ports": [{"containerPort": process}]}
        body = {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}
        client.create(PODS, body, "proxy")
        address = {"podIP": "10.8.0.1", "podIPs": [{"ip": "10.8.0.1"}]}
        client.patch(PODS, name, {"status": address}, "proxy", subresource="status")

    def ask(path, *, method="GET", body=None, headers=None):
        url = path if path.startswith("/api") else f"{BASE}{path}"
        request = urllib.request.Request(f"{cluster.url}{url}", method=method, data=body)
        for name, value in ({"Content-Type": "text/x"} | (headers or {})).items():
            request.add_header(name, value)
        try:
            with urllib.request.build_opener(NoRedirect).open(request) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    return ask


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def words(answer):
    import json

    status, _, body = answer
    found = json.loads(body)
    assert found["code"] == status
    return status, found["reason"], found["message"].removeprefix("error trying to reach service: ")


def test_a_process_that_does_not_answer_in_time_is_reported_so(ask, monkeypatch):
    monkeypatch.setattr("dralab.node.forwarding.CONNECT_TIME", 0.01)
    answer = ask(f"/pods/web:{SILENT}/proxy/")
    LATE.set()
    assert words(answer) == (503, "ServiceUnavailable", f"dial tcp 10.8.0.1:{SILENT}: i/o timeout")


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (PortFailure.TIMEOUT.message("nothing answers at 10.8.0.1:80"), PortFailure.TIMEOUT),
        (PortFailure.REFUSED.message("timeout: no"), PortFailure.REFUSED),
        ("an error of another node", PortFailure.REFUSED),
    ],
)
def test_a_failure_of_a_port_is_read_as_it_was_written(said, failure):
    assert PortFailure.of(said.encode()) is failure


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_a_request_reaches_the_process_of_a_pod(ask, method, process):
    body = b"hello" if method in {"POST", "PUT", "PATCH"} else None
    status, headers, told = ask(
        f"/pods/web:{process}/proxy/a%20b/c/?q=1&r=%2F",
        method=method,
        body=body,
        headers={"X-Y": "1", "Authorization": "Bearer secret", "Cookie": "session=1"},
    )
    assert status == 200
    first, *rest = told.splitlines()
    assert first == f"{method} /a%20b/c/?q=1&r=%2F"
    told = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in rest if line}
    assert told["x-y"] == "1"
    assert told["x-forwarded-for"] == "127.0.0.1"
    assert told["x-forwarded-uri"] == f"{BASE}/pods/web:{process}/proxy/a%20b/c/"
    assert not {"authorization", "cookie"} & set(told)
    assert ("hello" in told) == (body is not None)
    assert headers["Content-Security-Policy"].startswith("sandbox")
    assert headers["Set-Cookie"] is None


def test_the_first_port_that_a_pod_declares_is_the_usual_one(ask):
    assert ask("/pods/web/proxy/tea")[0] == 418
    assert ask("/pods/http:web:/proxy/tea")[0] == 418
    status, _, body = ask("/pods/web/proxy/x", method="HEAD")
    assert (status, body) == (200, "")


def test_the_root_is_a_directory(ask):
    status, headers, _ = ask("/pods/web/proxy?x=1")
    assert (status, headers["Location"]) == (301, f"{BASE}/pods/web/proxy/?x=1")
    assert ask("/pods/web/proxy", method="POST", body=b"")[2].startswith("POST / ".strip())


def test_links_and_redirects_stay_below_the_proxy(ask):
    status, headers, _ = ask("/pods/web/proxy/redirect")
    assert (status, headers["Location"]) == (302, f"{BASE}/pods/web/proxy/there/")
    page = ask("/pods/web/proxy/page")[2]
    assert page == f"<a href='{BASE}/pods/web/proxy/x'><img src=y>"


def test_a_large_answer_streams(ask):
    assert len(ask("/pods/web/proxy/large")[2]) == 3_000_000


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/pods/web:1/proxy/", 503, REFUSED.format(1)),
        ("/pods/web:70000/proxy/", 503, "dial tcp: address 70000: invalid port"),
        ("/pods/far:8/proxy/", 503, REFUSED.format(8)),
        ("/pods/web/proxy/silence", 503, "EOF"),
        ("/pods/web/proxy/nonsense", 503, "malformed HTTP response"),
        ("/pods/ftp:web:1/proxy/", 400, 'invalid pod request "ftp:web:1"'),
        ("/pods/a:b:c:d/proxy/", 400, 'invalid pod request "a:b:c:d"'),
        ("/pods/:80/proxy/", 400, 'invalid pod request ":80"'),
        ("/pods/none/proxy/", 404, 'pods "none" not found'),
        ("/services/none/proxy/", 404, 'services "none" not found'),
        ("/services/a:b:c:d/proxy/", 400, 'invalid service request "a:b:c:d"'),
    ],
)
def test_what_cannot_be_reached_is_told_in_a_real_servers_words(ask, path, status, message):
    found = words(ask(path))
    assert (found[0], found[2]) == (status, message)


def test_a_pod_whose_processes_are_simulated_says_so(ask, process):
    answer = ask("/pods/toy/proxy/")
    assert words(answer) == (503, "ServiceUnavailable", REFUSED.format(process))
    assert "the simulated runtime runs none" in answer[1]["Warning"]


def test_a_pod_without_an_address_is_not_reached(ask, client):
    spec = {"containers": [{"name": "m", "image": "x"}]}
    client.create(PODS, {"metadata": {"name": "new"}, "spec": spec}, "proxy")
    assert words(ask("/pods/new/proxy/")) == (400, "BadRequest", "address not allowed")


def test_a_service_leads_to_its_pods(ask, client, process):
    ports = [{"port": 80, "name": "web"}, {"port": 81, "name": "other"}]
    client.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}}, "proxy")
    nothing = 'no endpoints available for service "{}"'
    assert words(ask("/services/s:80/proxy/"))[2] == 'services "s" not found'
    # As a client may write them: only pods are behind a Service, at their own addresses.
    target = {"kind": "Pod", "name": "web", "namespace": "proxy"}
    addresses = [
        {"ip": "192.0.2.9"},
        {"ip": "10.8.0.9", "targetRef": target},
        {"ip": "10.8.0.1", "targetRef": target | {"namespace": "default"}},
    ]
    subset = {"addresses": addresses, "ports": [{"name": "web", "port": process}]}
    body = {"metadata": {"name": "s", "namespace": "proxy"}, "subsets": []}
    made = client.create(ENDPOINTS, body)
    assert words(ask("/services/s:80/proxy/"))[2] == nothing.format("s")
    made = client.update(ENDPOINTS, made | {"subsets": [subset | {"addresses": addresses[1:]}]})
    assert words(ask("/services/s:80/proxy/"))[2] == nothing.format("s:80")
    subset["addresses"] = [*addresses[1:], {"ip": "10.8.0.1", "targetRef": target}]
    client.update(ENDPOINTS, made | {"subsets": [subset]})
    for name in ("s:80", "s:web", "http:s:web"):
        assert ask(f"/services/{name}/proxy/x")[2].startswith("GET /x")
    assert words(ask("/services/s:81/proxy/"))[2] == nothing.format("s:81")
    assert words(ask("/services/s:9/proxy/"))[2] == 'no service port 9 found for service "s"'


def test_a_port_without_tls_is_told_apart(ask):
    found = words(ask("/pods/https:web:/proxy/"))
    assert found[2] == "tls: first record does not look like a TLS handshake"


def test_a_pod_may_speak_tls(ask, process, cluster, tmp_path):
    from dralab.apiserver.http.connections import tls
    from dralab.kernel.clock import WallClock

    found = tls.certificate(tmp_path, WallClock().now(), ["pod"])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Process) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(found.certificate, found.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster.server.nodes.here[-1].port = server.server_port
        told = ask(f"/pods/https:web:{server.server_port}/proxy/secret")[2]
        large = ask(f"/pods/https:web:{server.server_port}/proxy/large")[2]
        server.shutdown()
    assert told.startswith("GET /secret")
    assert len(large) == 3_000_000


def test_connections_that_change_their_protocol_are_refused(ask):
    answer = ask("/pods/web/proxy/", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert answer[0] == 501
    assert "use port-forward" in words(answer)[2]


def test_a_kubelet_answers_behind_its_node(ask, client):
    client.create(NODES, {"metadata": {"name": "n"}})
    assert ask("/api/v1/nodes/n/proxy/pods?a=b")[2] == "/pods?a=b"
    assert ask("/api/v1/nodes/n:10250/proxy/healthz")[2] == "/healthz?"
    assert ask("/api/v1/nodes/n/proxy")[0] == 301
    assert words(ask("/api/v1/nodes/n:22/proxy/"))[0] == 503
    assert words(ask("/api/v1/nodes/none/proxy/"))[2] == 'nodes "none" not found'


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        ("GET", "get"), ("HEAD", "get"), ("POST", "create"), ("PUT", "update"),
        ("PATCH", "patch"), ("DELETE", "delete"), ("OPTIONS", ""),
    ],
)  # fmt: skip
def test_a_proxy_needs_the_right_of_its_method(method, verb):
    request = HttpRequest(method=method, path=f"{BASE}/services/https:web:1/proxy/a/b")
    wanted = access.attributes_of(request, Kinds.standard(), User())
    assert (wanted.verb, wanted.resource, wanted.subresource) == (verb, "services", "proxy")
    assert (wanted.namespace, wanted.name) == ("proxy", "https:web:1")


def test_a_node_without_an_address_is_not_reached(cluster, client):
    client.create(NODES, {"metadata": {"name": "n"}})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{cluster.url}/api/v1/nodes/n:10250/proxy/healthz")
    with refused.value as answer:
        assert answer.code == 500
        assert "no preferred addresses found; known addresses: []" in answer.read().decode()
