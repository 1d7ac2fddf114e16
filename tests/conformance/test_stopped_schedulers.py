"""Several schedulers of which one is stopped, behind a network that delays and cuts.

When one goes on that was stopped, another has taken over, or has gone on beside it: what the first
had decided before must not give a device that is somebody else's by now.
"""

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from itertools import islice

import pytest

from bad_network import BadNetwork
from builders import claim, device, device_class, pod, pool, request, worker
from dralab.cluster import Cluster
from dralab.components.control_plane import ControlPlane
from dralab.runtime.resources import CLAIMS, CLASSES, LEASES, NODES, PODS, SLICES
from waiting import until

pytestmark = pytest.mark.conformance
PODS_IN_ALL, NODES_IN_ALL, DEVICES = 120, 10, 12
SCHEDULER = [sys.executable, "-m", "dralab", "scheduler"]
TAKEOVERS = 3


class Schedulers:
    """Scheduler processes; which of them holds the lease is found out by its changes of hands."""

    def __init__(self, client, config, *options):
        self.client = client
        self.command = [*SCHEDULER, "--kubeconfig", str(config), *options]
        self.running = []
        self.names = {}

    def start(self):
        self.running.append(
            subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        assert self.running[-1].stdout.readline() == b"ready\n"

    def holder(self):
        for lease in self.client.list(LEASES).items:
            if lease["metadata"]["name"] == "kube-scheduler":
                return lease["spec"].get("holderIdentity", "")
        return ""

    def leader(self):
        """Return the process that holds the lease: those that are stopped do not get it."""
        name = until(self.holder)
        if name not in self.names:
            known = set(self.names.values())
            unknown = [number for number in range(len(self.running)) if number not in known]
            if len(unknown) == 1:
                self.names[name] = unknown[0]
            else:
                self.names[name] = self._renewing(name, unknown)
        return self.running[self.names[name]]

    def _renewing(self, name, numbers):
        """Find the holder by stopping one after the other: its lease is not renewed meanwhile."""
        for number in numbers[:-1]:
            self.running[number].send_signal(signal.SIGSTOP)
            before = self._renewed()
            pause = threading.Event()
            for _ in range(60):
                pause.wait(0.1)
                if self._renewed() != before:
                    break
            else:
                self.running[number].send_signal(signal.SIGCONT)
                return number
            self.running[number].send_signal(signal.SIGCONT)
        return numbers[-1]

    def _renewed(self):
        return [
            lease["spec"].get("renewTime")
            for lease in self.client.list(LEASES).items
            if lease["metadata"]["name"] == "kube-scheduler"
        ]

    def end(self):
        for one in self.running:
            one.send_signal(signal.SIGCONT)
            one.kill()
            one.wait()
            one.stdout.close()


def fill(client):
    client.create(CLASSES, device_class("gpu", 'device.driver == "gpu.example.com"'))
    for number in range(NODES_IN_ALL):
        name = f"n{number}"
        client.create(NODES, worker(name))
        client.patch(NODES, name, {"status": worker(name)["status"]}, subresource="status")
        for item in pool(name, *(device(f"d{i}") for i in range(DEVICES)), node=name):
            client.create(SLICES, item)


@pytest.mark.parametrize(
    ("seed", "schedulers", "elected"),
    [(1, 2, True), (2, 2, True), (3, 3, True), (4, 2, False), (5, 2, False), (6, 3, False)],
)
def test_no_device_is_given_twice_by_schedulers_that_stop(tmp_path, seed, schedulers, elected):
    dice, pause = random.Random(seed), threading.Event()
    with Cluster(components=[ControlPlane(without=["scheduler"])]) as cluster:
        client = cluster.client
        fill(client)
        host, port = cluster.url.removeprefix("http://").split(":")
        network = BadNetwork(host, int(port), seed)
        config = tmp_path / "config"
        cluster.write_kubeconfig(config)
        config.write_text(config.read_text().replace(f":{port}", f":{network.begin()}"))
        numbers = iter(range(PODS_IN_ALL))

        def ask(count):
            for number in islice(numbers, count):
                name = f"p{number}"
                client.create(CLAIMS, claim(name, request("r"), namespace="default"))
                client.create(PODS, pod(name, claims={"g": name}), "default")

        with closing(network):
            made = Schedulers(client, config, *([] if elected else ["--no-leader-elect"]))
            try:
                for _ in range(schedulers):
                    made.start()
                for _ in range(TAKEOVERS):
                    one = made.leader() if elected else dice.choice(made.running)
                    leader = made.holder()
                    ask(20)
                    pause.wait(dice.random() * 0.3)  # it is in the middle of them
                    one.send_signal(signal.SIGSTOP)
                    ask(10)
                    if elected:
                        until(lambda: made.holder() not in {"", leader})  # noqa: B023 - waits here
                    else:
                        pause.wait(dice.random() * 3)
                    ask(5)
                    one.send_signal(signal.SIGCONT)
                ask(PODS_IN_ALL)
                for _ in range(1800):
                    pods = client.list(PODS).items
                    if all(each["spec"].get("nodeName") for each in pods):
                        break
                    pause.wait(0.1)
            finally:
                made.end()
        check(client, network)


def check(client, network):
    nodes = {
        each["metadata"]["name"]: each["spec"].get("nodeName") for each in client.list(PODS).items
    }
    assert len(nodes) == PODS_IN_ALL
    assert all(nodes.values()), "every pod is bound"
    given = Counter()
    for each in client.list(CLAIMS).items:
        name = each["metadata"]["name"]
        assert each["status"].get("allocation"), f"the devices of {name} were taken back"
        (result,) = each["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == nodes[name], "on the pod's node"
        given[result["driver"], result["pool"], result["device"]] += 1
    assert (len(given), max(given.values())) == (PODS_IN_ALL, 1)
    assert network.cuts > 5
