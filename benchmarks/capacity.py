"""How long what-if, defragmentation and plans take on large fleets, beside one scheduling cycle.

    python -m benchmarks.capacity [--nodes 5000] [--part what-if|one|many|plan]

Nodes of 8 GPUs, half of them cut into MIG partitions; about half of all capacity is held by pods
at random places, so that nearly every node is in a state of its own. Times are those of the
processor. `load` is the time to fill the model from objects that were decoded and checked.

what-if   100 nodes are added while 500 pods wait
one       moves for one pod that wants all 8 GPUs of a node, with the proof
many      moves for 500 pods that wait, with the bound on how many can be served
"""

import argparse
import random
import time
from collections.abc import Iterator

from benchmarks.board import record
from dralab.capacity.changes import AddNodes
from dralab.capacity.defragment import defragment
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.what_if import what_if
from dralab.scheduling.model import ClusterModel
from dralab.values.json_types import JsonDict

DRIVER = "gpu.example.com"
# Compute slices of a GPU that a partition takes: 7 slices, partitions of 1, 2, 3 and all.
PARTS = {"1g": 1, "2g": 2, "3g": 3}
PACKED = (
    (("1g", 6), ("2g", 0)),
    (("3g", 3),),
    (("1g", 1), ("1g", 5), ("1g", 3)),
    (("2g", 0), ("3g", 3)),
)


def node(name: str) -> JsonDict:
    offer = {"cpu": "128", "memory": "1Ti", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": offer, "capacity": offer},
    }


def slices(name: str, *, mig: bool) -> Iterator[JsonDict]:
    devices = []
    for gpu in range(8):
        shared = {"numa": {"int": gpu // 4}, "uuid": {"string": f"{name}-{gpu}"}}
        whole: JsonDict = {
            "name": f"gpu-{gpu}",
            "attributes": {"type": {"string": "gpu"}, **shared},
        }
        if mig:
            whole["consumesCounters"] = [consumed(gpu, 7)]
        devices.append(whole)
        for profile, size in PARTS.items() if mig else ():
            devices += [
                {
                    "name": f"gpu-{gpu}-{profile}-{start}",
                    "attributes": {"type": {"string": profile}, **shared},
                    "consumesCounters": [consumed(gpu, size, start)],
                }
                for start in range(0, 8 - size, size)
            ]
    common = {
        "driver": DRIVER,
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 3 if mig else 1},
    }
    halves = [devices[: len(devices) // 2], devices[len(devices) // 2 :]] if mig else [devices]
    for number, part in enumerate(halves):
        yield slice_(f"{name}-{number}", {**common, "devices": part})
    if mig:
        sets = [
            {"name": f"gpu-{gpu}", "counters": {f"slice-{n}": {"value": "1"} for n in range(7)}}
            for gpu in range(8)
        ]
        yield slice_(f"{name}-counters", {**common, "sharedCounters": sets})


def slice_(name: str, spec: JsonDict) -> JsonDict:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": spec,
    }


def consumed(gpu: int, size: int, start: int = 0) -> JsonDict:
    counters = {f"slice-{n}": {"value": "1"} for n in range(start, start + size)}
    return {"counterSet": f"gpu-{gpu}", "counters": counters}


def asking(name: str, kind: str, count: int = 1) -> JsonDict:
    expression = f'device.attributes["{DRIVER}"].type == "{kind}"'
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def pod(name: str, node: str = "") -> JsonDict:
    requests = {"requests": {"cpu": "2", "memory": "8Gi"}}
    spec: JsonDict = {
        "containers": [{"name": "main", "image": "i", "resources": requests}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "uid": f"pod-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def held(name: str, node: str, kind: str, devices: list[str]) -> list[JsonDict]:
    claim = asking(name, kind, len(devices))
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": node, "device": device} for device in devices
    ]
    claim["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}],
    }
    return [pod(name, node), claim]


def fleet(nodes: int, chance: random.Random) -> Iterator[JsonDict]:
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }
    for number in range(nodes):
        name, mig = f"node-{number:05d}", number % 2 == 0
        yield node(name)
        yield from slices(name, mig=mig)
        free = chance.sample(range(8), 4)
        if mig:
            for gpu in free:
                for profile, at in chance.choice(PACKED):
                    device = f"gpu-{gpu}-{profile}-{at}"
                    yield from held(f"p{number}-{gpu}-{profile}-{at}", name, profile, [device])
        else:
            while free:
                taken, free = free[: chance.choice((1, 2))], free[2:]
                yield from held(f"p{number}-{taken[0]}", name, "gpu", [f"gpu-{n}" for n in taken])


def waiting(count: int, chance: random.Random) -> Iterator[JsonDict]:
    """Pods that want 5 to 8 GPUs of one node."""
    for number in range(count):
        name = f"w{number}"
        yield pod(name)
        yield asking(name, "gpu", chance.choice((5, 6, 8)))


def timed(text: str, start: float) -> float:
    now = time.process_time()
    print(f"{text:48}{now - start:8.2f} s")
    record(text, now - start, "s")
    return time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--part", choices=("what-if", "one", "many"))
    given = parser.parse_args()
    chance = random.Random(1)
    objects = list(fleet(given.nodes, chance))
    if given.part in {None, "what-if", "many"}:
        start = time.process_time()
        model = ClusterModel([*objects, *waiting(500, chance)])
        start = timed(f"load {given.nodes} nodes, {len(model.running)} pods", start)
        model.try_pod(model.waiting[0])
        start = timed("first scheduling cycle, which compiles", start)
        model.try_pod(model.waiting[1])
        start = timed("one scheduling cycle", start)
        if given.part != "many":
            change = [AddNodes("node-00001", 100)]
            start = time.process_time()
            found = what_if(model, change, explain=False)
            start = timed("what if 100 nodes are added, 500 pods wait", start)
            what_if(model, change)
            timed("the same again, with explanations", start)
            print("   ", len(found.with_fate("starts")), "start,", found.nodes)
        if given.part != "what-if":
            start = time.process_time()
            many = defragment(model, model.waiting, MoveCosts(model))
            timed("moves for 500 pods, with the bound", start)
            proved = sum(each.is_proved for each in many.clearings)
            print(f"    {len(many.fitting)} fit, {len(many.clearings)} after {many.moves} moves,")
            print(f"    {proved} of them proved; at best {many.at_best} can be served")
    if given.part in {None, "one"}:
        model = ClusterModel([*objects, pod("train"), asking("train", "gpu", 8)])
        start = time.process_time()
        one = defragment(model, model.waiting, MoveCosts(model))
        timed("moves for one pod, with the proof", start)
        (clearing,) = one.clearings
        print(f"    {len(clearing.moves)} moves, no plan has less than {clearing.bound}")


if __name__ == "__main__":
    main()
