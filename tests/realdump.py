"""A real dump of 40 nodes: mixed shapes of sample hardware, recorded slices of a real driver, pods.

`dump()` has everything as servers store it, with what nobody should keep: Secrets, environment
values, managed fields, annotations, addresses. About half of the GPUs are in use.
"""

import functools
import json
import re

import pytest
import yaml

from builders import SHARED, claim, pod, request, worker
from dralab.fleet import rendering, shapes
from dralab.objects.claims import consumer_of
from dralab.scheduling.snapshot import Snapshot

SHAPES = {"h100": 5, "a100": 5, "b200": 2, "sriov": 8, "tpu": 8, "fpga": 8}
DRIVER = SHARED / "testdata" / "dra-example-driver"
RECORDED = ("gpu-8", "partitions", "multi_alloc", "net")
EXAMPLES = ("basic-shared-claim-across-pods", "prioritized-alternatives", "partitionable-devices")
SECRET = "hunter2"
CREATED = "2026-11-20T08:47:{:02d}Z"
WHOLE = 'device.attributes["gpu.nvidia.com"].type == "gpu"'
SLICE = 'device.attributes["gpu.nvidia.com"].type == "mig"'


@functools.cache
def dump():
    """All objects; nobody may change them. Skips where the recorded slices are missing."""
    if not DRIVER.is_dir():
        pytest.skip(f"{DRIVER} is missing")
    found = [*_capacity(), *_recorded(), *_examples()]
    found = [stored(item, number) for number, item in enumerate(found)]
    found += _workloads(found)
    return [*found, *_nobodys_business()]


def stored(item, number):
    """An object as a server has it."""
    metadata = {
        "uid": f"5f3c{number:04x}-0000-4000-8000-00000000cafe",
        "creationTimestamp": CREATED.format(number % 60),
        "resourceVersion": str(1000 + number),
        "managedFields": [{"manager": f"{SECRET}-controller", "operation": "Apply"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET},
    }
    return item | {"metadata": metadata | item["metadata"]}


def _capacity():
    known = set()
    for seed, (shape, count) in enumerate(SHAPES.items()):
        sample = shapes.sample(shape, nodes=count, seed=seed)
        for item in rendering.nodes(sample, {"acme.example/pool": "mergers"}):
            item["status"] |= {
                "addresses": [{"type": "Hostname", "address": SECRET}],
                "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
                "images": [{"names": [f"registry.example/{SECRET}"]}],
            }
            yield item
        for item in rendering.v1(sample):
            if item["kind"] != "DeviceClass" or item["metadata"]["name"] not in known:
                known.add(item["metadata"]["name"])
                yield item


def _recorded():
    yield _class("gpu.example.com")
    for name in RECORDED:
        node = f"ex-{name.replace('_', '-')}"
        text = (DRIVER / "recorded" / f"resourceslices-{name}.json").read_text()
        for item in json.loads(re.sub(r"\bn1\b", node, text)):
            if item["spec"].get("pool"):
                item["metadata"] = {"name": item["metadata"]["name"]}
                yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **item}
        yield worker(node)


def _class(driver):
    expression = f'device.driver == "{driver}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _examples():
    for name in EXAMPLES:
        text = (DRIVER / "examples" / name / f"{name}.yaml").read_text()
        for item in yaml.safe_load_all(text):
            if item and item["kind"] in {"Pod", "ResourceClaim", "ResourceClaimTemplate"}:
                if item["kind"] == "Pod":
                    item["status"] = {"phase": "Pending"}
                yield item


def _workloads(objects):
    """Pods that hold GPUs and slices of GPUs, and some that wait."""
    found = []
    for number in range(40):
        name = f"payroll-{number:02d}"
        wanted, count = ((WHOLE, 1), (WHOLE, 4), (SLICE, 2))[number % 3]
        if number % 10 == 9:
            wanted = f'{WHOLE} && device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("1Ti")) >= 0'
        asked = stored(
            claim(name, request("gpu", "gpu.nvidia.com", wanted, count=count), namespace="finance"),
            2000 + number,
        )
        user = stored(
            pod(name, claims={"gpu": name}, namespace="finance", labels={"team": "mergers"}),
            3000 + number,
        )
        user["spec"]["containers"][0] |= {
            "env": [{"name": "TOKEN", "value": SECRET}],
            "command": ["run", SECRET],
            "image": f"registry.example/{SECRET}",
        }
        user["spec"]["nodeSelector"] = {"acme.example/pool": "mergers"}
        user["status"] = {"phase": "Pending"}
        asked["spec"]["devices"]["config"] = [
            {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"key": SECRET}}}
        ]
        found += [asked, user]
    there = [item for item in objects if item["kind"] not in {"Pod", "ResourceClaim"}]
    snapshot = Snapshot([*there, *found])
    waiting = {each.name: each for each in snapshot.pending()}
    pairs = zip(found[::2], found[1::2], strict=True)
    return [
        item
        for asked, user in pairs
        for item in (_given(snapshot, waiting[user["metadata"]["name"]], asked, user), user)
    ]


def _given(snapshot, waiting, asked, user):
    placed = snapshot.place(waiting)
    if placed is None:
        return asked
    (given,) = placed.objects()
    given["status"]["reservedFor"] = [consumer_of(user)]
    snapshot.accept(placed)
    user["spec"]["nodeName"] = placed.node
    user["status"] = {"phase": "Running", "podIP": "10.1.2.3"}
    return given


def _nobodys_business():
    yield stored(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": "finance"},
            "data": {"password": SECRET},
        },
        9000,
    )
