"""stern: the logs of all pods that match, also of those that come later."""

import subprocess

import pytest

from dralab.runtime.resources import PODS
from operatorlab import NAMESPACE
from waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.dralab(runtime="process")]


def pod(name, script):
    containers = [{"name": "main", "image": "x", "command": ["sh", "-c", script]}]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def test_the_logs_of_pods_are_followed_as_they_come(
    running_cluster, client, operator, kubeconfig, tmp_path
):
    _, program = operator("stern")
    client.create(PODS, pod("web-0", "echo first; exec sleep 1000"), NAMESPACE)
    words = [program, f"--kubeconfig={kubeconfig}", "-n", NAMESPACE, "--color=never",
             "--template={{.PodName}} {{.ContainerName}}: {{.Message}}{{\"\\n\"}}", "--only-log-lines",
             "--selector=app=web"]  # fmt: skip
    said = tmp_path / "said"
    with said.open("w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: "web-0 main: first\n" in said.read_text())
        script = "echo second; sleep 0.5; echo third; exec sleep 1000"
        client.create(PODS, pod("web-1", script), NAMESPACE)
        until(lambda: "web-1 main: third\n" in said.read_text())
        assert "web-1 main: second\n" in said.read_text()
    finally:
        process.kill()
        process.wait(30)
