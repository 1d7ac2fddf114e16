"""124 questions to a server of each release, beside the recorded answers of real ones.

The questions and answers are not part of this repository; without them the tests are skipped.
"""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

SHARED = (Path(__file__).parents[2] / ".." / "shared").resolve()
PROBES = SHARED / "cases/server-probes"
ANSWERS = SHARED / "testdata/apiserver/versions"
# In every release: docs/concepts/releases.md says why.
ON_PURPOSE = {"auth_anonymous", "enc_gzip", "enc_http2"}
# The recorded servers have 1.37.2's and 1.36.2's binary: words and types of a newer release.
OF_THE_BINARY = {
    "1.33": {"page_openapi_v2", "page_openapi_v3", "page_version", "watch_old_rv"}
    | {"watch_send_initial"},
    "1.34": {"owner_refs_validation", "page_openapi_v3", "page_version", "rbac_roleref_immutable"},
    "1.35": {"owner_refs_validation", "page_openapi_v3", "page_version", "rbac_roleref_immutable"},
    "1.36": {"owner_refs_validation", "page_openapi_v3", "page_version", "rbac_roleref_immutable"},
    "1.37": set(),
}
# One question needs the flag --cpu of a newer kubectl; one lists a version that questions made which
# are not among the given ones.
OF_THE_RECORDING = {"cli_autoscale_expose", "groups_served"}
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}", certificate-authority: {pki}/ca.crt}}}}]
users: [{{name: u, user: {{token: tok}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def flags(pki):
    return [
        f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key",
        f"--client-ca-file={pki}/ca.crt", f"--token-auth-file={pki}/tokens.csv",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.0.0.0/16",
        f"--requestheader-client-ca-file={pki}/ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/proxy.crt", f"--proxy-client-key-file={pki}/proxy.key",
        "--enable-aggregator-routing=true", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
    ]  # fmt: skip


@pytest.mark.conformance
@pytest.mark.parametrize("release", OF_THE_BINARY)
def test_a_release_answers_as_a_real_server_of_it(release, tmp_path):
    recorded = ANSWERS / f"probes-{release}.json"
    if not recorded.exists() or not PROBES.exists():
        pytest.skip("the questions and the answers of real servers are not beside this checkout")
    if not all(map(shutil.which, ("kubectl", "openssl", "bash"))):
        pytest.skip("the questions need kubectl, openssl and bash")
    pki = tmp_path / "pki"
    subprocess.run(["bash", str(PROBES / "pki.sh"), str(pki)], check=True)
    port, hook = free_port(), free_port()
    environment = {**os.environ, "PROBE_PKI": f"{pki}/", "HOOK": str(hook)}
    url = f"https://127.0.0.1:{port}"
    server = [
        sys.executable, "-m", "dralab", "apiserver", "--kubernetes-version", release, "--data",
        ":memory:", "--api-versions", "default", "--listen", f"127.0.0.1:{port}", "--kubeconfig",
        str(tmp_path / "own"), *flags(pki),
    ]  # fmt: skip
    (tmp_path / "config").write_text(KUBECONFIG.format(url=url, pki=pki))
    with ExitStack() as stack:
        hooks = [sys.executable, str(PROBES / "hooks.py"), str(hook)]
        helper = stack.enter_context(subprocess.Popen(hooks, env=environment))
        stack.callback(helper.terminate)
        running = stack.enter_context(subprocess.Popen(server, stdout=subprocess.PIPE, text=True))
        stack.callback(running.terminate)
        assert any(line.startswith("ready:") for line in running.stdout)
        answers = tmp_path / "answers.json"
        ask = [sys.executable, str(PROBES / "probe.py"), release, url, str(tmp_path / "config")]
        subprocess.run([*ask, str(answers)], check=True, env=environment, timeout=900)
    compare = [sys.executable, str(PROBES / "compare.py"), str(answers), str(recorded)]
    told = subprocess.run(compare, check=False, capture_output=True, text=True).stdout
    different = {line.split()[1] for line in told.splitlines() if line.startswith("--- ")}
    assert different <= ON_PURPOSE | OF_THE_BINARY[release] | OF_THE_RECORDING, told
