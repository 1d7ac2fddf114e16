# ruff: noqa: ARG002 - every policy takes what any of them needs
"""The policies of the FGD paper: a score per node and request, and the GPUs to take.

A score depends on nothing but the node's state and the pod's request, so it is computed again only
for nodes that changed since the request was last seen (`NodeScores`). Scores are whole numbers, as
in the authors' simulator; -1 is a node that cannot take the pod.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from dralab.simulation.engines.gpu.cluster import GpuCluster, kind
from dralab.simulation.engines.gpu.fragmentation import Floats, Fragmentation, Ints
from dralab.simulation.workloads.openb import WHOLE_GPU, PodRequest

# More would take memory for requests that hardly come again.
MOST_KNOWN: Final = 512


@dataclass(slots=True)
class _Known:
    """Scores of one request, and up to where in the list of changes they are right."""

    scores: Ints
    gpu: Ints
    seen: int = 0
    fresh: bool = field(default=True)


class GpuPolicy(Protocol):
    """A choice: the node, and its GPUs."""

    uses_memory: bool

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return a score per node, and the GPU to share per node where the policy minds."""
        ...


class NodeScores:
    """Scores of every request on every node, updated where nodes changed."""

    def __init__(self, cluster: GpuCluster, policy: GpuPolicy) -> None:
        self.cluster = cluster
        self.policy = policy
        self._known: OrderedDict[tuple[PodRequest, int], _Known] = OrderedDict()
        self._all = np.arange(len(cluster.nodes), dtype=np.int64)

    def scores_of(self, request: PodRequest, memory: int = 0) -> tuple[Ints, Ints]:
        """Return, per node, its score (-1: cannot) and the GPU to share (-1: no wish)."""
        key = (request, memory if self.policy.uses_memory else 0)
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
        fits = self.cluster.feasible(request, stale)
        known.scores[stale[~fits]] = -1
        nodes = stale[fits]
        if len(nodes):
            scores, gpu = self.policy.score(self.cluster, request, memory, nodes)
            known.scores[nodes] = scores
            if gpu is not None:
                known.gpu[nodes] = gpu
        return known.scores, known.gpu


class _WithoutMemory:
    """Memory filters nodes; it is not part of the score."""

    uses_memory = False


class FirstFit(_WithoutMemory):
    """All feasible nodes are equal: the first is taken."""

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return zeros."""
        return np.zeros(len(nodes), dtype=np.int64), None


class BestFit(_WithoutMemory):
    """The node that has the least left afterwards, CPU and GPU weighing the same."""

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return 100 for a node that would be full, less the more is left."""
        cpu = (cluster.cpu[nodes] - request.cpu) / cluster.largest_cpu
        gpu = (cluster.gpus[nodes].sum(axis=1) - request.demand) / cluster.largest_gpu
        return _truncated(100 * (1 - 0.5 * cpu - 0.5 * gpu)) + 100, None


class DotProduct(_WithoutMemory):
    """The node whose rest points least in the direction of the pod's demand."""

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return 100 less half the product."""
        cpu = cluster.cpu[nodes] / cluster.largest_cpu * (request.cpu / cluster.largest_cpu)
        gpu = (
            cluster.gpus[nodes].sum(axis=1)
            / cluster.largest_gpu
            * (request.demand / cluster.largest_gpu)
        )
        return _truncated(100 * (1 - 0.5 * (cpu + gpu))) + 100, None


class GpuPacking(_WithoutMemory):
    """GPUs in use before idle ones, idle ones on nodes in use before nodes that are all idle."""

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return the authors' three bands."""
        if not request.gpus:
            return np.zeros(len(nodes), dtype=np.int64), None
        left = np.sort(cluster.gpus[nodes], axis=1)
        idle = (left == WHOLE_GPU).sum(axis=1)
        fits = left >= request.milli
        picked = fits & (fits.cumsum(axis=1) <= request.gpus)
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
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return the band of the node's kinds, plus up to 25 for how full it is."""
        if not request.gpus:
            return np.zeros(len(nodes), dtype=np.int64), None
        full = 25 * (cluster.largest_gpu - cluster.gpus[nodes].sum(axis=1)) // cluster.largest_gpu
        kinds, own = cluster.kinds[nodes], kind(request)
        band = np.select([kinds == own, kinds & own != 0, kinds == 0], [75, 50, 25], 0)
        return full + band, None


class WorstFit(_WithoutMemory):
    """The node that has the most left afterwards."""

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return what best fit would, turned round."""
        scores, _ = BestFit().score(cluster, request, memory, nodes)
        return 1000 - scores, None


class DefaultProfile:
    """kube-scheduler's default scores that differ between nodes: least allocated, and balance.

    NodeResourcesFit (LeastAllocated over CPU and memory) and NodeResourcesBalancedAllocation, each
    with weight 1; ties are broken at random.
    """

    uses_memory = True

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return the sum of both, in hundredths as whole numbers."""
        full_cpu = np.maximum(cluster.full_cpu[nodes], 1)
        full_memory = np.maximum(cluster.full_memory[nodes], 1)
        cpu = (cluster.cpu[nodes] - request.cpu) / full_cpu
        rest = (cluster.memory[nodes] - memory) / full_memory
        least = (_truncated(100 * cpu) + _truncated(100 * rest)) // 2
        balance = _truncated(100 * (1 - np.abs(cpu - rest) / 2))
        return np.maximum(least + balance, 0), None


class FragmentationGradient(_WithoutMemory):
    """FGD: the node, and on it the GPU, where the fragmentation grows least."""

    def __init__(self, fragmentation: Fragmentation) -> None:
        self.fragmentation = fragmentation

    def score(
        self, cluster: GpuCluster, request: PodRequest, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Return 100 times the sigmoid of (fall of F / 1000): 50 where nothing changes."""
        cpu, model = cluster.cpu[nodes] - request.cpu, cluster.model[nodes]
        left, before = cluster.gpus[nodes], cluster.lost[nodes]
        if not request.shares:
            if request.gpus:
                left = np.sort(left, axis=1)
                fits = left >= request.milli
                left = left - request.milli * (fits & (fits.cumsum(axis=1) <= request.gpus))
            return _gradient(before, self.fragmentation.of_states(cpu, left, model)), None
        # Equal GPUs of a node give equal results, so only the first of them is tried.
        earlier = np.tril(np.ones((left.shape[1],) * 2, dtype=bool), -1)
        repeated = ((left[:, :, None] == left[:, None, :]) & earlier).any(axis=2)
        row, gpu = np.nonzero((left >= request.milli) & ~repeated)
        after = left[row]
        after[np.arange(len(row)), gpu] -= request.milli
        scores = np.full(left.shape, -1, dtype=np.int64)
        lost = self.fragmentation.of_states(cpu[row], after, model[row])
        scores[row, gpu] = _gradient(before[row], lost)
        best = scores.argmax(axis=1)
        return scores[np.arange(len(nodes)), best], best


def _truncated(values: Floats) -> Ints:
    whole: Ints = np.trunc(values).astype(np.int64)
    return whole


def _gradient(before: Floats, after: Floats) -> Ints:
    return _truncated(100 / (1 + np.exp((after - before) / WHOLE_GPU)))


POLICIES: Final[Mapping[str, Callable[[Fragmentation], GpuPolicy]]] = {
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
        custom: GpuPolicy | None = None,
    ) -> None:
        if cluster.fragmentation is None:
            raise ValueError("the cluster must follow its fragmentation")
        self.cluster = cluster
        self.name = name
        self.chance = chance
        policy = POLICIES[name](cluster.fragmentation) if custom is None else custom
        self.scores = NodeScores(cluster, policy)

    def choose(self, request: PodRequest, memory: int) -> tuple[int, list[int]] | None:
        """Return the node and the index of each GPU share; None if no node can."""
        scores, wished = self.scores.scores_of(request, memory)
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
        return node, self._gpus(node, request, int(wished[node]))

    def released(self, node: int, request: PodRequest, gpus: Sequence[int]) -> None:
        """Do nothing: scores follow the cluster by themselves."""

    def _gpus(self, node: int, request: PodRequest, wished: int) -> list[int]:
        if not request.gpus:
            return []
        if not request.shares:
            return self.cluster.whole_gpus(node, request)
        if wished >= 0:
            return [wished]
        if self.name == "random":
            fitting = np.flatnonzero(self.cluster.gpus[node] >= request.milli)
            return [int(fitting[self.chance.randrange(len(fitting))])]
        return [self.cluster.tightest_gpu(node, request.milli)]
