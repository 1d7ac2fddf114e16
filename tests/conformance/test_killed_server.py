"""`kill -9` of `dralab up` with pods that are processes: what it left is ended, then or later."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dralab.node import mount_namespaces
from dralab.node.container_volumes import SHARED_MEMORY
from dralab.node.network.namespaces import problem
from dralab.runtime.kubeconfig import read
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import PODS
from waiting import until

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        sys.platform != "linux" or os.getuid() != 0, reason="networks of pods need Linux and root"
    ),
    pytest.mark.skipif(
        sys.platform == "linux" and bool(problem() or mount_namespaces.problem()),
        reason="this machine allows no namespaces",
    ),
    pytest.mark.skipif(shutil.which("ip") is None, reason="`ip` (iproute2) is not installed"),
]
CIDR = "10.198.0.0/16"
# Each leaves its process group in another way; the second one its environment too.
DAEMONS = (
    "setsid sh -c 'exec sleep 77001' & "
    "setsid env -i sleep 77002 & "
    "echo secret > /memory/token; exec sleep 77003"
)
SLEEPS = ("77001", "77002", "77003")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "daemons"},
    "spec": {
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "command": ["sh", "-c", DAEMONS],
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
            }
        ],
    },
}


def commands():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().rstrip(b"\0").split(b"\0"))
    return found


def sleeping():
    known = [b"sleep"]
    return {each[1].decode() for each in commands() if each[:1] == known} & set(SLEEPS)


def guards(server):
    """Return the guards of a server: its children."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            parent = (path.parent / "stat").read_text().rpartition(") ")[2].split()[1]
            if b"orphan_guard.py" in path.read_bytes() and int(parent) == server.pid:
                found.add(int(path.parent.name))
    return found


def left(place):
    """What there is of a server: directories, control groups, interfaces."""
    found = [*place.glob("dralab-*"), *SHARED_MEMORY.glob("dralab-*")]
    groups = Path("/sys/fs/cgroup")
    found += [*groups.glob("dralab-*"), *groups.glob("*/dralab-*")]
    return [*found, *Path("/sys/class/net").glob("dra0ac60000")]


@contextmanager
def up(tmp_path):
    place, kubeconfig = tmp_path / "tmp", tmp_path / "kubeconfig"
    place.mkdir(exist_ok=True)
    command = [
        *(sys.executable, "-m", "dralab", "up", "--nodes", "1", "--data", ":memory:"),
        *("--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig)),
        *("--runtime", "process", "--mount-namespaces", "--root", str(tmp_path / "nodes")),
        *("--cluster-cidr", CIDR),
    ]
    env = os.environ | {"TMPDIR": str(place)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline().startswith("ready: ")
        yield server, kubeconfig, place
        server.kill()


@pytest.fixture
def running(tmp_path):
    if left(tmp_path):
        pytest.skip("another server runs on this machine, or was killed by another version")
    with up(tmp_path) as (server, kubeconfig, place):
        client = RemoteClient(read(kubeconfig))
        client.create(PODS, POD, namespace="default")
        until(lambda: sleeping() == set(SLEEPS))
        client.close()
        assert len(left(place)) >= 4
        yield server, place


def test_a_guard_ends_what_a_killed_server_leaves(running):
    server, place = running
    server.send_signal(signal.SIGKILL)
    server.wait()
    until(lambda: not sleeping() and not left(place))


def test_a_start_ends_what_a_server_left_that_was_killed_with_its_guard(running, tmp_path):
    server, place = running
    found = guards(server)
    assert found
    for guard in found:
        os.kill(guard, signal.SIGKILL)
    server.send_signal(signal.SIGKILL)
    server.wait()
    assert sleeping()
    old = set(left(place))
    with up(tmp_path):
        assert not sleeping()
        assert not old & (set(left(place)) - {Path("/sys/class/net/dra0ac60000")})
