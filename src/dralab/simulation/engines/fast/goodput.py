"""The goodput of a training: its throughput times its statistical efficiency.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning",
OSDI 2021, sections 3 and 4.1. A step computes (linear in the batch of a GPU) and synchronises
(linear in the number of GPUs, otherwise within a node than between nodes), and both overlap partly.
The efficiency of a batch follows from the noise of the gradient.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dralab.kernel.extras import require
from dralab.simulation.workloads.training_profiles import TINY, StepTime

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
# How many batches are tried between the smallest and the largest.
TRIED: Final = 50
# From the third GPU on synchronisation takes longer.
PAIR: Final = 2


class StepModel(NamedTuple):
    """Seconds of a step: computing, synchronising between nodes and within one, and the overlap."""

    compute: float
    compute_each: float
    between: float
    between_each: float
    within: float
    within_each: float
    overlap: float

    def computing(self, local: Any) -> Any:
        """Return how long a batch of one GPU is computed."""
        return self.compute + self.compute_each * local

    def synchronising(self, nodes: Any, gpus: Any) -> Any:
        """Return how long the GPUs synchronise."""
        cases = [nodes > 1, gpus > 1]
        base = np.select(cases, [self.between, self.within], TINY)
        each = np.select(cases, [self.between_each, self.within_each], TINY)
        return base + each * np.maximum(gpus - PAIR, TINY)

    def log_step(self, computing: Any, synchronising: Any) -> Any:
        """Return the logarithm of a whole step; `overlap` 1 is one after the other."""
        power = self.overlap
        return np.log(computing**power + synchronising**power) / power


class Measurements(NamedTuple):
    """Steps of a training that were measured while it ran.

    A row of `terms` has what the first six numbers of a `StepModel` are multiplied by. On one GPU
    nothing is synchronised, which `alone` stands for.
    """

    terms: Floats
    alone: Floats
    computing: Floats
    steps: Floats


def measurements(known: Mapping[tuple[int, int, int], StepTime]) -> Measurements:
    """Return steps by nodes, GPUs and batch of a GPU as columns."""
    nodes, gpus, local = np.array(list(known), dtype=float).T
    steps, sync = np.array([tuple(each) for each in known.values()], dtype=float).T
    more = np.maximum(gpus - PAIR, TINY)
    far, near = nodes > 1, (nodes == 1) & (gpus > 1)
    terms = np.column_stack([np.ones_like(local), local, far, far * more, near, near * more])
    return Measurements(terms, (gpus == 1) * TINY, np.log(steps - sync), np.log(steps))


def fitted(seen: Measurements, tolerance: float | None = None) -> StepModel:
    """Return the model nearest to measurements; what none of them tells costs nothing.

    SciPy stops at a `tolerance`, or at its own if it is None.
    """
    require("training", "the goodput of a training")
    from scipy.optimize import Bounds, minimize

    start = [0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001]
    lower, upper = [TINY] * 6 + [1.0], [np.inf] * 6 + [10.0]
    if len(np.unique(seen.terms[:, 1])) == 1:
        # With one batch alone, half of the time is taken to be independent of it.
        start[0] = lower[0] = upper[0] = float(np.mean(np.exp(seen.computing))) / 2
    far, near = seen.terms[:, 2].any(), seen.terms[:, 4].any()
    third = (seen.terms[:, [3, 5]] >= 1).any()
    for number, known in ((2, far), (3, far and third), (4, near), (5, near and third)):
        if not known:
            start[number] = upper[number] = lower[number]
    found = minimize(
        _misfit,
        start,
        args=(seen,),
        jac=True,
        bounds=Bounds(lower, upper, keep_feasible=True),
        tol=tolerance,
    ).x.tolist()
    if not far:
        found[2] = max(found[2], found[4] * 1.1)
        found[3] = max(found[3], found[5] * 1.1)
    return StepModel(*found)


def _misfit(numbers: Floats, seen: Measurements) -> tuple[float, Floats]:
    """Return the errors of the logarithms, with penalties for doubtful numbers, and its slopes."""
    power, slopes = float(numbers[6]), np.zeros(7)
    of_computing, of_sync = seen.terms[:, :2], seen.terms[:, 2:]
    computing = of_computing @ numbers[:2]
    sync = of_sync @ numbers[2:6] + seen.alone
    log_computing, log_sync = np.log(computing), np.log(sync)
    parts = computing**power, sync**power
    total = parts[0] + parts[1]
    log_step = np.log(total) / power
    error = log_computing - seen.computing
    value = size = math.sqrt(error @ error / len(error))
    if size:
        slopes[:2] += (error / computing) @ of_computing / (len(error) * size)
    error = log_step - seen.steps
    size = math.sqrt(error @ error / len(error))
    value += size
    if size:
        scaled = error / (len(error) * size)
        slopes[:2] += (scaled * parts[0] / (computing * total)) @ of_computing
        slopes[2:6] += (scaled * parts[1] / (sync * total)) @ of_sync
        mixed = (parts[0] * log_computing + parts[1] * log_sync) / total
        slopes[6] += scaled @ (mixed - log_step) / power
    value += 1e-3 * (power - 1) ** 2
    slopes[6] += 2e-3 * (power - 1)
    for base, each in ((2, 3), (4, 5)):
        ratio = numbers[each] / numbers[base]
        value += 1e-2 * ratio**2
        slopes[each] += 2e-2 * ratio / numbers[base]
        slopes[base] -= 2e-2 * ratio**2 / numbers[base]
    return value, slopes


class Goodput(NamedTuple):
    """The best batch for each of some allocations: the batch of a GPU, and how many make a step."""

    values: Floats
    local: Whole
    parts: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputModel:
    """What is known of a training: its steps, its gradient, and the batches that are allowed."""

    steps: StepModel
    gradient: tuple[float, float]
    smallest: int
    largest: int
    smallest_local: int
    largest_local: int

    def efficiency(self, batch: Any) -> Any:
        """Return how much of the progress of small batches a larger one makes with each sample."""
        norm, variance = self.gradient
        scale = batch / self.smallest
        below = variance / scale + norm
        gain = np.where(below > 0, (variance + norm) / below, 1.0)
        return gain / scale

    def best(self, nodes: Any, gpus: Any) -> Goodput:
        """Return the goodput of allocations with the batch that is best for each of them.

        A batch that no GPU holds is computed in parts, one after the other.
        """
        nodes, gpus = np.atleast_1d(nodes).astype(float), np.atleast_1d(gpus).astype(float)
        least = np.maximum(self.smallest, self.smallest_local * gpus)
        wanted = np.geomspace(least, float(self.largest), TRIED) / gpus
        parts = np.ceil(wanted / self.largest_local - TINY)
        # The noise of the gradient cannot be told from one part on one GPU.
        alone = (gpus == 1) & (wanted > self.smallest + TINY)
        parts = np.where(alone, np.maximum(parts, 2), parts)
        local = np.ceil(wanted / parts - TINY)
        computing = self.steps.computing(local)
        step = np.exp(self.steps.log_step(computing, self.steps.synchronising(nodes, gpus)))
        batch = gpus * local * parts
        values = batch / (step + (parts - 1) * computing) * self.efficiency(batch)
        allowed = (self.smallest_local <= local) & (local <= self.largest_local)
        values = np.where(allowed, values, 0.0)
        best = values.argmax(axis=0), np.arange(values.shape[1])
        return Goodput(values[best], local[best].astype(np.int64), parts[best].astype(np.int64))
