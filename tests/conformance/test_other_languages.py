"""Clients of other languages, unmodified, at their main job: each prints "ok NAME" for a scenario.

`tools/build_clients.py FOLDER fabric8 javaclient clientnode kubers` builds their programs; the
variable DRALAB_LANGUAGES names that folder. Otherwise they are built here, in some minutes.
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import PROCESS, NodeOptions, Nodes

PLACE = Path(__file__).parent / "languages"
TOOL = Path(__file__).parents[2] / "tools" / "build_clients.py"
BUILD = 1800
pytestmark = pytest.mark.conformance
# name: (the programs that build and run it, its command, its scenarios)
JAVA = ("java", "-cp", "{built}/lib/*", "{built}/Scenario.java", "{place}")
CLIENTS = {
    "fabric8": (
        ("java", "mvn"),
        JAVA,
        ("crud", "watch", "informer", "leader election", "logs", "exec", "copy"),
    ),
    "javaclient": (
        ("java", "mvn"),
        JAVA,
        ("crud", "watch", "informer", "leader election", "logs", "exec", "copy", "port-forward"),
    ),
    "clientnode": (
        ("node", "npm"),
        ("node", "{built}/scenario.mjs"),
        ("crud", "informer", "pod", "logs", "exec", "port-forward"),
    ),
    "kubers": (
        ("cargo",),
        ("{built}/installed/bin/kubers",),
        ("crud", "watch", "controller", "logs", "exec"),
    ),
}


@pytest.fixture
def cluster():
    nodes = Nodes(NodeOptions(nodes=1, runtime=PROCESS))
    with Cluster(Options(tls=True), components=[ControlPlane(), nodes]) as found:
        yield found


def built(name, needed, folders):
    """Return the folder of a client's program. Skips where it can't be built."""
    missing = [each for each in needed if shutil.which(each) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    ready = Path(os.environ.get("DRALAB_LANGUAGES", "")) / name
    if "DRALAB_LANGUAGES" in os.environ and ready.is_dir():
        return ready
    place = folders.mktemp("languages")
    done = subprocess.run(
        [sys.executable, str(TOOL), str(place), name],
        capture_output=True, text=True, timeout=BUILD, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"{name} can't be built: {done.stderr.strip().splitlines()[-1]}")
    return place / name


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_another_language_does_its_job(cluster, name, tmp_path, tmp_path_factory):
    needed, command, scenarios = CLIENTS[name]
    folder = built(name, needed, tmp_path_factory)
    done = subprocess.run(
        [each.format(built=folder, place=tmp_path) for each in command],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"ok {each}" for each in scenarios], done.stderr
    assert done.returncode == 0


def ansible_playbook():
    """Return the program, with the collection kubernetes.core; it is in PyPI's `ansible`."""
    named = os.environ.get("DRALAB_ANSIBLE") or shutil.which("ansible-playbook")
    if named is None:
        pytest.skip("ansible is not installed, and DRALAB_ANSIBLE names no ansible-playbook")
    return named


def test_ansible_runs_its_playbook(cluster, tmp_path):
    program = ansible_playbook()
    content = random.Random(1).randbytes(1 << 20)
    (tmp_path / "here").write_bytes(content)
    done = subprocess.run(
        [program, "-i", "localhost,", "-c", "local", "-e", f"place={tmp_path}",
         str(PLACE / "ansible" / "playbook.yaml")],
        env={**os.environ, "K8S_AUTH_KUBECONFIG": str(cluster.kubeconfig),
             "ANSIBLE_HOME": str(tmp_path / "ansible"), "ANSIBLE_LOCALHOST_WARNING": "false"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "failed=0" in done.stdout
    assert (tmp_path / "there").read_bytes() == content
    assert (tmp_path / "back").read_bytes() == content
