"""The fake driver of the classic demos on today's API: eight devices, split on demand.

The device names are those of the classic driver in lower case; a claim's opaque parameters
`{"kind": "FakeClaimParameters", "spec": {"split": 2}}` split each of its devices.

>>> FakeDevices("fake-dra-driver-cluster-worker").devices()[0]["name"]
'fake-4d6cc6e5-e22d-3807-f026-783d55841ea5'
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dralab.contracts.cdi import ContainerEdits
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver, PrepareError
from dralab.drivers.go_random import draws, text_hash, uuids
from dralab.values.json_types import JsonDict

DRIVER: Final = "fake.resource.3-shake.com"
MODEL: Final = "LATEST-FAKE-MODEL"
COUNT: Final = 8


def parents(node: str) -> list[str]:
    """Return the names of a node's devices, in the order in which they are made."""
    return [f"FAKE-{uuid}" for uuid in uuids(node, COUNT)]


def children(parent: str, split: int) -> list[str]:
    """Return the names of the parts that a device is split into."""
    return [f"FAKE-{uuid}" for uuid in uuids(parent, split)]


def model_of(node: str) -> str:
    """Return the model of a node's devices where each node has its own (v0.1.3 and later).

    >>> model_of("fake-dra-driver-cluster-worker"), model_of("fake-dra-driver-cluster-worker2")
    ('ULTRA_10', 'ULTRA_100')
    """
    first = next(draws(text_hash(node)))
    return "ULTRA_100" if first >> 32 & 1 else "ULTRA_10"


class FakeDevices(Driver):
    """Eight fake devices on one node."""

    name = DRIVER
    cdi_class = "fake"

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.parents = parents(node)

    def common(self) -> ContainerEdits:
        """Return what every container with a fake sees."""
        env = (f"FAKE_NODE_NAME={self.node}", f"DRA_RESOURCE_DRIVER_NAME={DRIVER}")
        return ContainerEdits(env=env)

    def devices(self) -> Sequence[JsonDict]:
        """Return the devices; a slice's names are in lower case."""
        return [
            {
                "name": name.lower(),
                "attributes": {
                    "index": {"int": number},
                    "uuid": {"string": name},
                    "model": {"string": MODEL},
                },
            }
            for number, name in enumerate(self.parents)
        ]

    def prepare(self, claim: AllocatedClaim) -> Mapping[AllocatedDevice, ContainerEdits]:
        """Return the variables `FAKE_DEVICE_<i>`, counted over the whole claim."""
        known = {name.lower(): name for name in self.parents}
        found, number = {}, 0
        for result in claim.results:
            if result.device not in known:
                raise PrepareError(f'requested Fake does not exist: "{result.device}"')
            parent = known[result.device]
            split = ((claim.config_for(result) or {}).get("spec") or {}).get("split", 0)
            if not isinstance(split, int) or split < 0:
                raise PrepareError(
                    f"invalid number of virtual Fakes requested: spec.split={split}; use 0 for a "
                    f"whole device or a positive number of parts"
                )
            env = []
            for name in children(parent, split) if split else [parent]:
                env.append(f"FAKE_DEVICE_{number}={name}")
                number += 1
            found[result] = ContainerEdits(env=tuple(env))
        return found
