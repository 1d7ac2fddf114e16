"""Shared GPUs: what is left of each, for every row of the node table.

A share is thousandths of one GPU. Such GPUs are no devices of resource.k8s.io: simulations of
clusters that share GPUs have them (Alibaba's openb), and nodes without them take no room here.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

WHOLE: Final = 1000
# Pods that ask alike often have the GPUs of the same numbers.
MOST_SHARES: Final = 1 << 14
# How many GPUs a pod has is a bit of 64.
KIND_BITS: Final = 6
# The label of a node with such GPUs: how many, and of which model.
SHARED_GPUS: Final = "simulation.dralab.dev/shared-gpus"


class Shares(NamedTuple):
    """What a pod asks of the GPUs of its node: `milli` of each of `gpus`, of one of `models`.

    `models` are joined by `|`; empty: any. `taken` are the numbers of its GPUs once it has a node.
    """

    gpus: int
    milli: int
    models: str = ""
    taken: tuple[int, ...] = ()

    @property
    def is_part(self) -> bool:
        """Whether it is a part of one GPU."""
        return self.gpus == 1 and self.milli < WHOLE


@lru_cache(maxsize=MOST_SHARES)
def having(shares: Shares, taken: tuple[int, ...]) -> Shares:
    """Return shares of these GPUs."""
    return shares._replace(taken=taken)


def shared_gpus(gpus: int, model: str) -> dict[str, str]:
    """Return the labels of a node with so many GPUs that pods share.

    >>> shared_gpus(8, "T4")
    {'simulation.dralab.dev/shared-gpus': '8.T4'}
    """
    return {SHARED_GPUS: f"{gpus}.{model}"} if gpus else {}


class SharedColumns:
    """Some rows of shared GPUs."""

    __slots__ = ("_gpus", "_rows", "left")

    def __init__(self, gpus: "SharedGpus", rows: slice | Numbers) -> None:
        self._gpus = gpus
        self._rows = rows
        # What is left of each GPU; 0 where a node has no such GPU.
        self.left: Numbers = gpus.left[rows]

    @property
    def models(self) -> list[str]:
        """The models, by number."""
        return self._gpus.models

    @property
    def model(self) -> Numbers:
        """The number of each node's model."""
        return self._gpus.model[self._rows]

    @property
    def number(self) -> Numbers:
        """How many GPUs each node has."""
        return self._gpus.number[self._rows]

    @property
    def kinds(self) -> Numbers:
        """The kinds of pods on each node: bit 0 has a part of a GPU, bit n has n whole ones."""
        return self._gpus.kinds[self._rows]


class SharedGpus:
    """The GPUs of all nodes; `left[row, gpu]` is 0 where a node has no such GPU."""

    def __init__(self) -> None:
        self.models: list[str] = [""]
        self.left: Numbers = np.zeros((0, 1), dtype=np.int64)
        self.model: Numbers = np.zeros(0, dtype=np.int64)
        self.number: Numbers = np.zeros(0, dtype=np.int64)
        self.kinds: Numbers = np.zeros(0, dtype=np.int64)
        # How many pods of each kind there are on a node: by row and kind in one number.
        self._kind_counts: dict[int, int] = {}

    def put_node(self, row: int, gpus: int, model: str) -> None:
        """Give a node its GPUs; all of them are free."""
        if model not in self.models:
            self.models.append(model)
        self._reach(row + 1, gpus)
        self.left[row] = 0
        self.left[row, :gpus] = WHOLE
        self.number[row], self.kinds[row] = gpus, 0
        self.model[row] = self.models.index(model)

    def put_labelled(self, row: int, label: str) -> None:
        """Give a node the GPUs of its label, all of them free; none where it is empty."""
        if label:
            count, _, model = label.partition(".")
            self.put_node(row, int(count), model)
        elif row < len(self.number) and self.number[row]:
            self.put_node(row, 0, "")

    def columns(self, rows: slice | Numbers, size: int) -> SharedColumns:
        """Return some of the first `size` rows."""
        if size > len(self.model):
            self._reach(size, 1)
        return SharedColumns(self, rows)

    def amounts(self, row: int) -> bytes:
        """Return the state of a row's GPUs: equal for equivalent rows."""
        if row >= len(self.number) or not self.number[row]:
            return b""
        parts = self.left[row], self.number[row], self.model[row], self.kinds[row]
        return b"".join([part.tobytes() for part in parts])

    def used_part(self, row: int) -> float | None:
        """Return the part of a row's GPUs that is in use; None where it has none."""
        if row >= len(self.number) or not self.number[row]:
            return None
        return 1 - int(self.left[row].sum()) / (WHOLE * int(self.number[row]))

    def of(self, row: int) -> tuple[Numbers, int] | None:
        """Return what is left of each GPU of a row, and its kinds; None where it has none."""
        if row >= len(self.number) or not self.number[row]:
            return None
        return self.left[row].copy(), int(self.kinds[row])

    def take(self, row: int, shares: Shares, sign: int) -> None:
        """Count what a pod takes (1) or gives back (-1)."""
        self.move(row, shares, sign, turned=self.count_kind(row, shares, sign))

    def count_kind(self, row: int, shares: Shares, sign: int) -> bool:
        """Count a pod among those of its kind; return whether it is the first or was the last."""
        if not shares.taken:
            return False
        kind = row << KIND_BITS | (0 if shares.is_part else shares.gpus)
        count = self._kind_counts.get(kind, 0) + sign
        if count:
            self._kind_counts[kind] = count
        else:
            del self._kind_counts[kind]
        return count == (sign > 0)

    def move(self, row: int, shares: Shares, sign: int, *, turned: bool) -> None:
        """Count the GPUs of a pod; `turned`: it is the first of its kind, or was the last."""
        for gpu in shares.taken:
            self.left[row, gpu] -= sign * shares.milli
        if turned:
            bit, kinds = kind_bit(shares), self.kinds[row]
            self.kinds[row] = kinds | bit if sign > 0 else kinds & ~bit

    def chosen(self, row: int, shares: Shares) -> tuple[int, ...]:
        """Return the GPUs for a pod: of a part the fullest that is enough, else the first ones."""
        left = self.left[row]
        if shares.is_part:
            enough = np.where(left >= shares.milli, left, np.iinfo(np.int64).max)
            return (int(enough.argmin()),)
        able = np.flatnonzero(left >= shares.milli)[: shares.gpus]
        if len(able) < shares.gpus:
            # Several shares of one GPU, which the filter allows for pods of many small shares.
            able = np.repeat(np.arange(len(left)), left // shares.milli)[: shares.gpus]
        return tuple(able.tolist())

    def _reach(self, rows: int, gpus: int) -> None:
        height, width = self.left.shape
        if rows <= height and gpus <= width:
            return
        if rows > height:
            height = max(64, 2 * rows)
        grown = np.zeros((height, max(width, gpus)), dtype=np.int64)
        grown[: self.left.shape[0], :width] = self.left
        self.left = grown
        self.model, self.number, self.kinds = (
            np.pad(column, (0, height - len(column)))
            for column in (self.model, self.number, self.kinds)
        )


def has_room(columns: SharedColumns, shares: Shares) -> Mask:
    """Return the nodes whose GPUs have what a pod asks for, whatever their model."""
    if shares.gpus == 1:
        one: Mask = np.logical_or.reduce(columns.left >= shares.milli, axis=1)
        return one
    several: Mask = (columns.left // shares.milli).sum(axis=1) >= shares.gpus
    return several


def has_model(columns: SharedColumns, shares: Shares) -> Mask | None:
    """Return the nodes with a model that a pod may use; None if it may use any."""
    if not shares.models:
        return None
    allowed = np.array([allows(shares.models, model) for model in columns.models])
    found: Mask = allowed[columns.model]
    return found


def allows(models: str, model: str) -> bool:
    """Return whether a pod restricted to `models` may use a GPU of that model.

    >>> allows("", "T4"), allows("P100|T4", "T4"), allows("P100", "T4"), allows("T4", "")
    (True, True, False, False)
    """
    return not models or model in models.split("|")


def kind_bit(shares: Shares) -> int:
    """Return the bit of a pod's kind: one that shares a GPU, or how many it has."""
    return 1 if shares.is_part else 1 << shares.gpus
