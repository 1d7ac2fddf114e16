"""The policies that choose nodes, by their names in scenarios: those of the FGD paper and others.

Each is a score on the one state, over nodes that passed the filters; those of the paper are whole
numbers, as in the authors' simulator. The first of the best is taken.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dralab.allocation.policy.policies import POLICIES
from dralab.scheduling.node_columns import MOST_AMOUNTS, NodeAmounts, Numbers
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable, Scores
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
from dralab.simulation.workloads.openb import MOST_GPUS, GpuNode

NONE: Final = Shares(0, 0)
EARLIER: Final = np.tril(np.ones((MOST_GPUS, MOST_GPUS), dtype=bool), -1)


class First(NodeChoice):
    """The first node with room."""

    name = "firstfit"
    plugins = ()
    kept = np.int8


class ByScore(NodeChoice):
    """The base of policies that score nodes by their free resources and the pod's requests."""

    def __init__(self, name: str, table: NodeTable, coming: Sequence[GpuNode] = ()) -> None:
        self.name = name
        self.plugins = (ScorePlugin(name, 1, self._points),)
        # Scores scale with the largest node, as the authors' constants do with their traces; nodes
        # that are `coming` count, too.
        cpus = [1, *(node.cpu for node in coming)]
        self.largest_cpu = max(int(table.allocatable("cpu").max(initial=1)), *cpus)
        whole = np.add.reduce(table.shared_gpus().left, axis=1)
        gpus = [WHOLE, *(WHOLE * node.gpus for node in coming)]
        self.largest_gpu = max(int(whole.max(initial=0)), *gpus)

    def _points(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        del fitting
        return self.score(state.table, pod, pod.shares or NONE)

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return the score of each node; nodes that do not fit are ignored."""
        raise NotImplementedError


class BestFit(ByScore):
    """The node with the least left afterwards; CPU and GPU have equal weights."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return 100 for a node that would be full, and less the more is left."""
        cpu = (table.free("cpu") - pod.requests.get("cpu", 0)) / self.largest_cpu
        left = np.add.reduce(table.shared_gpus().left, axis=1)
        gpu = (left - shares.gpus * shares.milli) / self.largest_gpu
        return _truncated(100 * (1 - 0.5 * cpu - 0.5 * gpu)) + 100


class WorstFit(BestFit):
    """The node with the most left afterwards."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return the reverse of best fit's score."""
        return 1000 - super().score(table, pod, shares)


class DotProduct(ByScore):
    """The node whose free resources are least aligned with the pod's demand."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return 100 minus half the product."""
        asked = pod.requests.get("cpu", 0)
        cpu = table.free("cpu") / self.largest_cpu * (asked / self.largest_cpu)
        left = np.add.reduce(table.shared_gpus().left, axis=1)
        demand = shares.gpus * shares.milli
        gpu = left / self.largest_gpu * (demand / self.largest_gpu)
        return _truncated(100 * (1 - 0.5 * (cpu + gpu))) + 100


class GpuPacking(ByScore):
    """GPUs in use before idle ones, idle ones on nodes in use before nodes that are all idle."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return the score in the authors' three bands."""
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
    """Nodes that only run pods with as many GPUs come first."""

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
    """FGD: the node and GPU where the fragmentation grows least."""

    def __init__(self, table: NodeTable, ledger: FragmentationLedger) -> None:
        super().__init__("fgd", table)
        self.table = table
        self.ledger = ledger
        # For each request: the GPU that gives nodes of some amounts their score.
        self._best_gpu: dict[tuple[int, Shares], dict[NodeAmounts, int]] = {}

    def _points(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        """Return 100 times the sigmoid of (fall of F / 1000): 50 where nothing changes."""
        table, shares = state.table, pod.shares or NONE
        found = np.zeros(table.size, dtype=np.int64)
        nodes = np.flatnonzero(fitting)
        if not len(nodes):
            return found
        self.ledger.catch_up()
        rows = nodes if isinstance(table.rows, slice) else table.rows[nodes]
        if shares.is_part:
            found[nodes] = self._best_part(pod, shares, rows)
            return found
        cpu = table.free("cpu")[nodes] - pod.requests.get("cpu", 0)
        columns = table.shared_gpus()
        left, model = columns.left[nodes], columns.model[nodes]
        if shares.gpus:
            left = np.sort(left, axis=1)
            fits = left >= shares.milli
            left -= shares.milli * (fits & (fits.cumsum(axis=1) <= shares.gpus))
        lost = self.ledger.fragmentation.of_states(cpu, left, model)
        found[nodes] = _gradient(self.ledger.lost_on(rows), lost)
        return found

    def _best_part(self, pod: PodInfo, shares: Shares, rows: Numbers) -> Numbers:
        """Return the score of rows for a part of a GPU, and record the GPU."""
        ledger, table, gpus = self.ledger, self.table, self.table.gpus
        asked = pod.requests.get("cpu", 0)
        cpu = table.free("cpu")[rows] - asked
        left, model = gpus.left[rows], gpus.model[rows]
        # Equal GPUs of a node give equal results, so only the first of them is tried.
        width = left.shape[1]
        repeated = ((left[:, :, None] == left[:, None, :]) & EARLIER[:width, :width]).any(axis=2)
        row, gpu = np.nonzero((left >= shares.milli) & ~repeated)
        after = left[row]
        after[np.arange(len(row)), gpu] -= shares.milli
        scores = np.full(left.shape, -1, dtype=np.int64)
        lost = ledger.fragmentation.of_states(cpu[row], after, model[row])
        scores[row, gpu] = _gradient(ledger.lost_on(rows)[row], lost)
        best = scores.argmax(axis=1)
        noted = self._notes(asked, shares)
        noted.update(zip(map(table.amounts, rows.tolist()), best.tolist(), strict=True))
        found: Numbers = scores[np.arange(len(best)), best]
        return found

    def settled(self, table: NodeTable, pod: PodInfo, row: int) -> PodInfo:
        """Return a pod with the GPU of a node where fragmentation grows least."""
        shares = pod.shares
        if shares is not None and shares.is_part:
            asked, amounts = pod.requests.get("cpu", 0), table.amounts(row)
            if amounts not in self._notes(asked, shares):
                # Its score was known from another node of equal amounts.
                self.ledger.catch_up()
                self._best_part(pod, shares, np.array([row]))
            return with_gpus(pod, shares, (self._notes(asked, shares)[amounts],))
        return super().settled(table, pod, row)

    def _notes(self, asked: int, shares: Shares) -> dict[NodeAmounts, int]:
        """Return what is known for a request."""
        noted = self._best_gpu.get((asked, shares))
        if noted is None or len(noted) > MOST_AMOUNTS:
            if len(self._best_gpu) >= REMEMBERED:
                self._best_gpu.clear()
            noted = self._best_gpu[asked, shares] = {}
        return noted


class AtRandom(NodeChoice):
    """A random node among those with the best score, or with room."""

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
    """A policy of the allocator: the node and devices of the least cost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices = POLICIES[name.removeprefix(ALLOCATION_PREFIX)]


class TickScores(ByScore):
    """k8s-cluster-simulator's: the emptier of CPU and memory, and the more evenly, the better."""

    def score(self, table: NodeTable, pod: PodInfo, shares: Shares) -> Numbers:
        """Return LeastRequested and BalancedResourceAllocation, 0 to 10 whole points each.

        As in Kubernetes 1.14 (least_requested.go, balanced_resource_allocation.go).
        """
        del shares
        full = [np.maximum(table.allocatable(name), 1) for name in ("cpu", "memory")]
        left = [
            np.maximum(table.free(name) - pod.requests.get(name, 0), 0)
            for name in ("cpu", "memory")
        ]
        least: Numbers = (left[0] * 10 // full[0] + left[1] * 10 // full[1]) // 2
        cpu, memory = ((whole - rest) / whole for whole, rest in zip(full, left, strict=True))
        even = _truncated(np.where(np.minimum(*left) > 0, 1 - np.abs(cpu - memory), 0) * 10)
        return least + even


def _truncated(values: Floats) -> Numbers:
    whole: Numbers = values.astype(np.int64)
    return whole


def _gradient(before: Floats, after: Floats) -> Numbers:
    return _truncated(100 / (1 + np.exp((after - before) / WHOLE)))


BY_SCORE: Final[Mapping[str, Callable[[str, NodeTable, Sequence[GpuNode]], ByScore]]] = {
    "dotprod": DotProduct,
    "clustering": GpuClustering,
    "packing": GpuPacking,
    "bestfit": BestFit,
    "worstfit": WorstFit,
    **dict.fromkeys(TICKS, TickScores),
}


def choice_named(
    name: str,
    table: NodeTable,
    ledger: FragmentationLedger | None,
    chance: random.Random,
    coming: Sequence[GpuNode] = (),
) -> NodeChoice:
    """Return the choice of a name; KeyError if there is none. `coming` nodes may be added."""
    if name == "fgd" and ledger is not None:
        return FragmentationGradient(table, ledger)
    if name in BY_SCORE:
        return BY_SCORE[name](name, table, coming)
    if name.startswith(ALLOCATION_PREFIX):
        return ByDevices(name)
    made: dict[str, Callable[[], Any]] = {
        "firstfit": First,
        "random": lambda: AtRandom(name, chance, ()),
        "default": lambda: AtRandom(name, chance, KUBERNETES.plugins),
    }
    found: NodeChoice = made[name]()
    return found
