"""Where pods of one kind fit, and how good each node is for them: kept, and updated in few rows.

A cycle looks at all nodes. Pods come in kinds (`cycle.kind_of`), and from one pod of a kind to the
next only a few nodes have changed: those get their filters and scores again, with the same code as
all of them do, and the others keep what they have. Of nodes with equal amounts one is looked at.
What depends on other pods or compares nodes with each other (affinity, spread, preferences, images)
is not kept.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, Final, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dralab.scheduling import scores
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.filters import FILTERS, Reasons, judgements, passing
from dralab.scheduling.node_rules import nodes_named
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable, Numbers
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import Reason
from dralab.scheduling.scores import KeptScores
from dralab.scheduling.shares import SharedColumns
from dralab.scheduling.state import ClusterState

# Scores that all kinds together may have: beyond it the oldest kinds are forgotten.
MOST_SCORES: Final = 1 << 26
# From so many changed rows on, all rows are as cheap.
MANY_ROWS: Final = 2_000
# Amounts of nodes that are remembered for a kind; beyond it they are forgotten.
MOST_KNOWN: Final = 1 << 16


OF_NODES: Final = tuple(each for each in FILTERS if not each.by_pods)
# Of the filters by pods, those that a kind with scores may fail (`KindScores.scores_of`).
OF_ROOM: Final = tuple(
    each
    for each in FILTERS
    if each.plugin in {"NodeResourcesFit", "SharedGpus", "DynamicResources"}
)


class _KeptKind:
    """Scores (-1: does not fit) with why not, and up to where they have followed the changes."""

    __slots__ = (
        "avoids", "barred", "barring", "changed", "counts", "known", "nodes", "number_of",
        "reasons", "scores", "seen", "why",
    )  # fmt: skip

    def __init__(self, size: int, scores: DTypeLike) -> None:
        self.scores: KeptScores = np.full(size, -1, dtype=scores)
        # Why each row is refused, by number, and of how many rows each holds; 0: not for its pods
        # and devices.
        self.why: NDArray[np.int16] = np.zeros(size, dtype=np.int16)
        self.reasons: list[Reasons] = [()]
        self.number_of: dict[Reasons, int] = {(): 0}
        self.counts = [size]
        self.seen = -1
        self.nodes = 0
        # As of so many changes of nodes: the rows that have no node, or one that the pods may not
        # use whatever is on it, and why; and whether they would rather not have some of the others.
        self.changed = -1
        self.barred: Mask = np.ones(size, dtype=bool)
        self.barring: Counter[Reason] = Counter()
        self.avoids = False
        # The score and the number of the reasons, by the amounts of a node and whether it may have
        # the devices.
        self.known: dict[tuple[bytes, int], tuple[int, int]] = {}

    def number(self, reasons: Reasons) -> int:
        """Return the number of reasons that hold together."""
        found = self.number_of.get(reasons)
        if found is None:
            found = self.number_of[reasons] = len(self.reasons)
            self.reasons.append(reasons)
            self.counts.append(0)
        return found

    def put(self, row: int, score: int, why: int) -> None:
        """Note what holds of a row from now on."""
        self.scores[row] = score
        before = int(self.why[row])
        if before != why:
            self.why[row] = why
            self.counts[before] -= 1
            self.counts[why] += 1


class KindScores:
    """The scores of the nodes for each kind of pods, for one state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: OrderedDict[Hashable, _KeptKind] = OrderedDict()

    def scores_of(self, kind: Hashable, pod: PodInfo, demand: PodDemand) -> KeptScores | None:
        """Return the score of every row, -1 where the pod does not fit; None: it is not kept."""
        kept = self._up_to_date(kind, pod, demand)
        return None if kept is None else kept.scores

    def reasons_of(
        self, kind: Hashable, pod: PodInfo, demand: PodDemand
    ) -> dict[Reason, int] | None:
        """Return for how many nodes each reason holds; None where that is not kept."""
        if self._state.choice.by_node:
            return None
        kept = self._up_to_date(kind, pod, demand)
        if kept is None:
            return None
        found = kept.barring.copy()
        for reasons, count in zip(kept.reasons, kept.counts, strict=True):
            if count:
                found.update(dict.fromkeys(reasons, count))
        return dict(found)

    def _up_to_date(self, kind: Hashable, pod: PodInfo, demand: PodDemand) -> _KeptKind | None:
        state, table = self._state, self._state.table
        if table.repelling or table.wishes or pod.preferred_nodes or pod.preferred_pods:
            return None
        if (
            pod.node_name
            or any(table.images.get(name) for name in pod.images)
            or nodes_named(pod) is not None
        ):
            return None
        kept = self._kept.get(kind)
        if kept is None or kept.scores.shape[0] != table.size:
            kept = self._kept[kind] = _KeptKind(table.size, state.choice.kept)
            most = min(REMEMBERED, max(8, MOST_SCORES // max(1, table.size)))
            while len(self._kept) > most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(kind)
        if kept.changed != len(table.changed):
            kept.changed = len(table.changed)
            avoided = state.node_rules.avoided_taints(pod, table.live)
            kept.avoids = bool(avoided.any())
            self._bar(kept, pod, demand)
        if kept.avoids:
            return None
        rows = self._stale(kept, demand)
        if state.choice.by_node:
            self._see_each(kept, pod, demand, rows)
        elif rows is None:
            self._see_all(kept, pod, demand)
        elif rows:
            self._see(kept, pod, demand, rows)
        return kept

    def _bar(self, kept: _KeptKind, pod: PodInfo, demand: PodDemand) -> None:
        """Find out which nodes the pods may not use, whatever is on them."""
        left = self._state.table.live.copy()
        kept.barring = Counter()
        for _, judgement in judgements(self._state, pod, demand, OF_NODES):
            kept.barring.update(judgement.counted(np.flatnonzero(left & ~judgement.mask)))
            left &= judgement.mask
        kept.barred = ~left

    def _stale(self, kept: _KeptKind, demand: PodDemand) -> set[int] | None:
        """Return the rows that changed since; None: all may have."""
        rows = self._state.table.touched.since(kept.seen)
        kept.seen = self._state.table.touched.position
        nodes = self._state.devices.feasible_nodes(demand)
        changed, kept.nodes = kept.nodes ^ nodes, nodes
        if rows is None or len(rows) + changed.bit_count() > MANY_ROWS:
            return None
        found = set(rows)
        while changed:
            low = changed & -changed
            found.add(low.bit_length() - 1)
            changed ^= low
        return found

    def _see(self, kept: _KeptKind, pod: PodInfo, demand: PodDemand, rows: Iterable[int]) -> None:
        """Take over the changes of some rows; what holds of nodes of equal amounts is known."""
        table, size = self._state.table, kept.scores.shape[0]
        new: dict[tuple[bytes, int], list[int]] = {}
        for row in rows:
            if row >= size:
                continue
            if kept.barred[row]:
                kept.put(row, -1, 0)
                continue
            key = table.amounts(row), kept.nodes >> row & 1
            found = kept.known.get(key)
            if found is None:
                new.setdefault(key, []).append(row)
            else:
                kept.put(row, *found)
        if not new:
            return
        if len(kept.known) + len(new) > MOST_KNOWN:
            kept.known.clear()
        scores, why = self._judged(kept, pod, demand, np.array([each[0] for each in new.values()]))
        for (key, alike), score, number in zip(
            new.items(), scores.tolist(), why.tolist(), strict=True
        ):
            kept.known[key] = score, number
            for row in alike:
                kept.put(row, score, number)

    def _see_each(
        self, kept: _KeptKind, pod: PodInfo, demand: PodDemand, rows: set[int] | None
    ) -> None:
        """Look at each of some rows; None: at all of them. Nothing else is noted."""
        state = self._state
        numbers = np.arange(state.table.size) if rows is None else np.array(sorted(rows))
        if not len(numbers):
            return
        part = cast(ClusterState, _SomeRows(state, numbers, kept.nodes))
        fitting = passing(part, pod, demand, OF_ROOM)
        if kept.barring:
            fitting &= ~kept.barred[numbers]
        points = scores.points_of(part, pod, fitting)[0]
        if state.choice.refuses_nodes:
            fitting &= points >= 0
        kept.scores[numbers] = np.where(fitting, points, -1)

    def _see_all(self, kept: _KeptKind, pod: PodInfo, demand: PodDemand) -> None:
        rows = np.flatnonzero(~kept.barred)
        kept.scores[:] = -1
        kept.why[:] = 0
        kept.scores[rows], kept.why[rows] = self._judged(kept, pod, demand, rows)
        kept.counts = np.bincount(kept.why, minlength=len(kept.reasons)).tolist()

    def _judged(
        self, kept: _KeptKind, pod: PodInfo, demand: PodDemand, rows: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Return the scores of rows that are not barred, and the numbers of why not."""
        part = cast(ClusterState, _SomeRows(self._state, rows, kept.nodes))
        left = np.ones(len(rows), dtype=bool)
        # The reasons that hold of a row, as bits.
        holding = np.zeros(len(rows), dtype=np.int64)
        reasons: list[Reason] = []
        for _, judgement in judgements(part, pod, demand, OF_ROOM):
            failing = left & ~judgement.mask
            if failing.any() and judgement.masks is not None:
                for reason, mask in judgement.masks():
                    holding |= (failing & mask).astype(np.int64) << len(reasons)
                    reasons.append(reason)
            left &= judgement.mask
        numbers = np.zeros(len(rows), dtype=np.int64)
        for bits in np.unique(holding).tolist() if reasons else ():
            held = tuple(reason for index, reason in enumerate(reasons) if bits >> index & 1)
            numbers[holding == bits] = kept.number(held)
        points = scores.points_of(part, pod, left)[0]
        return np.where(left, points, -1), numbers


class _SomeRows:
    """Some rows of a state, as filters and scores that look at each node alone see it."""

    volumes = None

    def __init__(self, state: ClusterState, rows: Numbers, nodes: int) -> None:
        self.table = _TableRows(state.table, rows)
        self.node_rules = _RulesOfRows()
        self.devices = _DevicesOfRows(rows, nodes)
        self.nominees: dict[str, Any] = {}
        self.choice = state.choice


class _TableRows:
    def __init__(self, table: NodeTable, rows: Numbers) -> None:
        self._table = table
        self.rows = rows
        self.size = len(rows)
        self.live: Mask = table.live[rows]
        self.repelling: dict[Any, Any] = {}
        self.wishes: dict[Any, Any] = {}
        self.images: dict[str, dict[int, int]] = {}
        self._offer: Numbers | None = None
        self._gpus: SharedColumns | None = None
        self._free: dict[str, Numbers] = {}

    def free(self, resource: str) -> Numbers:
        found = self._free.get(resource)
        if found is None:
            found = self._free[resource] = self._table.free(resource)[self.rows]
        return found

    def shared_gpus(self) -> SharedColumns:
        if self._gpus is None:
            self._gpus = self._table.gpus.columns(self.rows, self._table.size)
        return self._gpus

    def allocatable(self, resource: str) -> Numbers:
        return self._table.allocatable(resource)[self.rows]

    def scored_free(self) -> Numbers:
        return self._table.scored_free()[:, self.rows]

    def scored_offer(self) -> Numbers:
        if self._offer is None:
            self._offer = self._table.scored_offer()[:, self.rows]
        return self._offer


class _RulesOfRows:
    """Nothing that a node would rather not have: kinds with scores have no such nodes."""

    def avoided_taints(self, pod: PodInfo, among: Mask) -> Numbers:
        del pod
        return np.zeros(len(among), dtype=np.int64)


class _DevicesOfRows:
    def __init__(self, rows: Numbers, nodes: int) -> None:
        self._rows = rows
        self._nodes = nodes

    def reached(self, demand: PodDemand) -> None:
        """Return that all nodes do: kinds have no allocated claims."""

    def feasible(self, demand: PodDemand) -> Mask | None:
        if not demand.signature:
            return None
        if len(self._rows) < 64:
            bits = [self._nodes >> row & 1 for row in self._rows.tolist()]
            return np.array(bits, dtype=bool)
        size = (int(self._rows[-1]) + 8) // 8
        packed = (self._nodes & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        unpacked = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")
        return unpacked[self._rows].astype(bool)
