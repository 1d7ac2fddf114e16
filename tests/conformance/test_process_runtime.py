"""Real kubectls against pods whose containers are processes."""

import os
import pty
import re
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress

import pytest

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes
from dralab.runtime.resources import EVENTS, PODS
from transcripts import environment_for, kubectls

# SPDY is what older ones speak; the server speaks WebSockets.
KUBECTLS = [
    path
    for path in kubectls()
    if not path.name.startswith("kubectl.1.") or int(path.name.rsplit(".", 1)[1]) >= 31
]
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl of 1.31 or later; DRALAB_KUBECTL names one"
    ),
]


@pytest.fixture(scope="module", params=["in the server's process", "in a process of its own"])
def cluster(request, tmp_path_factory):
    """A cluster whose node runs processes, near and far."""
    if request.param == "in the server's process":
        wanted = NodeOptions(
            nodes=1, runtime=PROCESS, images={"registry/tool": ["/bin/echo", "tool"]}
        )
        with Cluster(Options(tls=True), components=[ControlPlane(), Nodes(wanted)]) as found:
            yield found
        return
    place = tmp_path_factory.mktemp("node")
    with Cluster(Options(tls=True), components=[ControlPlane()]) as found:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "dralab", "node", "--name", "n1", "--runtime", "process",
                "--kubeconfig", found.kubeconfig, "--root", place / "k", "--cdi-root", place / "c",
                "--image-map", "registry/tool=/bin/echo tool",
            ],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout.readline() == b"ready: n1\n"
            yield found
        finally:
            process.terminate()
            assert process.wait(30) == 0
            process.stdout.close()


@pytest.fixture(params=KUBECTLS, ids=lambda path: path.name)
def kubectl(request, cluster, tmp_path):
    environment = environment_for(request.param, cluster.kubeconfig, tmp_path)

    def run(*words, stdin=None):
        return subprocess.run(
            [str(request.param), *words],
            env=environment, input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    run.words, run.environment = [str(request.param)], environment
    return run


@pytest.fixture
def start(cluster):
    """Start pods that are gone after the test; returns once `phase` is reached."""
    made = []

    def begin(name, script, *, wait=None, **spec):
        container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
        container |= spec.pop("container", {})
        body = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
        cluster.client.create(PODS, {"metadata": {"name": name}, "spec": body}, "default")
        made.append(name)
        return until(lambda: cluster.client.get(PODS, name, "default"), wait or running)

    yield begin
    for name in made:
        cluster.client.delete(PODS, name, "default")
    until(lambda: cluster.client.list(PODS, "default").items, lambda pods: not pods)


def running(pod):
    return pod["status"].get("phase") == "Running"


def until(look, good):
    pause = threading.Event()
    for _ in range(600):
        found = look()
        if good(found):
            return found
        pause.wait(0.05)
    raise AssertionError(found)


def test_exec_gives_outputs_apart_and_the_exit_code(kubectl, start):
    start("p", "sleep 60")
    done = kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 5")
    assert (done.stdout, done.returncode) == ("out\n", 5)
    assert done.stderr == "err\ncommand terminated with exit code 5\n"


def test_exec_reads_standard_input_to_its_end(kubectl, start):
    start("p", "sleep 60")
    text = "line\n" * 50_000
    done = kubectl("exec", "-i", "p", "--", "wc", "-c", stdin=text)
    assert done.stdout.strip() == str(len(text)), done.stderr
    assert kubectl("exec", "-i", "p", "--", "cat", stdin=text).stdout == text


def test_exec_gives_a_terminal(kubectl, start):
    start("p", "sleep 60")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*kubectl.words, "exec", "-it", "p", "--", "sh"],
        env=kubectl.environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, b"test -t 0 && echo is''-terminal; exit 3\n")
    assert process.wait(30) == 3
    seen = os.read(ours, 65536).decode()
    os.close(ours)
    assert "is-terminal" in seen


def test_exec_of_a_program_that_is_not_there_says_so(kubectl, start):
    start("p", "sleep 60")
    done = kubectl("exec", "p", "--", "no-such")
    assert done.returncode == 1
    assert 'exec: "no-such": executable file not found' in done.stderr


def test_logs_follow_until_the_container_ends(kubectl, start):
    start("p", "for i in 1 2 3; do echo $i; sleep 0.2; done", restartPolicy="Never")
    assert kubectl("logs", "-f", "p").stdout == "1\n2\n3\n"
    assert kubectl("logs", "p", "--tail=1").stdout == "3\n"


def test_previous_logs_are_those_of_the_run_before(kubectl, start):
    script = 'if test -e "$DRALAB_ROOT/keep/x"; then echo second; sleep 60; fi; '
    script += 'touch "$DRALAB_ROOT/keep/x"; echo first; exit 1'
    mount = {"volumeMounts": [{"name": "keep", "mountPath": "/keep"}]}
    start(
        "p", script, container=mount, volumes=[{"name": "keep", "emptyDir": {}}],
        wait=lambda pod: restarted(pod) and pod["status"]["containerStatuses"][0]["ready"],
    )  # fmt: skip
    assert until(lambda: kubectl("logs", "p").stdout, bool) == "second\n"
    assert kubectl("logs", "--previous", "p").stdout == "first\n"


def restarted(pod):
    statuses = pod["status"].get("containerStatuses") or [{"restartCount": 0}]
    return statuses[0]["restartCount"] > 0


def test_init_containers_come_first_and_share_volumes(kubectl, start):
    mounts = [{"name": "v", "mountPath": "/v"}]
    init = {
        "name": "init", "image": "busybox", "volumeMounts": mounts,
        "command": ["sh", "-c", "echo made > v/x; echo initialized"],
    }  # fmt: skip
    start(
        "p", "cat v/x", initContainers=[init], volumes=[{"name": "v", "emptyDir": {}}],
        container={"volumeMounts": mounts}, restartPolicy="Never",
        wait=lambda pod: pod["status"].get("phase") == "Succeeded",
    )  # fmt: skip
    assert kubectl("logs", "p").stdout == "made\n"
    assert kubectl("logs", "p", "-c", "init").stdout == "initialized\n"


def test_readiness_follows_its_probe_and_liveness_restarts(kubectl, start, cluster):
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1}
    start("p", "sleep 60", container={"readinessProbe": probe})
    assert not ready(cluster)
    assert kubectl("exec", "p", "--", "touch", "ready").returncode == 0
    until(lambda: ready(cluster), bool)
    alive = {"exec": {"command": ["test", "!", "-e", "dead"]}, "periodSeconds": 1}
    start("q", "sleep 60", container={"livenessProbe": {**alive, "failureThreshold": 1}})
    assert kubectl("exec", "q", "--", "touch", "dead").returncode == 0
    until(lambda: cluster.client.get(PODS, "q", "default"), restarted)


def ready(cluster):
    return cluster.client.get(PODS, "p", "default")["status"]["containerStatuses"][0]["ready"]


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 4, "Failed"), ("OnFailure", 0, "Succeeded")],
)
def test_a_pod_ends_as_its_restart_policy_says(start, policy, code, phase):
    pod = start(
        "p", f"exit {code}", restartPolicy=policy,
        wait=lambda pod: pod["status"].get("phase") == phase,
    )  # fmt: skip
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


def test_an_image_without_a_command_is_refused_in_an_event(start, cluster):
    body = {"image": "registry/unknown:v1", "command": []}
    start(
        "p", "", container=body,
        wait=lambda pod: "CreateContainerError" in str(pod["status"]),
    )  # fmt: skip
    messages = [event["message"] for event in cluster.client.list(EVENTS, "default").items]
    assert any("--image-map registry/unknown:v1=COMMAND" in message for message in messages)


def test_a_mapped_image_runs_its_program(kubectl, start):
    body = {"image": "registry/tool:v9", "command": [], "args": ["--flag"]}
    start(
        "p", "", container=body, restartPolicy="Never",
        wait=lambda pod: pod["status"].get("phase") == "Succeeded",
    )  # fmt: skip
    assert kubectl("logs", "p").stdout == "tool --flag\n"


def test_attach_shows_what_is_said_from_now_on(kubectl, start):
    start("p", "while [ ! -e go ]; do sleep 0.1; done; echo after", restartPolicy="Never")
    process = subprocess.Popen(
        [*kubectl.words, "attach", "p"],
        env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # Newer ones say a line more before it.
    assert any("press" in line for line in iter(process.stderr.readline, ""))
    threading.Event().wait(0.5)  # kubectl says so before it asks
    assert kubectl("exec", "p", "--", "touch", "go").returncode == 0
    assert process.communicate(timeout=30)[0] == "after\n"
    assert process.returncode == 0


def test_run_shows_what_a_pod_says_and_ends_as_it_does(kubectl):
    words = ["run", "once", "--image=x", "--restart=Never", "--rm", "-i", "--quiet"]
    done = kubectl(*words, "--command", "--", "sh", "-c", "sleep 2; echo done; exit 0")
    assert (done.stdout.splitlines()[:1], done.returncode) == (["done"], 0), done.stderr


def test_run_types_into_a_pod(kubectl):
    words = ["run", "fed", "--image=x", "--restart=Never", "--rm", "-i", "--quiet"]
    text = "line\n" * 20_000
    done = kubectl(*words, "--command", "--", "wc", "-c", stdin=text)
    assert (done.stdout.strip(), done.returncode) == (str(len(text)), 0), done.stderr


def test_attach_types_into_a_terminal(kubectl, start):
    start("p", "read line; stty size; exit 4", container={"stdin": True, "tty": True},
          restartPolicy="Never")  # fmt: skip
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*kubectl.words, "attach", "-it", "p"],
        env=kubectl.environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    threading.Event().wait(0.5)  # its terminal is what it asks for first
    os.write(ours, b"go\n")
    process.wait(30)
    seen = ""
    with suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 65536):
            seen += data.decode()
    os.close(ours)
    assert re.search(r"go\r\n\d+ \d+\r\n", seen), seen


def test_copies_go_in_and_out(kubectl, start, tmp_path):
    start("p", "sleep 60")
    content = os.urandom(3_000_000)
    (tmp_path / "there").write_bytes(content)
    assert kubectl("cp", str(tmp_path / "there"), "p:there").returncode == 0
    assert kubectl("cp", "p:there", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == content


SERVE = """import http.server, socketserver, sys
class Big(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"x" * 30_000_000)
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Big) as server:
    print(server.server_address[1], flush=True); server.serve_forever()
"""


def test_ports_are_forwarded_also_several_at_a_time(kubectl, start):
    start("p", "", container={"command": [sys.executable, "-c", SERVE]})
    port = until(lambda: kubectl("logs", "p").stdout, bool).strip()
    process = subprocess.Popen(
        [*kubectl.words, "port-forward", "p", f":{port}", "--address=127.0.0.1"],
        env=kubectl.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        (ours,) = re.findall(r"127.0.0.1:(\d+) -> ", process.stdout.readline())
        sizes = []

        def get():
            with urllib.request.urlopen(f"http://127.0.0.1:{ours}/") as answer:
                sizes.append(len(answer.read()))

        threads = [threading.Thread(target=get) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sizes == [30_000_000] * 4
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_a_port_where_nothing_listens_is_an_error(kubectl, start):
    start("p", "sleep 60")
    process = subprocess.Popen(
        [*kubectl.words, "port-forward", "p", ":9", "--address=127.0.0.1"],
        env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    (ours,) = re.findall(r"127.0.0.1:(\d+) -> ", process.stdout.readline())
    with pytest.raises(OSError, match=r"reset|closed"):
        urllib.request.urlopen(f"http://127.0.0.1:{ours}/").close()
    assert "failed to connect to 127.0.0.1:9" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


WEB = """import http.server
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"asked " + self.path.encode())
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
    print(server.server_port, flush=True); server.serve_forever()
"""


def test_a_process_answers_through_the_api_server(kubectl, start, cluster):
    start("web", "", container={"command": [sys.executable, "-u", "-c", WEB]})
    port = until(lambda: kubectl("logs", "web").stdout, bool).strip()
    path = f"/api/v1/namespaces/default/pods/web:{port}/proxy/a/b?c=d"
    assert kubectl("get", "--raw", path).stdout == "asked /a/b?c=d"
    refused = kubectl("get", "--raw", "/api/v1/namespaces/default/pods/web:1/proxy/")
    assert "connect: connection refused" in refused.stderr
    node = cluster.client.get(PODS, "web", "default")["spec"]["nodeName"]
    assert '"kind":"PodList"' in kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/pods").stdout
    assert cluster.url in kubectl("cluster-info").stdout
    process = subprocess.Popen(
        [*kubectl.words, "proxy", "--port=0"],
        env=kubectl.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        (ours,) = re.findall(r"127.0.0.1:(\d+)", process.stdout.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{ours}{path}") as answer:
            assert answer.read() == b"asked /a/b?c=d"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
