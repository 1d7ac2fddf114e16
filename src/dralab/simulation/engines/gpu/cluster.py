"""The nodes of the experiment as columns of numbers, and what placing a pod changes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dralab.simulation.engines.gpu.fragmentation import Flags, Fragmentation, Ints, allows
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode, PodRequest

MOST_STATES: Final = 1 << 16


class GpuCluster:
    """The free resources of each node. Nodes keep the order in which they are given.

    `changed` lists every node that was placed on, in order: callers that cache numbers of nodes see
    in it which are out of date.
    """

    def __init__(self, nodes: Sequence[GpuNode], fragmentation: Fragmentation | None) -> None:
        width = max([1, *(node.gpus for node in nodes)])
        self.nodes = nodes
        self.models = model_names(nodes)
        number = {model: index for index, model in enumerate(self.models)}
        self.cpu: Ints = np.array([node.cpu for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory for node in nodes], dtype=np.int64)
        self.gpus: Ints = np.zeros((len(nodes), width), dtype=np.int64)
        for index, node in enumerate(nodes):
            self.gpus[index, : node.gpus] = WHOLE_GPU
        self.count: Ints = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.model: Ints = np.array([number[node.model] for node in nodes], dtype=np.int64)
        self.slots: Ints = np.array([node.pods for node in nodes], dtype=np.int64)
        self.full_cpu, self.full_memory = self.cpu.copy(), self.memory.copy()
        self.down: Flags = np.zeros(len(nodes), dtype=bool)
        # Scores scale with the largest node, as the authors' constants do with their traces.
        self.largest_cpu = int(max(self.cpu.max(initial=1), 1))
        self.largest_gpu = int(max(self.gpus.sum(axis=1).max(initial=0), WHOLE_GPU))
        self._labelled: dict[str, Flags] = {}
        self._kind_counts: dict[tuple[int, int], int] = {}
        # One bit per kind of GPU pod on the node: bit 0 shares a GPU, bit n has n whole ones.
        self.kinds: Ints = np.zeros(len(nodes), dtype=np.int64)
        self.changed: list[int] = []
        self.capacity = int(self.gpus.sum())
        self.used = 0
        self.fragmentation = fragmentation
        # Of states that nodes were in: nodes come to the same ones again and again.
        self._lost_in: dict[tuple[int, bytes, int], np.float64] = {}
        self.lost = (
            np.zeros(len(nodes))
            if fragmentation is None
            else fragmentation.of_states(self.cpu, self.gpus, self.model)
        )

    @property
    def idle(self) -> int:
        """Free GPU milli."""
        return self.capacity - self.used

    def feasible(self, request: PodRequest, nodes: Ints) -> Flags:
        """Return which of the nodes have the CPU and the GPUs for a request (memory is apart)."""
        fits: Flags = (self.cpu[nodes] >= request.cpu) & ~self.down[nodes]
        if request.labels:
            fits &= self._with_labels(request.labels)[nodes]
        if request.gpus:
            left = self.gpus[nodes]
            if request.gpus == 1:
                fits &= (left >= request.milli).any(axis=1)
            else:
                fits &= (left // request.milli).sum(axis=1) >= request.gpus
            if request.models:
                allowed = np.array([allows(request.models, model) for model in self.models])
                fits &= allowed[self.model[nodes]]
        return fits

    def lacking(self, request: PodRequest, memory: int) -> dict[str, int]:
        """Return the number of nodes refused for each reason; each node counts for its first."""
        masks = {
            "node(s) were down": self.down,
            "node(s) didn't match the node selector": (
                ~self._with_labels(request.labels) if request.labels else None
            ),
            "Insufficient cpu": self.cpu < request.cpu,
            "Insufficient memory": self.memory < memory,
            "Too many pods": self.slots < 1,
        }
        if request.gpus:
            shares = (self.gpus // request.milli).sum(axis=1)
            if request.models:
                allowed = np.array([allows(request.models, model) for model in self.models])
                masks["node(s) had GPUs of another model"] = ~allowed[self.model]
            whole = (
                "GPUs" if request.milli == WHOLE_GPU else f"GPUs with {request.milli} milli left"
            )
            masks[f"Insufficient {whole}"] = shares < request.gpus
        left = np.ones(len(self.nodes), dtype=bool)
        found: dict[str, int] = {}
        for reason, mask in masks.items():
            count = 0 if mask is None else int((left & mask).sum())
            if count and mask is not None:
                found[reason] = count
                left &= ~mask
        if left.any():
            found["node(s) were refused by the policy"] = int(left.sum())
        return found

    def place(self, node: int, request: PodRequest, memory: int, gpus: Sequence[int]) -> None:
        """Take what a pod asks for from a node; `gpus` has an index for each share it takes."""
        self._change(node, request, memory, gpus, 1)

    def release(self, node: int, request: PodRequest, memory: int, gpus: Sequence[int]) -> None:
        """Give back what `place` took."""
        self._change(node, request, memory, gpus, -1)

    def set_down(self, node: int, *, down: bool) -> None:
        """Let a node take no pod, or take pods again."""
        self.down[node] = down
        self.changed.append(node)

    def _change(
        self, node: int, request: PodRequest, memory: int, gpus: Sequence[int], sign: int
    ) -> None:
        self.cpu[node] -= sign * request.cpu
        self.memory[node] -= sign * memory
        self.slots[node] -= sign
        for gpu in gpus:
            self.gpus[node, gpu] -= sign * request.milli
        if request.gpus:
            bit = kind(request)
            count = self._kind_counts.get((node, bit), 0) + sign
            self._kind_counts[node, bit] = count
            self.kinds[node] = self.kinds[node] | bit if count else self.kinds[node] & ~bit
        self.used += sign * request.demand
        if self.fragmentation is not None:
            key = int(self.cpu[node]), self.gpus[node].tobytes(), int(self.model[node])
            lost = self._lost_in.get(key)
            if lost is None:
                one = slice(node, node + 1)
                lost = self.fragmentation.of_states(self.cpu[one], self.gpus[one], self.model[one])[
                    0
                ]
                if len(self._lost_in) >= MOST_STATES:
                    self._lost_in.clear()
                self._lost_in[key] = lost
            self.lost[node] = lost
        self.changed.append(node)

    def _with_labels(self, labels: str) -> Flags:
        found = self._labelled.get(labels)
        if found is None:
            wanted = frozenset(labels.split(","))
            found = np.array([wanted <= node.labels for node in self.nodes], dtype=bool)
            self._labelled[labels] = found
        return found

    def whole_gpus(self, node: int, request: PodRequest) -> list[int]:
        """Return the GPUs for a pod that does not share: the lowest-numbered with enough left."""
        left = self.gpus[node]
        chosen = [int(gpu) for gpu in np.flatnonzero(left >= request.milli)[: request.gpus]]
        if len(chosen) == request.gpus:
            return chosen
        # Several shares of one GPU, which the filter allows for pods of many small shares.
        several = np.repeat(np.arange(len(left)), left // request.milli)
        return [int(gpu) for gpu in several[: request.gpus]]

    def tightest_gpu(self, node: int, milli: int) -> int:
        """Return the GPU with the least left that is enough, the lowest-numbered of equal ones."""
        left = self.gpus[node]
        return int(np.where(left >= milli, left, np.iinfo(np.int64).max).argmin())


def model_names(nodes: Sequence[GpuNode]) -> list[str]:
    """Return the models of the nodes, sorted; the empty one stands for no GPU."""
    return sorted({node.model for node in nodes})


def kind(request: PodRequest) -> int:
    """Return the bit of a GPU pod's kind, as GpuClustering tells them apart."""
    return 1 if request.shares else 1 << request.gpus
