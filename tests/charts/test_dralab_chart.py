"""The chart and the manifest that show a cluster's devices from inside it: what they may, and that they work."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from chartlab import all_ready, create, until
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes
from dralab.node.mount_namespaces import problem
from dralab.runtime.kubeconfig import read
from dralab.runtime.reading import COLLECTIONS
from dralab.runtime.resources import PODS

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/dralab"
MANIFEST = ROOT / "deploy/dralab.yaml"
HELM = os.environ.get("DRALAB_HELM") or shutil.which("helm")
NEEDS_HELM = pytest.mark.skipif(not HELM, reason="no helm on the PATH, and DRALAB_HELM names none")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def rendered():
    return [obj for obj in yaml.safe_load_all(MANIFEST.read_text()) if obj]


def of_kind(kind):
    (found,) = [obj for obj in rendered() if obj["kind"] == kind]
    return found


def helm(*words):
    return subprocess.run(
        [HELM, "template", "dralab", str(CHART), "-n", "dralab", *words],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def named(obj):
    return obj["kind"], obj["metadata"]["name"]


@NEEDS_HELM
def test_the_manifest_is_what_helm_makes_of_the_chart():
    first, *rest = rendered()
    assert named(first) == ("Namespace", "dralab")
    made = [obj for obj in yaml.safe_load_all(helm()) if obj]
    assert sorted(rest, key=named) == sorted(made, key=named)


@NEEDS_HELM
def test_roles_and_accounts_can_be_those_of_others():
    made = helm("--set", "rbac.create=false,serviceAccount.create=false,serviceAccount.name=reader")
    kinds = [obj["kind"] for obj in yaml.safe_load_all(made) if obj]
    assert kinds == ["ConfigMap", "Deployment"]
    assert "serviceAccountName: reader" in made


def test_the_role_lists_what_questions_read_and_nothing_else():
    allowed = {
        (group, resource, verb)
        for rule in of_kind("ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert len(COLLECTIONS) > 5
    assert allowed == {
        (each.resource.group, each.resource.plural, verb)
        for each in COLLECTIONS
        for verb in ("list", "watch")
    }


def test_the_pod_is_not_root_and_opens_no_port():
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "ports" not in container
    assert not {"Service", "Ingress", "Secret"} & {obj["kind"] for obj in rendered()}
    user = re.search(r"^USER (\d+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert pod["securityContext"]["runAsUser"] == int(user[1])


def test_the_kubeconfig_holds_no_secret_and_names_the_accounts_files(tmp_path):
    text = of_kind("ConfigMap")["data"]["config"]
    user = yaml.safe_load(text)["users"][0]["user"]
    assert user == {"tokenFile": f"{ACCOUNT}/token"}
    (tmp_path / "token").write_text("t0")
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "config").write_text(text.replace(ACCOUNT, str(tmp_path)))
    access = read(tmp_path / "config")
    assert (access.server, access.token, access.ca) == (
        "https://kubernetes.default.svc", "t0", "ca",
    )  # fmt: skip


def test_the_arguments_are_those_of_the_command():
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    done = CliRunner().invoke(main, [*container["args"], "--help"])
    assert done.exit_code == 0, done.output


def test_a_server_accepts_every_object_of_it(client):
    create(client, rendered())


def is_open(program):
    """Return whether other users may start a program."""
    return all(path.stat().st_mode & 0o001 for path in (program, *program.parents))


@pytest.mark.conformance
def test_its_pod_shows_the_cluster_with_the_rights_of_its_account():
    pytest.importorskip("grpc")
    if why := problem():
        pytest.skip(why)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Not below pytest's directory: a socket's path has 107 characters at most.
    place = Path(tempfile.mkdtemp(prefix="k"))
    wanted = NodeOptions(
        nodes=1, drivers=["gpu"], root=place, runtime=PROCESS, namespaces=True,
        images={"dralab.dev/dralab": [sys.executable, "-m", "dralab"]},
    )  # fmt: skip
    nodes = Nodes(wanted)
    try:
        with Cluster(
            Options(tls=True, mount_tokens=True, authorization=("Node", "RBAC")),
            components=[ControlPlane(), nodes],
        ) as cluster:
            text = MANIFEST.read_text().replace('"8080"', f'"{port}"')
            text = text.replace("https://kubernetes.default.svc", cluster.url)
            if not is_open(Path(sys.executable).resolve()):
                # The account of the image cannot start this interpreter: it belongs to root alone.
                text = text.replace("runAsUser: 10001", f"runAsUser: {os.getuid()}")
                text = text.replace("runAsNonRoot: true", "runAsNonRoot: false")
                text = text.replace("enforce: restricted", "enforce: privileged")
            create(cluster.client, yaml.safe_load_all(text))
            (pod,) = until(
                lambda: cluster.client.list(PODS, "dralab").items, lambda pods: all_ready(pods, 1)
            )
            log = nodes.kubelets.find_container(pod, "page").log
            opened = until(lambda: "".join(line for _, line in log.read()[0]), bool)
            assert "open: " in opened, opened
            base, code = re.search(r"open: (http://127\.0\.0\.1:\d+/ui)#(\S+)", opened).groups()
            assert base == f"http://127.0.0.1:{port}/ui"
            token = ask(f"{base}/session", body={"code": code})["token"]
            fleet = ask(f"{base}/data/fleet", token=token)
            assert "node-0" in json.dumps(fleet)
            assert may(cluster, "list", "pods")
            assert not may(cluster, "list", "secrets")
            assert not may(cluster, "delete", "pods")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def may(cluster, verb, plural):
    """Return whether the account of the pod may do something."""
    review = {
        "spec": {
            "user": "system:serviceaccount:dralab:dralab",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {"verb": verb, "resource": plural},
        }
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    request = urllib.request.Request(cluster.url + path, json.dumps(review).encode())
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {cluster.token}")
    context = ssl.create_default_context(cadata=cluster.ca)
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return json.load(answer)["status"]["allowed"]


def ask(url, body=None, token=""):
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
