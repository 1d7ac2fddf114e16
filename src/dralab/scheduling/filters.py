"""Which nodes a pod may use: the node's own conditions, room, ports.

Order and texts are those of kube-scheduler's plugins (NodeUnschedulable, NodeName,
TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit).
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np

from dralab.objects import taints
from dralab.objects.host_ports import collide
from dralab.objects.nodes import NOT_NAMED, PODS, UnfitReason, placement_refusal
from dralab.objects.taints import tolerates
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeAnswerCache, NodeTable, Numbers
from dralab.scheduling.pods import PodInfo
from dralab.values import labels

_Kept = tuple[NodeAnswerCache, NodeAnswerCache, NodeAnswerCache]


class NodeFilter:
    """Answers that depend on the node and on the kind of pod alone."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.reasons: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def mask(self, pod: PodInfo) -> Mask:
        """Return the nodes that the pod's selector, affinity and tolerations let it use."""
        names = _named(pod)
        if names is not None:
            # A pod that names its nodes (a DaemonSet's does) is not asked about the others.
            chosen = np.zeros(self.table.size, dtype=bool)
            for name in names:
                row = self.table.row_of.get(name)
                if row is not None:
                    chosen[row] = not self._verdict(pod, row)
            return chosen
        found: Mask = self._of(pod)[0].answers(self.table) == 0
        return found

    def reason(self, pod: PodInfo, row: int) -> str:
        """Return why the pod may not use a node for the node's own sake; empty if it may."""
        names = _named(pod)
        if names is not None:
            named = self.table.names[row] in names
            return self._verdict(pod, row) if named else NOT_NAMED
        return self.reasons[int(self._of(pod)[0].answers(self.table)[row])]

    def avoided_taints(self, pod: PodInfo, among: Mask) -> Numbers:
        """Return how many PreferNoSchedule taints of each node the pod does not tolerate."""
        return self._answers(pod, among, 1, self._avoided)

    def preferred_weights(self, pod: PodInfo, among: Mask) -> Numbers:
        """Return the weights of the pod's preferred node affinity that each node meets."""
        return self._answers(pod, among, 2, self._preferred)

    def _answers(
        self, pod: PodInfo, among: Mask, which: int, ask: Callable[[PodInfo, int], int]
    ) -> Numbers:
        if _named(pod) is None:
            return self._of(pod)[which].answers(self.table).astype(np.int64)
        found = np.zeros(self.table.size, dtype=np.int64)
        for row in np.flatnonzero(among):
            found[row] = ask(pod, int(row))
        return found

    def _of(self, pod: PodInfo) -> _Kept:
        found = self._kept.get(pod.placement)
        if found is None:
            found = (
                NodeAnswerCache(lambda row: self._number(self._verdict(pod, row))),
                NodeAnswerCache(lambda row: self._avoided(pod, row)),
                NodeAnswerCache(lambda row: self._preferred(pod, row)),
            )
            self._kept[pod.placement] = found
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(pod.placement)
        return found

    def _number(self, reason: str) -> int:
        number = self._numbers.get(reason)
        if number is None:
            number = self._numbers[reason] = len(self.reasons)
            self.reasons.append(reason)
        return number

    def _verdict(self, pod: PodInfo, row: int) -> str:
        node = self.table.objects[row]
        if node is None:
            return ""
        refusal = placement_refusal(
            node,
            tolerations=pod.tolerations,
            selector=pod.node_selector,
            affinity=pod.node_affinity,
        )
        return "" if refusal is None else str(refusal)

    def _avoided(self, pod: PodInfo, row: int) -> int:
        return sum(
            taint.get("effect") == taints.PREFER_NO_SCHEDULE
            and not tolerates(pod.tolerations, taint)
            for taint in taints.taints_of(self.table.objects[row] or {})
        )

    def _preferred(self, pod: PodInfo, row: int) -> int:
        name, own = self.table.names[row], self.table.labels[row]
        return sum(
            item["weight"]
            for item in pod.preferred_nodes
            if labels.node_term_accepts(item["preference"], own, name)
        )


def _named(pod: PodInfo) -> list[str] | None:
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


def room(table: NodeTable, pod: PodInfo, elsewhere: Mapping[str, Mask] | None = None) -> Mask:
    """Return the nodes that have room for what a pod requests.

    `elsewhere` names, for resources that devices can also provide, the nodes where they do.
    """
    found = table.live & (table.free(PODS) >= 1)
    for resource, amount in pod.requests.items():
        if amount:
            enough = table.free(resource) >= amount
            if elsewhere is not None and resource in elsewhere:
                enough |= elsewhere[resource]
            found &= enough
    return found


def lacking(table: NodeTable, pod: PodInfo, row: int, provided: frozenset[str]) -> list[str]:
    """Return what a node has too little of, in the words of NodeResourcesFit.

    `provided` are resources that devices provide where the node itself offers none.
    """
    short = [PODS] if table.free(PODS)[row] < 1 else []
    short += [
        resource
        for resource, amount in sorted(pod.requests.items())
        if amount
        and table.free(resource)[row] < amount
        and not (resource in provided and table.allocatable(resource)[row] == 0)
    ]
    return [str(UnfitReason("NodeResourcesFit", resource)) for resource in short]


def ports_free(table: NodeTable, pod: PodInfo) -> Mask | None:
    """Return the nodes where the pod's host ports are free; None if it needs none."""
    if not pod.ports:
        return None
    found = np.ones(table.size, dtype=bool)
    for row, taken in table.ports_taken().items():
        if any(collide(mine, other) for mine in pod.ports for other in taken):
            found[row] = False
    return found
