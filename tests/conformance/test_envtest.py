"""A suite that uses envtest, unmodified, with `dralab envtest path` in place of its binaries."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gomodules
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


def used(release, place):
    """Return the folder of a release, below another."""
    words = ["envtest", "use", release, "--bin-dir", str(place), "-p", "path"]
    done = subprocess.run(
        [sys.executable, "-m", "dralab", *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("release", versions())
def test_a_suite_of_kubebuilder_passes(suite, tmp_path, release):
    done = subprocess.run(
        [str(suite), "-test.v"],
        env={**os.environ, "KUBEBUILDER_ASSETS": used(release, tmp_path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "--- PASS: TestSuite" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("release", versions())
def test_setup_envtest_finds_what_is_there_and_downloads_nothing(
    tmp_path, tmp_path_factory, release
):
    _, program = gomodules.operator("setup-envtest", tmp_path_factory)
    folder = used(release, tmp_path)
    words = [str(program), "use", release, "--bin-dir", str(tmp_path), "-p", "path"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (folder, 0), done.stderr


def test_the_tests_of_a_kubebuilder_project_pass_unchanged(tmp_path, tmp_path_factory):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    _, program = gomodules.operator("kubebuilder", tmp_path_factory)
    project = tmp_path / "shop"  # the name of the project, which must be one of DNS
    project.mkdir()
    kind = ["--group", "shop", "--version", "v1", "--kind", "Order", "--make=false"]
    for words in (
        ["init", "--domain", "example.com", "--repo", "example.com/shop"],
        ["create", "api", *kind, "--resource", "--controller"],
        ["create", "webhook", *kind, "--defaulting", "--programmatic-validation"],
    ):
        subprocess.run([str(program), *words], cwd=project, check=True)
    used("1.34", project / "bin")
    done = subprocess.run(
        ["make", "test", "ENVTEST_K8S_VERSION=1.34"],
        cwd=project, capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("\nok  \t") == 2  # the controller's tests and the webhook's
