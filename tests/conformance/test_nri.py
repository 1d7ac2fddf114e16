"""A plugin made with NRI's Go library, on a node of dralab. Needs Go and its modules."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dralab.runtime.resources import PODS
from processes import Processes

SOURCE = Path(__file__).parent / "nriplugin"
READY = os.environ.get("DRALAB_NRI_PLUGIN")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not READY and shutil.which("go") is None,
        reason="Go is not installed, and DRALAB_NRI_PLUGIN names no program",
    ),
]
LIFE = [
    "Synchronize 0 0",
    "RunPodSandbox p",
    "CreateContainer c true",
    "StopContainer c",
    "RemoveContainer c",
    "StopPodSandbox p",
    "RemovePodSandbox p",
]


def built(target, version):
    """Build the plugin with one version of the library."""
    shutil.copytree(SOURCE, target)
    for command in (
        ["go", "mod", "edit", f"-require=github.com/containerd/nri@{version}"],
        ["go", "mod", "tidy"],
        ["go", "build", "-o", "plugin", "."],
    ):
        done = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"it cannot be built: {done.stderr.strip().splitlines()[-1]}")
    return target / "plugin"


# Before 0.12, most events came as one call, StateChange.
@pytest.mark.parametrize("version", ["v0.12.5", "v0.11.0"])
def test_a_plugin_of_the_library_sees_and_changes_a_pod(tmp_path, version):
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    program = Path(READY) if READY else built(tmp_path / "source", version)
    with Processes() as lab:
        lab.dralab("node", "node", "--name", "n1", *lab.shared, "--runtime", "process")
        socket = lab.root / "k" / "nri" / "nri.sock"
        lab.until(socket.exists)
        lab.run("plugin", [program, socket])
        lab.until(lambda: "Synchronize 0" in lab.said("plugin"))
        script = "echo $FROM_NRI; grep Cpus_allowed_list /proc/self/status; sleep 1d"
        container = {"name": "c", "image": "x", "command": ["sh", "-c", script]}
        spec = {
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        lab.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
        (log,) = lab.until(lambda: list((lab.root / "k" / "logs").glob("default_p_*/c/0.log")))
        lab.until(lambda: "Cpus_allowed_list" in log.read_text())
        lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
        assert lines == ["p", "Cpus_allowed_list:\t0"]
        lab.client.delete(PODS, "p", "default")
        lab.until(lambda: "RemovePodSandbox p" in lab.said("plugin"))
        said = [line for line in lab.said("plugin").splitlines() if not line.startswith("time=")]
        assert said == LIFE
