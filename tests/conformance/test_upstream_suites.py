"""Other people's suites against a server of ours, whole: what real servers pass, it passes."""

import subprocess
import sys

import pytest

import upstreamsuites
import waiting

pytestmark = pytest.mark.conformance


@pytest.fixture
def server(tmp_path):
    """A server as envtest starts one: all that a control plane has, and no controllers."""
    kubeconfig, log = tmp_path / "config", tmp_path / "server.log"
    command = [
        sys.executable, "-m", "dralab", "apiserver", "--data", ":memory:", "--listen",
        "127.0.0.1:0", "--kubeconfig", str(kubeconfig), "--api-versions", "default",
        "--disable-admission-plugins", "ServiceAccount",
    ]  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        waiting.until(lambda: "ready: " in log.read_text())
        yield kubeconfig
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.parametrize(("name", "tests"), [("client", 296), ("cache", 276)])
def test_the_tests_of_controller_runtime_pass(server, tmp_path, tmp_path_factory, name, tests):
    full = f"controller-runtime-{name}"
    found = upstreamsuites.run(
        upstreamsuites.suite(full, tmp_path_factory),
        upstreamsuites.folder_of(full),
        tmp_path / "report.json",
        USE_EXISTING_CLUSTER="true",
        KUBECONFIG=str(server),
    )
    assert upstreamsuites.failures(found) == {}
    assert len(found) == tests


def test_envtests_own_tests_pass(tmp_path, tmp_path_factory):
    words = [sys.executable, "-m", "dralab", "envtest", "use", "--bin-dir", str(tmp_path), "-p"]
    folder = subprocess.run([*words, "path"], capture_output=True, text=True, check=True)
    found = upstreamsuites.run(
        upstreamsuites.suite("controller-runtime-envtest", tmp_path_factory),
        upstreamsuites.folder_of("controller-runtime-envtest"),
        tmp_path / "report.json",
        KUBEBUILDER_ASSETS=folder.stdout.strip(),
    )
    assert upstreamsuites.failures(found) == {}
    assert len(found) == 28
