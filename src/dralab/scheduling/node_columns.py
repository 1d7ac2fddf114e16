"""What nodes offer and have left, as columns of numbers: one row a node.

A pod that comes to a node, or leaves it, changes its amounts as another such pod has done on a node
of equal amounts. Then the result is known, and the columns are written once somebody reads them.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dralab.objects.nodes import PODS
from dralab.objects.requests import base_units
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.shares import SharedColumns, SharedGpus, Shares

Numbers = NDArray[np.int64]

# cpu and memory, the first two columns, have other amounts in scores.
SCORED: Final = 2
# Amounts of nodes that are remembered; beyond it they are forgotten, which costs time alone.
MOST_AMOUNTS: Final = 1 << 17
# Pods that come to, or leave, nodes of the same amounts likewise.
MOST_MOVES: Final = 1_024


class NodeAmounts:
    """All amounts of a node, offered and free. Nodes of equal amounts share one object.

    `moves` are the amounts after a pod has come or gone, `chosen` the GPUs of pods that share them.
    `left` and `gpus` are what the columns hold of it; `gpus` is None without shared GPUs.
    """

    __slots__ = ("chosen", "gpus", "left", "moves")

    def __init__(self, left: Numbers, gpus: tuple[Numbers, int] | None) -> None:
        self.left = left
        self.gpus = gpus
        self.moves: dict[Hashable, NodeAmounts] = {}
        self.chosen: dict[Shares, tuple[int, ...]] = {}


class AmountColumns:
    """The amounts of nodes by row, and which rows have equal ones."""

    def __init__(self) -> None:
        # `scored_free` and `scored_offer` count on the first two.
        self.columns: dict[str, int] = {"cpu": 0, "memory": 1, PODS: 2}
        self._allocatable: Numbers = np.zeros((3, 0), dtype=np.int64)
        # What is left of these columns, and below it of the cpu and memory that scores count.
        self._left: Numbers = np.zeros((SCORED + 3, 0), dtype=np.int64)
        self._gpus = SharedGpus()
        # None: the columns are to be read. Rows that are `_behind` have amounts yet to be written.
        self.amounts_by_row: list[NodeAmounts | None] = []
        self._known_amounts: dict[bytes, NodeAmounts] = {}
        self._behind: set[int] = set()

    @property
    def size(self) -> int:
        """How many rows there are, vacant ones included."""
        return len(self.amounts_by_row)

    @property
    def rows(self) -> slice:
        """The rows of the columns."""
        return slice(self.size)

    def allocatable(self, resource: str) -> Numbers:
        """Return what each node offers of a resource, in base units."""
        column = self.columns.get(resource)
        if column is None:
            return np.zeros(self.size, dtype=np.int64)
        return self._allocatable[column, : self.size]

    def free(self, resource: str) -> Numbers:
        """Return what each node has left of a resource; negative where it is overcommitted."""
        self._write_all()
        column = self.columns.get(resource)
        if column is None:
            return np.zeros(self.size, dtype=np.int64)
        return self._left[SCORED + column, : self.size]

    def scored_free(self) -> Numbers:
        """Return the free cpu and memory; pods without requests count with a default."""
        self._write_all()
        return self._left[:SCORED, : self.size]

    def scored_offer(self) -> Numbers:
        """Return the allocatable cpu and memory of each node, in base units."""
        return self._allocatable[:SCORED, : self.size]

    @property
    def gpus(self) -> SharedGpus:
        """The GPUs that pods share."""
        self._write_all()
        return self._gpus

    def shared_gpus(self) -> SharedColumns:
        """Return what is left of the GPUs that pods share."""
        return self.gpus.columns(self.rows, self.size)

    def amounts(self, row: int) -> NodeAmounts:
        """Return all amounts of a node: nodes with equal ones score alike."""
        found = self.amounts_by_row[row]
        if found is None:
            left, offered = self._left[:, row].copy(), self._allocatable[:, row]
            key = b"".join([left.tobytes(), offered.tobytes(), self._gpus.amounts(row)])
            found = self._known_amounts.get(key)
            if found is None:
                if len(self._known_amounts) >= MOST_AMOUNTS:
                    self._forget_amounts()
                found = self._known_amounts[key] = NodeAmounts(left, self._gpus.of(row))
            self.amounts_by_row[row] = found
        return found

    def chosen_gpus(self, row: int, shares: Shares) -> tuple[int, ...]:
        """Return the GPUs of a node for a pod that shares them."""
        chosen = self.amounts(row).chosen
        found = chosen.get(shares)
        if found is None:
            found = chosen[shares] = self.gpus.chosen(row, shares)
        return found

    # --- inside

    def _count_amounts(self, row: int, pod: PodInfo, sign: int) -> None:
        """Take from a node what a pod has there (1), or give it back (-1)."""
        load, shares = pod.load, pod.shares
        # Whether this was the last pod of its kind is not in the amounts before.
        turned = shares is not None and self._gpus.count_kind(row, shares, sign)
        before, move = self.amounts_by_row[row], (load, shares, turned, sign)
        after = None if before is None else before.moves.get(move)
        if after is not None:
            self.amounts_by_row[row] = after
            self._behind.add(row)
            return
        self._change(row)
        for resource, amount in load.requests:
            column = self._column(resource)
            self._left[SCORED + column, row] -= sign * amount
        self._left[SCORED + 2, row] -= sign
        self._left[:SCORED, row] -= [sign * amount for amount in load.scored]
        if shares is not None:
            self._gpus.move(row, shares, sign, turned=turned)
        if before is not None:
            after = self.amounts(row)
            if len(before.moves) < MOST_MOVES:
                before.moves[move] = after

    def _change(self, row: int) -> None:
        """Prepare a row for a change of its columns."""
        if row in self._behind:
            self._write_all()
        self.amounts_by_row[row] = None

    def _write_all(self) -> None:
        if not self._behind:
            return
        rows = sorted(self._behind)
        self._behind.clear()
        held = [each for row in rows if (each := self.amounts_by_row[row]) is not None]
        self._left[:, rows] = np.array([each.left for each in held]).T
        shared = [(row, each.gpus) for row, each in zip(rows, held, strict=True) if each.gpus]
        if shared:
            rows = [row for row, _ in shared]
            self._gpus.left[rows] = [left for _, (left, _) in shared]
            self._gpus.kinds[rows] = [kinds for _, (_, kinds) in shared]

    def _forget_amounts(self) -> None:
        """Forget which amounts are equal, and what follows them."""
        self._write_all()
        for each in self._known_amounts.values():
            each.moves.clear()
        self._known_amounts.clear()
        self.amounts_by_row[:] = [None] * len(self.amounts_by_row)

    def _offer(self, row: int, offer: Mapping[str, Any], shared_gpus: str) -> None:
        """Let a new node have all that it offers; the label says which GPUs pods share."""
        wide = self._gpus.left.shape[1]
        self._gpus.put_labelled(row, shared_gpus)
        if self._gpus.left.shape[1] != wide:
            self._forget_amounts()
        self._set_allocatable(row, offer)
        self._left[SCORED:, row] = self._allocatable[:, row]
        self._left[:SCORED, row] = self._allocatable[:SCORED, row]

    def _change_offer(self, row: int, offer: Mapping[str, Any]) -> bool:
        """Let a node offer something else; return whether that is more of anything."""
        for resource in offer:
            self._column(resource)
        before = self._allocatable[:, row].copy()
        self._set_allocatable(row, offer)
        delta = self._allocatable[:, row] - before
        self._left[SCORED:, row] += delta
        self._left[:SCORED, row] += delta[:SCORED]
        return bool((delta > 0).any())

    def _offer_nothing(self, row: int) -> None:
        self._allocatable[:, row] = 0
        self._left[:, row] = 0

    def _set_allocatable(self, row: int, offer: Mapping[str, Any]) -> None:
        for name in offer:
            self._column(name)
        self._allocatable[:, row] = 0
        for name, text in offer.items():
            self._allocatable[self.columns[name], row] = base_units(name, text)

    def _column(self, resource: str) -> int:
        column = self.columns.get(resource)
        if column is None:
            self._forget_amounts()
            column = self.columns[resource] = len(self.columns)
            empty = np.zeros((1, self._left.shape[1]), dtype=np.int64)
            self._allocatable = np.vstack([self._allocatable, empty])
            self._left = np.vstack([self._left, empty])
        return column

    def _widen(self, capacity: int) -> None:
        """Make room for more rows."""
        self._allocatable = wider(self._allocatable, capacity)
        self._left = wider(self._left, capacity)


def wider(array: Numbers, capacity: int) -> Numbers:
    """Return a copy of columns with room for more rows."""
    grown = np.zeros((*array.shape[:-1], capacity), dtype=array.dtype)
    grown[..., : array.shape[-1]] = array
    return grown
