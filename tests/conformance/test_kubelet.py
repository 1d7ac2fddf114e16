"""Drivers written with the SDK, called by the kubelet's own code. Needs Go and its modules."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dralab.objects.conditions import condition_of
from dralab.runtime.resources import CLAIMS, NODES, PODS, SLICES
from processes import Processes

SOURCE = Path(__file__).parent / "kubeletdra"
READY = os.environ.get("DRALAB_KUBELET_DRA")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not READY and shutil.which("go") is None,
        reason="Go is not installed, and DRALAB_KUBELET_DRA names no program",
    ),
]
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "10"}
FLICKERING = """
from dralab.contracts.plugin import DeviceHealth
from dralab.drivers.fake.gpu import FakeGpus


class Flickering(FakeGpus):
    def health(self):
        return [
            DeviceHealth(pool=self.node, device=d["name"], health="Unhealthy", message="too hot")
            for d in self.devices()
        ]
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The kubelet's code as a program; DRALAB_KUBELET_DRA names one that was built before."""
    if READY:
        return Path(READY)
    target = tmp_path_factory.mktemp("kubelet") / "kubeletdra"
    built = subprocess.run(
        ["go", "build", "-o", str(target), "."],
        cwd=SOURCE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        pytest.skip(f"it cannot be built: {built.stderr.strip().splitlines()[-1]}")
    return target


@pytest.fixture
def lab():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    with Processes() as running:
        node = running.client.create(NODES, {"metadata": {"name": "n1"}})
        ready = [{"type": "Ready", "status": "True", "reason": "Up", "message": "up"}]
        status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": ready}
        running.client.patch(NODES, "n1", {"status": status}, subresource="status")
        taints = [t for t in node["spec"].get("taints", ()) if "not-ready" not in t["key"]]
        running.client.patch(NODES, "n1", {"spec": {"taints": taints}})
        yield running


def test_the_kubelets_own_code_prepares_and_unprepares_through_a_driver_of_ours(lab, program):
    (lab.root / "flickering.py").write_text(FLICKERING)
    lab.driver("flickering:Flickering", "n1")
    lab.until(lambda: lab.client.list(SLICES).items, "driver")
    lab.create_pod()

    def bound():
        pod = lab.client.get(PODS, "job", "default")
        return (condition_of(pod, "PodScheduled") or {}).get("status") == "True"

    lab.until(bound)
    (claim,) = lab.client.list(CLAIMS).items
    uid = claim["metadata"]["uid"]
    kubelet = subprocess.Popen(
        [str(program), str(lab.kubeconfig), str(lab.root / "k"), "n1", "default/job"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = kubelet.stdout.readline()
        assert line, kubelet.stderr.read()
        own = f"k8s.gpu.example.com/gpu={uid}-gpu-0"
        assert json.loads(line) == {"prepared": [own, "k8s.gpu.example.com/gpu=common"]}
        assert lab.cdi() == [f"k8s.gpu.example.com-gpu_{uid}.yaml"]

        def health():
            kubelet.stdin.write("\n")
            kubelet.stdin.flush()
            (entry,) = json.loads(kubelet.stdout.readline())["status"]
            assert entry["name"] == "claim:gpu"
            (resource,) = entry["resources"]
            return resource if resource["health"] != "Unknown" else None

        resource = lab.until(health)
        assert resource == {"resourceID": own, "health": "Unhealthy", "message": "too hot"}
        last, errors = kubelet.communicate(timeout=60)
        assert json.loads(last) == {"unprepared": True}, errors
        assert kubelet.returncode == 0
        assert lab.cdi() == []
        assert "registered with the kubelet" in lab.said("driver")
    finally:
        kubelet.kill()
        kubelet.communicate()
