"""The unmodified cluster-autoscaler, with its provider kwok, and ours ask for the same nodes.

It runs beside a server of ours, whose scheduler marks the pods that fit nowhere. The test is the
driver of the devices: it publishes them for each node that comes. kwok's groups have no devices in
their templates, so each group begins with a node, which cluster-autoscaler takes for the template.
"""

import os
import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest
import yaml

import stockparts
from builders import ask, claim, counter_set, device, device_class, first_of, pod, request, worker
from builders import pool as slices_of_pool
from dralab.capacity.autoscaling.cluster_autoscaler import best, expansions, unneeded
from dralab.capacity.autoscaling.pools import NodePool, add_node, homeless
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.runtime.resources import (
    CLAIMS,
    CLASSES,
    CONFIG_MAPS,
    NODES,
    PODS,
    SLICES,
)
from dralab.scheduling.copies import renamed
from dralab.scheduling.model import ClusterModel

pytestmark = [pytest.mark.conformance, stockparts.needs(stockparts.AUTOSCALER)]

DRIVER = "gpu.example.com"
GROUP = "cluster-autoscaler.kwok.nodegroup/"
SCAN = 1
QUIET = 6
# Longer than the groups need to grow.
UNNEEDED = int(os.environ.get(stockparts.IDLE, "20"))
PATIENCE = 12 * UNNEEDED
PAUSE = UNNEEDED / 100
GPU = device_class("gpu", f'device.driver == "{DRIVER}"')
CONFIG = """
apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups: {fromNodeLabelKey: group}
nodes: {skipTaint: true}
configmap: {name: kwok-provider-templates, key: templates}
"""


def group(name, *slices, cpu="16", memory="64Gi", most=10, **more):
    """A pool whose nodes have these slices."""
    node = worker(name, cpu=cpu, memory=memory, labels={"group": name}, **more)
    return NodePool(name=name, node=node, slices=tuple(slices), most=most)


def gpus(name, count, **more):
    devices = [device(f"gpu-{n}", numa=n * 2 // count) for n in range(count)]
    return group(name, *slices_of_pool(f"{name}-gpus", *devices, node=name), **more)


def cards(name, count):
    """Cards of 40, each whole or in four quarters."""
    devices = [
        device(f"card-{c}{part}", consumes={f"card-{c}": {"memory": size}}, size=str(size))
        for c in range(count)
        for part, size in [("", 40), *((f"-{n}", 10) for n in range(4))]
    ]
    counters = [counter_set(f"card-{c}", memory=40) for c in range(count)]
    slices = slices_of_pool(f"{name}-gpus", *devices, node=name, counters=counters)
    return group(name, *slices)


def wanting(name, count=1, *selectors, cpu="1", **spec):
    wire = claim(name, request("r", "gpu", *selectors, count=count), namespace="default")
    spec.setdefault("terminationGracePeriodSeconds", 0)
    return [wire, pod(name, claims={"c": name}, requests={"cpu": cpu}, **spec)]


def plain(name, cpu, memory="1Gi", **spec):
    spec.setdefault("terminationGracePeriodSeconds", 0)
    return [pod(name, requests={"cpu": cpu, "memory": memory}, **spec)]


def of(profile):
    return f'device.attributes["{DRIVER}"].size == "{profile}"'


@dataclass
class Case:
    """Groups, the pods that come at once, and the expander; then these pods go."""

    groups: list
    pods: list
    expander: str = "least-waste"
    going: tuple = ()


CASES = {
    "whole devices": Case([gpus("four", 4)], [wanting(f"p{n}", 2) for n in range(7)]),
    "two sizes": Case(
        [gpus("four", 4), gpus("eight", 8, cpu="64", memory="256Gi")],
        [wanting(f"p{n}", 6) for n in range(3)] + [wanting(f"q{n}", 1) for n in range(5)],
        "most-pods",
    ),
    "least waste does not see devices": Case(
        [gpus("devices", 4, cpu="8", memory="16Gi"), group("plain", cpu="32", memory="128Gi")],
        [plain(f"p{n}", "3", "5Gi") for n in range(8)],
    ),
    "partitions": Case(
        [cards("mig", 2)],
        [wanting(f"p{n}", 1, of("10")) for n in range(11)] + [wanting("w", 1, of("40"))],
    ),
    "alternatives": Case(
        [gpus("four", 4)],
        [
            [
                claim(
                    f"a{n}",
                    first_of("r", big=ask("gpu", count=8), small=ask("gpu", count=3)),
                    namespace="default",
                ),
                pod(f"a{n}", claims={"c": f"a{n}"}, terminationGracePeriodSeconds=0),
            ]
            for n in range(3)
        ],
    ),
    "one numa node": Case(
        [gpus("four", 4)],
        [
            [
                claim(f"m{n}", request("r", count=2), match=f"{DRIVER}/numa", namespace="default"),
                pod(f"m{n}", claims={"c": f"m{n}"}, terminationGracePeriodSeconds=0),
            ]
            for n in range(5)
        ],
    ),
    "a group is full": Case([gpus("four", 4, most=2)], [wanting(f"p{n}", 4) for n in range(4)]),
    "cpu and devices": Case(
        [gpus("four", 4, cpu="8")], [wanting(f"p{n}", 1, cpu="3") for n in range(6)]
    ),
    "nobody can": Case([gpus("four", 4)], [wanting("p", 5), *[plain("q", "99")]]),
    "empty nodes go": Case(
        [gpus("four", 4)], [wanting(f"p{n}", 4) for n in range(4)], going=("p1", "p2", "p3")
    ),
    "nodes in use stay": Case(
        [gpus("four", 4)], [wanting(f"p{n}", 3) for n in range(4)], going=("p1", "p2")
    ),
}


def objects_of(pool, name):
    """A node of a group as kwok's provider makes it, and its slices."""
    node, *slices = renamed(pool.node, pool.slices, name)
    node["metadata"]["annotations"] = {
        "kwok.x-k8s.io/node": "fake",
        f"{GROUP}name": pool.name,
        f"{GROUP}min-count": "1",
        f"{GROUP}max-count": str(pool.most),
        f"{GROUP}desired-count": "1",
    }
    node["spec"]["providerID"] = f"kwok:{name}"
    return node, slices


def ours(case):
    """How many nodes each group has when nothing more is asked for, and then, when pods are gone."""
    pools = {each.name: each for each in case.groups}
    objects = [GPU, *(item for items in case.pods for item in items)]
    model = ClusterModel(objects)
    sizes = Counter()
    for pool in case.groups:
        add_node(model, pool, f"{pool.name}-first")
        sizes[pool.name] += 1
    left = model.waiting
    while True:
        left = homeless(model, left)
        rooms = {pool: pool.most - sizes[name] for name, pool in pools.items()}
        rooms = {pool: room for pool, room in rooms.items() if room}
        chosen = best(expansions(model, rooms, left), [case.expander], random.Random(1).choice)
        if chosen is None:
            break
        for _ in range(chosen.count):
            add_node(model, chosen.pool, f"{chosen.pool.name}-{sizes[chosen.pool.name]}")
            sizes[chosen.pool.name] += 1
    grown = dict(sizes)
    # What is left when pods end: nodes go that are unneeded, of each group all but one.
    for uid in [uid for uid, each in model.running.items() if each.pod.key.name in case.going]:
        model.take_away(uid)
    found, _ = unneeded(model, sorted(model.state.table.row_of), threshold=0.5, passed=())
    for each in found:
        pool = next(name for name in pools if each.name.startswith(f"{name}-"))
        sizes[pool] = max(1, sizes[pool] - 1)
    return grown, dict(sizes)


class Kwok:
    """The nodes of a cluster by group; devices are published for those that come."""

    def __init__(self, client, groups):
        self.client = client
        self.groups = {each.name: each for each in groups}
        self.published = set()

    def sizes(self):
        found = Counter()
        for node in self.client.list(NODES).items:
            name = node["metadata"]["name"]
            pool = self.groups[node["metadata"]["labels"]["group"]]
            found[pool.name] += 1
            if name not in self.published:
                self.published.add(name)
                for item in list(renamed(pool.node, pool.slices, name))[1:]:
                    self.client.create(SLICES, item)
        return dict(found)

    def settled(self, seconds=QUIET):
        """Return the sizes once they have been the same for a while."""
        deadline, self.changed, last = time.monotonic() + PATIENCE, time.monotonic(), {}
        while time.monotonic() < deadline:
            now = self.sizes()
            if now != last:
                self.changed, last = time.monotonic(), now
            if time.monotonic() - self.changed > seconds:
                return last
            time.sleep(PAUSE)
        raise AssertionError(f"the groups have not come to rest: {last}")


@pytest.fixture
def start(tmp_path):
    """Start a cluster with the groups, and cluster-autoscaler beside it."""
    with Cluster(Options(), components=[ControlPlane()]) as cluster:
        client = cluster.client
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)

        def start(case):
            client.create(CLASSES, GPU)
            kwok = Kwok(client, case.groups)
            templates = []
            for pool in case.groups:
                node, _ = objects_of(pool, f"{pool.name}-first")
                templates.append(node)
                client.create(NODES, node)
            for name, key, text in (
                ("kwok-provider-config", "config", CONFIG),
                (
                    "kwok-provider-templates",
                    "templates",
                    yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": templates}),
                ),
            ):
                body = {"metadata": {"name": name}, "data": {key: text}}
                client.create(CONFIG_MAPS, body, "kube-system")
            kwok.sizes()
            running = stockparts.running(
                stockparts.AUTOSCALER, tmp_path,
                f"--kubeconfig={kubeconfig}", "--cloud-provider=kwok", "--leader-elect=false",
                f"--scan-interval={SCAN}s", f"--expander={case.expander}", "--v=4",
                "--enable-dynamic-resource-allocation=true", "--namespace=kube-system",
                "--address=127.0.0.1:0", "--scale-down-delay-after-add=3s",
                # It divides by the time between two loops, which may be none under the clock.
                "--frequent-loops-enabled=false",
                f"--scale-down-unneeded-time={UNNEEDED}s",
                POD_NAMESPACE="kube-system", KWOK_PROVIDER_MODE="local",
                KUBECONFIG=str(kubeconfig),
            )  # fmt: skip
            return running, kwok, client

        yield start


@pytest.mark.parametrize("name", CASES)
def test_the_groups_grow_and_shrink_alike(name, start):
    case = CASES[name]
    running, kwok, client = start(case)
    # The pods are there before it looks: it sees all of them at once.
    for items in case.pods:
        for item in items:
            client.create(CLAIMS if item["kind"] == "ResourceClaim" else PODS, item, "default")
    with running as process:
        grown = kwok.settled()
        deleted = time.monotonic()
        for each in case.going:
            client.delete(PODS, each, "default")
        shrunk = kwok.settled(1.5 * UNNEEDED) if case.going else grown
        assert process.poll() is None
    expected = ours(case)
    assert grown == expected[0]
    assert not case.going or shrunk == expected[1]
    assert shrunk == grown or kwok.changed - deleted >= UNNEEDED
