"""What `make release` writes, from a clone of the last commit: each file used in an empty place."""

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import yaml

from dralab import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.conformance


def run(*words, cwd=None, path=None, home=None):
    """Run a program; return its output, and fail with all that it said."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"} if path else {}
    env |= {"HOME": str(home)} if home else {}
    words = list(map(str, words))
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    pytest.importorskip("build", reason="`pip install --group release`")
    clone = tmp_path_factory.mktemp("release") / "dralab"
    run("git", "clone", "--quiet", ROOT, clone)
    run(sys.executable, "tools/release.py", cwd=clone)
    return clone / "dist"


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory):
    """Return a function that installs a file in an environment of its own, and returns its bin."""
    made = {}

    def install(name):
        if name not in made:
            place = tmp_path_factory.mktemp("env")
            venv.create(place, with_pip=True)
            run(place / "bin/python", "-m", "pip", "install", "--quiet", dist / name, cwd=place)
            made[name] = place / "bin"
        return made[name]

    return install


WHEEL = f"dralab-{__version__}-py3-none-any.whl"
SOURCE = f"dralab-{__version__}.tar.gz"
KREW = f"kubectl-dra-{__version__}.tar.gz"


def test_a_release_has_these_files(dist):
    page = (ROOT / "docs/reference/release.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w.-]+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in dist.iterdir())
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)


@pytest.mark.parametrize("name", [WHEEL, SOURCE])
def test_an_archive_is_installed_where_nothing_is(installed, name, tmp_path):
    bin_ = installed(name)
    shown = run(bin_ / "dralab", "--version", cwd=tmp_path, home=tmp_path)
    assert shown == f"dralab, version {__version__}\n"
    shown = run(bin_ / "dralab", "demo", cwd=tmp_path, home=tmp_path)
    assert "gpu-1" in shown


def test_the_sbom_names_what_is_installed(dist, installed):
    listed = json.loads(run(installed(WHEEL) / "python", "-m", "pip", "list", "--format", "json"))
    names = {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in listed}
    sbom = json.loads((dist / "sbom.json").read_text())
    assert sbom["metadata"]["component"]["version"] == __version__
    assert {each["name"] for each in sbom["components"]} == names - {"dralab", "pip", "setuptools"}


def test_the_plugin_of_krew_asks_with_the_installed_dralab(dist, installed, tmp_path):
    with tarfile.open(dist / KREW) as tar:
        tar.extractall(tmp_path, filter="data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LICENSE", WHEEL, "kubectl-dra"]
    help_ = run(tmp_path / "kubectl-dra", "why", "--help", path=installed(WHEEL), home=tmp_path)
    assert "Explain why" in help_


def test_package_managers_get_addresses_and_digests_of_these_files(dist):
    sums = dict(reversed(line.split()) for line in (dist / "SHA256SUMS").read_text().splitlines())
    (platform,) = yaml.safe_load((dist / "dra.yaml").read_text())["spec"]["platforms"]
    assert platform["uri"].endswith(f"/{KREW}")
    assert platform["sha256"] == sums[KREW]
    formula = (dist / "dralab.rb").read_text()
    assert f'/{SOURCE}"' in formula
    assert f'sha256 "{sums[SOURCE]}"' in formula


def test_manual_pages_of_the_wheel_are_for_all_its_commands(installed, tmp_path):
    run(installed(WHEEL) / "dralab", "help", "man", tmp_path)
    pages = {path.name for path in tmp_path.glob("*.1")}
    assert len(pages) > 40
    assert {"dralab.1", "dralab-up.1", "dralab-explain.1"} <= pages


def test_the_source_archive_has_charts_and_no_caches(dist):
    with tarfile.open(dist / SOURCE) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"Containerfile", "LICENSE", "charts/dralab/Chart.yaml", "docs/README.md"} <= names
    assert not [
        name for name in names if "__pycache__" in name or name.startswith((".venv", "dist"))
    ]
