"""The unmodified kube-scheduler and kube-controller-manager, as processes beside a server.

`DRALAB_KUBE_SCHEDULER`, `DRALAB_KUBE_CONTROLLER_MANAGER` and `DRALAB_NODE_REASONS` name the binaries,
or they are on the PATH. The last is kube-scheduler with a plugin that tells why each node is refused.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCHEDULER = "kube-scheduler"
MANAGER = "kube-controller-manager"
REASONS = "nodereasons"
NEWEST = "kube-scheduler-1.37"
# With the provider kwok: `go build -tags kwok`.
AUTOSCALER = "cluster-autoscaler"
# With the provider kwok: the package `kwok` of sigs.k8s.io/karpenter.
KARPENTER = "karpenter-kwok"
VARIABLES = {
    SCHEDULER: "DRALAB_KUBE_SCHEDULER",
    MANAGER: "DRALAB_KUBE_CONTROLLER_MANAGER",
    REASONS: "DRALAB_NODE_REASONS",
    NEWEST: "DRALAB_KUBE_SCHEDULER_1_37",
    AUTOSCALER: "DRALAB_CLUSTER_AUTOSCALER",
    KARPENTER: "DRALAB_KARPENTER_KWOK",
}
PATIENCE = 60
# Seconds until an idle node goes; longer where the tests of autoscalers run under the clock.
IDLE = "DRALAB_TEST_IDLE_SECONDS"
# What is off in 1.36 unless one asks: pods that are scheduled together, and their claims.
GATES = ("GenericWorkload", "GangScheduling", "DRAWorkloadResourceClaims")


def found(name: str) -> str | None:
    """Return where a program is, or None."""
    path = os.environ.get(VARIABLES[name]) or shutil.which(name)
    return path if path and Path(path).exists() else None


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip tests where a program is missing, and say which."""
    missing = [name for name in names if found(name) is None]
    return pytest.mark.skipif(
        bool(missing),
        reason="; ".join(
            f"no {name} on the PATH, and {VARIABLES[name]} names none" for name in missing
        ),
    )


@contextmanager
def running(
    name: str, folder: Path, *arguments: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; the end of its log is shown where a test fails."""
    path = folder / f"{name}.log"
    with path.open("w") as log:
        process = subprocess.Popen(
            [found(name) or name, *arguments], stdout=log, stderr=log,
            env={**os.environ, **environment},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
        sys.stdout.write(path.read_text()[-6000:])


@contextmanager
def scheduler(
    kubeconfig: Path, folder: Path, *, gates: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A kube-scheduler that waits to be the leader, as it does where there are several."""
    config = folder / "scheduler.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        f"clientConnection: {{kubeconfig: {kubeconfig}}}\n"
        "leaderElection: {leaderElect: true}\n"
    )
    arguments = [f"--config={config}", "--secure-port=0", *_gates(gates)]
    with running(SCHEDULER, folder, *arguments) as process:
        yield process


@contextmanager
def controller_manager(
    kubeconfig: Path, folder: Path, *, gates: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A kube-controller-manager with all controllers that are on by default."""
    arguments = [f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=true"]
    with running(MANAGER, folder, *arguments, *_gates(gates)) as process:
        yield process


def _gates(names: tuple[str, ...]) -> list[str]:
    return [f"--feature-gates={','.join(f'{name}=true' for name in names)}"] if names else []
