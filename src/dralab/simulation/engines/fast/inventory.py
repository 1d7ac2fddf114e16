"""The nodes and devices of a scenario, read into the state in which pods are placed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from dralab.allocation import v1
from dralab.allocation.allocator import numbered_shares
from dralab.allocation.problem import AllocationFeatures
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.controllers.node_lifecycle import NOT_READY
from dralab.drivers.catalog import DRIVERS
from dralab.drivers.driver import Driver
from dralab.node.node_spec import NodeSpec
from dralab.node.node_status import allocatable_of
from dralab.objects.metadata import NamespacedName, labels_of, metadata_of, spec_of, status_of
from dralab.objects.pod_groups import PodGroups
from dralab.objects.taints import taints_of
from dralab.scheduling.claims import MadeClaim
from dralab.scheduling.demands import DemandReader
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.shares import shared_gpus
from dralab.scheduling.state import ClusterState
from dralab.simulation.engines.fleet_nodes import (
    device_names,
    driver_classes,
    gpu_drivers,
    node_spec,
    slices_of,
)
from dralab.simulation.engines.objects import GPU_PREFIX
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict

# What the GPUs of a fleet are: devices, devices of which parts can be had, or shares.
GpusAre = Literal["devices", "parts", "shares"]


def empty_state(
    claim: Callable[[NamespacedName], JsonDict | None],
    features: AllocationFeatures | None = None,
    own: Callable[[PodInfo], Sequence[MadeClaim]] | None = None,
) -> ClusterState:
    """Return a state without nodes; `features` are those of its release.

    `claim` finds a claim, `own` those that were made for a pod (`DemandReader`).
    """
    table = NodeTable()
    reader = v1.V1Reader(CelSelectorCompiler())
    devices = ClusterDevices(
        table,
        reader,
        share_ids=numbered_shares(),
        features=features,
    )
    groups = PodGroups()
    demands = DemandReader(claim, groups.get, devices.in_flight, own=own)
    return ClusterState(table, devices, demands, groups=groups)


class Inventory:
    """Nodes by name, with their drivers and the names of their devices.

    `gpus` are what the GPUs of the fleet are.
    """

    def __init__(self, nodes: Iterable[GpuNode], gpus: GpusAre = "parts") -> None:
        self.nodes = {node.name: node for node in nodes}
        self.gpus = gpus
        self.drivers = {node.name: self.drivers_of(node) for node in self.nodes.values()}
        self.devices: dict[str, list[str]] = {}
        for name, drivers in self.drivers.items():
            self.note_devices(self.nodes[name], drivers)

    def note_devices(self, node: GpuNode, drivers: Iterable[Driver]) -> None:
        """Note the names of the devices of a node."""
        shared = range(node.gpus if self.gpus == "shares" else 0)
        names = [f"{GPU_PREFIX}{index}" for index in shared]
        self.devices[node.name] = names + device_names(drivers)

    def labels_of(self, node: GpuNode) -> dict[str, str]:
        """Return the labels by which a state knows the GPUs of a node that pods share."""
        return shared_gpus(node.gpus, node.model) if self.gpus == "shares" else {}

    def drivers_of(self, node: GpuNode) -> list[Driver]:
        """Return the drivers of a node that is, or may come to be."""
        of_gpus = [] if self.gpus == "shares" else gpu_drivers(node, shared=self.gpus == "parts")
        return [*of_gpus, *(DRIVERS[name](node.name) for name in node.drivers)]

    def classes(self) -> list[JsonDict]:
        """Return the classes that come with the drivers."""
        return driver_classes(driver for found in self.drivers.values() for driver in found)

    def load(self, state: ClusterState, written: Callable[[str], JsonDict | None]) -> None:
        """Put the nodes and their devices into a state; `written` are nodes that were given."""
        for node in self.nodes.values():
            spec = node_spec(node)
            state.table.put_node(ready_node(spec, written(node.name), self.labels_of(node)))
            for driver in self.drivers[node.name]:
                for name, wire in slices_of(driver):
                    state.devices.put_slice(name, wire)


def ready_node(spec: NodeSpec, given: JsonDict | None, labels: Mapping[str, str]) -> JsonDict:
    """Return a node that is ready, with what it offers and more labels."""
    node = spec.node() if given is None else given
    # The server taints a node that is new; once that is ready, its controller takes that away.
    taints = [taint for taint in taints_of(node) if taint["key"] != NOT_READY]
    status = status_of(node)
    metadata = metadata_of(node)
    if labels:
        metadata = {**metadata, "labels": {**labels_of(node), **labels}}
    return {
        **node,
        "metadata": metadata,
        "spec": {**spec_of(node), "taints": taints},
        "status": {**status, "allocatable": allocatable_of(status, spec.amounts())},
    }
