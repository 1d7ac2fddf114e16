"""Nodes, pools, devices and claims of stages K0 and K1, as in their files.

K1 renamed `resources` to `devices` and put a device claim's requests under `spec.requests`; both
spellings are read. Attributes are plain values by name; a device's win over its pool's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from dralab.prototypes.k8srm.early.capacities import (
    CapacityError,
    CapacityRequest,
    EarlyCapacity,
    Taken,
    Topologies,
    read_capacity,
    read_request,
)
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyDevice:
    """A device (K0: a resource) and what is left of its capacities."""

    name: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacities: tuple[EarlyCapacity, ...] = ()

    def without(self, taken: Sequence[Taken]) -> Self:
        """Return the device that is left; CapacityError names a capacity it does not have."""
        left = list(self.capacities)
        for part in taken:
            for index, capacity in enumerate(left):
                if capacity.key == part.key:
                    left[index] = capacity.without(part)
                    break
            else:
                raise CapacityError(
                    f'allocated capacity "{part.key}" not found in device capacities'
                )
        return replace(self, capacities=tuple(left))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyPool:
    """Devices of one driver on one node, with the attributes they share."""

    name: str
    driver: str
    attributes: Mapping[str, Mapping[str, Any]]
    devices: tuple[EarlyDevice, ...] = ()

    def without(self, device: str, taken: Sequence[Taken]) -> Self:
        """Return the pool once a device gave something."""
        devices = tuple(d.without(taken) if d.name == device else d for d in self.devices)
        return replace(self, devices=devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyNode:
    """A node and its pools."""

    name: str
    pools: tuple[EarlyPool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """A claim for one device (K0: one resource) with all the capacities it asks for."""

    name: str
    driver: str = ""
    constraints: str = ""
    requests: tuple[CapacityRequest, ...] = ()
    topologies: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityClaim:
    """The claims of a pod or of one container."""

    name: str
    claims: tuple[DeviceClaim, ...] = ()


def read_nodes(data: Sequence[Mapping[str, Any]]) -> list[EarlyNode]:
    """Return the nodes of a node file: a list of NodeResources (K0) or NodeDevices (K1)."""
    return [
        EarlyNode(
            name=node["name"], pools=tuple(_read_pool(pool) for pool in node.get("pools") or ())
        )
        for node in data
    ]


def read_pod(data: Mapping[str, Any]) -> list[CapacityClaim]:
    """Return the claims of a PodCapacityClaim: the pod's own first, then its containers'."""
    return [
        _read_claim(data["podClaim"]),
        *(_read_claim(claim) for claim in data.get("containerClaims") or ()),
    ]


def attributes_of(items: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return attributes by name, each with the one typed value it carries."""
    return {
        item["name"]: {key: value for key, value in item.items() if key != "name"} for item in items
    }


def _read_pool(data: Mapping[str, Any]) -> EarlyPool:
    devices = data.get("devices", data.get("resources"))
    return EarlyPool(
        name=data["name"],
        driver=data["driver"],
        attributes=attributes_of(data.get("attributes") or ()),
        devices=tuple(
            EarlyDevice(
                name=device["name"],
                attributes=attributes_of(device.get("attributes") or ()),
                capacities=tuple(read_capacity(item) for item in device.get("capacities") or ()),
            )
            for device in devices or ()
        ),
    )


def _read_claim(data: Mapping[str, Any]) -> CapacityClaim:
    return CapacityClaim(
        name=data["name"],
        claims=tuple(_read_device_claim(claim) for claim in data.get("claims") or ()),
    )


def _read_device_claim(data: Mapping[str, Any]) -> DeviceClaim:
    spec = data.get("spec", data)
    requests = spec.get("requests", spec.get("capacities")) or ()
    return DeviceClaim(
        name=data.get("name") or data["metadata"]["name"],
        driver=spec.get("driver", ""),
        constraints=spec.get("constraints", ""),
        requests=tuple(read_request(item) for item in requests),
        topologies=_read_policies(spec.get("topologies") or ()),
    )


def _read_policies(items: Sequence[Mapping[str, Any]]) -> Topologies:
    return tuple(sorted((item["type"], item.get("policy") or "prefer") for item in items))
