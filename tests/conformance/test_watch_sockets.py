"""Watches over WebSocket, beside a real kube-apiserver: the same codes, messages and closes."""

import json
import ssl
import time
import urllib.error
import urllib.request

import pytest
from wsproto.frame_protocol import Opcode

pytest.importorskip("grpc")

from benchmarks import kube

from dralab.cluster import Cluster, Options
from etcds import Etcd
from websockets import WebSocket

pytestmark = pytest.mark.conformance

MAPS = "/api/v1/namespaces/default/configmaps"
ONE = f"{MAPS}?watch=1&fieldSelector=metadata.name%3Da"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
PROTOBUF = "application/vnd.kubernetes.protobuf;stream=watch"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SAID = [(Opcode.TEXT, b"x"), (Opcode.PING, b"there?")]
CLOSES = [(Opcode.CLOSE, (1000).to_bytes(2, "big"))]
# name: (path, protocol, headers, what the client says, how many messages are read)
CASES = {
    "watch": (ONE, "", {}, [], 1),
    "path": ("/api/v1/watch/namespaces/default/configmaps/a", "", {}, [], 1),
    "initial events": (f"{ONE}&{INITIAL}", "", {}, [], 2),
    "timeout": (f"{ONE}&timeoutSeconds=2", "", {}, [], 2),
    "one protocol": (ONE, "base64.binary.k8s.io", {}, [], 1),
    "two protocols": (ONE, "a, b", {}, [], 0),
    "no origin": (ONE, "", {"Origin": ""}, [], 0),
    "an origin that is no URL": (ONE, "", {"Origin": "localhost"}, [], 0),
    "null as origin": (ONE, "", {"Origin": "null"}, [], 0),
    "protobuf": (ONE, "", {"Accept": PROTOBUF}, [], 1),
    "table": (ONE, "", {"Accept": TABLE}, [], 1),
    "yaml": (ONE, "", {"Accept": "application/yaml"}, [], 0),
    "ping": (ONE, "", {}, SAID, 2),
    "close": (ONE, "", {}, CLOSES, 2),
    "list": (MAPS, "", {}, [], 0),
    "bad selector": (f"{MAPS}?watch=1&labelSelector=%21%21", "", {}, [], 0),
    "unknown": ("/api/v1/nothing?watch=1", "", {}, [], 0),
}
# Where a real server has no body, a Status says why.
EXPLAINED = {"two protocols", "no origin", "an origin that is no URL", "null as origin"}


def insecure():
    return ssl._create_unverified_context()  # noqa: S323 - its own certificate, on loopback


def create(url, token):
    """Create the object that is watched, as soon as there is its namespace."""
    body = json.dumps({"metadata": {"name": "a"}}).encode()
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    for _ in range(200):
        request = urllib.request.Request(f"{url}{MAPS}", body, head)
        try:
            with urllib.request.urlopen(request, context=insecure()):
                return
        except urllib.error.HTTPError as error:
            error.close()
            time.sleep(0.1)
    raise AssertionError("no namespace default")


def answer(url, token, case):
    """Return the code of an upgrade, its protocol, and the shape of what comes."""
    path, protocol, headers, said, number = case
    given = {"Origin": url, "Authorization": f"Bearer {token}", **headers}
    given = {name: value for name, value in given.items() if value}
    with WebSocket(url.partition("//")[2], path, protocol, context=insecure(), **given) as socket:
        for opcode, payload in said:
            socket.send(payload, opcode)
        frames = [shape(*socket.receive_frame()) for _ in range(number)]
        kind = ""
        if socket.status != 101 and (size := int(socket.headers.get("content-length", 0))):
            body = socket.file.read(size)
            kind = json.loads(body)["kind"] if body.startswith(b"{") else "YAML"
        return socket.status, socket.headers.get("sec-websocket-protocol"), kind, frames


def shape(opcode, payload):
    if opcode == Opcode.TEXT:
        event = json.loads(payload)
        return opcode, event["type"], event["object"]["kind"], payload.endswith(b"}\n")
    return opcode, payload[:8]  # the length that follows depends on revisions


def answers(url, token):
    create(url, token)
    return {name: answer(url, token, case) for name, case in CASES.items()}


def test_a_watch_over_websocket_is_a_real_servers(tmp_path):
    program = kube.program()
    if program is None:
        pytest.skip("no kube-apiserver: neither DRALAB_KUBE_APISERVER nor the PATH has one")
    with Etcd(tmp_path) as etcd:
        real = kube.KubeApiserver(program, tmp_path / "kube", etcd.url.replace("etcd:", "http:"))
        try:
            theirs = answers(real.url, kube.TOKEN)
        finally:
            real.stop()
    with Cluster(Options(tls=True)) as cluster:
        ours = answers(cluster.url, cluster.token)
    for name in EXPLAINED:
        status, protocol, kind, frames = theirs[name]
        assert kind == ""
        theirs[name] = status, protocol, "Status", frames
    assert ours == theirs
