"""Scores of nodes by kind of pods: kept, and updated for changed rows only.

A cycle looks at all nodes. Pods come in kinds (`cycle.kind_of`), and from one pod of a kind to the
next only a few nodes have changed: those get their filters and scores again, with the same code as
all of them do, and the others keep what they have. Of nodes with equal amounts one is looked at.
What depends on other pods or compares nodes with each other (affinity, spread, preferences, images)
is not kept.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, cast

import numpy as np
from numpy.typing import DTypeLike

from dralab.allocation.inventory.node_answers import NodeAnswers
from dralab.scheduling import scores
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.devices import rows_of
from dralab.scheduling.filters import FILTERS, Reasons, judgements, passing
from dralab.scheduling.node_columns import NodeAmounts, Numbers
from dralab.scheduling.node_rules import nodes_named
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import AGAINST_POLICY, Reason
from dralab.scheduling.scores import KeptScores
from dralab.scheduling.shares import SharedColumns
from dralab.scheduling.state import ClusterState

# Scores that all kinds together may have: beyond it the oldest kinds are forgotten.
MOST_SCORES: Final = 1 << 26
# From so many changed rows on, looking at all of them at once is as cheap as looking each up.
MANY_ROWS: Final = 256
# So many rows are looked up before it counts how often their amounts were known.
ASKED_FIRST: Final = 64
# Amounts of nodes that are remembered for a kind; beyond it they are forgotten.
MOST_KNOWN: Final = 1 << 16


OF_NODES: Final = tuple(each for each in FILTERS if not each.by_pods)
# Of the filters by pods, those that a kind with scores may fail (`KindScores.scores_of`).
OF_ROOM: Final = tuple(
    each
    for each in FILTERS
    if each.plugin in {"NodeResourcesFit", "SharedGpus", "DynamicResources"}
)


class _RowValues:
    """A number for each row, and the position in the log of changes.

    `counts`, where they are kept, say how many rows have each number.
    """

    __slots__ = (
        "able", "answers", "asked", "counts", "devices_seen", "known", "missed", "nodes", "seen",
        "values",
    )  # fmt: skip

    def __init__(self, values: KeptScores, counts: list[int] | None = None) -> None:
        self.values = values
        self.counts = counts
        self.seen = self.devices_seen = -1
        # Which nodes may have the devices, by their states; where these do not say, as bits.
        self.answers: NodeAnswers | None = None
        self.nodes = 0
        self.able: Mask = np.zeros(len(values), dtype=bool)
        # The numbers by the amounts of a node, where it lacks devices and where it may have them.
        self.known: tuple[dict[NodeAmounts, int], dict[NodeAmounts, int]] = {}, {}
        self.asked = self.missed = 0

    @property
    def looks_up(self) -> bool:
        """Whether looking up known amounts pays off."""
        return 2 * self.missed <= self.asked + ASKED_FIRST

    def put(self, row: int, value: int) -> None:
        """Set the value of a row."""
        if self.counts is not None:
            self.counts[self.values[row]] -= 1
            self.counts[value] += 1
        self.values[row] = value

    def put_all(self, rows: Numbers, values: Numbers | int) -> None:
        """Set the values of rows."""
        if self.counts is not None:
            most = len(self.counts)
            more = np.bincount(np.broadcast_to(values, len(rows)), minlength=most)
            less = np.bincount(self.values[rows], minlength=most)
            self.counts = (np.array(self.counts) + more - less).tolist()
        self.values[rows] = values


class _KeptKind:
    """Scores (-1: does not fit) and numbers of the reasons why not (0: none of its pods)."""

    __slots__ = (
        "avoids", "barred", "barring", "bars", "changed", "number_of", "reasons", "scores", "why",
    )  # fmt: skip

    def __init__(self, size: int, scores: DTypeLike) -> None:
        self.scores = _RowValues(np.full(size, -1, dtype=scores))
        self.why = _RowValues(np.zeros(size, dtype=np.int32), [size])
        self.reasons: list[Reasons] = [()]
        self.number_of: dict[Reasons, int] = {(): 0}
        # As of so many changes of nodes: the rows that have no node, or one that the pods may not
        # use whatever is on it, and why; and whether they would rather not have some of the others.
        self.changed = -1
        self.barred: Mask = np.ones(size, dtype=bool)
        self.barring: Counter[Reason] = Counter()
        self.bars = self.avoids = False

    def number(self, reasons: Reasons) -> int:
        """Return the number of a combination of reasons."""
        found = self.number_of.get(reasons)
        if found is None and (counts := self.why.counts) is not None:
            found = self.number_of[reasons] = len(self.reasons)
            self.reasons.append(reasons)
            counts.append(0)
        return found or 0


Judge = Callable[[_KeptKind, ClusterState, PodInfo, PodDemand], Numbers]


class KindScores:
    """The scores of the nodes for each kind of pods, for one state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kept: OrderedDict[Hashable, _KeptKind] = OrderedDict()

    def scores_of(self, kind: Hashable, pod: PodInfo, demand: PodDemand) -> KeptScores | None:
        """Return the score of every row, -1 where the pod does not fit; None: it is not kept."""
        kept = self._kind(kind, pod, demand)
        if kept is None:
            return None
        return self._followed(kept, kept.scores, _scored, pod, demand)

    def reasons_of(
        self, kind: Hashable, pod: PodInfo, demand: PodDemand
    ) -> dict[Reason, int] | None:
        """Return for how many nodes each reason holds; None where that is not kept."""
        # With devices, what a policy refuses is told as what has none.
        if self._state.choice.refuses_nodes and (demand.claims or demand.extended):
            return None
        kept = self._kind(kind, pod, demand)
        if kept is None:
            return None
        self._followed(kept, kept.why, _numbered, pod, demand)
        found = kept.barring.copy()
        for reasons, count in zip(kept.reasons, kept.why.counts or (), strict=True):
            if count:
                found.update(dict.fromkeys(reasons, count))
        return dict(found)

    def _kind(self, kind: Hashable, pod: PodInfo, demand: PodDemand) -> _KeptKind | None:
        state, table = self._state, self._state.table
        if table.repelling or table.wishes or pod.preferred_nodes or pod.preferred_pods:
            return None
        if pod.node_name or (pod.node_affinity is not None and nodes_named(pod) is not None):
            return None
        if table.images and any(table.images.get(name) for name in pod.images):
            return None
        kept = self._kept.get(kind)
        if kept is None or kept.barred.shape[0] != table.size:
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
        return None if kept.avoids else kept

    def _bar(self, kept: _KeptKind, pod: PodInfo, demand: PodDemand) -> None:
        """Determine the nodes that the pods may not use, whatever runs there."""
        left = self._state.table.live.copy()
        kept.barring = Counter()
        for _, judgement in judgements(self._state, pod, demand, OF_NODES):
            kept.barring.update(judgement.counted(np.flatnonzero(left & ~judgement.mask)))
            left &= judgement.mask
        kept.barred = ~left
        kept.bars = bool(kept.barred.any())

    def _followed(
        self,
        kept: _KeptKind,
        column: _RowValues,
        judge: Judge,
        pod: PodInfo,
        demand: PodDemand,
    ) -> KeptScores:
        """Return a value for every row, with the changes since it was last asked for taken over."""
        state = self._state
        touched = state.table.touched
        log = touched.since(column.seen)
        column.seen = touched.position
        rows = None if log is None else set(log)
        if demand.signature:
            rows = self._with_changed_devices(column, demand, rows)
        if rows is not None:
            if not rows:
                return column.values
            if len(rows) <= MANY_ROWS and column.looks_up and not state.choice.by_node:
                self._look_up(kept, column, judge, pod, demand, rows)
                return column.values
        among = np.arange(state.table.size) if rows is None else np.array(sorted(rows))
        if kept.bars:
            barred = kept.barred[among]
            column.put_all(among[barred], UNJUDGED[judge])
            among = among[~barred]
        if len(among):
            part = cast(ClusterState, _SomeRows(state, among, _able(column, among)))
            column.put_all(among, judge(kept, part, pod, demand))
        return column.values

    def _with_changed_devices(
        self, column: _RowValues, demand: PodDemand, rows: set[int] | None
    ) -> set[int] | None:
        """Return changed rows with those whose devices have changed; None for all."""
        devices = self._state.devices
        answers = devices.answers(demand)
        if answers is not column.answers:
            # They are new, or the states of nodes say no more, or again, where devices are.
            column.answers, column.nodes = answers, 0
            column.able[:] = False
            rows = None
        if answers is None:
            nodes = devices.feasible_nodes(demand)
            if nodes is column.nodes:
                return rows
            changed = rows_of(column.nodes ^ nodes)
            column.nodes = nodes
            column.able[changed] ^= True
            return None if rows is None else rows.union(changed.tolist())
        log = devices.changed_nodes
        more = log.since(column.devices_seen)
        column.devices_seen = log.position
        if rows is None or more is None:
            return None
        return rows.union(more)

    def _look_up(  # noqa: PLR0917 - as above
        self,
        kept: _KeptKind,
        column: _RowValues,
        judge: Judge,
        pod: PodInfo,
        demand: PodDemand,
        rows: Collection[int],
    ) -> None:
        """Update some rows, reusing the values of nodes with equal amounts."""
        table, known, answers = self._state.table, column.known, column.answers
        by_row, values, counts = table.amounts_by_row, column.values, column.counts
        column.asked += len(rows)
        new: dict[tuple[NodeAmounts, bool], list[int]] = {}
        able = False
        for row in rows:
            if kept.bars and kept.barred[row]:
                value = UNJUDGED[judge]
            else:
                key = by_row[row] or table.amounts(row)
                if demand.signature:
                    able = bool(column.able[row]) if answers is None else answers.of(row)
                found = known[able].get(key)
                if found is None:
                    new.setdefault((key, able), []).append(row)
                    continue
                value = found
            if counts is not None:
                counts[values[row]] -= 1
                counts[value] += 1
            values[row] = value
        if not new:
            return
        column.missed += sum(map(len, new.values()))
        if sum(map(len, known)) + len(new) > MOST_KNOWN:
            for each in known:
                each.clear()
        among = np.array([each[0] for each in new.values()])
        able_rows = np.array([able for _, able in new])
        part = cast(ClusterState, _SomeRows(self._state, among, able_rows))
        values = judge(kept, part, pod, demand).tolist()
        for ((key, able), alike), value in zip(new.items(), values, strict=True):
            known[able][key] = value
            for row in alike:
                column.put(row, value)


def _able(column: _RowValues, rows: Numbers) -> Mask:
    """Return which rows may have the devices."""
    if column.answers is None:
        return column.able[rows]
    return np.array(list(map(column.answers.of, rows.tolist())), dtype=bool)


def _scored(kept: _KeptKind, part: ClusterState, pod: PodInfo, demand: PodDemand) -> Numbers:
    """Return the scores of rows that are not barred."""
    del kept
    fitting = passing(part, pod, demand, OF_ROOM)
    points = scores.points_of(part, pod, fitting)[0]
    return np.where(fitting, points, -1)


def _numbered(kept: _KeptKind, part: ClusterState, pod: PodInfo, demand: PodDemand) -> Numbers:
    """Return the numbers of the reasons why rows that are not barred do not fit.

    It is asked where pods fit nowhere: what passes the filters is then against the policy.
    """
    left = np.ones(part.table.size, dtype=bool)
    # The reasons that hold of a row, as bits.
    holding = np.zeros(part.table.size, dtype=np.int64)
    reasons: list[Reason] = []
    for _, judgement in judgements(part, pod, demand, OF_ROOM):
        failing = left & ~judgement.mask
        if failing.any() and judgement.masks is not None:
            for reason, mask in judgement.masks():
                holding |= (failing & mask).astype(np.int64) << len(reasons)
                reasons.append(reason)
        left &= judgement.mask
    if part.choice.refuses_nodes and left.any():
        holding |= left.astype(np.int64) << len(reasons)
        reasons.append(Reason(AGAINST_POLICY))
    numbers = np.zeros(part.table.size, dtype=np.int64)
    for bits in sorted(set(holding.tolist())) if reasons else ():
        held = tuple(reason for index, reason in enumerate(reasons) if bits >> index & 1)
        numbers[holding == bits] = kept.number(held)
    return numbers


# What is kept of rows that are barred.
UNJUDGED: Final[Mapping[Judge, int]] = {_scored: -1, _numbered: 0}


class _SomeRows:
    """Some rows of a state, for filters and scores that look at each node alone."""

    volumes = None

    def __init__(self, state: ClusterState, rows: Numbers, able: Mask) -> None:
        self.table = _TableRows(state.table, rows)
        self.node_rules = _RulesOfRows()
        self.devices = _DevicesOfRows(able)
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
    """No avoided taints: kinds with kept scores have no such nodes."""

    def avoided_taints(self, pod: PodInfo, among: Mask) -> Numbers:
        del pod
        return np.zeros(len(among), dtype=np.int64)


class _DevicesOfRows:
    def __init__(self, able: Mask) -> None:
        self._able = able

    def reached(self, demand: PodDemand) -> None:
        """Return None, for all nodes: kinds have no allocated claims."""

    def feasible(self, demand: PodDemand) -> Mask | None:
        return self._able if demand.signature else None
