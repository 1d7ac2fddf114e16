"""A user's policy for pods: a class with `prefer(pod, node)`, asked for every node with room."""

from typing import Any, NamedTuple

import numpy as np

from dralab.simulation.engines.gpu.cluster import GpuCluster
from dralab.simulation.engines.gpu.fragmentation import Ints
from dralab.simulation.errors import InputError
from dralab.simulation.workloads.openb import WHOLE_GPU, PodRequest

SCALE = 1_000_000
# Scores are whole numbers that are not negative; a user's may be neither.
MIDDLE = 1 << 60


class PodView(NamedTuple):
    """What a pod asks for: CPU in milli, memory in bytes, GPUs, milli of each."""

    cpu: int
    memory: int
    gpus: int
    gpu_milli: int
    models: str


class NodeView(NamedTuple):
    """What is left on a node: CPU in milli, memory in bytes, milli of each GPU."""

    name: str
    cpu: int
    memory: int
    gpus: tuple[int, ...]
    model: str
    cpu_in_all: int
    memory_in_all: int

    @property
    def idle_gpus(self) -> int:
        """GPUs that are free as a whole."""
        return sum(left == WHOLE_GPU for left in self.gpus)


class PreferencePolicy:
    """Makes a policy of a user's `prefer`."""

    uses_memory = True

    def __init__(self, user: Any) -> None:
        self.user = user

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Ask for each node."""
        pod = PodView(request.cpu, memory, request.gpus, request.milli, request.models)
        scores = np.full(len(nodes), -1, dtype=np.int64)
        for position, index in enumerate(nodes.tolist()):
            wish = self.user.prefer(pod, _view(cluster, index))
            if wish is not None:
                scores[position] = MIDDLE + self._scaled(wish)
        return scores, None

    def _scaled(self, wish: Any) -> int:
        try:
            scaled = round(float(wish) * SCALE)
        except (TypeError, ValueError, OverflowError):
            scaled = MIDDLE
        if abs(scaled) >= MIDDLE:
            most = MIDDLE // SCALE
            raise InputError(
                f"{type(self.user).__name__}.prefer",
                f"must return a number between {-most} and {most}, or None, and returned {wish!r}",
            )
        return scaled


def _view(cluster: GpuCluster, index: int) -> NodeView:
    node = cluster.nodes[index]
    return NodeView(
        node.name,
        int(cluster.cpu[index]),
        int(cluster.memory[index]),
        tuple(cluster.gpus[index, : node.gpus].tolist()),
        node.model,
        node.cpu,
        node.memory,
    )
