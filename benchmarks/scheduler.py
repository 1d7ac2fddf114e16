"""How fast pods get their nodes and devices: the bare loop, and through the API.

    python -m benchmarks.scheduler [--nodes 500] [--devices 10] [--part loop|api|plain]

loop   `scheduler.cycle` on a state in memory: each pod has one claim, one device is free for each
api    the whole scheduler beside a server in this process (memory store), pods and claims created
       beforehand: claims protected, allocated and reserved, pods bound, an event each
plain  the bare loop for pods without claims

Times are those of the processor, so that other work on the machine counts less.

Beside them: kube-scheduler's allocator in a loop fills the same cluster at 174 pods/s (measured on
a shared 2-core machine, no API server); its published figures through an API server are 40 to 241.
"""

import argparse
import time

from benchmarks.board import record
from dralab.allocation import v1
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import NamespacedName
from dralab.runtime.garbage import collect_rarely
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from dralab.runtime.simulated import SimulatedEngine
from dralab.scheduler.scheduler import Scheduler
from dralab.scheduling.cycle import schedule
from dralab.scheduling.demands import DemandReader
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info
from dralab.scheduling.state import ClusterState, PodPlacement

UPSTREAM_LOOP, UPSTREAM_API = 174, 240.8


def node(number):
    name = f"node-{number:05d}"
    offer = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def devices_of(name, count):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpu"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu-{i}", "attributes": {"model": {"string": "a"}, "index": {"int": i}}}
                for i in range(count)
            ],
        },
    }


CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}


def claim(name):
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def pod(name, *, claimed=True):
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container]}
    if claimed:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def bare(nodes, devices, *, claimed=True):
    """Pods a second of the bare loop."""
    claims = {}
    table = NodeTable()
    found = ClusterDevices(table, v1.V1Reader(CelSelectorCompiler()))
    demands = DemandReader(claims.get, lambda _: None, found.in_flight)
    state = ClusterState(table, found, demands)
    demands.put_class("gpu", CLASS)
    found.put_class("gpu", CLASS)
    for number in range(nodes):
        obj = node(number)
        table.put_node(obj)
        if claimed:
            wire = devices_of(obj["metadata"]["name"], devices)
            found.put_slice(wire["metadata"]["name"], wire)
    pods = []
    for number in range(nodes * devices):
        name = f"pod-{number:06d}"
        if claimed:
            wire = claim(name)
            wire["metadata"]["uid"] = f"claim-{number}"
            claims[NamespacedName("default", name)] = wire
        made = pod(name, claimed=claimed)
        made["metadata"]["uid"] = f"pod-{number}"
        pods.append(pod_info(made))
    start = time.process_time()
    for item in pods:
        placement = schedule(state, item)
        assert isinstance(placement, PodPlacement), placement.message
        state.assume_placement(placement)
    return len(pods) / (time.process_time() - start)


def through_api(nodes, devices, count=None):
    """Pods a second from the first to the last binding, beside a server in this process."""
    clock = ManualClock(1_800_000_000 * 10**9)
    api = ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1))
    client = LocalClient(api.resources, api.hub)
    client.create(CLASSES, CLASS)
    for number in range(nodes):
        obj = node(number)
        made = client.create(NODES, obj)
        made = client.update(NODES, {**made, "spec": {}})
        if made.get("status") != obj["status"]:
            client.update(NODES, {**made, "status": obj["status"]}, subresource="status")
        client.create(SLICES, devices_of(obj["metadata"]["name"], devices))
    total = count or nodes * devices
    for number in range(total):
        name = f"pod-{number:06d}"
        client.create(CLAIMS, claim(name), "default")
        client.create(PODS, pod(name), "default")
    engine = SimulatedEngine()
    engine.clock.advance_to(clock.now())
    manager = Manager(engine, client, Randomness(2))
    scheduler = Scheduler(manager, CelSelectorCompiler())
    manager.start()
    # Lists and the reading of what is there come before the first binding.
    while not scheduler.queue.counts()["trying"] and engine.step():
        pass
    collect_rarely()  # as `dralab up` and `dralab scheduler` when they are ready
    start = time.process_time()
    engine.settle(at_most=100_000_000)
    seconds = time.process_time() - start
    bound = sum(bool(obj["spec"].get("nodeName")) for obj in client.list(PODS).items)
    assert bound == total, f"{bound} of {total} bound"
    return total / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--part", choices=["loop", "api", "plain"])
    options = parser.parse_args()
    where = f"{options.nodes} nodes x {options.devices} devices"
    if options.part in {None, "loop"}:
        rate = bare(options.nodes, options.devices)
        print(f"bare loop, one claim each, {where}: {rate:,.0f} pods/s", end="")
        print(f" ({rate / UPSTREAM_LOOP:.1f} x kube-scheduler's allocator loop, 174)")
        record(f"bare loop with claims, {where}", rate, "pods/s")
    if options.part in {None, "plain"}:
        rate = bare(options.nodes, options.devices, claimed=False)
        print(f"bare loop, no claims, {options.nodes} nodes: {rate:,.0f} pods/s")
        record(f"bare loop without claims, {options.nodes} nodes", rate, "pods/s")
    if options.part in {None, "api"}:
        rate = through_api(options.nodes, options.devices)
        print(f"through the API, memory store, one process, {where}: {rate:,.0f} pods/s", end="")
        print(f" ({rate / UPSTREAM_API:.1f} x the best published for kube-scheduler, 240.8)")
        record(f"through the API, {where}", rate, "pods/s")


if __name__ == "__main__":
    main()
