"""Commands, output and ports of pods for the Python clients, unmodified."""

import importlib.util
import socket
import ssl
import threading
import urllib.request

import pytest

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes
from dralab.objects.pods import is_ready
from dralab.runtime.resources import PODS

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SERVER = (
    "import http.server as h, sys\n"
    "s = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n"
    "print(s.server_address[1], flush=True); s.serve_forever()\n"
)


def needs(name):
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
    )


@pytest.fixture(scope="module")
def lab():
    """A cluster with a pod `web`, and the port at which its process serves its directory."""
    import sys

    nodes = Nodes(NodeOptions(nodes=1, runtime=PROCESS))
    with Cluster(Options(tls=True), components=[ControlPlane(), nodes]) as cluster:
        container = {"name": "c", "image": "x", "command": [sys.executable, "-c", SERVER]}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        cluster.client.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        pause = threading.Event()
        url = f"{cluster.url}/api/v1/namespaces/default/pods/web/log"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {cluster.token}"})
        trusting = ssl.create_default_context(cadata=cluster.ca)
        for _ in range(200):
            if is_ready(cluster.client.get(PODS, "web", "default")):
                with urllib.request.urlopen(request, context=trusting) as log:
                    if port := log.read().decode().strip():
                        break
            pause.wait(0.05)
        yield cluster, int(port)


@needs("kubernetes")
def test_the_official_client_runs_commands(lab):
    from kubernetes import client, config
    from kubernetes.stream import stream

    config.load_kube_config(config_file=str(lab[0].kubeconfig))
    api = client.CoreV1Api()
    words = ["sh", "-c", "read x; echo $x; echo oh >&2; exit 4"]
    session = stream(
        api.connect_get_namespaced_pod_exec, "web", "default",
        command=words, stdin=True, stdout=True, stderr=True, _preload_content=False,
    )  # fmt: skip
    session.write_stdin("typed\n")
    session.run_forever(timeout=10)
    assert session.read_stdout() == "typed\n"
    assert session.read_stderr() == "oh\n"
    assert session.returncode == 4


@needs("kubernetes")
def test_the_official_client_forwards_ports(lab):
    from kubernetes import client, config
    from kubernetes.stream import portforward

    cluster, port = lab
    config.load_kube_config(config_file=str(cluster.kubeconfig))
    api = client.CoreV1Api()
    forward = portforward(
        api.connect_get_namespaced_pod_portforward, "web", "default", ports=str(port)
    )
    connection = forward.socket(port)
    connection.setblocking(True)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while data := connection.recv(65536):
        answer += data
    connection.close()
    assert answer.startswith(b"HTTP/1.0 200 OK")
    assert forward.error(port) is None


@needs("kr8s")
@pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")
def test_kr8s_forwards_ports_and_runs_commands(lab):
    import kr8s
    from kr8s.objects import Pod

    cluster, port = lab
    api = kr8s.api(kubeconfig=str(cluster.kubeconfig))
    pod = Pod.get("web", namespace="default", api=api)
    done = pod.exec(["echo", "hello"])
    assert (done.stdout, done.returncode) == (b"hello\n", 0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ours = probe.getsockname()[1]
    with (
        pod.portforward(remote_port=port, local_port=ours),
        urllib.request.urlopen(f"http://127.0.0.1:{ours}/", timeout=10) as answer,
    ):
        assert answer.status == 200
