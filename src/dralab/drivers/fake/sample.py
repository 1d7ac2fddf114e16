"""A driver for the devices of a fleet's shape; containers get plain variables."""

import re
from collections.abc import Mapping, Sequence

from dralab.contracts.cdi import ContainerEdits
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver, SliceOf


class SampleDevices(Driver):
    """Devices that another client has written down, such as those of `dralab generate`."""

    def __init__(self, node: str, name: str, contents: Sequence[SliceOf]) -> None:
        super().__init__(node)
        self.name = name
        self.contents = contents

    def inventory(self) -> Sequence[SliceOf]:
        """Return the slices as described."""
        return self.contents

    def edits(self, claim: AllocatedClaim, result: AllocatedDevice) -> ContainerEdits:
        """Return the name of the device, and its UUID where it has one."""
        name = re.sub("[^A-Z0-9]+", "_", result.device.upper())
        env = [f"DEVICE_{name}={result.device}", f"DEVICE_{name}_RESOURCE_CLAIM={claim.ref.uid}"]
        for device in (each for part in self.contents for each in part.devices):
            uuid: Mapping[str, str] = (device.get("attributes") or {}).get("uuid") or {}
            if device["name"] == result.device and "string" in uuid:
                env.append(f"DEVICE_{name}_UUID={uuid['string']}")
        return ContainerEdits(env=tuple(env))


class SampleNetworkDevices(SampleDevices):
    """Network-attached devices, whose slices belong to no node."""

    def inventory(self) -> Sequence[SliceOf]:
        """Return nothing: the slices are published once for all nodes."""
        return ()

    def prepare(self, claim: AllocatedClaim) -> Mapping[AllocatedDevice, ContainerEdits]:
        """Make devices ready that are described elsewhere."""
        return {result: self.edits(claim, result) for result in claim.results}
