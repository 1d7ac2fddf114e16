"""A node far from the server: what the server gets from it, and what nobody else does."""

import base64
import hashlib
import http.client
import json
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.request
from urllib.parse import quote

import pytest
from wsproto.frame_protocol import Opcode

from dralab.cluster import Cluster, Options
from dralab.kernel.randomness import Randomness
from dralab.node.endpoint import EndpointServer
from dralab.node.kubelets import Kubelets
from dralab.node.log_files import RuntimeWithLogFiles
from dralab.node.node_spec import NodeSpec
from dralab.node.process_runtime import ProcessRuntime
from dralab.node.simulated_runtime import SimulatedRuntime
from dralab.node.spdy import Frame, FrameType
from dralab.runtime.kubeconfig import ClusterAccess
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import NODES, PODS, SECRETS
from waiting import until
from websockets import Tunnel, WebSocket

PODS_PATH = "/api/v1/namespaces/default/pods"
SUCCESS = b'{"metadata":{},"status":"Success"}'


class Far:
    """A node with an engine and a client of its own, as `dralab node` has."""

    def __init__(self, url, name, directory, runtime):
        self.engine = LiveEngine(name=name, workers=4)
        self.client = RemoteClient(ClusterAccess(server=url))
        manager = self.manager = Manager(self.engine, self.client, Randomness(1))
        self.runtime = runtime(self.engine)
        self.kubelets = Kubelets(manager, self.runtime, only=name)
        self.kubelet = self.kubelets.add_node(NodeSpec(name=name))
        self.endpoint = EndpointServer(self.kubelets, name, directory, "127.0.0.1", 0)
        self.kubelet.serve(self.endpoint)
        self.endpoint.start()
        self.engine.soon(manager.start)
        self.engine.start()

    def stop(self):
        self.manager.stop()
        self.engine.stop()
        if isinstance(self.runtime, ProcessRuntime):
            self.runtime.stop()
        self.kubelets.stop()
        self.endpoint.stop()
        self.client.close()


class Lab:
    """A server, a far node of each runtime, and requests."""

    def __init__(self, directory):
        self.cluster = Cluster(Options(service_accounts=False)).__enter__()
        self.client = self.cluster.client
        self.host = self.cluster.url.removeprefix("http://")
        self.far = {
            name: Far(self.cluster.url, name, directory / name, runtime)
            for name, runtime in (("real", ProcessRuntime), ("pretend", SimulatedRuntime))
        }
        for name in self.far:
            until(lambda name=name: self.ready(name))

    def ready(self, name):
        nodes = {node["metadata"]["name"]: node for node in self.client.list(NODES).items}
        return "nodeInfo" in (nodes.get(name, {}).get("status") or {})

    def run(self, name, script, *, node="real", phase="Running", **fields):
        """Create a pod on a node; returns when it has got so far."""
        container = {"name": "c", "image": "x", "command": ["sh", "-c", script], **fields}
        spec = {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")
        until(
            lambda: self.client.get(PODS, name, "default").get("status", {}).get("phase") == phase
        )

    def get(self, path):
        """Return the status and the body, or a refusal's message."""
        try:
            with urllib.request.urlopen(f"http://{self.host}{PODS_PATH}/{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["message"]

    def open(self, path, protocol="v5.channel.k8s.io", **headers):
        return WebSocket(self.host, f"{PODS_PATH}/{path}", protocol, **headers)

    def close(self):
        for far in self.far.values():
            far.stop()
        self.cluster.__exit__()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    found = Lab(tmp_path_factory.mktemp("far"))
    yield found
    found.close()


# --- what the server gets -------------------------------------------------------------------


def test_logs_come_from_a_node_far_away(lab):
    lab.run("said", "for i in 1 2 3; do echo line $i; done", phase="Succeeded")
    assert lab.get("said/log") == (200, "line 1\nline 2\nline 3\n")
    assert lab.get("said/log?tailLines=1") == (200, "line 3\n")
    assert lab.get("said/log?tailLines=x") == (400, 'strconv.ParseInt: parsing "x": invalid syntax')
    assert lab.get("said/log?previous=true") == (
        400,
        'previous terminated container "c" in pod "said" not found',
    )


def test_a_log_is_followed_over_two_servers(lab):
    lab.run("talks", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    connection = http.client.HTTPConnection(lab.host, timeout=150)
    connection.request("GET", f"{PODS_PATH}/talks/log?follow=true")
    answer = connection.getresponse()
    assert answer.readline() == b"one\n"
    with lab.open("talks/exec?command=touch&command=go&stdout=true") as session:
        assert session.all() == {3: SUCCESS}
    assert answer.read() == b"two\n"
    connection.close()


def test_a_command_gets_its_input_and_tells_its_code(lab):
    lab.run("shell", "sleep 60")
    query = "command=sh&command=-c&command=cat;echo+oh+>%262;exit+3&stdin=true&stdout=true"
    with lab.open(f"shell/exec?{query}") as session:
        assert session.headers["sec-websocket-protocol"] == "v5.channel.k8s.io"
        session.send(b"\0some\n")
        session.send(b"\xff\0")
        found = session.all()
    assert (found[1], found[2]) == (b"some\n", b"oh\n")
    assert json.loads(found[3])["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
def test_a_client_that_closes_after_its_input_has_written_all_of_it(lab, protocol):
    name = f"copied-{protocol[:2]}"
    lab.run(name, "sleep 60")
    query = "command=sh&command=-c&command=sleep+0.1;cat+>copy;mv+copy+copied&stdin=true&stdout=1"
    piece = bytes(range(256)) * 1024
    with lab.open(f"{name}/exec?{query}", protocol) as session:
        for _ in range(12):  # 3 MiB
            session.send(b"\0" + piece)
        session.send((1000).to_bytes(2, "big"), Opcode.CLOSE)
    check = "command=sh&command=-c&command=wc+-c+<+copied;+md5sum+<+copied&stdout=true"

    def copied():
        with lab.open(f"{name}/exec?{check}") as session:
            return session.all().get(1)

    until(lambda: copied() is not None)
    digest = hashlib.md5(piece * 12, usedforsecurity=False).hexdigest()
    assert copied().split() == [str(12 * len(piece)).encode(), digest.encode(), b"-"]


def test_what_a_command_says_while_its_client_leaves_loses_no_input(lab):
    lab.run("loud", "sleep 60")
    script = "while read line; do echo $line; echo $line >>all; done; mv all heard"
    query = f"command=sh&command=-c&command={quote(script)}&stdin=true&stdout=true"
    with lab.open(f"loud/exec?{query}") as session:
        for number in range(500):
            session.send(b"\0%d\n" % number)
        session.send((1000).to_bytes(2, "big"), Opcode.CLOSE)
        # Whoever closes a connection with bytes unread resets it, and TCP drops what is on its way.
        session.all()

    def heard():
        with lab.open("loud/exec?command=cat&command=heard&stdout=true") as session:
            return session.all().get(1)

    until(lambda: heard() is not None)
    assert heard() == b"".join(b"%d\n" % number for number in range(500))


@pytest.mark.parametrize("protocol", ["v4.base64.channel.k8s.io", "base64.channel.k8s.io"])
def test_channels_can_be_spelled_in_base64(lab, protocol):
    name = f"spelled-{protocol[:2]}"
    lab.run(name, "sleep 60")
    query = "command=sh&command=-c&command=read+line;echo+$line;echo+oh+>%262&stdin=true&stdout=1"
    with lab.open(f"{name}/exec?{query}", protocol) as session:
        assert session.headers["sec-websocket-protocol"] == protocol
        session.send(b"0" + base64.b64encode(b"here\n"), Opcode.TEXT)
        opcode, first = session.receive_frame()
        assert opcode == Opcode.TEXT
        found = {first[0]: first[1:]} | session.all()
    said = {chr(each): base64.b64decode(text) for each, text in found.items()}
    status = {"3": SUCCESS} if protocol.startswith("v4") else {}
    assert said == {"1": b"here\n", "2": b"oh\n"} | status


def test_a_client_that_names_no_protocol_speaks_the_oldest(lab):
    lab.run("none", "sleep 60")
    with lab.open("none/exec?command=echo&command=hi&stdout=true", "") as session:
        assert "sec-websocket-protocol" not in session.headers
        assert session.all() == {1: b"hi\n"}


def test_attached_one_types_into_a_container(lab):
    spec = {"stdin": True, "stdinOnce": True}
    lab.run("typed", "read name; echo hello $name; cat", **spec)
    with lab.open("typed/attach?stdin=true&stdout=true") as session:
        session.send(b"\0you\n")
        session.send(b"\0rest\n")
        session.send(b"\xff\0")
        assert session.all() == {1: b"hello you\nrest\n", 3: SUCCESS}


def test_a_terminal_is_closed_by_no_message_of_v4(lab):
    lab.run("v4", "sleep 60")
    query = "command=sh&command=-c&command=read+line;echo+$line&stdin=true&stdout=true"
    with lab.open(f"v4/exec?{query}", "v4.channel.k8s.io") as session:
        session.send(b"\xff\0")  # it means something in v5 alone
        session.send(b"\0here\n")
        assert session.all() == {1: b"here\n", 3: SUCCESS}


def test_the_oldest_protocol_says_nothing_of_a_command_that_was_good(lab):
    lab.run("old", "sleep 60")
    with lab.open("old/exec?command=echo&command=hi&stdout=true", "channel.k8s.io") as session:
        assert session.all() == {1: b"hi\n"}
    with lab.open("old/exec?command=false&stdout=true", "channel.k8s.io") as session:
        assert session.all() == {3: b"command terminated with non-zero exit code: exit status 1"}


def test_much_output_waits_for_a_slow_reader(lab):
    """More than would be kept for a reader, so that the command has to wait for it."""
    size = 24 * 1024 * 1024
    lab.run("much", "sleep 60")
    with lab.open(f"much/exec?command=head&command=-c&command={size}&command=/dev/zero") as session:
        first = session.receive()
        threading.Event().wait(0.3)  # real sockets fill meanwhile
        found = session.all()
    assert len(first) - 1 + len(found[1]) == size
    assert found[3] == SUCCESS


def test_attached_one_sees_what_is_said_from_now_on(lab):
    lab.run("attached", "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after")
    until(lambda: lab.get("attached/log") == (200, "before\n"))
    with lab.open("attached/attach?stdout=true&stderr=true") as session:
        with lab.open("attached/exec?command=touch&command=go") as other:
            other.all()
        assert session.all() == {1: b"after\n", 3: SUCCESS}


def test_logs_outlive_the_process_of_their_node(lab, tmp_path):
    def runtime(engine):
        return RuntimeWithLogFiles(SimulatedRuntime(engine), tmp_path / "logs")

    url = lab.cluster.url
    far = Far(url, "again", tmp_path, runtime)
    try:
        until(lambda: lab.ready("again"))
        lab.run("ended", "echo at the end", node="again", phase="Succeeded")
        lab.run("stays", "echo in the first life; sleep 1000", node="again")
        until(lambda: lab.get("stays/log") == (200, "in the first life\n"))
        port = far.endpoint.address[1]
        far.stop()
        assert f":{port}: " in lab.get("ended/log")[1], "nobody is there"
        far = Far(url, "again", tmp_path, runtime)
        # The server finds the node's new port in its status.
        until(lambda: lab.get("ended/log") == (200, "at the end\n"))
        until(
            lambda: lab.get("stays/log?previous=true") == (200, "in the first life\n"),
        )
        until(lambda: lab.get("stays/log") == (200, "in the first life\n"))
        lab.client.delete(PODS, "ended", "default")
        until(lambda: not list((tmp_path / "logs").glob("default_ended_*")))
    finally:
        far.stop()


def test_a_log_that_is_gone_is_not_said_to_be_about_to_come(lab, tmp_path):
    far = Far(lab.cluster.url, "forgets", tmp_path, SimulatedRuntime)
    try:
        until(lambda: lab.ready("forgets"))
        lab.run("forgotten", "echo x", node="forgets", phase="Succeeded")
        far.stop()
        far = Far(lab.cluster.url, "forgets", tmp_path, SimulatedRuntime)
        until(lambda: "ended before its node started" in lab.get("forgotten/log")[1])
    finally:
        far.stop()


# Says everything again, and `bye` at the end of what it is told.
ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    listener.settimeout(60)  # what leaves its session is not killed with the pod
    print("listening", flush=True)
    while True:
        peer, _ = listener.accept()
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data)
            peer.sendall(b"bye")
"""


@pytest.fixture
def echo(lab, tmp_path):
    """Start a pod that listens at a port, which is returned."""
    script = tmp_path / "echo.py"
    script.write_text(ECHO)

    def start(name, prefix="exec "):
        port = closed_port()
        lab.run(name, f"{prefix}{sys.executable} {script} {port}")
        until(lambda: lab.get(f"{name}/log") == (200, "listening\n"))
        return port

    return start


WEB = """
import http.server, sys
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Web).serve_forever()
"""


def test_a_proxy_leads_to_the_process_of_a_far_pod(lab, tmp_path):
    script, port = tmp_path / "web.py", closed_port()
    script.write_text(WEB)
    lab.run("web", f"exec {sys.executable} {script} {port}")
    # It says that it listens a moment before it does.
    until(lambda: lab.get(f"web:{port}/proxy/a/b?c=d") == (200, "/a/b?c=d"))
    other = lab.cluster.url.rpartition(":")[2]  # a port of this machine, and not the pod's
    lab.run("toy", "sleep 60", node="pretend")
    for pod, where in (("web", other), ("toy", "80")):
        ip = lab.client.get(PODS, pod, "default")["status"]["podIP"]
        words = f"error trying to reach service: dial tcp {ip}:{where}: connect: connection refused"
        assert lab.get(f"{pod}:{where}/proxy/version") == (503, words)
    with urllib.request.urlopen(f"{lab.cluster.url}/api/v1/nodes/real/proxy/pods") as answer:
        assert "web" in [pod["metadata"]["name"] for pod in json.load(answer)["items"]]


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_kubectls_tunnel_leads_to_a_port(lab, echo):
    port = echo("ports")
    with lab.open("ports/portforward", "SPDY/3.1+portforward.k8s.io") as session:
        assert session.headers["sec-websocket-protocol"] == "SPDY/3.1+portforward.k8s.io"
        tunnel = Tunnel(session)
        ping = Frame(type=FrameType.PING, payload=b"\0\0\0\1")
        tunnel.say(ping)
        assert tunnel.hear() == ping
        for request in ("0", "1"):  # one after the other, over the same tunnel
            error, data = tunnel.open(port, request)
            assert [tunnel.hear(), tunnel.hear()] == [
                Frame(type=FrameType.SYN_REPLY, stream=number) for number in (error, data)
            ]
            big = bytes(range(256)) * 4096
            for at in range(0, len(big), 32_768):
                tunnel.data(data, big[at : at + 32_768])
            tunnel.data(data, b"", fin=True)
            assert tunnel.until_over(data, error) == [big + b"bye", b""]


def test_a_port_where_nothing_listens_is_said_on_the_error_stream(lab):
    lab.run("silent", "sleep 60")
    port = closed_port()
    with lab.open("silent/portforward", "SPDY/3.1+portforward.k8s.io") as session:
        tunnel = Tunnel(session)
        error, data = tunnel.open(port)
        said = tunnel.until_over(data, error)
    assert said[0] == b""
    assert said[1].startswith(f"refused: failed to connect to 127.0.0.1:{port}: ".encode())


def test_a_port_of_another_program_is_not_reached(lab, echo):
    """Containers share the machine's network: its other servers are nobody's pod."""
    lab.run("curious", "sleep 60")
    others = echo("another")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for port in (listener.getsockname()[1], others):
            with lab.open("curious/portforward", "SPDY/3.1+portforward.k8s.io") as session:
                tunnel = Tunnel(session)
                error, data = tunnel.open(port)
                said = tunnel.until_over(data, error)
            why = f"refused: failed to connect to 127.0.0.1:{port}: no process of the pod listens there"
            assert said == [b"", why.encode()]


def test_a_server_that_left_its_session_is_still_the_pods(lab, echo):
    port = echo("leaves", "sleep 60 & setsid ")
    with lab.open(f"leaves/portforward?ports={port}", "v4.channel.k8s.io") as session:
        assert [session.receive()[0], session.receive()[0]] == [0, 1]
        session.send(b"\0hello")
        assert session.receive() == b"\0hello"


def test_streams_that_make_no_pair_are_reset(lab):
    lab.run("pairs", "sleep 60")
    with lab.open("pairs/portforward", "SPDY/3.1+portforward.k8s.io") as session:
        tunnel = Tunnel(session)
        for headers in (
            {"streamtype": "data", "port": "80", "requestid": "7"},
            {"streamtype": "error", "port": "x", "requestid": "8"},
            {"streamtype": "other", "port": "80", "requestid": "9"},
        ):
            tunnel.say(Frame(type=FrameType.SYN_STREAM, stream=tunnel.next, headers=headers))
            heard = tunnel.hear()
            assert (heard.type, heard.stream) == (FrameType.RST_STREAM, tunnel.next)
            tunnel.next += 2


def test_the_channels_of_the_python_clients_lead_to_ports(lab, echo):
    port, silent = echo("channels"), closed_port()
    with lab.open(f"channels/portforward?ports={port},{silent}", "v4.channel.k8s.io") as session:
        for channel, named in ((0, port), (1, port), (2, silent), (3, silent)):
            assert session.receive() == bytes([channel]) + named.to_bytes(2, "little")
        session.send(b"\0hello")
        found = sorted([session.receive(), session.receive()])
        assert found[0] == b"\0hello"
        assert found[1].startswith(b"\3refused: failed to connect")


def test_a_client_that_names_no_protocol_gets_the_channels_of_old(lab, echo):
    port = echo("nameless")
    with lab.open(f"nameless/portforward?ports={port}", "") as session:
        assert "sec-websocket-protocol" not in session.headers
        assert session.receive() == b"\0" + port.to_bytes(2, "little")
        assert session.receive() == b"\1" + port.to_bytes(2, "little")
        session.send(b"\0hello")
        assert session.receive() == b"\0hello"


# --- what is refused ------------------------------------------------------------------------


REFUSED = [
    ("acted/portforward", "v4.channel.k8s.io", "pod acted has no ports: the simulated runtime"),
    ("acted/portforward", "SPDY/3.1+portforward.k8s.io", "pod acted has no ports"),
    (
        "acted/exec?command=echo",
        "v9",
        "exec speaks v5.channel.k8s.io or v4.channel.k8s.io or v4.base64.channel.k8s.io or "
        "channel.k8s.io or base64.channel.k8s.io, not v9",
    ),
    ("acted/exec", "v5.channel.k8s.io", "you must specify at least one command"),
    ("acted/attach?container=x", "v5.channel.k8s.io", "container x is not valid for pod acted"),
]


@pytest.mark.parametrize(("path", "protocol", "text"), REFUSED, ids=[r[2] for r in REFUSED])
def test_a_refusal_of_the_node_comes_back_in_its_words(lab, path, protocol, text):
    if not any(p["metadata"]["name"] == "acted" for p in lab.client.list(PODS).items):
        lab.run("acted", "sleep 86400", node="pretend")  # for all of these tests
    with lab.open(path, protocol) as session:
        assert session.status == 400
        assert text in session.refusal()


def test_without_a_websocket_it_is_said_what_is_needed(lab):
    lab.run("plain", "sleep 60", node="pretend")
    for path in ("plain/exec?command=echo", "plain/attach"):
        status, message = lab.get(path)
        assert status == 400
        assert "needs WebSockets, not SPDY" in message


def test_a_port_of_a_pod_that_does_not_run_is_not_forwarded(lab):
    lab.run("over", "true", phase="Succeeded")
    with lab.open("over/portforward", "SPDY/3.1+portforward.k8s.io") as session:
        assert "pod is not running. Current status=Succeeded" in session.refusal()


def test_a_page_of_another_server_opens_nothing(lab):
    lab.run("page", "sleep 60", node="pretend")
    for path in ("exec?command=echo", "attach", "portforward"):
        with lab.open(f"page/{path}", origin="http://example.com") as session:
            assert session.status == 403
            assert "may not use this server" in session.refusal()


def test_a_name_that_was_rebound_to_this_machine_opens_nothing(lab):
    lab.run("rebound", "sleep 60", node="pretend")
    port = lab.host.rpartition(":")[2]
    path = f"{PODS_PATH}/rebound/exec?command=id&stdout=1"
    with WebSocket(
        lab.host, path, Host=f"evil.example:{port}", origin=f"http://evil.example:{port}"
    ) as s:
        assert s.status == 403
        assert "evil.example" in s.refusal()


@pytest.fixture
def direct(lab):
    """Ask the endpoint of a node itself."""
    port = lab.far["real"].endpoint.address[1]
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def ask(path, token="", method="GET"):
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusting, timeout=150)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    return ask


@pytest.mark.parametrize(
    "path",
    ["/pods", "/containerLogs/default/p/c", "/exec/default/p/c?command=id", "/portForward/d/p"],
)
def test_a_stranger_learns_nothing_of_a_node(direct, path):
    for token in ("", "guessed", "é".encode().decode("latin-1")):
        assert direct(path, token)[0] == 401
    assert direct("/healthz") == (200, b"ok")


def test_the_server_s_token_opens_a_kubelets_paths(lab, direct):
    secret = lab.client.get(SECRETS, "real", "kube-node-lease")
    token = base64.b64decode(secret["data"]["token"]).decode()
    lab.run("listed", "sleep 60")
    for path in ("/pods", "/runningpods/"):
        status, body = direct(path, token)
        assert status == 200
        assert "listed" in [item["metadata"]["name"] for item in json.loads(body)["items"]]
    for path in ("/", "/exec/default", "/containerLogs/default/p/uid/c", "/pods/more"):
        assert direct(path, token)[0] == 404
    assert direct("/pods", token, "DELETE")[0] == 405


def test_the_secret_goes_with_its_node(lab):
    node, secret = lab.client.get(NODES, "real"), lab.client.get(SECRETS, "real", "kube-node-lease")
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == node["metadata"]["uid"]
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": "127.0.0.1"}


def test_what_listens_in_the_node_s_place_gets_no_token(lab, tmp_path):
    """Another program has taken the port: it shows another certificate, and is told nothing."""
    from dralab.apiserver.http.connections import tls

    lab.run("taken", "sleep 60", node="pretend")
    node = lab.client.get(NODES, "pretend")
    other = tls.certificate(tmp_path, lab.far["real"].engine.clock.now())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other.certificate, other.key)
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            peer, _ = listener.accept()
            try:
                with context.wrap_socket(peer, server_side=True) as secure:
                    heard.append(secure.recv(65536))
            except OSError as error:
                heard.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        status = {
            **node["status"],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": listener.getsockname()[1]}},
        }
        lab.client.update(NODES, {**node, "status": status}, subresource="status")
        try:
            code, message = lab.get("taken/log")
            thread.join()
        finally:
            found = lab.client.get(NODES, "pretend")
            lab.client.update(NODES, {**found, "status": node["status"]}, subresource="status")
    assert code == 500
    assert "the endpoint is not the node" in message
    assert not [each for each in heard if isinstance(each, bytes) and each]


def test_a_command_goes_on_where_its_client_leaves(lab):
    lab.run("left", "sleep 60")
    script = quote("echo up; while [ ! -e go ]; do sleep 0.02; done; echo on; touch done")
    with lab.open(f"left/exec?command=sh&command=-c&command={script}&stdout=true") as session:
        assert session.receive() == b"\1up\n"
    with lab.open("left/exec?command=touch&command=go") as other:
        other.all()

    def done():
        with lab.open("left/exec?command=ls&command=done&stdout=true") as session:
            return session.all().get(1)

    until(done)
    until(lambda: not any(each.name == "exec" for each in threading.enumerate()))
