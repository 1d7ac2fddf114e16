"""Fake NUMA nodes, whose CPUs many claims share and count against the node's own."""

from collections.abc import Sequence

from dralab.contracts.cdi import ContainerEdits
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver, PrepareError
from dralab.drivers.fake.gpu import common_env
from dralab.values.json_types import JsonDict


class FakeCpus(Driver):
    """Fake NUMA nodes on one node.

    That their CPUs are the node's own is said as 1.37 says it, or as 1.36 does.
    """

    name = "cpu.example.com"
    cdi_class = "cpu"

    def __init__(
        self,
        node: str,
        *,
        name: str = "cpu.example.com",
        numa_nodes: int = 8,
        cpus_per_numa_node: int = 4,
        as_of_1_36: bool = False,
    ) -> None:
        super().__init__(node)
        self.as_of_1_36 = as_of_1_36
        self.name = name
        self.numa_nodes = numa_nodes
        self.cpus = cpus_per_numa_node

    def devices(self) -> Sequence[JsonDict]:
        """Return the NUMA nodes."""
        key = f"{self.name}/cpu"
        mapping: JsonDict = {"mapping": {"capacityKey": key, "capacityMultiplier": "1"}}
        counted: JsonDict = {"nodeAllocatableResources": {"cpu": mapping}}
        if self.as_of_1_36:
            counted = {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": key}}}
        return [
            {
                "name": f"numa-{number}",
                "attributes": {"numaNodeID": {"int": number}},
                "capacity": {key: {"value": str(self.cpus)}},
                "allowMultipleAllocations": True,
                **counted,
            }
            for number in range(self.numa_nodes)
        ]

    def edits(self, claim: AllocatedClaim, result: AllocatedDevice) -> ContainerEdits:
        """Return the variables that tell a container its NUMA node and how many CPUs of it."""
        if claim.config_for(result) is not None:
            raise PrepareError("configuration not allowed")
        own = "CPU_DEVICE_" + result.device.removeprefix("numa-")
        env = [*common_env("CPU", claim, result), f"{own}={result.device}"]
        cpus = result.consumed.get(f"{self.name}/cpu", result.consumed.get("cpu"))
        if cpus is not None:
            env.append(f"{own}_CONSUMED_CPU={cpus}")
        return ContainerEdits(env=tuple(env))
