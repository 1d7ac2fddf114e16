"""What was measured of the training of a model: how fast steps are, and what they achieve.

The format is that of the simulators of Pollux and Sia. A folder holds, for one model:

- `placements.csv`: how long a step takes, and the part of it that synchronises (seconds), with the
  GPUs of each node as digits (`placement`) and the batch of one GPU (`local_bsz`);
- `scalability.csv`: the same on more nodes, with `num_nodes` and `num_replicas`;
- `validation-BATCH.csv`: a training with that batch, one epoch a line: `progress` (steps as if the
  batch was the smallest), `iteration`, and the norm (`grad_sqr`) and variance (`grad_var`) of the
  gradient. Between two batches values are interpolated.
"""

import csv
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from dralab.kernel.extras import require
from dralab.scenarios.errors import InputError, content_of

PLACEMENTS: Final = ("placement", "local_bsz", "step_time", "sync_time")
SCALABILITY: Final = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
VALIDATION: Final = ("progress", "iteration", "grad_sqr", "grad_var")
# Rounding must not turn a whole number into the next.
TINY: Final = 1e-8
Placement = tuple[int, ...]


class StepTime(NamedTuple):
    """Seconds of a step, and those of it that synchronise the GPUs."""

    step: float
    sync: float


class Measured(NamedTuple):
    """A step on so many nodes and GPUs, with the batch of one GPU."""

    nodes: int
    gpus: int
    batch: int
    time: StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """A training with one batch, epoch by epoch."""

    progress: Sequence[float]
    iteration: Sequence[float]
    grad_sqr: Sequence[float]
    grad_var: Sequence[float]


@dataclass(slots=True, kw_only=True)
class TrainingProfile:
    """The measurements of one model on one type of GPU.

    `largest_local` is the largest batch that a GPU holds, `epochs` how many a training has.
    """

    name: str
    placements: Mapping[int, Sequence[Measured]]
    scalability: Sequence[Measured]
    validation: Mapping[int, Epochs]
    epochs: int
    smallest_local: int
    largest_local: int
    _times: dict[tuple[Placement, int], StepTime | None] = field(default_factory=dict)
    _between: Any = None
    _ends: list[float] = field(default_factory=list)

    @property
    def smallest_batch(self) -> int:
        """The batch with which a training begins."""
        return min(self.validation)

    @property
    def largest_batch(self) -> int:
        """The largest batch that was measured."""
        return max(self.validation)

    # --- how fast

    def time(self, placement: Placement, batch: int) -> StepTime | None:
        """Return how long a step takes on nodes with so many GPUs each; None: not measured."""
        key = placement, batch
        if key not in self._times:
            known = self.placements.get(number_of(placement))
            self._times[key] = (
                self._of_more_nodes(placement, batch) if known is None else _on_a_line(known, batch)
            )
        return self._times[key]

    def _of_more_nodes(self, placement: Placement, batch: int) -> StepTime | None:
        """Interpolate between numbers of nodes, of GPUs, and batches."""
        if self._between is None:
            self._between = _interpolator([*_means(self.placements), *self.scalability])
        most = max(each.nodes for each in self.scalability)
        step, sync = self._between([min(len(placement), most), sum(placement), batch])[0].tolist()
        return None if math.isnan(step) else StepTime(step, sync)

    def largest_local_on(self, placement: Placement) -> int:
        """Return the largest batch of a GPU that was measured on a placement."""
        known = self.placements.get(number_of(placement)) or [
            each
            for each in self.scalability
            if each.nodes >= len(placement) and each.gpus >= sum(placement)
        ]
        return max(each.batch for each in known)

    def largest_local_of(self, gpus: int) -> int | None:
        """Return the largest batch that was measured on few nodes with so many GPUs."""
        known = [each for found in self.placements.values() for each in found if each.gpus == gpus]
        return max((each.batch for each in known), default=None)

    # --- what it achieves

    def epoch_end(self, epoch: int) -> float:
        """Return the progress after so many epochs."""
        if not self._ends:
            columns = [each.progress for each in self.validation.values()]
            self._ends = [0.0, *(min(values) for values in zip(*columns, strict=False))]
        return self._ends[epoch]

    def gradient(self, batch: int, epoch: int) -> tuple[float, float]:
        """Return norm and variance of the gradient in an epoch."""
        return (
            self._interpolated("grad_sqr", batch, epoch),
            self._interpolated("grad_var", batch, epoch),
        )

    def iteration(self, batch: int, epoch: int) -> float:
        """Return how many steps a training has made at the end of an epoch."""
        return self._interpolated("iteration", batch, epoch)

    def _interpolated(self, column: str, batch: int, epoch: int) -> float:
        batches = sorted(self.validation)
        place = bisect_left(batches, batch)
        if place == len(batches) or batch < batches[0]:
            known = f"from {batches[0]} to {batches[-1]}"
            raise ValueError(f"{self.name} was measured with batches {known}, not with {batch}")
        upper = batches[place]
        above: float = getattr(self.validation[upper], column)[epoch]
        if upper == batch:
            return above
        lower = batches[place - 1]
        below: float = getattr(self.validation[lower], column)[epoch]
        return ((batch - lower) * above + (upper - batch) * below) / (upper - lower)


def number_of(placement: Placement) -> int:
    """Return a placement as its digits, from the rotation that gives the smallest number.

    >>> number_of((4, 1, 2))
    124
    """
    turned = min(placement[at:] + placement[:at] for at in range(len(placement)))
    return int("".join(map(str, turned)))


def placement_of(number: int) -> Placement:
    """Return the GPUs of each node."""
    return tuple(map(int, str(number)))


def full_nodes(gpus: int, of_a_node: int) -> Placement:
    """Return so many GPUs on as few nodes as can hold them.

    >>> full_nodes(6, 4)
    (4, 2)
    """
    whole, rest = divmod(gpus, of_a_node)
    return (*(of_a_node,) * whole, *((rest,) if rest else ()))


def read_profile(
    folder: Path, *, gpu: str = "", epochs: int, largest_local: int | None = None
) -> TrainingProfile:
    """Return the measurements in a folder, on a type of GPU (`placements-GPU.csv`). InputError."""
    suffix = f"-{gpu}" if gpu else ""
    placements: dict[int, list[Measured]] = {}
    for number, batch, step, sync in _rows(folder / f"placements{suffix}.csv", PLACEMENTS):
        digits = placement_of(int(number))
        measured = Measured(len(digits), sum(digits), int(batch), StepTime(step, sync))
        placements.setdefault(int(number), []).append(measured)
    locals_ = [each.batch for measured in placements.values() for each in measured]
    return TrainingProfile(
        name=folder.name,
        placements={
            number: sorted(measured, key=lambda each: each.batch)
            for number, measured in placements.items()
        },
        scalability=[
            Measured(int(nodes), int(gpus), int(batch), StepTime(step, sync))
            for nodes, gpus, batch, step, sync in _rows(
                folder / f"scalability{suffix}.csv", SCALABILITY
            )
        ],
        validation=dict(_validation(folder)),
        epochs=epochs,
        smallest_local=min(locals_),
        largest_local=largest_local or max(locals_),
    )


def _validation(folder: Path) -> Iterator[tuple[int, Epochs]]:
    paths = sorted(folder.glob("validation-*.csv"))
    if not paths:
        raise InputError(folder, "has no file validation-BATCH.csv")
    for path in paths:
        progress, iteration, sqr, var = zip(*_rows(path, VALIDATION), strict=True)
        batch = int(path.stem.rpartition("-")[2])
        yield (
            batch,
            Epochs(progress=progress, iteration=iteration, grad_sqr=sqr, grad_var=var),
        )


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[float, ...]]:
    reader = csv.DictReader(StringIO(content_of(path).decode()))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(path, f"lacks the column {missing[0]}; it needs {', '.join(columns)}")
    for row in reader:
        try:
            yield tuple(float(row[name]) for name in columns)
        except ValueError as error:
            raise InputError(path, str(error), line=reader.line_num) from None


def _on_a_line(known: Sequence[Measured], batch: int) -> StepTime | None:
    """Interpolate between the batches that were measured on one placement."""
    if not known[0].batch <= batch <= known[-1].batch:
        return None
    if len(known) == 1:
        return known[0].time
    upper = bisect_left(known, batch, lo=1, hi=len(known) - 1, key=lambda each: each.batch)
    low, high = known[upper - 1], known[upper]
    width, beyond = high.batch - low.batch, batch - low.batch
    return StepTime(
        (high.time.step - low.time.step) / width * beyond + low.time.step,
        (high.time.sync - low.time.sync) / width * beyond + low.time.sync,
    )


def _means(placements: Mapping[int, Sequence[Measured]]) -> Iterator[Measured]:
    """Yield the mean over placements of as many nodes and GPUs."""
    everything = sorted(each for measured in placements.values() for each in measured)
    for (nodes, gpus, batch), same in groupby(everything, key=lambda each: each[:3]):
        times = [each.time for each in same]
        step, sync = (math.fsum(column) / len(times) for column in zip(*times, strict=True))
        yield Measured(nodes, gpus, batch, StepTime(step, sync))


def _interpolator(points: Sequence[Measured]) -> Any:
    require("training", "interpolating between numbers of nodes")
    from scipy.interpolate import LinearNDInterpolator

    return LinearNDInterpolator(
        [each[:3] for each in points], [tuple(each.time) for each in points]
    )
