"""The unmodified dra-example-driver, a Go program, beside processes of ours.

`DRALAB_EXAMPLE_DRIVER` names the binary of its kubelet plugin (v0.4.0), or it is on the PATH.
"""

import os
import re
import shutil
from pathlib import Path

SHARED = Path(__file__).parents[1] / ".." / "shared" / "testdata"
NAME = "gpu.example.com"
_PATH = os.environ.get("DRALAB_EXAMPLE_DRIVER") or shutil.which("dra-example-kubeletplugin")
BINARY = Path(_PATH) if _PATH and Path(_PATH).exists() else None
MISSING = (
    "no dra-example-kubeletplugin on the PATH, and DRALAB_EXAMPLE_DRIVER names none "
    "(tools/build_clients.py builds it)"
)


def start(lab, node):
    """Run it as the process `go` of a `Processes`, with two GPUs on a node."""
    kubelet = lab.root / "k"
    # The plugin makes no directory of its own.
    (kubelet / "plugins" / NAME).mkdir(parents=True, exist_ok=True)
    (lab.root / "cdi").mkdir(exist_ok=True)
    lab.run(
        "go",
        [
            BINARY,
            f"--kubeconfig={lab.kubeconfig}",
            f"--cdi-root={lab.root / 'cdi'}",
            f"--kubelet-registrar-directory-path={kubelet / 'plugins_registry'}",
            f"--kubelet-plugins-directory-path={kubelet / 'plugins'}",
            "--num-devices=2",
            "--gpu-device-status",
        ],
        # It tells containers the node's name by this variable alone, not by --node-name.
        NODE_NAME=node,
    )


def gpus(log):
    """Return the GPUs that a log names, as the end-to-end suite of the example driver finds them."""
    return re.findall(r'^declare -x GPU_DEVICE_[A-Z0-9_]+="(gpu-.+)"$', log, re.MULTILINE)


def variable(log, name):
    """Return the value of an exported variable."""
    found = re.findall(rf'^declare -x {name}="(.+)"$', log, re.MULTILINE)
    assert len(found) == 1, (name, log)
    return found[0]


def of_gpu(log, gpu, name):
    """Return a property of a GPU in a log."""
    own = gpu.removeprefix("gpu-").upper().replace("-", "_")
    return variable(log, f"GPU_DEVICE_{own}_{name}")
