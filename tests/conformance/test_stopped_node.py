"""A node whose process is stopped (SIGSTOP) while its pods are force-deleted, and goes on."""

import os
import signal
from pathlib import Path

import pytest

from dralab.runtime.resources import CLAIM_TEMPLATES, CLAIMS, PODS
from processes import TEMPLATE, Processes

pytestmark = pytest.mark.conformance
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 8}}
ALL_DEVICES = {**TEMPLATE, "spec": {"spec": {"devices": {"requests": [REQUEST]}}}}
SCRIPT = "echo $$$$; exec sleep 9999"  # Kubernetes makes $$ of it


def pod(name):
    container = {
        "name": "c",
        "image": "x",
        "command": ["sh", "-c", SCRIPT],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    claim = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [claim],
        },
    }


def test_processes_of_force_deleted_pods_end_when_their_node_goes_on():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    with Processes() as lab:
        lab.dralab("node", "node", "--name", "n1", *lab.shared, "--runtime", "process")
        lab.driver("gpu", "n1")
        lab.client.create(CLAIM_TEMPLATES, ALL_DEVICES, "default")
        lab.client.create(PODS, pod("old"), "default")
        number = lab.until(lambda: logged(lab, "old"))
        node = lab.running["node"]
        node.send_signal(signal.SIGSTOP)
        try:
            lab.client.delete(PODS, "old", "default", options={"gracePeriodSeconds": 0})
            lab.until(lambda: not lab.client.list(CLAIMS, "default").items)
            # The devices are given away while their user runs.
            lab.client.create(PODS, pod("new"), "default")
            lab.until(lambda: allocated(lab))
            assert runs(number)
        finally:
            node.send_signal(signal.SIGCONT)
        lab.until(lambda: not runs(number))
        successor = lab.until(lambda: logged(lab, "new"))
        assert runs(successor)


def logged(lab, name):
    """Return the process number that a pod's container has written; 0 before that."""
    for log in (lab.root / "k" / "logs").glob(f"default_{name}_*/c/0.log"):
        for line in log.read_text().splitlines():
            return int(line.split(" ", 3)[3])
    return 0


def allocated(lab):
    return [c for c in lab.client.list(CLAIMS, "default").items if c["status"].get("allocation")]


def runs(number):
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
