"""Fake GPUs: whole, partitionable by counters, or shared by capacity.

>>> [device["name"] for device in FakeGpus("n1", count=2).devices()]
['gpu-0', 'gpu-1']
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.contracts.cdi import ContainerEdits
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver, PrepareError, SliceOf
from dralab.drivers.go_random import uuids
from dralab.values import quantity
from dralab.values.json_types import JsonDict

CONFIG: Final = "gpu.resource.example.com/v1alpha1"
INTERVALS: Final = ("Default", "Short", "Medium", "Long")
MEMORY: Final = "80Gi"
COMPUTE: Final = 100
BINDING: Final = {
    "bindingConditions": ["BindingConditions"],
    "bindingFailureConditions": ["BindingFailureConditions"],
}


class FakeGpus(Driver):
    """Fake GPUs on one node.

    With `partitions` each card is given out whole or as that many parts; with `shared` several
    claims get parts of its memory and compute; `binding` makes pods wait for a condition;
    `tell_status` writes model and UUID into the claims' status.
    """

    name = "gpu.example.com"
    cdi_class = "gpu"

    def __init__(
        self,
        node: str,
        *,
        name: str = "gpu.example.com",
        count: int = 8,
        partitions: int = 0,
        shared: bool = False,
        binding: bool = False,
        tell_status: bool = False,
    ) -> None:
        super().__init__(node)
        self.name = name
        self.count = count
        self.partitions = partitions
        self.shared = shared
        self.binding = binding
        self.tell_status = tell_status
        self.ids = [f"gpu-{uuid}" for uuid in uuids(node, count)]

    def devices(self) -> Sequence[JsonDict]:
        """Return the devices of all cards."""
        if not self.partitions:
            return [self._device(f"gpu-{n}", n, MEMORY, COMPUTE) for n in range(self.count)]
        found = []
        memory = quantity.render(quantity.parse(MEMORY) // self.partitions, "BinarySI")
        for card in range(self.count):
            for part in range(self.partitions):
                name = f"gpu-{card}-partition-{part}"
                device = self._device(name, card, memory, COMPUTE // self.partitions)
                device["attributes"] |= {
                    "partition": {"int": part},
                    "partitionable": {"bool": True},
                }
                found.append(self._counted(device, card))
            device = self._device(f"gpu-{card}-full", card, MEMORY, COMPUTE)
            device["attributes"] |= {"partitionable": {"bool": True}, "full": {"bool": True}}
            found.append(self._counted(device, card))
        return found

    def inventory(self) -> Sequence[SliceOf]:
        """Return the slices: counters come first, in slices of their own."""
        if not self.partitions:
            return super().inventory()
        counters = [
            {
                "name": f"gpu-{card}-counters",
                "counters": {"memory": {"value": MEMORY}, "compute": {"value": str(COMPUTE)}},
            }
            for card in range(self.count)
        ]
        sets = [SliceOf(counters=counters[at : at + 8]) for at in range(0, len(counters), 8)]
        return [*sets, *super().inventory()]

    def edits(self, claim: AllocatedClaim, result: AllocatedDevice) -> ContainerEdits:
        """Return the variables that tell a container which GPU it has, and how it is shared."""
        config = claim.config_for(result) or {}
        name = result.device
        own = "GPU_DEVICE_" + name.removeprefix("gpu-").upper().replace("-", "_")
        env = [*common_env("GPU", claim, result), f"{own}={name}"]
        env += [f"{own}_{key}={value}" for key, value in sharing(config).items()]
        env += [
            f"{own}_{key.upper()}={result.consumed[key]}"
            for key in ("memory", "compute")
            if key in result.consumed
        ]
        return ContainerEdits(env=tuple(env))

    def status(self, claim: AllocatedClaim) -> Sequence[JsonDict] | None:
        """Return what the claim's status says of its devices."""
        if not self.tell_status:
            return None
        by_name = {device["name"]: device["attributes"] for device in self.devices()}
        return [
            {
                "driver": self.name,
                "pool": result.pool,
                "device": result.device,
                **({"shareID": result.share_id} if result.share_id else {}),
                "data": {
                    key: by_name[result.device][key] for key in ("uuid", "model", "driverVersion")
                },
            }
            for result in claim.results
        ]

    def _device(self, name: str, card: int, memory: str, compute: int) -> JsonDict:
        capacity: dict[str, Any] = {"memory": {"value": memory}, "compute": {"value": str(compute)}}
        if self.shared:
            capacity["memory"]["requestPolicy"] = {
                "default": memory,
                "validRange": {"min": "1Gi", "max": memory, "step": "1Gi"},
            }
            capacity["compute"]["requestPolicy"] = {
                "default": str(compute),
                "validRange": {"min": "1", "max": str(compute), "step": "1"},
            }
        return {
            "name": name,
            "attributes": {
                "index": {"int": card},
                "uuid": {"string": self.ids[card]},
                "model": {"string": "LATEST-GPU-MODEL"},
                "driverVersion": {"version": "1.0.0"},
            },
            "capacity": capacity,
            "allowMultipleAllocations": self.shared,
            **(BINDING if self.binding else {}),
        }

    @staticmethod
    def _counted(device: JsonDict, card: int) -> JsonDict:
        counters = {key: {"value": each["value"]} for key, each in device["capacity"].items()}
        device["consumesCounters"] = [{"counterSet": f"gpu-{card}-counters", "counters": counters}]
        return device


def common_env(prefix: str, claim: AllocatedClaim, result: AllocatedDevice) -> list[str]:
    """Return the variables that every profile sets first: whose device it is."""
    device = re.sub("[^A-Z0-9]+", "_", result.device.upper())
    admin = "true" if claim.admin_access else "false"
    return [
        f"{prefix}_DEVICE_{device}_RESOURCE_CLAIM={claim.ref.uid}",
        f"DRA_ADMIN_ACCESS={admin}",
    ]


def sharing(config: Mapping[str, Any]) -> dict[str, str]:
    """Return how a GPU is shared, of a GpuConfig; PrepareError."""
    found = config.get("sharing")
    if found is None:
        if config and config.get("kind") != "GpuConfig":
            raise PrepareError(f'no kind "{config.get("kind")}" is registered for {CONFIG}')
        found = {"strategy": "TimeSlicing"}
    strategy = found.get("strategy", "")
    slicing, partitioning = found.get("timeSlicingConfig"), found.get("spacePartitioningConfig")
    if strategy == "TimeSlicing":
        if partitioning is not None:
            raise PrepareError("cannot use SpacePartitioningConfig with the 'TimeSlicing' strategy")
        interval = (slicing or {}).get("interval") or "Default"
        if interval not in INTERVALS:
            raise PrepareError(f"unknown time-slice interval: {interval}")
        return {"SHARING_STRATEGY": strategy, "TIMESLICE_INTERVAL": interval}
    if strategy == "SpacePartitioning":
        if slicing is not None:
            raise PrepareError("cannot use TimeSlicingConfig with the 'SpacePartitioning' strategy")
        count = 1 if partitioning is None else partitioning.get("partitionCount", 0)
        if not isinstance(count, int) or count < 0:
            raise PrepareError(f"invalid partition count: {count}")
        return {"SHARING_STRATEGY": strategy, "PARTITION_COUNT": str(count)}
    if not strategy:
        raise PrepareError("no sharing strategy set")
    raise PrepareError(f"unknown GPU sharing strategy: {strategy}")
