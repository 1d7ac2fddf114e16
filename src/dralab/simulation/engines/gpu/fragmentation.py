"""How much of a node's idle GPU no typical pod could use.

F_n(m) is what pod m of the target workload cannot use on node n: all of the idle GPU where it
cannot run there at all, otherwise the pieces too small for it. F_n is the mean over the typical
pods, weighted by how often they come. Amounts are GPU milli.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dralab.simulation.workloads.openb import GpuPod, PodRequest

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

POPULARITY: Final = 0.95
CLASSES: Final = ("q1", "q2", "q3", "q4", "xl", "xr", "no_access")


def typical_pods(pods: Iterable[GpuPod], popularity: float = POPULARITY) -> dict[PodRequest, int]:
    """Return the most frequent requests that together make up `popularity`, with their counts."""
    counts = Counter(pod.request for pod in pods)
    total, taken = counts.total(), 0
    typical: dict[PodRequest, int] = {}
    for request, count in sorted(
        counts.items(), key=lambda item: (item[1], *item[0]), reverse=True
    ):
        if taken >= popularity * total:
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
        self._total = max(int(counts.sum()), 1)
        self._cpu: Ints = np.array([request.cpu for request in requests], dtype=np.int64)
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
        return lost @ self._counts / self._total

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
        return {name: float((parts[name] @ self._counts).sum() / self._total) for name in CLASSES}

    def _pieces(self, gpus: Ints) -> tuple[Ints, Flags]:
        """Return, per state and typical pod, the milli in too small pieces, and whether it fits."""
        fits = gpus[:, :, None] >= self._sizes
        small = np.einsum("ng,ngs->ns", gpus, ~fits)
        count = fits.sum(axis=1)
        return small[:, self._size_of], count[:, self._size_of] >= self._gpus


def allows(models: str, model: str) -> bool:
    """Return whether a pod restricted to `models` may use a GPU of that model.

    >>> allows("", "T4"), allows("P100|T4", "T4"), allows("P100", "T4"), allows("T4", "")
    (True, True, False, False)
    """
    return not models or model in models.split("|")
