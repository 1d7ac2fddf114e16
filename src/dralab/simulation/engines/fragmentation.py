"""The fragmentation measure: how much of a node's idle GPU no typical pod could use.

F_n(m) is what pod m of the target workload cannot use on node n: all of the idle GPU where it
cannot run there at all, otherwise the pieces too small for it. F_n is the mean over the typical
pods, weighted by how often they come. Amounts are GPU milli.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dralab.allocation.inventory.row_log import RowLog
from dralab.scheduling.shares import SharedColumns, SharedGpus, Shares, allows
from dralab.simulation.workloads.openb import GpuNode, PodRequest

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

POPULARITY: Final = 0.95
MOST_STATES: Final = 1 << 16
CLASSES: Final = ("q1", "q2", "q3", "q4", "xl", "xr", "no_access")


def typical_pods(pods: Iterable[PodRequest]) -> dict[PodRequest, int]:
    """Return the most frequent requests that together make up 95 %, with their counts."""
    counts = Counter(pods)
    total, taken = counts.total(), 0
    typical: dict[PodRequest, int] = {}
    for request, count in sorted(
        counts.items(), key=lambda item: (item[1], *item[0]), reverse=True
    ):
        if taken >= POPULARITY * total:
            break
        typical[request] = count
        taken += count
    return typical


class Fragmentation:
    """F of many nodes at once, for one set of typical pods.

    A state is (CPU milli left, milli left of each GPU, number of the model); GPUs that a node does
    not have are 0. `models` is the list that the numbers of models index.
    """

    def __init__(self, typical: Mapping[PodRequest, int], models: Sequence[str]) -> None:
        requests = list(typical)
        self.requests = requests
        counts = np.array([typical[request] for request in requests], dtype=np.int64)
        # Whole numbers below 2**53 add up to the same sum in any order, so that a placement that
        # changes nothing scores exactly that, whatever the linear algebra does with its batches.
        self._counts: Floats = counts.astype(np.float64)
        # F times this is whole.
        self.scale = max(int(counts.sum()), 1)
        self._cpu: Ints = np.array([request.cpu for request in requests], dtype=np.int64)
        self._by_cpu = np.argsort(self._cpu, kind="stable")
        self._cpu_steps: list[int] = self._cpu[self._by_cpu].tolist()
        # Of GPUs that nodes had left, also in order: they come to the same ones again and again.
        self._steps: dict[tuple[bytes, int], list[int]] = {}
        self._gpus: Ints = np.array([request.gpus for request in requests], dtype=np.int64)
        self._cpu_only: Flags = self._gpus == 0
        sizes = sorted({request.milli for request in requests})
        self._sizes: Ints = np.array(sizes, dtype=np.int64)
        self._size_of: Ints = np.array(
            [sizes.index(request.milli) for request in requests], dtype=np.int64
        )
        self._allowed: Flags = np.array(
            [[allows(request.models, model) for request in requests] for model in models],
            dtype=bool,
        ).reshape(len(models), len(requests))

    def of_states(self, cpu: Ints, gpus: Ints, model: Ints) -> Floats:
        """Return F for states: `cpu` (n), `gpus` (n, GPUs of a node), `model` (n)."""
        small, enough = self._pieces(gpus)
        usable = enough & (cpu[:, None] >= self._cpu) & self._allowed[model] & ~self._cpu_only
        idle = gpus.sum(axis=1)
        lost = np.where(usable, small, idle[:, None])
        return lost @ self._counts / self.scale

    def of_state(self, cpu: int, gpus: Ints, model: int) -> int:
        """Return `scale` times F of one state, as a step function of CPU."""
        key = gpus.tobytes(), model
        steps = self._steps.get(key)
        if steps is None:
            in_order = np.sort(gpus)
            alike = in_order.tobytes(), model
            steps = self._steps.get(alike)
            if steps is None:
                steps = self._steps_of(in_order, model)
            if len(self._steps) >= MOST_STATES:
                self._steps.clear()
            self._steps[key] = self._steps[alike] = steps
        return steps[bisect_right(self._cpu_steps, cpu)]

    def _steps_of(self, gpus: Ints, model: int) -> list[int]:
        """Return `scale` times F of nodes with these GPUs left, at each step of CPU."""
        small, enough = self._pieces(gpus[None])
        idle = gpus.sum()
        usable = enough[0] & self._allowed[model] & ~self._cpu_only
        saved = np.where(usable, idle - small[0], 0) * self._counts.astype(np.int64)
        all_saved = np.cumsum(saved[self._by_cpu])
        lost = idle * int(self._counts.sum())
        return [int(lost), *(lost - all_saved).tolist()]

    def classes(self, cpu: Ints, gpus: Ints, model: Ints) -> dict[str, float]:
        """Return the idle GPU of all nodes by the reason for which typical pods cannot use it.

        `q3` is what they can use; everything else together is F.
        """
        small, enough = self._pieces(gpus)
        idle = np.broadcast_to(gpus.sum(axis=1)[:, None], small.shape)
        fits_cpu = cpu[:, None] >= self._cpu
        gpu_pod = ~self._cpu_only & self._allowed[model]
        parts = {
            "q1": np.where(gpu_pod & ~enough & ~fits_cpu, idle, 0),
            "q2": np.where(gpu_pod & fits_cpu, np.where(enough, small, idle), 0),
            "q3": np.where(gpu_pod & fits_cpu & enough, idle - small, 0),
            "q4": np.where(gpu_pod & enough & ~fits_cpu, idle, 0),
            "xl": np.where(self._cpu_only & fits_cpu, idle, 0),
            "xr": np.where(self._cpu_only & ~fits_cpu, idle, 0),
            "no_access": np.where(~self._cpu_only & ~self._allowed[model], idle, 0),
        }
        return {name: float((parts[name] @ self._counts).sum() / self.scale) for name in CLASSES}

    def _pieces(self, gpus: Ints) -> tuple[Ints, Flags]:
        """Return the milli in too small pieces, and whether it fits, per state and typical pod."""
        fits = gpus[:, :, None] >= self._sizes
        small = np.einsum("ng,ngs->ns", gpus, ~fits)
        count = fits.sum(axis=1)
        return small[:, self._size_of], count[:, self._size_of] >= self._gpus


class NodesWithGpus(Protocol):
    """What is left on nodes, by row; `NodeTable` is one."""

    touched: RowLog

    @property
    def gpus(self) -> SharedGpus:
        """The GPUs that pods share."""
        ...

    @property
    def size(self) -> int:
        """How many rows there are."""
        ...

    def free(self, resource: str) -> Ints:
        """Return what each node has left of a resource."""
        ...

    def shared_gpus(self) -> SharedColumns:
        """Return what is left of the GPUs that pods share."""
        ...

    def amounts(self, row: int) -> Hashable:
        """Return what is equal for nodes of equal amounts."""
        ...


class NodeRoom:
    """The free CPU and GPUs of nodes whose pods are placed elsewhere."""

    def __init__(self, nodes: Sequence[GpuNode]) -> None:
        self.size = len(nodes)
        self.gpus, self.touched = SharedGpus(), RowLog()
        self._cpu: Ints = np.array([node.cpu for node in nodes], dtype=np.int64)
        for row, node in enumerate(nodes):
            self.gpus.put_node(row, node.gpus, node.model)

    def free(self, resource: str) -> Ints:
        """Return the free CPU of each node."""
        return self._cpu if resource == "cpu" else np.zeros_like(self._cpu)

    def shared_gpus(self) -> SharedColumns:
        """Return what is left of the GPUs."""
        return self.gpus.columns(slice(self.size), self.size)

    def amounts(self, row: int) -> Hashable:
        """Return what is left on a node."""
        return self._cpu.item(row), self.gpus.amounts(row)

    def take(self, row: int, cpu: int, shares: Shares, sign: int) -> None:
        """Count what a pod takes (1) or gives back (-1)."""
        self._cpu[row] -= sign * cpu
        self.gpus.take(row, shares, sign)
        self.touched.add_row(row)


class FragmentationLedger:
    """F of every node, and its sum, as pods come and go."""

    def __init__(self, table: NodesWithGpus, pods: Iterable[PodRequest]) -> None:
        self.table = table
        self._typical = typical_pods(pods)
        self._models, self._models_known = table.gpus.models, len(table.gpus.models)
        self.fragmentation = Fragmentation(self._typical, self._models)
        # `scale` times F is whole, so that sums do not depend on when they were brought up to date.
        self._whole: list[int] = []
        self._sum = 0
        self._by_amounts: dict[Hashable, int] = {}
        self._seen = -1

    def lost_on(self, rows: Ints) -> Floats:
        """Return F of nodes as of the last `catch_up`."""
        whole = self._whole
        return np.array([whole[row] for row in rows.tolist()]) / self.fragmentation.scale

    def catch_up(self) -> float:
        """Update the changed nodes; return the sum."""
        table, touched, scale = self.table, self.table.touched, self.fragmentation.scale
        before, self._seen = self._seen, touched.position
        if before == self._seen:
            return self._sum / scale
        rows = touched.since(before)
        if len(self._whole) != table.size or len(self._models) > self._models_known:
            rows = None
        if rows is None:
            # Nodes of a pool may have come, with GPUs of a model that no other node has.
            self._models_known = len(self._models)
            self.fragmentation = Fragmentation(self._typical, self._models)
            self._by_amounts.clear()
            columns = table.shared_gpus()
            lost = self.fragmentation.of_states(table.free("cpu"), columns.left, columns.model)
            self._whole = np.rint(lost * scale).astype(np.int64).tolist()
            self._sum = sum(self._whole)
            return self._sum / scale
        known, whole = self._by_amounts, self._whole
        for row in rows:
            amounts = table.amounts(row)
            now = known.get(amounts)
            if now is None:
                now = self._of_row(row)
                if len(known) >= MOST_STATES:
                    known.clear()
                known[amounts] = now
            self._sum += now - whole[row]
            whole[row] = now
        return self._sum / scale

    def _of_row(self, row: int) -> int:
        cpu, gpus = self.table.free("cpu"), self.table.gpus
        return self.fragmentation.of_state(cpu.item(row), gpus.left[row], gpus.model.item(row))

    def classes(self) -> dict[str, float]:
        """Return the idle GPU of all nodes by the reason for which typical pods cannot use it."""
        columns = self.table.shared_gpus()
        return self.fragmentation.classes(self.table.free("cpu"), columns.left, columns.model)
