"""`dralab envtest`: what envtest starts in place of kube-apiserver and etcd."""

import os
import platform
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import waiting
from dralab.api.releases import versions
from dralab.apiserver.http.connections import tls
from dralab.cli._kube_apiserver import DEFAULTS, UnknownFlag, arguments_of
from dralab.cli.main import main
from dralab.kernel.clock import WallClock
from waiting import PATIENCE


def run(*words):
    done = CliRunner().invoke(main, ["envtest", *words])
    return done.exit_code, done.output


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def folder():
    code, output = run("path")
    assert code == 0
    return output.strip()


def place_of(release):
    """Where setup-envtest keeps a release below its folder, on this machine."""
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"k8s/{versions()[release][1:]}-{sys.platform}-{arch}"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_the_folder_has_the_three_programs(folder, tmp_path):
    assert folder == str(tmp_path / "data/dralab/envtest" / place_of("1.36"))
    programs = sorted(Path(folder).iterdir())
    assert [each.name for each in programs] == ["etcd", "kube-apiserver", "kubectl"]
    assert all(os.access(each, os.X_OK) for each in programs)
    before = programs[0].stat().st_ino
    run("path")
    assert programs[0].stat().st_ino == before, "a test may be starting it"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-p", "path"], "{folder}"),
        (["1.36", "-p", "path"], "{folder}"),
        (["1.36.x!", "-p", "env"], "export KUBEBUILDER_ASSETS={folder}"),
        (["latest", "-i"], "Version: 1.36.2\nPath: {folder}"),
    ],
)
def test_use_prints_what_setup_envtest_prints(folder, words, shown):
    assert run("use", *words) == (0, shown.format(folder=folder) + "\n")


@pytest.mark.parametrize("release", versions())
def test_each_release_is_where_setup_envtest_looks_for_it(release, tmp_path):
    place = tmp_path / "bin"
    there = place / place_of(release)
    assert run("use", release, "--bin-dir", str(place), "-p", "path") == (0, f"{there}\n")
    assert f"--emulated-version {release} " in (there / "kube-apiserver").read_text()


def test_path_and_use_print_the_same_folder_of_a_release():
    shown = run("path", "--kubernetes-version", "1.34")
    assert shown[1].endswith(place_of("1.34") + "\n")
    assert run("use", "1.34", "-p", "path") == shown


def test_a_version_that_no_release_has_is_refused():
    code, output = run("use", "1.31")
    assert code == 2
    assert output.startswith("Error: dralab serves Kubernetes 1.37.2, 1.36.2, ")
    assert output.endswith(", not 1.31\n")


def test_flags_of_a_kube_apiserver_are_taken():
    given = [
        "--cert-dir=/c", "--allow-privileged=true", "--etcd-servers=http://127.0.0.1:1",
        "--disable-admission-plugins", "ServiceAccount", "--secure-port=2", "--v=4",
        "--service-account-issuer=a", "--service-account-issuer=b",
    ]  # fmt: skip
    known = ["disable-admission-plugins", "secure-port", "service-account-issuer"]
    assert arguments_of(given, known) == [
        *DEFAULTS,
        "--disable-admission-plugins", "ServiceAccount", "--secure-port", "2",
        "--service-account-issuer", "a", "--service-account-issuer", "b",
        "--tls-cert-file", "/c/apiserver.crt", "--tls-private-key-file", "/c/apiserver.key",
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["--egress-selector-config-file=x", "positional", "-x"])
def test_a_flag_that_would_be_missed_is_refused(word):
    with pytest.raises(UnknownFlag):
        arguments_of([word], [])


def test_help_names_the_flags_that_envtest_looks_for(folder):
    for name, flag in (("kube-apiserver", "--secure-port"), ("etcd", "--listen-client-urls")):
        done = subprocess.run(
            [f"{folder}/{name}", "--help"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, f"{flag}\n")


def test_the_server_refuses_an_unknown_flag_in_one_line(folder):
    words = [f"{folder}/kube-apiserver", "--egress-selector-config-file=x"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: --egress-selector-config-file is not a flag of dralab's")
    assert done.stderr.count("\n") == 1


def answers(url, context=None):
    try:
        with urllib.request.urlopen(url, context=context) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return None
    except OSError:
        return None


def test_etcd_says_that_it_is_healthy(folder):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [f"{folder}/etcd", f"--listen-client-urls={url}", "--unsafe-no-fsync=true"]
    process = subprocess.Popen(words)
    try:
        assert waiting.until(lambda: answers(f"{url}/health")).startswith(b'{"health":"true"')
    finally:
        process.terminate()
        process.wait(30)


def test_kubectl_is_the_one_on_the_path(folder, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "kubectl").write_text('#!/bin/sh\necho "real $*"\n')
    (real / "kubectl").chmod(0o755)
    paths = f"{folder}:{real}:/usr/bin:/bin"
    words = [f"{folder}/kubectl", "get", "pods"]
    done = subprocess.run(words, env={"PATH": paths}, capture_output=True, text=True, check=False)
    assert done.stdout == "real get pods\n"


@pytest.mark.thorough
def test_the_server_starts_with_the_flags_of_envtest(folder, tmp_path):
    certificates = tmp_path / "certificates"
    made = tls.certificate(certificates, WallClock().now(), ["127.0.0.1"])
    shutil.copy(made.certificate, certificates / "apiserver.crt")
    shutil.copy(made.key, certificates / "apiserver.key")
    port = free_port()
    words = [
        f"{folder}/kube-apiserver", "--allow-privileged=true", "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1", f"--cert-dir={certificates}",
        f"--client-ca-file={certificates}/apiserver.crt",
        "--disable-admission-plugins=ServiceAccount", "--etcd-servers=http://127.0.0.1:1",
        f"--secure-port={port}", f"--service-account-issuer=https://127.0.0.1:{port}/",
        f"--service-account-key-file={certificates}/apiserver.crt",
        f"--service-account-signing-key-file={certificates}/apiserver.key",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]  # fmt: skip
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        found = waiting.until(lambda: answers(f"https://127.0.0.1:{port}/healthz", trusting))
        assert found == b"ok"
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
