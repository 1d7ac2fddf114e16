"""Which nodes a pod may use: the node's own conditions, room, ports.

Order and texts are those of kube-scheduler's plugins (NodeUnschedulable, NodeName,
TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit).
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import numpy as np

from dralab.objects import taints
from dralab.objects.host_ports import collide
from dralab.objects.nodes import PODS, UnfitReason, placement_refusal
from dralab.objects.taints import tolerates
from dralab.scheduling.nodes import REMEMBERED, Mask, NodeAnswerCache, NodeTable, Scores
from dralab.scheduling.pods import PodInfo
from dralab.values import labels

# The API has no number for "the best there is"; scores go from 0 to this (framework.MaxNodeScore).
MOST: Final = 100.0
SMALL_IMAGES: Final = 23 * 1024 * 1024
BIG_IMAGES: Final = 1000 * 1024 * 1024


class NodeFilter:
    """Answers that depend on the node and on the kind of pod alone."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.reasons: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}
        self._kept: OrderedDict[bytes, tuple[NodeAnswerCache, NodeAnswerCache | None]] = (
            OrderedDict()
        )

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
        if _named(pod) is not None:
            return self._verdict(pod, row)
        return self.reasons[int(self._of(pod)[0].answers(self.table)[row])]

    def preference(self, pod: PodInfo) -> Scores | None:
        """Return the points of preferred node affinity and of taints one would rather avoid."""
        kept = None if _named(pod) is not None else self._of(pod)[1]
        if kept is None:
            return None
        return kept.answers(self.table).astype(np.float64)

    def avoided(self, pod: PodInfo, row: int) -> int:
        """Return how many PreferNoSchedule taints of a node the pod does not tolerate."""
        obj = self.table.objects[row]
        return sum(
            taint.get("effect") == taints.PREFER_NO_SCHEDULE
            and not tolerates(pod.tolerations, taint)
            for taint in ((obj or {}).get("spec") or {}).get("taints") or ()
        )

    def _of(self, pod: PodInfo) -> tuple[NodeAnswerCache, NodeAnswerCache | None]:
        found = self._kept.get(pod.placement)
        if found is None:
            verdict = NodeAnswerCache(lambda row: self._number(self._verdict(pod, row)))
            found = verdict, NodeAnswerCache(lambda row: self._points(pod, row))
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

    def _points(self, pod: PodInfo, row: int) -> int:
        name, own = self.table.names[row], self.table.labels[row]
        points = 0
        for item in pod.preferred_nodes:
            if labels.node_term_accepts(item["preference"], own, name):
                # NodeAffinity has weight 2, TaintToleration 3 in the default profile.
                points += 2 * item["weight"]
        return points - 3 * 10 * self.avoided(pod, row)


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


def room_points(table: NodeTable, pod: PodInfo) -> Scores:
    """Return the points for emptiness (LeastAllocated) and balance (BalancedAllocation)."""
    left = table.scored_free() - np.array(pod.scored, dtype=np.int64)[:, None]
    # Where nothing is offered nothing is left: the share is not above 0 then.
    share = left / np.maximum(table.scored_offer(), 1)
    np.maximum(share, 0.0, out=share)
    np.minimum(share, 1.0, out=share)
    found: Scores = (share[0] + share[1]) * (MOST / 2) + (
        1.0 - np.abs(share[0] - share[1]) / 2
    ) * MOST
    return found


def image_points(table: NodeTable, pod: PodInfo) -> Scores | None:
    """Return the points for images that a node has already; None if no node has any.

    Source: ImageLocality. An image counts by its size and by the share of nodes that have it,
    so that not all pods of one image go to one node; 23 MiB are too few to count, 1,000 MiB for
    each container are all that counts.
    """
    known = [table.images[name] for name in pod.images if table.images.get(name)]
    if not known:
        return None
    size = np.zeros(table.size)
    for rows in known:
        share = len(rows) / max(table.count, 1)
        for row, amount in rows.items():
            size[row] += amount * share
    most = BIG_IMAGES * len(pod.images)
    found: Scores = (np.clip(size, SMALL_IMAGES, most) - SMALL_IMAGES) * (
        MOST / (most - SMALL_IMAGES)
    )
    return found
