"""Unmodified client-go, as schedulers, controllers and drivers use it. Needs Go and its modules."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "clientgo"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        "DRALAB_CLIENT_GO" not in os.environ and shutil.which("go") is None,
        reason="Go is not installed, and DRALAB_CLIENT_GO names no program",
    ),
]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The scenarios as a binary; DRALAB_CLIENT_GO names one that was built before."""
    if ready := os.environ.get("DRALAB_CLIENT_GO"):
        return Path(ready)
    fetched = subprocess.run(
        ["go", "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"the Go modules cannot be had: {fetched.stderr.strip().splitlines()[-1]}")
    target = tmp_path_factory.mktemp("clientgo") / "clientgo"
    subprocess.run(["go", "build", "-o", str(target), "."], cwd=SOURCE, check=True)
    return target


def test_client_go_takes_the_server_for_a_real_one(program, kubeconfig):
    done = subprocess.run(
        [str(program), str(kubeconfig)], capture_output=True, text=True, timeout=300, check=False
    )
    lines = done.stdout.splitlines()
    assert not [line for line in lines if not line.startswith("ok ")], done.stdout + done.stderr
    assert len(lines) == 16
    assert done.returncode == 0
