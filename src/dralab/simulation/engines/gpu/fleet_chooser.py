"""The allocator's own policies at work: `allocation:pack` and its like choose nodes and devices.

CPU, memory and labels decide which nodes are candidates; which of them, and which of their GPUs, is
what `dralab.allocation.fleet.Fleet` answers to the pod's claim. Pods without GPUs take the first
node. The allocator's policies count devices: where pods share GPUs, a GPU of which a part is left
counts as free, so they differ less than the policies that see the parts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.policy.policies import POLICIES
from dralab.simulation.engines import gpu_claims
from dralab.simulation.engines.gpu.cluster import GpuCluster
from dralab.simulation.engines.gpu.policies import FirstFit, NodeScores
from dralab.simulation.scenario.schedulers import ALLOCATION_PREFIX
from dralab.simulation.workloads.openb import PodRequest


class FleetChooser:
    """Asks a fleet for every pod that wants GPUs."""

    def __init__(self, cluster: GpuCluster, name: str, *, shared: bool) -> None:
        self.cluster = cluster
        self.shared = shared
        self.policy = POLICIES[name.removeprefix(ALLOCATION_PREFIX)]
        self.scores = NodeScores(cluster, FirstFit())
        with_gpus = [node for node in cluster.nodes if node.gpus]
        self.fleet = Fleet(
            [{"metadata": {"name": node.name}} for node in cluster.nodes],
            [gpu_claims.slice_of(node, shared=shared) for node in with_gpus],
            [gpu_claims.device_class()],
        )
        self.number = {node.name: index for index, node in enumerate(cluster.nodes)}
        self._claims: dict[PodRequest, dict[str, Any]] = {}
        self._held: dict[tuple[int, PodRequest, tuple[int, ...]], list[dict[str, Any]]] = {}

    def choose(self, request: PodRequest, memory: int) -> tuple[int, list[int]] | None:
        """Return the node and its GPUs; the fleet holds them from now on."""
        scores, _ = self.scores.scores_of(request, memory)
        able = (scores >= 0) & (self.cluster.memory >= memory) & (self.cluster.slots > 0)
        if not able.any():
            return None
        if not request.gpus:
            return int(able.argmax()), []
        claim = self._claims.get(request)
        if claim is None:
            claim = self._claims[request] = gpu_claims.claim_of("pod", request, shared=self.shared)
        candidates = int.from_bytes(np.packbits(able, bitorder="little").tobytes(), "little")
        found = self.fleet.allocate([claim], candidates, self.policy)
        if not isinstance(found, DevicePlacement):
            return None
        node = self.number[found.node]
        results = found.allocations[0]["devices"]["results"]
        gpus = [int(result["device"].removeprefix(gpu_claims.PREFIX)) for result in results]
        key = (node, request, tuple(gpus))
        self._held.setdefault(key, []).append(found.allocations[0])
        return node, gpus

    def released(self, node: int, request: PodRequest, gpus: Sequence[int]) -> None:
        """Give an allocation back to the fleet."""
        held = self._held.get((node, request, tuple(gpus)))
        if held:
            self.fleet.release(held.pop())
