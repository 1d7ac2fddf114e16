"""How fast pods with a device each become ready, all parts of a cluster in one process.

    python -m benchmarks.cluster [--nodes 1000] [--pods 2000] [--engine live|simulated]

live       `dralab up --nodes N --driver gpu` without its sockets: server, scheduler, controllers,
           kubelets and drivers on their own engines; from the first create to the last ready pod
simulated  the same parts on one simulated engine: what they cost the processor, without threads

Seconds are shown of the wall and of the processor: other work on the machine counts in the first
alone. Beside them: KWOK gives out 20 pods a second (kubernetes-sigs/kwok, "Is it fast?"), and
those get neither claims nor devices.
"""

import argparse
import threading
import time

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.objects.pods import is_ready
from dralab.runtime.garbage import collect_rarely
from dralab.runtime.resources import CLAIM_TEMPLATES, NODES, PODS, SLICES

KWOK = 20
EXACTLY = {"deviceClassName": "gpu.example.com"}
TEMPLATE = {
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": EXACTLY}]}}},
}


def pod(number):
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "export; sleep 100000"],
        "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}},
    }
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    return {"metadata": {"name": f"pod-{number:06d}"}, "spec": spec}


class Seen:
    """How many objects of a kind are ready, by a watch: listing them costs more than they do."""

    def __init__(self, client, of, good=is_ready):
        listing = client.list(of)
        self.good = good
        self.ready = {obj["metadata"]["name"] for obj in listing.items if good(obj)}
        self.watch = client.watch(of, revision=listing.revision)

    def __len__(self):
        while (event := self.watch.next(0)) is not None:
            if self.good(event.object):
                self.ready.add(event.object["metadata"]["name"])
        return len(self.ready)


def measured(client, nodes, pods, wait):
    """Return (wall, processor) seconds until the nodes are ready, and until the pods are."""
    found, before = [], (time.perf_counter(), time.process_time())

    def lap():
        nonlocal before
        now = time.perf_counter(), time.process_time()
        found.append((now[0] - before[0], now[1] - before[1]))
        before = now

    there, slices = Seen(client, NODES), Seen(client, SLICES, lambda _: True)
    wait(lambda: len(there) == nodes and len(slices) == nodes)
    lap()
    collect_rarely()  # as `dralab up` when it is ready
    client.create(CLAIM_TEMPLATES, TEMPLATE, "default")
    done = Seen(client, PODS)
    for number in range(pods):
        client.create(PODS, pod(number), "default")
    wait(lambda: len(done) == pods)
    lap()
    return found


def live(nodes, pods):
    parts = [ControlPlane(), Nodes(NodeOptions(nodes=nodes, drivers=["gpu"]))]
    pause = threading.Event()
    with Cluster(Options(), components=parts) as cluster:

        def wait(good):
            while not good():
                pause.wait(0.1)

        return measured(cluster.client, nodes, pods, wait)


def simulated(nodes, pods):
    cluster = SimulatedCluster()
    assemble(cluster.manager, NodeOptions(nodes=nodes, drivers=["gpu"]))

    def wait(good):
        for _ in range(600):
            if good():
                return
            cluster.wait(1)
        raise AssertionError("it did not come to be")

    return measured(cluster.client, nodes, pods, wait)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--engine", choices=["live", "simulated"], default="live")
    options = parser.parse_args()
    run = live if options.engine == "live" else simulated
    begun, done = run(options.nodes, options.pods)
    print(f"{options.nodes} nodes ready: {begun[0]:.1f} s, of the processor {begun[1]:.1f} s")
    print(f"{options.pods} pods with a device ready: {done[0]:.1f} s, of the processor", end="")
    print(f" {done[1]:.1f} s: {options.pods / done[1]:,.0f} pods/s", end="")
    print(f" ({options.pods / done[1] / KWOK:.0f} x KWOK's, 20)")


if __name__ == "__main__":
    main()
