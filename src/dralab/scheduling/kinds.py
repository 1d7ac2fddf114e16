"""Where pods of one kind fit, and how good each node is for them: kept, and updated in few rows.

A cycle looks at all nodes. Pods come in kinds (`cycle.kind_of`), and from one pod of a kind to the
next only a few nodes have changed: those get their filters and scores again, with the same code as
all of them do, and the others keep what they have. What depends on other pods or compares nodes
with each other (affinity, spread, preferences, images) is not kept.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from dralab.scheduling import scores
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.filters import FILTERS, passing
from dralab.scheduling.node_rules import nodes_named
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable, Numbers
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import ClusterState

KeptScores = NDArray[np.int32]
# Scores that all kinds together may have: beyond it the oldest kinds are forgotten.
MOST_SCORES: Final = 1 << 26
# From so many changed rows on, all rows are as cheap.
MANY_ROWS: Final = 2_000


OF_NODES: Final = tuple(each for each in FILTERS if not each.by_pods)
# Of the filters by pods, those that a kind with scores may fail (`KindScores.scores_of`).
OF_ROOM: Final = tuple(
    each for each in FILTERS if each.plugin in {"NodeResourcesFit", "DynamicResources"}
)


@dataclass(slots=True)
class _KeptKind:
    """Scores (-1: does not fit), and up to where they have followed the changes."""

    scores: KeptScores
    seen: int = -1
    nodes: int = 0
    # As of so many changes of nodes: which of them the pods may use whatever is on them, and
    # whether some of them would rather not have them.
    changed: int = -1
    allowed: Mask | None = None
    avoids: bool = False


class KindScores:
    """The scores of the nodes for each kind of pods, for one state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: OrderedDict[Hashable, _KeptKind] = OrderedDict()

    def scores_of(self, kind: Hashable, pod: PodInfo, demand: PodDemand) -> KeptScores | None:
        """Return the score of every row, -1 where the pod does not fit; None: it is not kept."""
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
            kept = self._kept[kind] = _KeptKind(np.full(table.size, -1, dtype=np.int32))
            most = min(REMEMBERED, max(8, MOST_SCORES // max(1, table.size)))
            while len(self._kept) > most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(kind)
        if kept.changed != len(table.changed):
            kept.changed = len(table.changed)
            avoided = state.node_rules.avoided_taints(pod, table.live)
            kept.avoids = bool(avoided.any())
            kept.allowed = passing(state, pod, demand, OF_NODES)
        if kept.avoids:
            return None
        rows = self._stale(kept, demand)
        if rows is None or len(rows):
            self._update(kept, pod, demand, rows)
        return kept.scores

    def _stale(self, kept: _KeptKind, demand: PodDemand) -> Numbers | None:
        """Return the rows that changed since; None: all may have."""
        table = self._state.table
        rows = table.touched.since(kept.seen)
        kept.seen = table.touched.position
        nodes = self._state.devices.feasible_nodes(demand)
        changed, kept.nodes = kept.nodes ^ nodes, nodes
        count = changed.bit_count()
        if rows is None or len(rows) + count > MANY_ROWS:
            return None
        found = set(rows)
        while changed:
            low = changed & -changed
            found.add(low.bit_length() - 1)
            changed ^= low
        return np.array(sorted(row for row in found if row < table.size), dtype=np.int64)

    def _update(
        self, kept: _KeptKind, pod: PodInfo, demand: PodDemand, rows: Numbers | None
    ) -> None:
        table = self._state.table
        if rows is None:
            rows = np.arange(table.size, dtype=np.int64)
        part = cast(ClusterState, _SomeRows(self._state, rows, kept.nodes))
        fitting = passing(part, pod, demand, OF_ROOM)
        if kept.allowed is not None:
            fitting &= kept.allowed[rows]
        points = scores.total(part, pod, fitting)[0]
        kept.scores[rows] = np.where(fitting, points, -1)


class _SomeRows:
    """Some rows of a state, as filters and scores that look at each node alone see it."""

    volumes = None

    def __init__(self, state: ClusterState, rows: Numbers, nodes: int) -> None:
        self.table = _TableRows(state.table, rows)
        self.node_rules = _RulesOfRows()
        self.devices = _DevicesOfRows(rows, nodes)
        self.nominees: dict[str, Any] = {}


class _TableRows:
    def __init__(self, table: NodeTable, rows: Numbers) -> None:
        self._table = table
        self._rows = rows
        self.size = len(rows)
        self.live: Mask = table.live[rows]
        self.repelling: dict[Any, Any] = {}
        self.wishes: dict[Any, Any] = {}
        self.images: dict[str, dict[int, int]] = {}
        self._offer: Numbers | None = None

    def free(self, resource: str) -> Numbers:
        return self._table.free(resource)[self._rows]

    def allocatable(self, resource: str) -> Numbers:
        return self._table.allocatable(resource)[self._rows]

    def scored_free(self) -> Numbers:
        return self._table.scored_free()[:, self._rows]

    def scored_offer(self) -> Numbers:
        if self._offer is None:
            self._offer = self._table.scored_offer()[:, self._rows]
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
