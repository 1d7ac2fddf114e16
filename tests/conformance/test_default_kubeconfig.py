"""kubectl with the kubeconfig that `dralab up` writes: TLS, the token, and programs in pods."""

import re
import subprocess
import sys
import urllib.request

import pytest

from transcripts import environment_for, kubectls

# Earlier ones run no commands over WebSockets.
KUBECTLS = [
    path
    for path in kubectls()
    if not path.name.startswith("kubectl.1.") or int(path.name.rsplit(".", 1)[1]) >= 31
]
POD = f"""
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: x
    command: [{sys.executable}, -u, -c]
    args:
    - |
      import http.server
      with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
          print(server.server_address[1])
          server.serve_forever()
    readinessProbe: {{exec: {{command: ["true"]}}, periodSeconds: 1}}
"""

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl of 1.31 or later; DRALAB_KUBECTL names one"
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The data directory of `dralab up --runtime process`."""
    data = tmp_path_factory.mktemp("up") / "data"
    command = [sys.executable, "-m", "dralab", "up", "--nodes", "1", "--runtime", "process"]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--data", str(data)], stdout=subprocess.PIPE
    )
    assert process.stdout.readline().startswith(b"ready: https://")
    yield data
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()


@pytest.mark.parametrize("kubectl", KUBECTLS, ids=lambda path: path.name)
def test_kubectl_works_with_the_kubeconfig_as_it_is(place, kubectl, tmp_path):
    environment = environment_for(kubectl, place / "kubeconfig", tmp_path)

    def run(*words, stdin=None):
        done = subprocess.run(
            [str(kubectl), *words],
            env=environment, input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("apply", "-f", "-", stdin=POD)
    run("wait", "--for=condition=Ready", "pod/web", "--timeout=30s")
    assert run("exec", "web", "--", "echo", "hello") == "hello\n"
    port = run("logs", "web").split()[0]
    forward = subprocess.Popen(
        [str(kubectl), "port-forward", "web", f":{port}", "--address=127.0.0.1"],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        (ours,) = re.findall(r"127.0.0.1:(\d+) -> ", forward.stdout.readline())
        with urllib.request.urlopen(f"http://127.0.0.1:{ours}/", timeout=20) as answer:
            assert answer.status == 200
    finally:
        forward.terminate()
        forward.wait()
        forward.stdout.close()
    run("delete", "pod", "web", "--grace-period=0", "--force")


def test_without_the_token_kubectl_is_refused(place, tmp_path):
    environment = environment_for(KUBECTLS[0], place / "kubeconfig", tmp_path)
    text = (place / "kubeconfig").read_text()
    (tmp_path / "config").write_text(re.sub(r"token: .*", "token: guessed", text))
    done = subprocess.run(
        [str(KUBECTLS[0]), "--kubeconfig", str(tmp_path / "config"), "get", "secrets"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "You must be logged in to the server" in done.stderr
