"""500 lives of pods with devices, while the whole cluster is killed again and again.

Server, scheduler, controllers, kubelets and drivers are one process, `dralab up` with a data
directory; kill -9 takes all of them at whatever they are doing.
"""

import threading

import pytest

from reliability.lives import Asked, Watcher, live
from reliability.processes import ServerProcess

pytestmark = pytest.mark.conformance

NODES, DEVICES = 4, 32
TOTAL = 500


class Lab(Asked):
    """The cluster, killed and started again by whoever holds it."""

    def __init__(self, data, *options):
        super().__init__()
        self.data = data
        self.options = options
        self.server = None

    def start(self):
        options = ("--empty", "--nodes", str(NODES), "--driver", "fake", *self.options)
        self.server = ServerProcess(self.data, *options, command="up")
        self.host = self.server.host
        self.there.set()

    def kill(self):
        self.there.clear()
        self.server.kill()
        self.kills += 1


@pytest.mark.parametrize("seed", [2])
def test_pods_live_and_end_as_they_should_while_the_cluster_is_killed(tmp_path, seed):
    pause = threading.Event()
    lab = Lab(tmp_path / "data")
    lab.start()
    watcher = Watcher(lab)
    watcher.start()

    def kill(chance):
        pause.wait(chance.uniform(0.3, 4))
        lab.kill()
        pause.wait(chance.uniform(0, 0.3))
        lab.start()

    try:
        live(lab, watcher, TOTAL, seed=seed, kill=kill)
    finally:
        lab.over = True
        lab.server.kill()
    print(  # noqa: T201 - figures, shown with -s
        f"{lab.kills} kills, {watcher.events} states of claims, {watcher.gaps} lists, "
        f"{watcher.most} of {DEVICES} devices in use at most"
    )
    assert lab.kills >= 5
