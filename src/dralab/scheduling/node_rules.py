"""Rules about the node alone, answered once for all pods that ask alike: cordon, taints, selectors.

Answers are kept per rule and kind of pod, and updated row by row as nodes change. In which order
rules are asked, and what other pods decide, is left to `filters`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dralab.objects.nodes import is_unschedulable, selects
from dralab.objects.taints import (
    PREFER_NO_SCHEDULE,
    REPELLING,
    UNSCHEDULABLE,
    taints_of,
    tolerates,
    untolerated,
)
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import CORDONED, NOT_NAMED, TAINTED, UNSELECTED, Reason
from dralab.values import labels
from dralab.values.json_types import JsonObject


class NodeRule(NamedTuple):
    """A rule: pods of one `key` get the same answer from a node, which is a reason or None.

    `only` is the reason where there is but one.
    """

    plugin: str
    key: Callable[[PodInfo], Hashable]
    refusal: Callable[[PodInfo, JsonObject], Reason | None]
    only: Reason | None = None


def _cordoned(pod: PodInfo, node: JsonObject) -> Reason | None:
    if is_unschedulable(node) and not tolerates(pod.tolerations, UNSCHEDULABLE):
        return Reason(CORDONED)
    return None


def _tainted(pod: PodInfo, node: JsonObject) -> Reason | None:
    taint = untolerated(pod.tolerations, taints_of(node), REPELLING)
    return None if taint is None else Reason(TAINTED, (taint["key"], taint.get("value", "")))


def _unselected(pod: PodInfo, node: JsonObject) -> Reason | None:
    return None if selects(node, pod.node_selector, pod.node_affinity) else Reason(UNSELECTED)


UNSCHEDULABLE_RULE: Final = NodeRule(
    "NodeUnschedulable", lambda pod: pod.tolerating, _cordoned, Reason(CORDONED)
)
TAINT_RULE: Final = NodeRule("TaintToleration", lambda pod: pod.tolerating, _tainted)
AFFINITY_RULE: Final = NodeRule(
    "NodeAffinity", lambda pod: pod.selecting, _unselected, Reason(UNSELECTED)
)
NODE_RULES: Final = (UNSCHEDULABLE_RULE, TAINT_RULE, AFFINITY_RULE)
"""In the order of kube-scheduler's default profile."""


class NodeAnswerCache:
    """An answer per row that depends on the node alone, cached and updated as nodes change."""

    __slots__ = ("_compute", "_seen", "values")

    def __init__(self, compute: Callable[[int], int]) -> None:
        self._compute = compute
        self._seen = 0
        self.values: NDArray[np.int16] = np.zeros(0, dtype=np.int16)

    def answers(self, table: NodeTable) -> NDArray[np.int16]:
        """Return the answers, up to date."""
        if self.values.shape[0] < table.size:
            grown = np.zeros(max(64, 2 * table.size), dtype=np.int16)
            grown[: self.values.shape[0]] = self.values
            self.values = grown
        if self._seen < len(table.changed):
            rows = set(table.changed[self._seen :])
            self._seen = len(table.changed)
            for row in rows:
                if table.objects[row] is not None:
                    self.values[row] = self._compute(row)
        return self.values[: table.size]


class NodeRules:
    """The answers of the nodes of a table."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._kept: OrderedDict[tuple[str, Hashable], NodeAnswerCache] = OrderedDict()

    def mask(self, pod: PodInfo) -> Mask:
        """Return the nodes that pass all node rules."""
        names = nodes_named(pod)
        if names is not None:
            # A pod that names its nodes (a DaemonSet's does) is not asked about the others.
            chosen = np.zeros(self.table.size, dtype=bool)
            for name in names:
                row = self.table.row_of.get(name)
                if row is not None:
                    chosen[row] = self.reason(pod, row) is None
            return chosen
        found = self.passed(NODE_RULES[0], pod).copy()
        for rule in NODE_RULES[1:]:
            found &= self.passed(rule, pod)
        return found

    def passed(self, rule: NodeRule, pod: PodInfo) -> Mask:
        """Return the nodes that pass one rule."""
        kept = self._kept_answers(
            (rule.plugin, rule.key(pod)), lambda row: int(self.refusal(rule, pod, row) is None)
        )
        passed: Mask = kept.answers(self.table) != 0
        return passed

    def refusal(self, rule: NodeRule, pod: PodInfo, row: int) -> Reason | None:
        """Return the reason that a node fails one rule; None if it passes."""
        node = self.table.objects[row]
        return None if node is None else rule.refusal(pod, node)

    def avoided_taints(self, pod: PodInfo, among: Mask) -> Numbers:
        """Return how many PreferNoSchedule taints of each node the pod does not tolerate."""
        return self._counts("avoided", pod.tolerating, pod, among, self._avoided)

    def preferred_weights(self, pod: PodInfo, among: Mask) -> Numbers:
        """Return the weights of the pod's preferred node affinity that each node meets."""
        return self._counts("preferred", pod.placement, pod, among, self._preferred)

    def _counts(
        self,
        name: str,
        kind: Hashable,
        pod: PodInfo,
        among: Mask,
        count: Callable[[PodInfo, int], int],
    ) -> Numbers:
        if nodes_named(pod) is None:
            kept = self._kept_answers((name, kind), lambda row: count(pod, row))
            return kept.answers(self.table).astype(np.int64)
        found = np.zeros(self.table.size, dtype=np.int64)
        for row in np.flatnonzero(among):
            found[row] = count(pod, int(row))
        return found

    def _avoided(self, pod: PodInfo, row: int) -> int:
        return sum(
            taint.get("effect") == PREFER_NO_SCHEDULE and not tolerates(pod.tolerations, taint)
            for taint in taints_of(self.table.objects[row] or {})
        )

    def _preferred(self, pod: PodInfo, row: int) -> int:
        name, own = self.table.names[row], self.table.labels[row]
        return sum(
            item["weight"]
            for item in pod.preferred_nodes
            if labels.node_term_accepts(item["preference"], own, name)
        )

    def _kept_answers(
        self, key: tuple[str, Hashable], compute: Callable[[int], int]
    ) -> NodeAnswerCache:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = NodeAnswerCache(compute)
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return kept

    def reason(self, pod: PodInfo, row: int) -> Reason | None:
        """Return the first rule about a node itself that keeps the pod from it."""
        names = nodes_named(pod)
        if names is not None and self.table.names[row] not in names:
            return Reason(NOT_NAMED)
        found = (self.refusal(rule, pod, row) for rule in NODE_RULES)
        return next((reason for reason in found if reason is not None), None)


def nodes_named(pod: PodInfo) -> list[str] | None:
    """Return the nodes that a pod's affinity names; None if some term names none."""
    if pod.node_affinity is None:
        return None
    found: list[str] = []
    for term in pod.node_affinity.get("nodeSelectorTerms") or ():
        names = labels.nodes_named_by(term)
        if names is None:
            return None
        found += names
    return found
