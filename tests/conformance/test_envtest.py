"""A suite that uses envtest, unmodified, with `dralab envtest path` in place of its binaries."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dralab.api.releases import versions

SOURCE = Path(__file__).parent / "envtest"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        "DRALAB_ENVTEST" not in os.environ and shutil.which("go") is None,
        reason="Go is not installed, and DRALAB_ENVTEST names no suite",
    ),
]


@pytest.fixture(scope="session")
def suite(tmp_path_factory):
    """The suite as a binary; DRALAB_ENVTEST names one that was built before."""
    if ready := os.environ.get("DRALAB_ENVTEST"):
        return Path(ready)
    fetched = subprocess.run(
        ["go", "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"the Go modules cannot be had: {fetched.stderr.strip().splitlines()[-1]}")
    target = tmp_path_factory.mktemp("envtest") / "suite"
    subprocess.run(["go", "test", "-c", "-vet=off", "-o", str(target), "."], cwd=SOURCE, check=True)
    return target


@pytest.mark.parametrize("release", versions())
def test_a_suite_of_kubebuilder_passes(suite, tmp_path, release):
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    folder = subprocess.run(
        [sys.executable, "-m", "dralab", "envtest", "use", release, "-p", "path"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    done = subprocess.run(
        [str(suite), "-test.v"],
        env={**environment, "KUBEBUILDER_ASSETS": folder},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "--- PASS: TestSuite" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
