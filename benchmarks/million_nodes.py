"""What a control plane for 1,000,000 nodes with devices would have to do, from measured parts.

    python -m benchmarks.million_nodes [--memory 10000 50000] [--writes 4000]

Measured: the bytes of each object and event, memory per object at each number of nodes (the verbs
and the memory store in a process of its own), the writes of a pod's start with and without a claim
(a simulated cluster), and CPU time per renewed lease (`dralab apiserver` over HTTP, its store in
memory and in the etcd that `benchmarks.etcd` finds). The rest is multiplication, and says "x".
`docs/concepts/million-nodes.md` reads the figures.
"""

import argparse
import gc
import http.client
import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from benchmarks.apiserver import Server
from benchmarks.cluster import TEMPLATE, pod
from benchmarks.etcd import etcd
from benchmarks.freed import resident
from dralab.apiserver.protobuf.encoding import encode, frame
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.storage.freed_memory import trim_heap
from dralab.components.nodes import NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SLICES,
)

MILLION = 1_000_000
RENEWED = 10  # seconds: kubelet renews its lease
REPORTED = 300  # seconds: kubelet writes an unchanged status
STARTS = 14_000  # pods a second, as k8s-1m scheduled them
BATCHES = 4
CONNECTIONS = 16
SPACE = "kube-node-lease"
KINDS = {"Node": NODES, "Lease": LEASES, "ResourceSlice": SLICES}
WRITTEN = {"pods": PODS, "claims": CLAIMS, "events": EVENTS}


def lease(name: str) -> dict[str, Any]:
    """A lease as a kubelet writes it; it belongs to its node."""
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": "7e2ec4e2-263f-4350-9397-76f37ceb83cd",
    }
    spec = {
        "holderIdentity": name, "leaseDurationSeconds": 40,
        "renewTime": "2026-01-01T00:00:00.123456Z",
    }  # fmt: skip
    meta = {"name": name, "namespace": SPACE, "ownerReferences": [owner]}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def samples() -> tuple[dict[str, Any], dict[str, Counter[str]]]:
    """Return an object of each kind, and the writes of a pod's start without and with a claim."""
    cluster = SimulatedCluster()
    assemble(cluster.manager, NodeOptions(nodes=1, drivers=["gpu"]))
    cluster.wait(60)
    client = cluster.client
    client.create(CLAIM_TEMPLATES, TEMPLATE, "default")
    claiming = pod(1)
    plain = pod(0)
    del plain["spec"]["resourceClaims"], plain["spec"]["containers"][0]["resources"]["claims"]
    writes: dict[str, Counter[str]] = {}
    for name, wanted in (("without a claim", plain), ("with a claim", claiming)):
        watches = {
            kind: client.watch(of, revision=client.list(of).revision)
            for kind, of in WRITTEN.items()
        }
        client.create(PODS, wanted, "default")
        cluster.wait(60)
        writes[name] = Counter()
        for kind, watch in watches.items():
            while watch.next(0) is not None:
                writes[name][kind] += 1
    there = {
        "Node": client.list(NODES).items[0],
        "ResourceSlice": client.list(SLICES).items[0],
        "Pod": client.get(PODS, "pod-000000", "default"),
        "Pod with a claim": client.get(PODS, "pod-000001", "default"),
        "ResourceClaim, allocated": client.list(CLAIMS).items[0],
        "Event": client.list(EVENTS).items[0],
    }
    server = _server()
    there["Lease"] = server.create(LEASES, lease("node-0000000"), SPACE)
    return there, writes


def _server() -> LocalClient:
    server = ApiServer(MemoryStore(), clock=ManualClock(1_700_000_000 * SECOND))
    return LocalClient(server.resources, server.hub)


def kept(kind: str, sample: dict[str, Any], counts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the MiB resident for the objects of a kind at each count."""
    client, of = _server(), KINDS[kind]
    _create(client, of, sample, 0)
    gc.collect()
    trim_heap()
    found, begun, done = [], resident(), 0
    for count in counts:
        for number in range(done + 1, count + 1):
            _create(client, of, sample, number)
        done = count
        gc.collect()
        trim_heap()
        found.append((count, resident() - begun))
    return found


def _create(client: LocalClient, of: Resource, sample: dict[str, Any], number: int) -> None:
    name = f"node-{number:07d}"
    body = deepcopy(sample)
    meta = {
        key: body["metadata"][key]
        for key in ("labels", "ownerReferences")
        if key in body["metadata"]
    }
    body["metadata"] = {"name": name, **meta}
    if of is SLICES:
        body["spec"]["nodeName"] = body["spec"]["pool"]["name"] = name
    client.create(of, body, SPACE if of is LEASES else "")


def renewals(count: int, *, over_etcd: bool) -> tuple[float, float]:
    """Return the least microseconds of CPU per renewed lease: the server's, and its etcd's."""
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        place = Path(text)
        options = ["--plain", "--data", ":memory:"]
        if over_etcd:
            options += ["--store", stack.enter_context(etcd(place, "--unsafe-no-fsync"))]
        server = Server(place, options)
        stack.callback(server.stop)
        with ThreadPoolExecutor(CONNECTIONS) as pool:

            def together(renew: Callable[[Renewing], None]) -> tuple[float, float]:
                before = server.seconds(), _seconds_of("etcd")
                list(pool.map(renew, clients))
                return server.seconds() - before[0], _seconds_of("etcd") - before[1]

            address = server.url.removeprefix("http://")
            clients = [Renewing(address, f"node-{number}") for number in range(CONNECTIONS)]
            each = count // CONNECTIONS
            taken = [together(lambda one: one.renew(each)) for _ in range(BATCHES + 1)]
        # The first batch warms up.
        ours, its = (
            min(spent) / (each * CONNECTIONS) * 1e6 for spent in zip(*taken[1:], strict=True)
        )
        return ours, its


class Renewing:
    """A kubelet's connection, and its lease."""

    def __init__(self, address: str, name: str) -> None:
        self.asked = http.client.HTTPConnection(address)
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases"
        self.now = self._send("POST", self.path, lease(name))
        self.path += f"/{name}"

    def renew(self, count: int) -> None:
        """Renew it so many times, one after the other."""
        for _ in range(count):
            self.now["spec"]["renewTime"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
            self.now = self._send("PUT", self.path, self.now)

    def _send(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.asked.getresponse()
        found: dict[str, Any] = json.load(answer)
        if answer.status not in {200, 201}:
            sys.exit(f"{method} {path}: {found}")
        return found


def _seconds_of(program: str) -> float:
    """Return the processor time of this process's children of that name."""
    found = 0.0
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().split()
        if fields[1] == f"({program})":
            found += (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, nargs="*", default=[10_000, 50_000])
    parser.add_argument("--writes", type=int, default=4_000)
    given = parser.parse_args()
    there, writes = samples()
    print(f"{'bytes':26}{'JSON':>8}{'protobuf':>10}{'event':>8}{'x million, GB':>15}")
    events = {}
    for name, one in there.items():
        size, raw = len(orjson.dumps(one)), encode(one)
        events[name] = len(frame("MODIFIED", raw))
        print(f"{name:26}{size:8,}{len(raw):10,}{events[name]:8,}{len(raw) / 1e3:15.2f}")
    for name, each in writes.items():
        parts = ", ".join(f"{count} of {kind}" for kind, count in each.items())
        total = each.total()
        print(f"a pod {name}: {total} writes ({parts}), x {STARTS:,}/s = {total * STARTS:,}/s")
    beats, status = MILLION // RENEWED, MILLION / REPORTED
    print(f"leases: {beats:,} writes/s, status of nodes: {status:,.0f}/s")
    print(f"one watcher of all leases: {beats * events['Lease'] / 1e6:,.0f} MB/s in protobuf")
    for store in ("memory", "etcd"):
        ours, its = renewals(given.writes, over_etcd=store == "etcd")
        cores = f"{beats * ours / 1e6:,.0f} cores and {beats * its / 1e6:,.0f} of etcd"
        print(f"a renewal, {store}: {ours:.0f} us, etcd {its:.0f} us; x {beats:,}/s = {cores}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind in KINDS if given.memory else ():
            found = pool.apply(kept, (kind, there[kind], given.memory))
            sizes = ", ".join(f"{mib * 1024 / count:.2f} at {count:,}" for count, mib in found)
            (few, less), (many, more) = [(0, 0), *found][-2:]
            growth = (more - less) * 1024 / (many - few)
            whole = growth * MILLION / 1024**2
            print(f"{kind}: {sizes} KiB each, growth {growth:.2f}, x million = {whole:.1f} GiB")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
