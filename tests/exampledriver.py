"""The unmodified dra-example-driver, a Go program, beside processes of ours.

`DRALAB_EXAMPLE_DRIVER` names the binary of its kubelet plugin (v0.4.0), or it is on the PATH.
"""

import os
import shutil
from pathlib import Path

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
