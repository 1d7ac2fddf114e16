"""What the nodes of a fleet are made of: their drivers, slices and amounts, for every engine."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from dralab.drivers.catalog import classes
from dralab.drivers.driver import Driver, SliceOf
from dralab.drivers.fake.sample import SampleDevices
from dralab.node.node_spec import NodeSpec
from dralab.simulation.engines import objects
from dralab.simulation.engines.objects import GPU, MODEL_LABEL
from dralab.simulation.scenario.fleet import taint_of
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode
from dralab.values.json_types import JsonDict


def driver_classes(drivers: Iterable[Driver]) -> list[JsonDict]:
    """Return the classes that come with drivers, each once."""
    made: list[JsonDict] = []
    for name, driver in sorted({driver.name: driver for driver in drivers}.items()):
        if name == objects.GPU_DRIVER:
            # Pods that count GPUs get devices, too.
            body = objects.gpu_class()
            body["spec"]["extendedResourceName"] = GPU
            made.append(body)
        else:
            made += classes(driver)
    return made


def slices_of(driver: Driver) -> Iterator[tuple[str, JsonDict]]:
    """Yield the slices that a driver publishes on its node, by name."""
    contents = [part.spec() for part in driver.inventory()]
    pool = {"name": driver.node, "generation": 1, "resourceSliceCount": len(contents)}
    for index, content in enumerate(contents):
        name = f"{index:05x}-{driver.name}-{driver.node}"
        spec = {"driver": driver.name, "nodeName": driver.node, "pool": pool, **content}
        yield name, {"metadata": {"name": name}, "spec": spec}


def device_names(drivers: Iterable[Driver]) -> list[str]:
    """Return the names of the devices of drivers, in the order of their slices."""
    return [
        device["name"]
        for driver in drivers
        for part in driver.inventory()
        for device in part.devices
    ]


def node_spec(node: GpuNode) -> NodeSpec:
    """Return the specification of a node of a fleet."""
    labels = dict(label.split("=", 1) for label in sorted(node.labels))
    if node.gpus:
        labels.setdefault(MODEL_LABEL, node.model)
    return NodeSpec(
        name=node.name,
        cpu=f"{node.cpu}m",
        memory=str(node.memory),
        pods=str(node.pods),
        labels=labels,
        taints=[taint_of(text) for text in node.taints],
    )


def gpu_drivers(node: GpuNode, *, shared: bool = True) -> list[Driver]:
    """Return the driver of a node's GPUs, if any. `shared`: parts of GPUs can be allocated."""
    if not node.gpus:
        return []
    return [
        SampleDevices(node.name, objects.GPU_DRIVER, _gpu_slices(node.gpus, node.model, shared))
    ]


@lru_cache
def _gpu_slices(count: int, model: str, shared: bool) -> tuple[SliceOf, ...]:  # noqa: FBT001 - a key
    """Return the slices of a node's GPUs; equal nodes share them."""
    devices = objects.gpu_devices(count, model, shared=shared)
    return tuple(SliceOf(devices=devices[at : at + 128]) for at in range(0, count, 128))


def capacity_of(nodes: Iterable[GpuNode]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the total capacity of nodes, and of each type of GPU."""
    nodes = tuple(nodes)
    capacity = {
        "cpu": sum(node.cpu for node in nodes), "memory": sum(node.memory for node in nodes),
    }  # fmt: skip
    types = dict.fromkeys(sorted({node.model for node in nodes if node.model}), 0)
    for node in nodes:
        if node.gpus:
            types[node.model] += WHOLE_GPU * node.gpus
    if types:
        capacity["gpu"] = sum(types.values())
    return capacity, types
