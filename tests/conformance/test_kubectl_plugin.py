"""`kubectl dra …` with the real kubectl: it finds the plugin, and the plugin finds the cluster."""

import os
import shutil
import subprocess
import sys

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.snapshots.files import written
from dralab.cluster import Cluster
from realdump import stored

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
]


@pytest.fixture
def kubectl(tmp_path):
    objects = [
        worker("node-1"),
        *pool("gpus", device("d0"), node="node-1"),
        device_class("gpu"),
        claim("two", request("r0", "gpu", count=2), namespace="ml"),
        pod("waits", claims={"gpu": "two"}, namespace="ml"),
    ]
    snapshot = tmp_path / "a.snapshot"
    snapshot.write_bytes(written([stored(item, number) for number, item in enumerate(objects)]))
    plugin = tmp_path / "bin" / "kubectl-dra"
    plugin.parent.mkdir()
    program = "from dralab.cli.kubectl_dra import main; main()"
    plugin.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{program}' \"$@\"\n")
    plugin.chmod(0o755)
    with Cluster(snapshot=snapshot) as cluster:
        path = f"{plugin.parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}

        def run(*words):
            command = ["kubectl", *words]
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )

        yield run


def test_kubectl_finds_the_plugin(kubectl):
    assert "kubectl-dra" in kubectl("plugin", "list").stdout


def test_why_and_top_answer_for_the_cluster_of_kubectl(kubectl):
    assert kubectl("get", "pod", "waits", "-n", "ml").returncode == 0
    why = kubectl("dra", "why", "waits", "-n", "ml")
    assert why.returncode == 1, why.stderr
    assert "ml/waits waits" in why.stdout
    top = kubectl("dra", "top")
    assert top.returncode == 0, top.stderr
    assert "gpu.example.com" in top.stdout
