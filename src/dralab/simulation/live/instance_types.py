"""The instance types of Karpenter's provider kwok, and those of the catalogue with devices.

Source: `kwok/tools/gen_instance_types.go` of Karpenter, August 2026: CPU, memory, labels, prices;
Linux alone, and no zones. What a device adds to the price is our estimate.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from dralab.fleet import rendering, shapes
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.slices import devices_of
from dralab.simulation.scenario.fleet import ScenarioFleet, checked_node
from dralab.simulation.scenario.node_pools import CAPACITY_TYPE, INSTANCE_TYPE
from dralab.simulation.scenario.pools import ScenarioPool
from dralab.values.json_types import JsonDict
from dralab.values.quantity import parse_any

CPUS: Final = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
# Gibibytes for each CPU, by family.
FAMILIES: Final = {"c": 2, "s": 4, "m": 8}
ARCHITECTURES: Final = ("amd64", "arm64")
PER_CPU: Final = 0.025
PER_GIGABYTE: Final = 0.001
# A device, or a card whose partitions are devices.
PER_DEVICE: Final = 1.0
# What spot machines cost, as a part of the others' price.
SPOT: Final = 0.7
MOST_PODS: Final = 1024
OWN: Final = "karpenter.kwok.sh/instance-"
# Beside the catalogue's names: shapes whose devices are not on nodes.
WITHOUT_DEVICES: Final = frozenset({"network"})


@lru_cache(maxsize=1)
def usual_types() -> tuple[ScenarioPool, ...]:
    """Return the instance types that are offered where no file has others."""
    return (*_plain_types(), *_device_types())


def _plain_types() -> Iterator[ScenarioPool]:
    for cpu in CPUS:
        for family, factor in FAMILIES.items():
            for arch in ARCHITECTURES:
                name, memory = f"{family}-{cpu}x-{arch}-linux", cpu * factor
                labels = {
                    "kubernetes.io/arch": arch,
                    f"{OWN}size": str(cpu),
                    f"{OWN}family": family,
                    f"{OWN}cpu": str(cpu),
                    f"{OWN}memory": f"{memory}Gi",
                }
                capacity = {
                    "cpu": str(cpu),
                    "memory": f"{memory}Gi",
                    "pods": str(min(cpu * 16, MOST_PODS)),
                    "ephemeral-storage": "20Gi",
                }
                # What the kubelet keeps for itself.
                offer = {"cpu": f"{1000 * cpu - 100}m", "memory": f"{1024 * memory - 10}Mi"}
                node: JsonDict = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {},
                    "status": {"capacity": capacity, "allocatable": capacity | offer},
                }
                price = PER_CPU * cpu + PER_GIGABYTE * memory * (1 << 30) / 10**9
                yield from _offerings(name, (node,), price)


def _device_types() -> Iterator[ScenarioPool]:
    for name in shapes.names():
        if name in WITHOUT_DEVICES:
            continue
        sample = shapes.sample(name, nodes=1)
        (node,) = rendering.nodes(sample)
        objects = tuple(rendering.v1(sample))
        offer = node["status"]["allocatable"]
        price = PER_CPU * float(parse_any(offer["cpu"]))
        price += PER_GIGABYTE * float(parse_any(offer["memory"])) / 10**9
        price += PER_DEVICE * _cards(objects)
        yield from _offerings(name, (node, *objects), round(price, 3))


def _offerings(name: str, objects: tuple[JsonDict, ...], price: float) -> Iterator[ScenarioPool]:
    node, *others = objects
    for sort, part in (("on-demand", 1.0), ("spot", SPOT)):
        labels = {**labels_of(node), INSTANCE_TYPE: name, CAPACITY_TYPE: sort}
        own = {**node, "metadata": {**node["metadata"], "labels": labels}}
        fleet = ScenarioFleet(nodes=(checked_node(own, name),), objects=(own, *others))
        pool = ScenarioPool(name=name, fleet=fleet, price=price * part)
        yield pool if sort == "on-demand" else replace(pool, name=f"{name}-spot")


def _cards(objects: tuple[JsonDict, ...]) -> int:
    """Return how many devices there are; those that share counters are one."""
    found: set[tuple[str, str]] = set()
    for item in objects:
        for device in devices_of(item) if item["kind"] == "ResourceSlice" else ():
            sets = [each["counterSet"] for each in device.get("consumesCounters") or ()]
            found |= {(spec_of(item)["driver"], name) for name in sets or [device["name"]]}
    return len(found)
