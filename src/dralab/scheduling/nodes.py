"""The nodes as columns of numbers, with their running and assumed pods.

One row a node. What depends on a node's own labels and taints is kept per kind of pod and updated
row by row when a node changes; what depends on other pods is counted as pods come and go. So a
scheduling cycle is a few operations on whole columns, and no loop over nodes.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dralab.allocation.inventory.row_log import RowLog
from dralab.objects.host_ports import TakenPort
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.nodes import offered
from dralab.scheduling.node_columns import AmountColumns, Numbers, wider
from dralab.scheduling.pods import PodInfo, PodMatcher
from dralab.scheduling.shares import SHARED_GPUS
from dralab.values.json_types import JsonDict

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

REMEMBERED: Final = 512


class NodeTable(AmountColumns):
    """Nodes by row; `names[row]` is empty if a node has gone."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.objects: list[JsonDict | None] = []
        self.labels: list[Mapping[str, str]] = []
        # Counts the changes: what was true of a state stays true while its versions do.
        self.version = 0
        # Counts the changes of nodes; those of pods by priority, or None for the members of groups,
        # add up to the same sum whenever the same pods are on the same nodes, once it is asked for.
        self._nodes_changed = 0
        self._placed_sums: dict[int | None, int] | None = None
        # How many pods there are of each priority, for preemption.
        self.priorities: Counter[int] = Counter()
        self.row_of: dict[str, int] = {}
        self.pods: list[dict[str, PodInfo]] = []
        self._live: Mask = np.zeros(0, dtype=bool)
        self._ports: dict[int, dict[TakenPort, int]] = {}
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        self._vacant: list[int] = []
        # Rows whose labels, taints or cordon changed, in order: cached answers are updated from it.
        self.changed: list[int] = []
        # Rows with other pods, amounts, labels or taints than before.
        self.touched = RowLog()
        self._counts: OrderedDict[PodMatcher, Numbers] = OrderedDict()
        self._domains: dict[str, tuple[int, Numbers, dict[str, int]]] = {}
        # Required anti-affinity terms of placed pods: term → pods that carry it, by row.
        self.repelling: dict[tuple[PodMatcher, str], Numbers] = {}
        # Preferred terms of placed pods: term → the sum of their weights, by row.
        self.wishes: dict[tuple[PodMatcher, str], Numbers] = {}
        # Images that nodes have already: name → bytes, by row.
        self.images: dict[str, dict[int, int]] = {}

    # --- columns

    @property
    def live(self) -> Mask:
        """Which rows hold a node."""
        return self._live[: self.size]

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.row_of)

    def ports_taken(self) -> Mapping[int, Mapping[TakenPort, int]]:
        """Return the host ports in use, by row."""
        return self._ports

    # --- nodes

    def put_node(self, obj: JsonDict) -> bool:
        """Handle a new or changed node; return whether it may now serve more pods."""
        name = obj["metadata"]["name"]
        row = self.row_of.get(name)
        self.version += 1
        self._nodes_changed += 1
        if row is None:
            row = self._new_row(name)
            self._touch(row)
            self._fill(row, obj)
            self.changed.append(row)
            for uid, pod in self._homeless.pop(name, {}).items():
                self.pods[row][uid] = pod
                self._account(row, pod, 1)
            return True
        old = self.objects[row]
        self.objects[row] = obj
        self._touch(row)
        self._put_images(row, _images(old), _images(obj))
        better = False
        if old is None or _placement(old) != _placement(obj):
            self.labels[row] = labels_of(obj)
            self.changed.append(row)
            self._domains.clear()
            better = True
        if old is None or offered(old) != offered(obj):
            better = self._change_offer(row, offered(obj)) or better
        return better

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods are kept in case it comes back."""
        row = self.row_of.pop(name, None)
        if row is None:
            return
        self.version += 1
        self._nodes_changed += 1
        pods = self.pods[row]
        for pod in pods.values():
            self._account(row, pod, -1)
        if pods:
            self._homeless[name] = pods
        self._put_images(row, _images(self.objects[row]), ())
        self.names[row], self.objects[row], self.labels[row] = "", None, {}
        self.pods[row] = {}
        self._live[row] = False
        self._touch(row)
        self._offer_nothing(row)
        self._ports.pop(row, None)
        self._vacant.append(row)
        self._domains.clear()
        self.changed.append(row)

    # --- pods

    def add_pod(self, node: str, pod: PodInfo) -> None:
        """Count a pod on a node; a second time does nothing."""
        row = self.row_of.get(node)
        if row is None:
            self._homeless.setdefault(node, {})[pod.uid] = pod
        elif pod.uid not in (pods := self.pods[row]):
            pods[pod.uid] = pod
            self._account(row, pod, 1)

    def remove_pod(self, node: str, uid: str) -> PodInfo | None:
        """Stop counting a pod; return it, or None if it was not counted."""
        row = self.row_of.get(node)
        if row is None:
            held = self._homeless.get(node)
            pod = held.pop(uid, None) if held else None
            if held is not None and not held:
                del self._homeless[node]
            return pod
        pod = self.pods[row].pop(uid, None)
        if pod is not None:
            self._account(row, pod, -1)
        return pod

    def without_below(self, priority: int) -> Hashable:
        """Return a key of all nodes and pods, but single pods of lower priority."""
        if self._placed_sums is None:
            self._placed_sums = {}
            for row, pods in enumerate(self.pods):
                for pod in pods.values():
                    self._add_to_sums(self._placed_sums, row, pod, 1)
        sums = self._placed_sums.items()
        kept = {each: held for each, held in sums if each is None or each >= priority}
        return self._nodes_changed, frozenset(kept.items())

    def matching(self, matcher: PodMatcher) -> Numbers:
        """Return how many pods of each node match a term; kept up to date from now on."""
        found = self._counts.get(matcher)
        if found is None:
            found = np.zeros(self._live.shape[0], dtype=np.int64)
            for row, pods in enumerate(self.pods):
                found[row] = sum(matcher.accepts(pod) for pod in pods.values())
            self._counts[matcher] = found
            if len(self._counts) > REMEMBERED:
                self._counts.popitem(last=False)
        else:
            self._counts.move_to_end(matcher)
        return found[: self.size]

    def domains(self, key: str) -> tuple[int, Numbers]:
        """Return how many values a node label has, and each node's by number; -1: without it."""
        found = self._domains.get(key)
        if found is None:
            numbers: dict[str, int] = {}
            ids = np.full(self.size, -1, dtype=np.int64)
            for row in self.row_of.values():
                value = self.labels[row].get(key)
                if value is not None:
                    ids[row] = numbers.setdefault(value, len(numbers))
            found = self._domains[key] = (len(numbers), ids, numbers)
        return found[0], found[1]

    # --- inside

    def _touch(self, row: int) -> None:
        self.touched.add_row(row)
        self._change(row)

    def _new_row(self, name: str) -> int:
        if self._vacant:
            row = self._vacant.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self.objects.append(None)
            self.labels.append({})
            self.pods.append({})
            self.amounts_by_row.append(None)
            if row >= self._live.shape[0]:
                self._grow(max(64, 2 * row))
        self.row_of[name] = row
        self._live[row] = True
        self._domains.clear()
        return row

    def _fill(self, row: int, obj: JsonDict) -> None:
        self.objects[row] = obj
        self._put_images(row, (), _images(obj))
        self.labels[row] = labels_of(obj)
        self._offer(row, offered(obj), self.labels[row].get(SHARED_GPUS, ""))

    def _put_images(
        self, row: int, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
    ) -> None:
        if before == now:
            return
        for image in before:
            for name in image.get("names") or ():
                self.images.get(name, {}).pop(row, None)
        for image in now:
            for name in image.get("names") or ():
                self.images.setdefault(name, {})[row] = image.get("sizeBytes") or 0

    def _grow(self, capacity: int) -> None:
        self._widen(capacity)
        live = np.zeros(capacity, dtype=bool)
        live[: self._live.shape[0]] = self._live
        self._live = live
        self._counts = OrderedDict((k, wider(each, capacity)) for k, each in self._counts.items())
        self.repelling = {key: wider(each, capacity) for key, each in self.repelling.items()}
        self.wishes = {key: wider(each, capacity) for key, each in self.wishes.items()}

    def _account(self, row: int, pod: PodInfo, sign: int) -> None:
        self.version += 1
        if self._placed_sums is not None:
            self._add_to_sums(self._placed_sums, row, pod, sign)
        priorities, priority = self.priorities, pod.priority
        count = priorities.get(priority, 0) + sign
        if count:
            priorities[priority] = count
        else:
            del priorities[priority]
        self._count_amounts(row, pod, sign)
        self.touched.add_row(row)
        if self._counts or pod.anti_affinity or pod.wishes or pod.ports:
            self._account_terms(row, pod, sign)

    @staticmethod
    def _add_to_sums(sums: dict[int | None, int], row: int, pod: PodInfo, sign: int) -> None:
        of = None if pod.group else pod.priority
        held = hash((pod.uid, row, pod.asking, pod.shares))
        sums[of] = sums.get(of, 0) + sign * held

    def _account_terms(self, row: int, pod: PodInfo, sign: int) -> None:
        """Count a pod for those that look at the pods of a node, and its ports."""
        for matcher, counts in self._counts.items():
            if matcher.accepts(pod):
                counts[row] += sign
        for term in pod.anti_affinity:
            carried = self.repelling.get((term.matcher, term.key))
            if carried is None:
                carried = np.zeros(self._live.shape[0], dtype=np.int64)
                self.repelling[term.matcher, term.key] = carried
            carried[row] += sign
            if sign < 0 and not carried.any():
                del self.repelling[term.matcher, term.key]
        for term in pod.wishes:
            weights = self.wishes.get((term.matcher, term.key))
            if weights is None:
                weights = np.zeros(self._live.shape[0], dtype=np.int64)
                self.wishes[term.matcher, term.key] = weights
            weights[row] += sign * term.weight
            if not weights.any():
                del self.wishes[term.matcher, term.key]
        for port in pod.ports:
            taken = self._ports.setdefault(row, {})
            taken[port] = taken.get(port, 0) + sign
            if taken[port] <= 0:
                del taken[port]


def _placement(obj: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = spec_of(obj)
    return obj["metadata"].get("labels"), spec.get("taints"), spec.get("unschedulable")


def _images(obj: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = ((obj or {}).get("status") or {}).get("images") or ()
    return found
