"""Real kubectls against a server that asks roles who may do what."""

from pathlib import Path

import pytest

from authorities import request
from dralab.apiserver.access.authentication.settings import AuthenticationFlags
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.runtime.resources import CLUSTER_ROLES
from transcripts import environment_for, kubectls, seen, steps_of

TRANSCRIPTS = Path(__file__).parent / "access"
# Earlier ones word what they add by themselves in another way.
KUBECTLS = [
    path
    for path in kubectls()
    if not path.name.startswith("kubectl.1.") or int(path.name.rsplit(".", 1)[1]) >= 30
]

REQUEST = """\
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: ann}}
spec:
  request: {request}
  signerName: kubernetes.io/kube-apiserver-client
  usages: [client auth]
"""

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl on the PATH, and DRALAB_KUBECTL names none"
    ),
]


@pytest.mark.parametrize("kubectl", KUBECTLS, ids=lambda path: path.name)
def test_kubectl_shows_who_may_do_what(kubectl, tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('jane,jane,u-1,"devs"\n')
    options = Options(
        tls=True,
        authorization=("RBAC",),
        authentication=AuthenticationFlags(token_auth_file=tokens),
    )
    with Cluster(options, components=[ControlPlane(without=["scheduler"])]) as cluster:
        client = cluster.client
        while not client.get(CLUSTER_ROLES, "admin").get("rules"):
            pass  # soon: the controllers put it together
        environment = environment_for(kubectl, cluster.kubeconfig, tmp_path)
        check("roles", kubectl, tmp_path, environment)


@pytest.mark.parametrize("kubectl", KUBECTLS, ids=lambda path: path.name)
def test_kubectl_shows_who_somebody_is_and_what_is_admitted(kubectl, tmp_path):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('jane,jane,u-1,"devs"\n')
    (tmp_path / "request.yaml").write_text(REQUEST.format(request=request("ann", ["devs"])))
    options = Options(
        tls=True,
        mount_tokens=True,
        authorization=("RBAC",),
        authentication=AuthenticationFlags(token_auth_file=tokens),
    )
    with Cluster(options) as cluster:
        environment = environment_for(kubectl, cluster.kubeconfig, tmp_path)
        check("identity", kubectl, tmp_path, environment)


def check(name, kubectl, directory, environment):
    """Hold what kubectl shows against a transcript."""
    for step in steps_of((TRANSCRIPTS / f"{name}.txt").read_text()):
        found = seen(step, directory, environment)
        if step.command:
            assert found == step.lines, f"$ {step.command} ({kubectl.name})"
