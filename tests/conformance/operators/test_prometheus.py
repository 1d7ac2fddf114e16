"""Prometheus' service discovery: its own code finds the targets of a cluster, and their ends."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, PODS, SERVICES
from operatorlab import NAMESPACE, running
from waiting import until

SOURCE = Path(__file__).parents[1] / "promdiscovery"
ROLES = ("node", "pod", "service", "endpointslice", "endpoints", "ingress")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        "DRALAB_PROMETHEUS_DISCOVERY" not in os.environ and shutil.which("go") is None,
        reason="Go is not installed, and DRALAB_PROMETHEUS_DISCOVERY names no program",
    ),
]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """Prometheus' module with a main of its own; DRALAB_PROMETHEUS_DISCOVERY names a built one."""
    if ready := os.environ.get("DRALAB_PROMETHEUS_DISCOVERY"):
        return Path(ready)
    target = tmp_path_factory.mktemp("promdiscovery") / "promdiscovery"
    done = subprocess.run(
        ["go", "build", "-o", str(target), "."],
        cwd=SOURCE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"Prometheus' modules can't be built: {done.stderr.strip()[-300:]}")
    return target


class Targets:
    """What the discovery has said so far: the newest of each source."""

    def __init__(self, said):
        self.said = said

    def of(self, role):
        """Return the labels of the targets of a role."""
        newest = {}
        for line in self.said.read_text().splitlines():
            change = json.loads(line) if line.endswith("}") else {}
            if change.get("Role") == role:
                newest[change["Source"]] = change["Targets"] or []
        return [labels for targets in newest.values() for labels in targets]

    def values(self, role, label):
        return {labels.get(f"__meta_kubernetes_{label}") for labels in self.of(role)}


def test_targets_of_every_role_are_found(running_cluster, client, program, kubeconfig, tmp_path):
    labels = {"app": "web"}
    port = {"name": "http", "containerPort": 8080}
    containers = [{"name": "main", "image": "nginx", "ports": [port]}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, NAMESPACE)
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    service = {"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": ports}}
    client.create(SERVICES, service, NAMESPACE)
    backend = {"service": {"name": "web", "port": {"name": "http"}}}
    rule = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    rules = [{"host": "web.example", "http": rule}]
    client.create(INGRESSES, {"metadata": {"name": "web"}, "spec": {"rules": rules}}, NAMESPACE)
    until(lambda: len(running(client)) == 2)
    pods = {pod["metadata"]["name"]: pod for pod in client.list(PODS, NAMESPACE).items}
    said = tmp_path / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [program, *ROLES], env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stdout=output
        )
    found = Targets(said)
    try:
        for role in ("pod", "endpointslice", "endpoints"):
            until(lambda role=role: set(pods) <= found.values(role, "pod_name"))
        addresses = {f"{pod['status']['podIP']}:8080" for pod in pods.values()}
        assert {each["__address__"] for each in found.of("pod")} == addresses
        until(lambda: "web" in found.values("service", "service_name"))
        until(lambda: "node-0" in found.values("node", "node_name"))
        until(lambda: "web.example" in found.values("ingress", "ingress_host"))
        [gone, kept] = sorted(pods)
        client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, NAMESPACE)
        until(lambda: not {gone, kept} & found.values("pod", "pod_name"))
        until(lambda: not {gone, kept} & found.values("endpointslice", "pod_name"))
    finally:
        process.kill()
        process.wait(30)
