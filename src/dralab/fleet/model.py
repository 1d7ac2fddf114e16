"""Nodes, pools and devices, independent of any API.

A *unit* is one physical card: the devices that share its counters. Attribute values are plain
Python values, or `Version` and `SampleAmount` where the API distinguishes those from strings.
"""

from collections.abc import Mapping
from dataclasses import field

from dralab.values.records import dataclass
from dralab.values.version import Version


@dataclass(frozen=True, slots=True)
class SampleAmount:
    """A quantity that an attribute carries, as text: `1G`."""

    text: str


Attribute = bool | int | str | Version | SampleAmount


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleDevice:
    """One device that can be handed out.

    `consumes` maps counters of its unit to quantities; `capacity` is what it has of its own.
    """

    name: str
    attributes: Mapping[str, Attribute]
    unit: str = ""
    consumes: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    shareable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePool:
    """Devices of one driver on one node; without a node, over the network.

    `units` maps a unit to its counters' totals. `racks` are the values of the label
    `topology.dralab.dev/rack` whose nodes reach a network pool.
    """

    name: str
    driver: str
    node: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    units: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    devices: tuple[SampleDevice, ...] = ()
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleNode:
    """A node, with what it has besides devices."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "16"
    memory: str = "64Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFleet:
    """Nodes and the pools of devices on them."""

    nodes: tuple[SampleNode, ...]
    pools: tuple[SamplePool, ...]


RACK_LABEL = "topology.dralab.dev/rack"
