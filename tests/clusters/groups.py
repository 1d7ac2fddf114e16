"""Random states with pods that come in groups: gangs, racks, groups of groups."""

import random

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.values.json_types import JsonDict

RACK = "example.com/rack"
API = "scheduling.k8s.io/v1beta1"
COMPOSITE = "scheduling.k8s.io/v1alpha3"


def random_groups(seed: int, *, crowded: bool = False) -> tuple[list[JsonDict], list[str]]:
    """Return the objects of a state, and the names of the pods that come.

    In a crowded one nodes are full of pods, most of them of lower priority.
    """
    rng = random.Random(f"groups-{seed}")
    racks = [f"r{number}" for number in range(rng.randint(1, 3))]
    objects: list[JsonDict] = []
    for number in range(rng.randint(2, 7)):
        labels = {RACK: rng.choice(racks)} if rng.random() < 0.9 else {}
        cpu = str(rng.choice([1, 2, 3, 4]))
        objects.append(worker(f"n{number}", cpu=cpu, labels=labels))
    nodes = [item["metadata"]["name"] for item in objects]
    for number in range(rng.randint(0, 4)):
        made = pod(f"old-{number}", requests={"cpu": "1"}, nodeName=rng.choice(nodes))
        objects.append(made | {"status": {"phase": "Running"}})
    if crowded:
        objects += _crowd(random.Random(f"crowd-{seed}"), objects)
    devices = rng.random() < 0.3
    if devices:
        objects.append(device_class("gpu"))
        for name in nodes:
            held = [device(f"d{number}") for number in range(rng.randint(0, 3))]
            objects += pool(name, *held, node=name) if held else []
    composite = rng.random() < 0.25
    if composite:
        spec: JsonDict = {"schedulingPolicy": {"gang": {"minGroupCount": rng.randint(1, 2)}}}
        if rng.random() < 0.4:
            spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
        objects.append(_named("CompositePodGroup", "all", COMPOSITE, spec))
    names = []
    for number in range(rng.randint(1, 2) if composite else 1):
        parent = "all" if composite else ""
        names += _group(rng, objects, f"g{number}", parent, devices=devices)
    return objects, names


def _crowd(rng: random.Random, objects: list[JsonDict]) -> list[JsonDict]:
    """Return pods that fill the nodes that there are, each begun at a time of its own."""
    times = rng.sample(range(1, 60), 40)
    found = []
    for item in objects:
        name = item["metadata"]["name"]
        free = int(item["status"]["allocatable"]["cpu"]) if item["kind"] == "Node" else 0
        free -= sum(other.get("spec", {}).get("nodeName") == name for other in objects)
        while free > 0 and rng.random() < 0.9:
            free -= 1
            made = pod(
                f"crowd-{len(found)}",
                requests={"cpu": "1"},
                nodeName=name,
                priority=rng.choice([-20, -10, -10, -5, 0]),
            )
            began = f"2025-12-31T10:{times.pop():02}:00Z"
            found.append(made | {"status": {"phase": "Running", "startTime": began}})
    return found


def _group(
    rng: random.Random, objects: list[JsonDict], name: str, parent: str, *, devices: bool
) -> list[str]:
    """Add a group with its pods, some of them with a device; return their names."""
    count = rng.randint(1, 5)
    policy: JsonDict = {"gang": {"minCount": max(1, count - rng.choice([0, 0, 0, 1, 2, -1]))}}
    spec: JsonDict = {"schedulingPolicy": policy if rng.random() < 0.85 else {"basic": {}}}
    if rng.random() < 0.6:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    objects.append(_named("PodGroup", name, API, spec))
    names = []
    for number in range(count):
        wanted = {}
        if devices and rng.random() < 0.7:
            wanted = {"gpu": f"{name}-{number}"}
            objects.append(claim(f"{name}-{number}", request("r"), namespace="default"))
        made = pod(
            f"{name}-{number}",
            claims=wanted,
            requests={"cpu": str(rng.choice([1, 1, 2]))},
            schedulingGroup={"podGroupName": name},
            priority=0,
        )
        objects.append(made)
        names.append(made["metadata"]["name"])
    return names


def _named(kind: str, name: str, api_version: str, spec: JsonDict) -> JsonDict:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
