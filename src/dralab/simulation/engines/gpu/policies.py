# ruff: noqa: ARG002 - every policy takes what any of them needs
"""The policies of the FGD paper: a score per node and shape, and the GPUs to take.

A score depends on nothing but the node's state and the pod's shape, so it is computed again only
for nodes that changed since the shape was last seen (`Scores`). Scores are whole numbers, as in
the authors' simulator; -1 is a node that cannot take the pod.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from dralab.simulation.engines.gpu.cluster import GpuCluster, kind
from dralab.simulation.engines.gpu.fragmentation import Floats, Fragmentation, Ints
from dralab.simulation.workloads.openb import WHOLE_GPU, Shape

# More would take memory for shapes that hardly come again.
MOST_KNOWN: Final = 512


@dataclass(slots=True)
class _Known:
    """Scores of one shape, and up to where in the list of changes they are right."""

    scores: Ints
    gpu: Ints
    seen: int = 0
    fresh: bool = field(default=True)


class Policy(Protocol):
    """Which node, and which of its GPUs."""

    uses_memory: bool

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return a score per node, and the GPU to share per node where the policy minds."""
        ...


class Scores:
    """Scores of every shape on every node, mended where nodes changed."""

    def __init__(self, cluster: GpuCluster, policy: Policy) -> None:
        self.cluster = cluster
        self.policy = policy
        self._known: OrderedDict[tuple[Shape, int], _Known] = OrderedDict()
        self._all = np.arange(len(cluster.nodes), dtype=np.int64)

    def of(self, shape: Shape, memory: int = 0) -> tuple[Ints, Ints]:
        """Return, per node, its score (-1: cannot) and the GPU to share (-1: no wish)."""
        key = (shape, memory if self.policy.uses_memory else 0)
        known = self._known.get(key)
        changes = self.cluster.changed
        if known is None:
            count = len(self._all)
            known = self._known[key] = _Known(np.full(count, -1), np.full(count, -1))
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
            stale = self._all
        elif known.seen < len(changes):
            stale = np.array(sorted(set(changes[known.seen :])), dtype=np.int64)
        else:
            return known.scores, known.gpu
        self._known.move_to_end(key)
        known.seen = len(changes)
        fits = self.cluster.feasible(shape, stale)
        known.scores[stale[~fits]] = -1
        nodes = stale[fits]
        if len(nodes):
            scores, gpu = self.policy.score(self.cluster, shape, memory, nodes)
            known.scores[nodes] = scores
            if gpu is not None:
                known.gpu[nodes] = gpu
        return known.scores, known.gpu


class _WithoutMemory:
    """Memory decides whether a node can, not how good it is."""

    uses_memory = False


class FirstFit(_WithoutMemory):
    """All nodes that can are equal: the first is taken."""

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return zeros."""
        return np.zeros(len(nodes), dtype=np.int64), None


class BestFit(_WithoutMemory):
    """The node that has the least left afterwards, CPU and GPU weighing the same."""

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return 100 for a node that would be full, less the more is left."""
        cpu = (cluster.cpu[nodes] - shape.cpu) / cluster.largest_cpu
        gpu = (cluster.gpus[nodes].sum(axis=1) - shape.demand) / cluster.largest_gpu
        return _truncated(100 * (1 - 0.5 * cpu - 0.5 * gpu)) + 100, None


class DotProduct(_WithoutMemory):
    """The node whose rest points least in the direction of the pod's demand."""

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return 100 less half the product."""
        cpu = cluster.cpu[nodes] / cluster.largest_cpu * (shape.cpu / cluster.largest_cpu)
        gpu = (
            cluster.gpus[nodes].sum(axis=1)
            / cluster.largest_gpu
            * (shape.demand / cluster.largest_gpu)
        )
        return _truncated(100 * (1 - 0.5 * (cpu + gpu))) + 100, None


class GpuPacking(_WithoutMemory):
    """GPUs in use before idle ones, idle ones on nodes in use before nodes that are all idle."""

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return the authors' three bands."""
        if not shape.gpus:
            return np.zeros(len(nodes), dtype=np.int64), None
        left = np.sort(cluster.gpus[nodes], axis=1)
        idle = (left == WHOLE_GPU).sum(axis=1)
        fits = left >= shape.milli
        picked = fits & (fits.cumsum(axis=1) <= shape.gpus)
        picked_idle = (picked & (left == WHOLE_GPU)).sum(axis=1)
        used = 100 - np.where(picked, left * 100 // WHOLE_GPU, 0).sum(axis=1) // 10
        return np.where(
            idle == cluster.count[nodes],
            np.maximum(33 - idle, idle),
            np.where(picked_idle > 0, np.maximum(50 - picked_idle, 33), np.maximum(used, 50)),
        ), None


class GpuClustering(_WithoutMemory):
    """Nodes that already run pods with as many GPUs, and only those, come first."""

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return the band of the node's kinds, plus up to 25 for how full it is."""
        if not shape.gpus:
            return np.zeros(len(nodes), dtype=np.int64), None
        full = 25 * (cluster.largest_gpu - cluster.gpus[nodes].sum(axis=1)) // cluster.largest_gpu
        kinds, own = cluster.kinds[nodes], kind(shape)
        band = np.select([kinds == own, kinds & own != 0, kinds == 0], [75, 50, 25], 0)
        return full + band, None


class WorstFit(_WithoutMemory):
    """The node that has the most left afterwards."""

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return what best fit would, turned round."""
        scores, _ = BestFit().score(cluster, shape, memory, nodes)
        return 1000 - scores, None


class DefaultProfile:
    """kube-scheduler's default scores that differ between nodes: least allocated, and balance.

    NodeResourcesFit (LeastAllocated over CPU and memory) and NodeResourcesBalancedAllocation, each
    with weight 1; ties are broken at random.
    """

    uses_memory = True

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return the sum of both, in hundredths as whole numbers."""
        full_cpu = np.maximum(cluster.full_cpu[nodes], 1)
        full_memory = np.maximum(cluster.full_memory[nodes], 1)
        cpu = (cluster.cpu[nodes] - shape.cpu) / full_cpu
        rest = (cluster.memory[nodes] - memory) / full_memory
        least = (_truncated(100 * cpu) + _truncated(100 * rest)) // 2
        balance = _truncated(100 * (1 - np.abs(cpu - rest) / 2))
        return np.maximum(least + balance, 0), None


class FragmentationGradient(_WithoutMemory):
    """FGD: the node, and on it the GPU, where the fragmentation grows least."""

    def __init__(self, fragmentation: Fragmentation) -> None:
        self.fragmentation = fragmentation

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return 100 times the sigmoid of (fall of F / 1000): 50 where nothing changes."""
        cpu, model = cluster.cpu[nodes] - shape.cpu, cluster.model[nodes]
        left, before = cluster.gpus[nodes], cluster.lost[nodes]
        if not shape.shares:
            if shape.gpus:
                left = np.sort(left, axis=1)
                fits = left >= shape.milli
                left = left - shape.milli * (fits & (fits.cumsum(axis=1) <= shape.gpus))
            return _gradient(before, self.fragmentation.of(cpu, left, model)), None
        # Equal GPUs of a node give equal results, so only the first of them is tried.
        earlier = np.tril(np.ones((left.shape[1],) * 2, dtype=bool), -1)
        repeated = ((left[:, :, None] == left[:, None, :]) & earlier).any(axis=2)
        row, gpu = np.nonzero((left >= shape.milli) & ~repeated)
        after = left[row]
        after[np.arange(len(row)), gpu] -= shape.milli
        scores = np.full(left.shape, -1, dtype=np.int64)
        lost = self.fragmentation.of(cpu[row], after, model[row])
        scores[row, gpu] = _gradient(before[row], lost)
        best = scores.argmax(axis=1)
        return scores[np.arange(len(nodes)), best], best


def _truncated(values: Floats) -> Ints:
    whole: Ints = np.trunc(values).astype(np.int64)
    return whole


def _gradient(before: Floats, after: Floats) -> Ints:
    return _truncated(100 / (1 + np.exp((after - before) / WHOLE_GPU)))


POLICIES: Final[Mapping[str, Callable[[Fragmentation], Policy]]] = {
    "random": lambda _: FirstFit(),
    "dotprod": lambda _: DotProduct(),
    "clustering": lambda _: GpuClustering(),
    "packing": lambda _: GpuPacking(),
    "bestfit": lambda _: BestFit(),
    "fgd": FragmentationGradient,
    "firstfit": lambda _: FirstFit(),
    "worstfit": lambda _: WorstFit(),
    "default": lambda _: DefaultProfile(),
}
TIES_AT_RANDOM: Final = frozenset({"random", "default"})


class Chooser:
    """A policy at work: picks the node and the GPUs of one pod after the other."""

    def __init__(
        self,
        cluster: GpuCluster,
        name: str,
        chance: random.Random,
        custom: Policy | None = None,
    ) -> None:
        if cluster.fragmentation is None:
            raise ValueError("the cluster must follow its fragmentation")
        self.cluster = cluster
        self.name = name
        self.chance = chance
        policy = POLICIES[name](cluster.fragmentation) if custom is None else custom
        self.scores = Scores(cluster, policy)

    def choose(self, shape: Shape, memory: int) -> tuple[int, list[int]] | None:
        """Return the node and the index of each GPU share; None where no node can."""
        scores, wished = self.scores.of(shape, memory)
        room = (self.cluster.memory >= memory) & (self.cluster.slots > 0)
        masked = np.where(room, scores, -1)
        if self.name in TIES_AT_RANDOM:
            best = 0 if self.name == "random" else max(0, int(masked.max()))
            able = np.flatnonzero(masked >= best)
            if not len(able):
                return None
            node = int(able[self.chance.randrange(len(able))])
        else:
            node = int(masked.argmax())
            if masked[node] < 0:
                return None
        return node, self._gpus(node, shape, int(wished[node]))

    def released(self, node: int, shape: Shape, gpus: Sequence[int]) -> None:
        """Hear that a pod has given its GPUs back; scores follow the cluster by themselves."""

    def _gpus(self, node: int, shape: Shape, wished: int) -> list[int]:
        if not shape.gpus:
            return []
        if not shape.shares:
            return self.cluster.whole_gpus(node, shape)
        if wished >= 0:
            return [wished]
        if self.name == "random":
            fitting = np.flatnonzero(self.cluster.gpus[node] >= shape.milli)
            return [int(fitting[self.chance.randrange(len(fitting))])]
        return [self.cluster.tightest_gpu(node, shape.milli)]
