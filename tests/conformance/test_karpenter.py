"""The unmodified Karpenter, with its provider kwok, and ours ask for nodes of the same shapes.

It runs beside a server of ours, whose scheduler marks the pods that fit nowhere. The test is the
kubelet of the nodes that come: it reports them ready. The instance types of kwok's provider have no
devices, so pods ask for CPU and memory here.
"""

import json
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import pytest

import karpenterkinds
import stockparts
from builders import pod, worker
from dralab.api.status import ApiError
from dralab.capacity.autoscaling.karpenter import disruptions, provision
from dralab.capacity.autoscaling.node_pools import DisruptionBudget, NodePoolRules
from dralab.capacity.autoscaling.pools import NodePool, add_node, homeless
from dralab.capacity.changes import RemoveNode
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.runtime.client import Resource
from dralab.runtime.resources import CRDS, NODES, PODS
from dralab.scheduling.model import ClusterModel

pytestmark = [pytest.mark.conformance, stockparts.needs(stockparts.KARPENTER)]

IDLE = int(os.environ.get(stockparts.IDLE, "0"))
QUIET = 12
PATIENCE = 240 + 12 * IDLE
PAUSE = 0.3 + IDLE / 100
TYPE = "node.kubernetes.io/instance-type"
# What kwok's provider keeps of each node.
RESERVED = (100, 10)


@dataclass
class Case:
    """Shapes as (cpu, memory in Mi, price), pods as (name, cpu in milli, memory in Mi); these go."""

    shapes: dict
    pods: list
    going: tuple = ()
    budgets: tuple = ({"nodes": "100%"},)


SHAPES = {"s": (4, 8192, 1.0), "m": (8, 16384, 1.9), "l": (16, 32768, 3.7), "x": (32, 65536, 9.0)}
SMALL = {"s": (4, 8192, 1.0)}
FOUR = [(f"p{n}", 3500, 512) for n in range(4)]
GONE = ("p1", "p2", "p3")
NO_EMPTY = {"nodes": "0", "reasons": ["Empty"]}
CASES = {
    "one pod": Case(SHAPES, [("p", 3000, 1024)]),
    "packed onto the cheapest": Case(SHAPES, [(f"p{n}", 3500, 1000) for n in range(4)]),
    "large and small": Case(
        SHAPES, [("big", 14000, 2000), *((f"p{n}", 1000, 500) for n in range(9))]
    ),
    "memory decides": Case(SHAPES, [(f"p{n}", 500, 7000) for n in range(5)]),
    "dear large ones": Case(
        {"s": (4, 8192, 1.0), "x": (32, 65536, 12.0)}, [(f"p{n}", 3000, 512) for n in range(6)]
    ),
    "too large": Case(SHAPES, [("p", 64000, 1024), ("q", 2000, 512)]),
    "empty nodes go": Case(SMALL, FOUR, ("p1", "p2")),
    "a cheaper one comes": Case(SHAPES, [("a", 9000, 512), ("b", 3000, 512)], ("a",)),
    "a budget of one": Case(SMALL, FOUR, GONE, ({"nodes": "1"},)),
    "a budget of a half": Case(SMALL, FOUR, GONE, ({"nodes": "50%"},)),
    "empty ones are kept, one in use goes": Case(SMALL, FOUR, GONE, (NO_EMPTY,)),
    "no budget for any reason": Case(
        SMALL, FOUR, GONE, (NO_EMPTY, {"nodes": "0", "reasons": ["Underutilized"]})
    ),
    "a budget all year": Case(
        SMALL, FOUR, GONE, ({"nodes": "0", "schedule": "@yearly", "duration": "9000h"},)
    ),
}


def pools_of(case):
    found = {}
    for name, (cpu, memory, price) in case.shapes.items():
        milli, mega = RESERVED
        node = worker(
            name, cpu=f"{1000 * cpu - milli}m", memory=f"{memory - mega}Mi", labels={TYPE: name}
        )
        found[name] = NodePool(name=name, node=node, price=price)
    return found


def objects_of(case):
    return [
        pod(name, requests={"cpu": f"{cpu}m", "memory": f"{memory}Mi"},
            terminationGracePeriodSeconds=0)
        for name, cpu, memory in case.pods
    ]  # fmt: skip


def rules_of(case):
    hours = 3600 * SECOND
    return NodePoolRules(
        budgets=tuple(
            DisruptionBudget(
                nodes=each["nodes"], reasons=tuple(each.get("reasons", ())),
                schedule=each.get("schedule", ""),
                duration=int(each.get("duration", "0h").removesuffix("h")) * hours,
            )
            for each in case.budgets
        )
    )  # fmt: skip


def ours(case):
    """How many nodes of each shape there are once all are asked for, and while pods have gone."""
    pools = pools_of(case)
    rooms = dict.fromkeys(pools.values(), 100)
    model = ClusterModel(objects_of(case))
    nodes = {}

    def add(pool):
        name = f"{pool.name}-{len(nodes)}"
        nodes[name] = pool
        add_node(model, pool, name)

    for each in provision(model, rooms, homeless(model, model.waiting)):
        add(each.pool)
    homeless(model, model.waiting)
    grown = dict(Counter(pool.name for pool in nodes.values()))
    for uid in [uid for uid, each in model.running.items() if each.pod.key.name in case.going]:
        model.take_away(uid)
    rules, now, steps = rules_of(case), from_rfc3339("2026-11-28T12:00:00Z"), []

    def allowed(reason, _):
        return rules.allowed(len(nodes), now, reason)

    while case.going and (found := disruptions(model, nodes, rooms, allowed)):
        for replacement in found.replacements:
            add(replacement)
        for name in found.nodes:
            del nodes[name]
            if not found.replacements:
                RemoveNode(name).apply(model)
        steps.append(dict(Counter(pool.name for pool in nodes.values())))
        if found.replacements:
            break
    return grown, steps


class Nodes:
    """The nodes of a cluster by shape; those that come are reported ready."""

    def __init__(self, client):
        self.client = client
        self.history = []

    def shapes(self):
        found = Counter()
        for node in self.client.list(NODES).items:
            found[node["metadata"]["labels"][TYPE]] += 1
            conditions = node["status"].get("conditions") or ()
            if not any(each["type"] == "Ready" for each in conditions):
                ready = {"type": "Ready", "status": "True", "reason": "Up", "message": "up"}
                with suppress(ApiError):  # it has gone
                    self.client.patch(
                        NODES, node["metadata"]["name"], {"status": {"conditions": [ready]}},
                        subresource="status",
                    )  # fmt: skip
        return dict(found)

    def settled(self, seconds=QUIET):
        """Return how many of each shape once it has been the same for a while."""
        deadline, self.changed, last = time.monotonic() + PATIENCE, time.monotonic(), {}
        while time.monotonic() < deadline:
            now = self.shapes()
            if now != last:
                self.changed, last = time.monotonic(), now
                self.history.append(now)
            if time.monotonic() - self.changed > seconds:
                return last
            time.sleep(PAUSE)
        raise AssertionError(f"the nodes have not come to rest: {last}")


@pytest.mark.parametrize("name", CASES)
def test_nodes_of_the_same_shapes_come_and_go(name, tmp_path):
    case = CASES[name]
    with Cluster(Options(), components=[ControlPlane()]) as cluster:
        client, kubeconfig = cluster.client, tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        for each in karpenterkinds.definitions():
            client.create(CRDS, each)
        classes = Resource("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", namespaced=False)
        client.create(classes, karpenterkinds.node_class())
        client.patch(classes, "default", karpenterkinds.readiness("True"), subresource="status")
        client.create(
            Resource("karpenter.sh", "v1", "nodepools", namespaced=False),
            karpenterkinds.pool("default", after=f"{IDLE}s", budgets=case.budgets),
        )
        types = tmp_path / "types.json"
        types.write_text(json.dumps(karpenterkinds.instance_types(case.shapes)))
        for each in objects_of(case):
            client.create(PODS, each, "default")
        nodes = Nodes(client)
        with stockparts.running(
            stockparts.KARPENTER, tmp_path, KUBECONFIG=str(kubeconfig), DISABLE_LEADER_ELECTION="true",
            INSTANCE_TYPES_FILE_PATH=str(types), METRICS_PORT="0", HEALTH_PROBE_PORT="0",
            SYSTEM_NAMESPACE="kube-system", LOG_LEVEL="debug",
        ) as process:  # fmt: skip
            grown = nodes.settled()
            deleted = time.monotonic()
            for each in case.going:
                client.delete(PODS, each, "default")
            nodes.history.clear()
            if case.going:
                nodes.settled(5 * QUIET + 1.5 * IDLE)
            assert process.poll() is None
    expected, steps = ours(case)
    assert grown == expected
    if not steps:
        assert nodes.history in ([], [grown])
        return
    # Nobody makes a pod again that was evicted, so that a node which came for it goes, too.
    assert all(step in nodes.history for step in steps)
    assert nodes.changed - deleted >= IDLE
