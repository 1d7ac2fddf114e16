"""Fake network cards, whose bandwidth and virtual functions many claims share."""

from collections.abc import Sequence
from typing import Final

from dralab.contracts.cdi import ContainerEdits
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver, PrepareError
from dralab.drivers.fake.gpu import common_env
from dralab.drivers.go_random import uuids
from dralab.values import quantity
from dralab.values.json_types import JsonDict

LONGEST_BURST: Final = (1 << 32) - 1  # bytes, as the kernel's token bucket has it


class FakeNics(Driver):
    """Fake network cards on one node."""

    name = "net.example.com"
    cdi_class = "net"

    def __init__(self, node: str, *, name: str = "net.example.com", count: int = 8) -> None:
        super().__init__(node)
        self.name = name
        self.ids = [f"net-{uuid}" for uuid in uuids(node, count)]

    def devices(self) -> Sequence[JsonDict]:
        """Return the cards."""
        speed = {
            "value": "100G",
            "requestPolicy": {
                "default": "1G",
                "validRange": {"min": "100M", "max": "100G", "step": "1M"},
            },
        }
        return [
            {
                "name": f"nic-{number}",
                "attributes": {
                    "index": {"int": number},
                    "uuid": {"string": uuid},
                    "model": {"string": "LATEST-NET-MODEL"},
                    "driverVersion": {"version": "1.0.0"},
                },
                "capacity": {
                    "vfs": {
                        "value": "100",
                        "requestPolicy": {"default": "1", "validValues": ["1"]},
                    },
                    "ingressBandwidth": speed,
                    "egressBandwidth": speed,
                },
                "allowMultipleAllocations": True,
            }
            for number, uuid in enumerate(self.ids)
        ]

    def edits(self, claim: AllocatedClaim, result: AllocatedDevice) -> ContainerEdits:
        """Return the variables that tell a container its rates and bursts."""
        own = "NET_DEVICE_" + result.device.removeprefix("nic-")
        env = common_env("NET", claim, result)
        bursts = (claim.config_for(result) or {}).get("bwBurst") or {}
        for direction in ("ingress", "egress"):
            burst = _plain(bursts.get(f"{direction}Burst", "0"))
            if burst // 8 >= LONGEST_BURST:
                raise PrepareError(f"invalid {direction}Burst: burst cannot be more than 4GB")
            if burst:
                env.append(f"{own}_{direction.upper()}_BURST={burst}")
        for direction in ("ingress", "egress"):
            rate = result.consumed.get(f"{direction}Bandwidth")
            if rate is not None:
                env.append(f"{own}_{direction.upper()}_RATE={_plain(rate)}")
        return ContainerEdits(env=tuple(env))


def _plain(amount: str | int) -> int:
    return int(quantity.parse_any(amount))
