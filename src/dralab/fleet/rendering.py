"""A sample as objects: ResourceSlices of today's API, or the pools of the older generations.

Limits: resource.k8s.io/v1 takes 128 devices a slice (64 with counters) and 8 counter sets, names
that are DNS labels; dra-evolution 128 devices and 128 shared capacities a pool, ids that are C
identifiers. A pool that is larger is split by whole units.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dralab.fleet.model import (
    RACK_LABEL,
    Attribute,
    SampleAmount,
    SampleDevice,
    SampleFleet,
    SamplePool,
)
from dralab.values.json_types import JsonDict
from dralab.values.version import Version

DEVICES_PER_SLICE: Final = 128
DEVICES_WITH_COUNTERS: Final = 64
COUNTER_SETS_PER_SLICE: Final = 8
EVOLUTION_LIMIT: Final = 128


def nodes(
    sample: SampleFleet,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> list[JsonDict]:
    """Return the sample's Node objects, all with these labels and taints."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node.name,
                "labels": {"kubernetes.io/hostname": node.name, **node.labels, **(labels or {})},
            },
            "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
            "status": {
                "allocatable": {"cpu": node.cpu, "memory": node.memory, "pods": "110"},
                "capacity": {"cpu": node.cpu, "memory": node.memory, "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        for node in sample.nodes
    ]


def v1(sample: SampleFleet, taints: Sequence[Mapping[str, str]] = ()) -> Iterator[JsonDict]:
    """Yield the DeviceClasses and ResourceSlices of a sample; `taints` go on every device."""
    for driver in sorted({pool.driver.split("/")[0] for pool in sample.pools}):
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": driver},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
        }
    for pool in sample.pools:
        yield from _slices(pool, taints)


def k8srm(sample: SampleFleet) -> Iterator[JsonDict]:
    """Yield the DevicePools of a sample; a card with counters is a pool of its own."""
    for pool in sample.pools:
        units = list(pool.units) or [""]
        for unit in units:
            part = _of_units(pool, [unit]) if len(units) > 1 else pool
            name = f"{pool.name}-{unit}" if len(units) > 1 else pool.name
            yield _device_pool(part, name)


def evolution(sample: SampleFleet) -> Iterator[JsonDict]:
    """Yield the ResourcePools of a sample, each of whose pools must be of one node."""
    for pool in sample.pools:
        parts = list(_split(pool))
        for number, part in enumerate(parts):
            name = f"{pool.name}-{number}" if len(parts) > 1 else pool.name
            yield _resource_pool(part, name)


WRITERS: Final[Mapping[str, Callable[[SampleFleet], Iterator[JsonDict]]]] = {
    "v1": v1,
    "k8srm": k8srm,
    "evolution": evolution,
}


def _slices(pool: SamplePool, taints: Sequence[Mapping[str, str]]) -> Iterator[JsonDict]:
    units = list(pool.units)
    sets = [
        units[at : at + COUNTER_SETS_PER_SLICE]
        for at in range(0, len(units), COUNTER_SETS_PER_SLICE)
    ]
    size = DEVICES_WITH_COUNTERS if units or taints else DEVICES_PER_SLICE
    chunks = [pool.devices[at : at + size] for at in range(0, len(pool.devices), size)]
    total = len(sets) + len(chunks)
    common: JsonDict = {
        "driver": pool.driver.split("/")[0],
        "pool": {"name": pool.name, "generation": 1, "resourceSliceCount": total},
        **_reach(pool),
    }
    for number, names in enumerate(sets):
        counters = [
            {
                "name": name,
                "counters": {key: {"value": value} for key, value in pool.units[name].items()},
            }
            for name in names
        ]
        yield _slice(f"{pool.name}-counters-{number}", {**common, "sharedCounters": counters})
    for number, chunk in enumerate(chunks):
        devices = [_v1_device(pool, device, taints) for device in chunk]
        yield _slice(f"{pool.name}-{number}", {**common, "devices": devices})


def _slice(name: str, spec: JsonDict) -> JsonDict:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": spec,
    }


def _reach(pool: SamplePool) -> JsonDict:
    if pool.node:
        return {"nodeName": pool.node}
    if not pool.racks:
        return {"allNodes": True}
    expression = {"key": RACK_LABEL, "operator": "In", "values": list(pool.racks)}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _v1_device(
    pool: SamplePool, device: SampleDevice, taints: Sequence[Mapping[str, str]]
) -> JsonDict:
    attributes: JsonDict = {}
    capacity: JsonDict = {name: {"value": value} for name, value in device.capacity.items()}
    for name, value in (*pool.attributes.items(), *device.attributes.items()):
        if isinstance(value, SampleAmount):
            # v1 has no attribute that is a quantity: it is a capacity.
            capacity[_camel(name)] = {"value": value.text}
        elif isinstance(value, Version):
            attributes[_camel(name)] = {"version": str(value)}
        elif isinstance(value, bool):
            attributes[_camel(name)] = {"bool": value}
        elif isinstance(value, int):
            attributes[_camel(name)] = {"int": value}
        else:
            attributes[_camel(name)] = {"string": value}
    found: JsonDict = {"name": _label(device.name), "attributes": attributes}
    if capacity:
        found["capacity"] = capacity
    if device.consumes:
        counters = {name: {"value": value} for name, value in device.consumes.items()}
        found["consumesCounters"] = [{"counterSet": device.unit, "counters": counters}]
    if taints:
        found["taints"] = [dict(taint) for taint in taints]
    return found


def _device_pool(pool: SamplePool, name: str) -> JsonDict:
    spec: JsonDict = {"driver": pool.driver}
    if pool.node:
        spec["nodeName"] = pool.node
    totals = next(iter(pool.units.values()), {})
    if totals:
        spec["sharedResources"] = [_capacity(key, value) for key, value in totals.items()]
    if pool.attributes:
        spec["attributes"] = [_k8srm_attribute(*item) for item in pool.attributes.items()]
    spec["devices"] = [_k8srm_device(device) for device in pool.devices]
    return {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": name},
        "spec": spec,
    }


# The k8srm data know these of a whole card only by number; the evolution data the other way round.
MIG_FLAGS: Final = frozenset({"mig-capable", "mig-enabled"})
NUMBERS: Final = frozenset({"minor", "index"})


def _k8srm_device(device: SampleDevice) -> JsonDict:
    found: JsonDict = {
        "name": device.name,
        "attributes": [
            _k8srm_attribute(*item)
            for item in device.attributes.items()
            if item[0] not in MIG_FLAGS
        ],
    }
    if device.consumes:
        found["sharedResourcesConsumed"] = dict(device.consumes)
    if device.capacity:
        found["claimResourcesProvided"] = [_capacity(*item) for item in device.capacity.items()]
    return found


def _k8srm_attribute(name: str, value: Attribute) -> JsonDict:
    if isinstance(value, SampleAmount):
        return {"name": name, "quantityValue": value.text}
    if isinstance(value, Version):
        return {"name": name, "semVerValue": str(value)}
    if isinstance(value, bool):
        # k8srm has no boolean attribute: the prototypes write them as text.
        return {"name": name, "stringValue": str(value).lower()}
    if isinstance(value, int):
        return {"name": name, "intValue": value}
    return {"name": name, "stringValue": value}


def _resource_pool(pool: SamplePool, name: str) -> JsonDict:
    shared = [
        _capacity(_identifier(f"{unit}-{key}"), value)
        for unit, totals in pool.units.items()
        for key, value in totals.items()
        if value != "0"
    ]
    # That API has no attributes of a pool: a device carries them itself.
    common = {} if pool.units else pool.attributes
    devices = []
    for device in pool.devices:
        own = {k: v for k, v in device.attributes.items() if not pool.units or k not in NUMBERS}
        found: JsonDict = {
            "name": _label(device.name),
            "attributes": [_evolution_attribute(*item) for item in {**common, **own}.items()],
        }
        if device.consumes:
            found["sharedCapacityConsumed"] = [
                _capacity(_identifier(f"{device.unit}-{key}"), value)
                for key, value in device.consumes.items()
            ]
        devices.append(found)
    spec: JsonDict = {"driverName": pool.driver.split("/")[0]}
    if pool.node:
        spec["nodeName"] = pool.node
    if shared:
        spec["sharedCapacity"] = shared
    return {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "kind": "ResourcePool",
        "metadata": {"name": name},
        "spec": {**spec, "devices": devices},
    }


def _evolution_attribute(name: str, value: Attribute) -> JsonDict:
    name = name if "/" in name else _identifier(name)
    if isinstance(value, SampleAmount):
        return {"name": name, "quantity": value.text}
    if isinstance(value, Version):
        return {"name": name, "version": str(value)}
    if isinstance(value, bool):
        return {"name": name, "bool": value}
    # dra-evolution dropped integers: a quantity compares as a number.
    if isinstance(value, int):
        return {"name": name, "quantity": str(value)}
    return {"name": name, "string": value}


def _split(pool: SamplePool) -> Iterator[SamplePool]:
    """Yield parts of a pool within dra-evolution's limits, cut between units."""
    if len(pool.devices) <= EVOLUTION_LIMIT:
        yield pool
        return
    units = list(pool.units)
    half = -(-len(units) // 2)
    while half > 1 and len(_of_units(pool, units[:half]).devices) > EVOLUTION_LIMIT:
        half = -(-half // 2)
    for at in range(0, len(units), half):
        yield _of_units(pool, units[at : at + half])


def _of_units(pool: SamplePool, units: Sequence[str]) -> SamplePool:
    return replace(
        pool,
        units={unit: pool.units[unit] for unit in units},
        devices=tuple(device for device in pool.devices if device.unit in units),
    )


def _capacity(name: str, value: str) -> JsonDict:
    return {"name": name, "capacity": value}


def _label(name: str) -> str:
    """Return a device's name as a DNS label: dots become dashes."""
    return name.replace(".", "-")


def _identifier(name: str) -> str:
    """Return a name as a C identifier."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _camel(name: str) -> str:
    """Return a name as a C identifier in v1's usual spelling; qualified names stay.

    >>> _camel("product-name")
    'productName'
    """
    if "/" in name:
        return name
    first, *rest = name.split("-")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
