"""How other people's operators are started: programs as they are published, and their manifests.

Go modules come from the module proxy and are built as they are (minutes, the first time);
DRALAB_OPERATORS names a folder of programs that were built before. Python's come from PyPI.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

import gomodules

KUBECTL = shutil.which(os.environ.get("DRALAB_KUBECTL", "kubectl"))
HELM = shutil.which(os.environ.get("DRALAB_HELM", "helm"))


@pytest.fixture
def kubectl():
    """The path of kubectl. Skips where there is none."""
    if KUBECTL is None:
        pytest.skip("no kubectl; DRALAB_KUBECTL names one")
    return KUBECTL


@pytest.fixture
def apply(kubectl, kubeconfig):
    """Apply manifests as a person would: a text, objects, a file or a folder."""

    def apply(what):
        text = yaml.safe_dump_all(what) if isinstance(what, list) else what
        place = "-" if isinstance(text, str) else str(what)
        text = text if isinstance(text, str) else None
        words = [kubectl, "--kubeconfig", str(kubeconfig), "apply", "--server-side", "-f", place]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return apply


@pytest.fixture
def helm(kubeconfig, tmp_path):
    """Run helm with files of the test's own; return how it ended."""
    if HELM is None:
        pytest.skip("no helm; DRALAB_HELM names one")
    homes = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}

    def run(*words):
        return subprocess.run(
            [HELM, *words],
            env={**os.environ, **homes, "KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def start(kubeconfig, tmp_path):
    """Start an operator with the cluster's kubeconfig; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(*words, **environment):
            log = stack.enter_context((tmp_path / f"{Path(words[0]).name}.log").open("w+"))
            process = subprocess.Popen(
                [str(word) for word in words],
                env={**os.environ, "KUBECONFIG": str(kubeconfig), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.callback(lambda: sys.stdout.write(Path(log.name).read_text()[-4000:]))

        yield start


@pytest.fixture(scope="session")
def operator(tmp_path_factory):
    """Return an operator's sources and its program, by its name. Skips where they can't be had."""
    return lambda name: gomodules.operator(name, tmp_path_factory)


@pytest.fixture(scope="session")
def sources_of():
    """Return the folder of a Go module, by its path and version. Skips where it can't be had."""
    return gomodules.sources


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Return the folder of programs of PyPI packages, installed apart. Skips without an index.

    DRALAB_OPERATORS may hold it, by the name of the first package.
    """

    def installed(*packages):
        name = packages[0].partition("=")[0]
        ready = Path(os.environ.get("DRALAB_OPERATORS", "")) / name / "bin"
        if ready.is_dir():
            return ready
        place = tmp_path_factory.mktemp("packages") / name
        venv.create(place, with_pip=True)
        words = [place / "bin/python", "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{name} can't be installed: {done.stderr.strip()[-300:]}")
        return place / "bin"

    return installed
