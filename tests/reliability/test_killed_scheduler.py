"""A scheduler that is killed again and again while pods pour in, over the network."""

import random
import signal
import subprocess
import sys
import threading

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.cluster import Cluster
from dralab.components.control_plane import ControlPlane
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES

pytestmark = pytest.mark.conformance
TOTAL = 200
SCHEDULER = [sys.executable, "-m", "dralab", "scheduler"]


def test_no_device_is_given_twice_by_schedulers_that_are_killed(tmp_path):
    dice, pause = random.Random(1), threading.Event()
    with Cluster(components=[ControlPlane(without=["scheduler"])]) as cluster:
        client = cluster.client
        client.create(CLASSES, device_class("gpu", 'device.driver == "gpu.example.com"'))
        for number in range(20):
            name = f"n{number}"
            client.create(NODES, worker(name))
            # A patch: the controllers write to new nodes too.
            client.patch(NODES, name, {"status": worker(name)["status"]}, subresource="status")
            for item in pool(name, *(device(f"d{i}") for i in range(10)), node=name):
                client.create(SLICES, item)
        config = tmp_path / "config"
        cluster.write_kubeconfig(config)

        def start():
            return subprocess.Popen(
                [*SCHEDULER, "--no-leader-elect", "--kubeconfig", str(config)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

        process, kills = start(), 0
        try:
            for number in range(TOTAL):
                name = f"p{number}"
                client.create(CLAIMS, claim(name, request("r"), namespace="default"))
                client.create(PODS, pod(name, claims={"g": name}), "default")
                if number % 25 == 24:
                    process.stdout.readline()
                    pause.wait(dice.random() * 0.2)
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process.stdout.close()
                    kills += 1
                    process = start()
            for _ in range(600):
                bound = sum(bool(p["spec"].get("nodeName")) for p in client.list(PODS).items)
                if bound == TOTAL:
                    break
                pause.wait(0.1)
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
        assert bound == TOTAL
        assert kills == 8
        given = [
            (item["pool"], item["device"])
            for obj in client.list(CLAIMS).items
            for item in obj["status"]["allocation"]["devices"]["results"]
        ]
        assert len(given) == len(set(given)) == TOTAL
