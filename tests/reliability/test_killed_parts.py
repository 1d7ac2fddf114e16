"""Lives of pods with devices while server, scheduler, controllers, nodes and drivers, each a
process of its own, are killed one by one at random moments and started again.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest

from dralab.runtime.kubeconfig import read
from reliability.lives import Asked, Watcher, live

pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

DEVICES_OF_A_NODE = 8
SEEDS = [int(text) for text in os.environ.get("DRALAB_SEEDS", "1").split(",")]


class Parts(Asked):
    """A cluster of processes, in a directory whose paths are short enough for sockets."""

    def __init__(self, nodes, runtime):
        super().__init__()
        self.place = tempfile.TemporaryDirectory(prefix="lab")
        self.root = Path(self.place.name)
        self.host = f"127.0.0.1:{free_port()}"
        self.nodes = [f"n{number}" for number in range(nodes)]
        config = str(self.root / "config")
        serve = ["--listen", self.host, "--data", str(self.root / "data")]
        commands = {
            "server": ["apiserver", *serve],
            "scheduler": ["scheduler", "--no-leader-elect"],
            "controllers": ["controllers"],
        }
        for name in self.nodes:
            own = self.root / name
            where = ["--root", str(own / "k"), "--cdi-root", str(own / "cdi")]
            commands[name] = ["node", "--name", name, "--runtime", runtime, *where]
            commands[f"driver {name}"] = ["driver", "run", "fake", "--node", name, *where]
        self.commands = {
            key: [sys.executable, "-m", "dralab", *words, "--kubeconfig", config]
            for key, words in commands.items()
        }
        self.running = {}
        self.killed = []
        self.wrong = []
        self.hands = threading.RLock()
        self.supervisor = threading.Thread(target=self.supervise, daemon=True)

    def start(self, key, *, wait=False):
        """Start a part; a server is ready then, others only where that is waited for."""
        with self.hands, (self.root / f"{key}.log").open("ab") as log:
            own = self.root / key / "tmp"  # where pods' processes have their directories
            own.mkdir(parents=True, exist_ok=True)
            process = self.running[key] = subprocess.Popen(
                self.commands[key],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.root,
                env=os.environ | {"TMPDIR": str(own)},
            )
        if key == "server" or wait:
            line = process.stdout.readline()
            assert key != "server" or line.startswith(b"ready"), self.said()
        if key == "server":
            self.access = read(self.root / "config")
            self.there.set()

    def kill(self, key):
        if key == "server":
            self.there.clear()
        with self.hands:
            process = self.running.pop(key)
            process.kill()
            process.wait()
            process.stdout.close()
        self.kills += 1
        self.killed.append(key)

    def supervise(self):
        """Start again what ends because it began while no server was there; nothing else may."""
        pause = threading.Event()
        while not self.over:
            with self.hands:
                for key, process in list(self.running.items()):
                    if process.poll() is not None:
                        process.stdout.close()
                        log = (self.root / f"{key}.log").read_text()
                        last = log.strip().rpartition("\n")[2]
                        if process.returncode != 2 or "does not answer" not in last:
                            self.wrong.append(f"{key} ended with {process.returncode}: {last}")
                        self.start(key)
            self.check()
            pause.wait(0.1)

    def said(self):
        """Return what the parts have complained of."""
        return "".join(
            f"--- {path.name}\n{path.read_text()[-2_000:]}"
            for path in sorted(self.root.glob("*.log"))
        )

    def held(self, name):
        """Return the claims that a node holds, as its checkpoint has them."""
        file = self.root / name / "k" / "dra_manager_state"
        if not file.exists():
            return []  # it never had a pod with claims
        return json.loads(json.loads(file.read_text())["Data"])["ClaimInfoStateList"]

    def check(self):
        """Note devices that a node has prepared for two claims at a time."""
        for name in self.nodes:
            given = Counter(
                device["DeviceName"]
                for claim in self.held(name)
                for driver in claim["DriverState"].values()
                for device in driver["Devices"]
            )
            twice = [device for device, count in given.items() if count > 1]
            if twice:
                self.wrong.append(f"{name} has prepared {twice} twice")

    def left(self):
        """Return what is still there of pods: in checkpoints, CDI files, directories, processes."""
        found = []
        for name in self.nodes:
            place = self.root / name / "tmp"
            found += [str(path) for path in place.glob("dralab-pods-*/*-*")]
            found += [f"process {number}" for number in processes_in(place)]
            files = (self.root / name / "cdi").glob("*")
            found += [path.name for path in files if "common" not in path.name]
            found += [claim["ClaimName"] for claim in self.held(name)]
        return found

    def __enter__(self):
        for key in self.commands:
            self.start(key)
        self.supervisor.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.there.set()
        if self.supervisor.is_alive():
            self.supervisor.join()
        for process in self.running.values():
            process.kill()
            process.wait()
            process.stdout.close()
        self.place.cleanup()


def processes_in(place):
    """Return the numbers of processes that work somewhere below a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(place):
                found.append(int(entry.name))
    return found


def free_port():
    """Return a port below those that the system gives to whoever connects."""
    dice = random.Random(os.getpid())
    while True:
        port = dice.randrange(20_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


def lives(total, *, nodes, seed, between, weights, each, runtime="simulated"):
    """Let pods live while parts are killed, each kind as often as `weights` says, and again."""
    pause, bag = threading.Event(), []
    with Parts(nodes, runtime) as lab:
        watcher = Watcher(lab)
        watcher.start()

        def kill(chance):
            pause.wait(chance.uniform(*between))
            if not bag:
                bag.extend(kind for kind, count in weights.items() for _ in range(count))
                chance.shuffle(bag)
            kind = bag.pop()
            name = chance.choice(lab.nodes)
            keys = {"node": [name], "driver": [f"driver {name}"], "both": [name, f"driver {name}"]}
            for key in keys.get(kind, [kind]):
                lab.kill(key)
            pause.wait(chance.uniform(0, 0.5))
            for key in keys.get(kind, [kind]):
                # A node's start takes the slices away: a driver that begins after it publishes
                # them at once, one that is there already does so after 30 seconds.
                lab.start(key, wait=kind == "both" and key == name)

        try:
            least = sum(weights.values()) + weights.get("both", 0)
            live(lab, watcher, total, seed=seed, kill=kill, each=each, least=least)
            pause.wait(1)
            for _ in range(140):  # what nobody asks for any more goes within a minute
                if not (left := lab.left()):
                    break
                pause.wait(0.5)
            assert left == []
            assert lab.wrong == []
        except AssertionError:
            print(lab.said())  # noqa: T201 - why
            raise
        print(  # noqa: T201 - figures, shown with -s
            f"{lab.kills} kills, {watcher.events} states of claims, {watcher.gaps} lists, "
            f"{watcher.most} of {DEVICES_OF_A_NODE * nodes} devices in use at most"
        )
        return lab


@pytest.mark.conformance
@pytest.mark.parametrize("runtime", ["simulated", "process"])
@pytest.mark.parametrize("seed", SEEDS)
def test_500_pods_end_as_they_should_while_every_part_is_killed(seed, runtime):
    weights = {"server": 3, "scheduler": 3, "controllers": 3, "driver": 3, "node": 1, "both": 2}
    lives(500, nodes=4, seed=seed, between=(0.2, 3), weights=weights, each=0.3, runtime=runtime)


@pytest.mark.conformance
def test_pods_end_as_they_should_while_every_part_is_killed():
    weights = {"server": 1, "scheduler": 1, "controllers": 1, "both": 1}
    lives(20, nodes=1, seed=7, between=(0.2, 0.8), weights=weights, each=0.5)
