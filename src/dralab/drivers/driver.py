"""The interface of a driver: its devices, and what a container with them gets.

>>> class Lamps(Driver):
...     name = "lamps.example.com"
...
...     def devices(self):
...         return [{"name": "lamp-0", "attributes": {"colour": {"string": "red"}}}]
...
...     def edits(self, claim, result):
...         return ContainerEdits(env=(f"LAMP={result.device}",))
>>> Lamps("node-1").inventory()[0].devices[0]["name"]
'lamp-0'
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from dralab.contracts.cdi import ContainerEdits
from dralab.contracts.plugin import ClaimRef, DeviceHealth
from dralab.objects.claims import allocation_of, results_of
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

__all__ = [
    "AllocatedClaim",
    "AllocatedDevice",
    "ClaimRef",
    "ContainerEdits",
    "DeviceHealth",
    "Driver",
    "OpaqueConfig",
    "PrepareError",
    "SliceOf",
]  # fmt: skip


class PrepareError(Exception):
    """A claim cannot be made ready; the text goes into the pod's event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """One device that a claim got. `request` may name an alternative: `gpu/large`."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str = ""
    admin_access: bool = False
    consumed: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def base(self) -> str:
        """The request without its alternative."""
        return self.request.partition("/")[0]

    @property
    def id(self) -> str:
        """A name for this share of the device within its claim."""
        return f"{self.device}-{self.share_id}" if self.share_id else self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueConfig:
    """Opaque parameters of this driver, from the class or the claim; no requests means all."""

    source: str
    requests: tuple[str, ...]
    parameters: JsonObject

    def covers(self, result: AllocatedDevice) -> bool:
        """Return whether the parameters are meant for a device."""
        return not self.requests or result.request in self.requests or result.base in self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedClaim:
    """An allocated claim, as far as this driver is concerned."""

    ref: ClaimRef
    results: tuple[AllocatedDevice, ...]
    configs: tuple[OpaqueConfig, ...]

    @property
    def admin_access(self) -> bool:
        """Whether any device of the claim is given for administration."""
        return any(result.admin_access for result in self.results)

    def config_for(self, result: AllocatedDevice) -> JsonObject | None:
        """Return the effective parameters of a device: the claim's win, then the last."""
        found = None
        for source in ("FromClass", "FromClaim"):
            for config in self.configs:
                if config.source == source and config.covers(result):
                    found = config.parameters
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOf:
    """The content of one ResourceSlice: devices, or the counters that they share."""

    devices: Sequence[JsonDict] = ()
    counters: Sequence[JsonDict] = ()

    def spec(self) -> JsonDict:
        """Return the fields of the slice's spec."""
        found: JsonDict = {}
        if self.counters:
            found["sharedCounters"] = list(self.counters)
        if self.devices:
            found["devices"] = list(self.devices)
        return found


class Driver:
    """A driver on one node. Override `devices` or `inventory`, and `edits` or `prepare`."""

    name: str = ""
    # The class of the CDI kind `k8s.<driver>/<class>`.
    cdi_class: str = "device"

    def __init__(self, node: str) -> None:
        self.node = node

    def devices(self) -> Sequence[JsonDict]:
        """Return the devices, in the form of a ResourceSlice."""
        return ()

    def inventory(self) -> Sequence[SliceOf]:
        """Return what each slice of the node's pool holds."""
        devices = list(self.devices())
        size = 64 if any("consumesCounters" in d or "taints" in d for d in devices) else 128
        return [SliceOf(devices=devices[at : at + size]) for at in range(0, len(devices), size)]

    def common(self) -> ContainerEdits:
        """Return the edits of every container with a device of this driver."""
        return ContainerEdits(
            env=(f"KUBERNETES_NODE_NAME={self.node}", f"DRA_RESOURCE_DRIVER_NAME={self.name}")
        )

    def edits(self, claim: AllocatedClaim, result: AllocatedDevice) -> ContainerEdits:
        """Return the edits of a container with this device. PrepareError: it is not available."""
        del claim, result
        return ContainerEdits()

    def prepare(self, claim: AllocatedClaim) -> Mapping[AllocatedDevice, ContainerEdits]:
        """Make the devices of a claim ready; called again, it does the same. PrepareError."""
        known = {device["name"] for part in self.inventory() for device in part.devices}
        for result in claim.results:
            if result.device not in known:
                raise PrepareError(f"requested device is not allocatable: {result.device}")
        return {result: self.edits(claim, result) for result in claim.results}

    def unprepare(self, ref: ClaimRef) -> None:
        """Undo `prepare`; an unknown claim is not an error."""

    def health(self) -> Sequence[DeviceHealth]:
        """Return the health of the devices; nothing if the driver does not know it."""
        return ()

    def status(self, claim: AllocatedClaim) -> Sequence[JsonDict] | None:
        """Return entries for the claim's `status.devices`, None to leave it alone."""
        del claim
        return None


def claim_of(claim: JsonObject, driver: str) -> AllocatedClaim:
    """Return an allocated claim as one driver sees it. ValueError: it has no allocation."""
    metadata = claim["metadata"]
    allocation = allocation_of(claim)
    ref = ClaimRef(metadata.get("namespace", ""), metadata["name"], metadata["uid"])
    if allocation is None:
        raise ValueError(f"claim {ref.namespace}/{ref.name} not allocated")
    devices = allocation.get("devices") or {}
    results = tuple(
        AllocatedDevice(
            request=item["request"],
            driver=driver,
            pool=item["pool"],
            device=item["device"],
            share_id=item.get("shareID") or "",
            admin_access=bool(item.get("adminAccess")),
            consumed=dict(item.get("consumedCapacity") or {}),
        )
        for item in results_of(allocation)
        if item["driver"] == driver
    )
    configs = tuple(
        OpaqueConfig(
            source=item.get("source", "FromClaim"),
            requests=tuple(item.get("requests") or ()),
            parameters=item["opaque"].get("parameters") or {},
        )
        for item in devices.get("config") or ()
        if (item.get("opaque") or {}).get("driver") == driver
    )
    return AllocatedClaim(ref=ref, results=results, configs=configs)
