"""How nodes are chosen, by the names that scenarios give: the policies of the FGD paper and others.

Each is a score on the one state, over nodes that passed the filters; those of the paper are whole
numbers, as in the authors' simulator. The first of the best is taken.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from dralab.allocation.policy.policies import POLICIES
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable, Numbers, Scores
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.scores import (
    KUBERNETES,
    KeptScores,
    NodeChoice,
    ScoredNodes,
    ScorePlugin,
    with_gpus,
)
from dralab.scheduling.shares import WHOLE, Shares, kind_bit
from dralab.simulation.engines.fragmentation import (
    Floats,
    FragmentationLedger,
)
from dralab.simulation.scenario.schedulers import ALLOCATION_PREFIX, TICKS
from dralab.simulation.workloads.openb import MOST_GPUS

NONE: Final = Shares(0, 0)
# Scores of k8s-cluster-simulator are fractions.
TICK_SCALE: Final = 10_000_000
EARLIER: Final = np.tril(np.ones((MOST_GPUS, MOST_GPUS), dtype=bool), -1)


class First(NodeChoice):
    """All nodes with room are equal: the first is taken."""

    name = "firstfit"
    plugins = ()
    by_node = True


class ByScore(NodeChoice):
    """A score for each node with room, from what is left on it and what the pod asks for."""

    by_node = True

    def __init__(self, name: str, table: NodeTable) -> None:
        self.name = name
        self.plugins = (ScorePlugin(name, 1, self._points),)
        # Scores scale with the largest node, as the authors' constants do with their traces.
        self.largest_cpu = max(int(table.allocatable("cpu").max(initial=1)), 1)
        whole = np.add.reduce(table.shared_gpus().left, axis=1)
        self.largest_gpu = max(int(whole.max(initial=0)), WHOLE)

    def _points(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        del fitting
        return self.score(state.table, pod, pod.shares or NONE)

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return the score of each node; those of nodes that do not fit count for nothing."""
        raise NotImplementedError


class BestFit(ByScore):
    """The node that has the least left afterwards, CPU and GPU weighing the same."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return 100 for a node that would be full, less the more is left."""
        cpu = (table.free("cpu") - pod.requests.get("cpu", 0)) / self.largest_cpu
        left = np.add.reduce(table.shared_gpus().left, axis=1)
        gpu = (left - shares.gpus * shares.milli) / self.largest_gpu
        return _truncated(100 * (1 - 0.5 * cpu - 0.5 * gpu)) + 100


class WorstFit(BestFit):
    """The node that has the most left afterwards."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return what best fit would, turned round."""
        return 1000 - super().score(table, pod, shares)


class DotProduct(ByScore):
    """The node whose rest points least in the direction of the pod's demand."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return 100 less half the product."""
        asked = pod.requests.get("cpu", 0)
        cpu = table.free("cpu") / self.largest_cpu * (asked / self.largest_cpu)
        left = np.add.reduce(table.shared_gpus().left, axis=1)
        demand = shares.gpus * shares.milli
        gpu = left / self.largest_gpu * (demand / self.largest_gpu)
        return _truncated(100 * (1 - 0.5 * (cpu + gpu))) + 100


class GpuPacking(ByScore):
    """GPUs in use before idle ones, idle ones on nodes in use before nodes that are all idle."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return the authors' three bands."""
        del pod
        if not shares.gpus:
            return np.zeros(table.size, dtype=np.int64)
        columns = table.shared_gpus()
        left = np.sort(columns.left, axis=1)
        idle = (left == WHOLE).sum(axis=1)
        fits = left >= shares.milli
        picked = fits & (fits.cumsum(axis=1) <= shares.gpus)
        picked_idle = (picked & (left == WHOLE)).sum(axis=1)
        used = 100 - np.where(picked, left * 100 // WHOLE, 0).sum(axis=1) // 10
        found: Numbers = np.where(
            idle == columns.number,
            np.maximum(33 - idle, idle),
            np.where(picked_idle > 0, np.maximum(50 - picked_idle, 33), np.maximum(used, 50)),
        )
        return found


class GpuClustering(ByScore):
    """Nodes that already run pods with as many GPUs, and only those, come first."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return the band of the node's kinds, plus up to 25 for how full it is."""
        del pod
        if not shares.gpus:
            return np.zeros(table.size, dtype=np.int64)
        columns = table.shared_gpus()
        used = self.largest_gpu - columns.left.sum(axis=1)
        kinds, own = columns.kinds, kind_bit(shares)
        band = np.select([kinds == own, kinds & own != 0, kinds == 0], [75, 50, 25], 0)
        found: Numbers = 25 * used // self.largest_gpu + band
        return found


class FragmentationGradient(ByScore):
    """FGD: the node, and on it the GPU, where the fragmentation grows least."""

    def __init__(self, table: NodeTable, ledger: FragmentationLedger) -> None:
        super().__init__("fgd", table)
        self.ledger = ledger
        # The GPU that gives a node its score, by row, for each request.
        self._best_gpu: dict[tuple[int, Shares], Numbers] = {}

    def _points(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        """Return 100 times the sigmoid of (fall of F / 1000): 50 where nothing changes."""
        table, shares = state.table, pod.shares or NONE
        found = np.zeros(table.size, dtype=np.int64)
        nodes = np.flatnonzero(fitting)
        if not len(nodes):
            return found
        self.ledger.catch_up()
        rows = nodes if isinstance(table.rows, slice) else table.rows[nodes]
        cpu = table.free("cpu")[nodes] - pod.requests.get("cpu", 0)
        columns = table.shared_gpus()
        left, model = columns.left[nodes], columns.model[nodes]
        before, states = self.ledger.lost[rows], self.ledger.fragmentation
        if not shares.is_part:
            if shares.gpus:
                left = np.sort(left, axis=1)
                fits = left >= shares.milli
                left -= shares.milli * (fits & (fits.cumsum(axis=1) <= shares.gpus))
            found[nodes] = _gradient(before, states.of_states(cpu, left, model))
            return found
        # Equal GPUs of a node give equal results, so only the first of them is tried.
        width = left.shape[1]
        repeated = ((left[:, :, None] == left[:, None, :]) & EARLIER[:width, :width]).any(axis=2)
        row, gpu = np.nonzero((left >= shares.milli) & ~repeated)
        after = left[row]
        after[np.arange(len(row)), gpu] -= shares.milli
        scores = np.full(left.shape, -1, dtype=np.int64)
        lost = states.of_states(cpu[row], after, model[row])
        scores[row, gpu] = _gradient(before[row], lost)
        best = scores.argmax(axis=1)
        found[nodes] = scores[np.arange(len(best)), best]
        self._note_gpus(pod, shares, rows, best)
        return found

    def settled(self, table: NodeTable, pod: PodInfo, row: int) -> PodInfo:
        """Return a pod with the GPU of a node where it does the least harm."""
        shares = pod.shares
        if shares is not None and shares.is_part:
            known = self._best_gpu.get((pod.requests.get("cpu", 0), shares))
            # What was found out is old where pods are tried on nodes without scores.
            if known is not None and table.gpus.left[row, known[row]] >= shares.milli:
                return with_gpus(pod, shares, (int(known[row]),))
        return super().settled(table, pod, row)

    def _note_gpus(self, pod: PodInfo, shares: Shares, rows: Numbers, gpus: Numbers) -> None:
        key = pod.requests.get("cpu", 0), shares
        known = self._best_gpu.get(key)
        if known is None or len(known) < self.ledger.table.size:
            if len(self._best_gpu) >= REMEMBERED:
                self._best_gpu.clear()
            known = self._best_gpu[key] = np.zeros(self.ledger.table.size, dtype=np.int64)
        known[rows] = gpus


class AtRandom(NodeChoice):
    """Any of the nodes with the best score; of all with room, where there are no scores."""

    by_node = True

    def __init__(self, name: str, chance: random.Random, plugins: Iterable[ScorePlugin]) -> None:
        self.name = name
        self.plugins = tuple(plugins)
        self.chance = chance

    def best(self, scores: Scores | KeptScores) -> int:
        """Draw one."""
        able = np.flatnonzero(scores >= max(0, scores.max(initial=0)))
        if not len(able):
            return int(scores.argmax())
        return int(able[self.chance.randrange(len(able))])

    def settled(self, table: NodeTable, pod: PodInfo, row: int) -> PodInfo:
        """Return a pod with any GPU that has enough left, where it shares one."""
        shares = pod.shares
        if shares is None or not shares.is_part or self.plugins:
            return super().settled(table, pod, row)
        able = np.flatnonzero(table.gpus.left[row] >= shares.milli)
        return with_gpus(pod, shares, (int(able[self.chance.randrange(len(able))]),))


class ByDevices(First):
    """A policy of the allocator: the node, and its devices, where they cost least."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices = POLICIES[name.removeprefix(ALLOCATION_PREFIX)]


class TickScores(ByScore):
    """k8s-cluster-simulator's: the emptier of CPU and memory, and the more evenly, the better."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return LeastRequested and BalancedResourceAllocation, 0 to 10 each."""
        del shares
        cpu, memory = (_part_left(table, pod, name) for name in ("cpu", "memory"))
        least, balanced = (cpu + memory) / 2 * 10, (1 - np.abs(cpu - memory)) * 10
        return _truncated((least + balanced) * TICK_SCALE)


def _part_left(table: NodeTable, pod: PodInfo, name: str) -> Floats:
    full = table.allocatable(name)
    left = table.free(name) - pod.requests.get(name, 0)
    found: Floats = np.maximum(left, 0) / np.maximum(full, 1)
    return found


def _truncated(values: Floats) -> Numbers:
    whole: Numbers = values.astype(np.int64)
    return whole


def _gradient(before: Floats, after: Floats) -> Numbers:
    return _truncated(100 / (1 + np.exp((after - before) / WHOLE)))


BY_SCORE: Final[Mapping[str, Callable[[str, NodeTable], ByScore]]] = {
    "dotprod": DotProduct,
    "clustering": GpuClustering,
    "packing": GpuPacking,
    "bestfit": BestFit,
    "worstfit": WorstFit,
    **dict.fromkeys(TICKS, TickScores),
}


def choice_named(
    name: str, table: NodeTable, ledger: FragmentationLedger | None, chance: random.Random
) -> NodeChoice:
    """Return the choice of a name; KeyError if there is none."""
    if name == "fgd" and ledger is not None:
        return FragmentationGradient(table, ledger)
    if name in BY_SCORE:
        return BY_SCORE[name](name, table)
    if name.startswith(ALLOCATION_PREFIX):
        return ByDevices(name)
    made: dict[str, Callable[[], Any]] = {
        "firstfit": First,
        "random": lambda: AtRandom(name, chance, ()),
        "default": lambda: AtRandom(name, chance, KUBERNETES.plugins),
    }
    found: NodeChoice = made[name]()
    return found
