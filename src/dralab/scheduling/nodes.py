"""The nodes as columns of numbers, with their running and assumed pods.

One row a node. What depends on a node's own labels and taints is kept per kind of pod and updated
row by row when a node changes; what depends on other pods is counted as pods come and go. So a
scheduling cycle is a few operations on whole columns, and no loop over nodes.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dralab.allocation.inventory.row_log import RowLog
from dralab.objects.host_ports import TakenPort
from dralab.objects.metadata import labels_of, spec_of
from dralab.objects.nodes import PODS, offered
from dralab.objects.requests import base_units
from dralab.scheduling.pods import PodInfo, PodMatcher
from dralab.scheduling.shares import SHARED_GPUS, SharedColumns, SharedGpus, Shares
from dralab.values.json_types import JsonDict

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

REMEMBERED: Final = 512
# Amounts of nodes that are remembered; beyond it they are forgotten, which costs time alone.
MOST_AMOUNTS: Final = 1 << 17
# Pods that come to, or leave, nodes of the same amounts likewise.
MOST_MOVES: Final = 1_024


class NodeAmounts:
    """All amounts of a node, offered and free. Nodes of equal amounts share one object.

    `moves` are the amounts after a pod has come or gone, `chosen` the GPUs of pods that share them.
    """

    __slots__ = ("chosen", "moves")

    def __init__(self) -> None:
        self.moves: dict[Hashable, NodeAmounts] = {}
        self.chosen: dict[Shares, tuple[int, ...]] = {}


class NodeTable:
    """Nodes by row; `names[row]` is empty if a node has gone."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.objects: list[JsonDict | None] = []
        self.labels: list[Mapping[str, str]] = []
        # Counts the changes: what was true of a state stays true while its versions do.
        self.version = 0
        # Counts the changes of nodes; those of pods by priority, or None for the members of groups,
        # add up to the same sum whenever the same pods are on the same nodes.
        self._nodes_changed = 0
        self._placed_sums: dict[int | None, int] = {}
        # How many pods there are of each priority, for preemption.
        self.priorities: Counter[int] = Counter()
        self.row_of: dict[str, int] = {}
        self.pods: list[dict[str, PodInfo]] = []
        # `scored_free` and `scored_offer` count on the first two.
        self.columns: dict[str, int] = {"cpu": 0, "memory": 1, PODS: 2}
        self._live: Mask = np.zeros(0, dtype=bool)
        self._allocatable: Numbers = np.zeros((3, 0), dtype=np.int64)
        self._free: Numbers = np.zeros((3, 0), dtype=np.int64)
        self._scored: Numbers = np.zeros((2, 0), dtype=np.int64)
        self._ports: dict[int, dict[TakenPort, int]] = {}
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        self._vacant: list[int] = []
        # Rows whose labels, taints or cordon changed, in order: cached answers are updated from it.
        self.changed: list[int] = []
        # Rows with other pods, amounts, labels or taints than before.
        self.touched = RowLog()
        self._amounts: list[NodeAmounts | None] = []
        self._known_amounts: dict[bytes, NodeAmounts] = {}
        self._counts: OrderedDict[PodMatcher, Numbers] = OrderedDict()
        self._domains: dict[str, tuple[int, Numbers, dict[str, int]]] = {}
        # Required anti-affinity terms of placed pods: term → pods that carry it, by row.
        self.repelling: dict[tuple[PodMatcher, str], Numbers] = {}
        # Preferred terms of placed pods: term → the sum of their weights, by row.
        self.wishes: dict[tuple[PodMatcher, str], Numbers] = {}
        # Images that nodes have already: name → bytes, by row.
        self.images: dict[str, dict[int, int]] = {}
        self.gpus = SharedGpus()

    # --- columns

    @property
    def size(self) -> int:
        """How many rows there are, vacant ones included."""
        return len(self.names)

    @property
    def live(self) -> Mask:
        """Which rows hold a node."""
        return self._live[: self.size]

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.row_of)

    def allocatable(self, resource: str) -> Numbers:
        """Return what each node offers of a resource, in base units."""
        column = self.columns.get(resource)
        if column is None:
            return np.zeros(self.size, dtype=np.int64)
        return self._allocatable[column, : self.size]

    def free(self, resource: str) -> Numbers:
        """Return what each node has left of a resource; negative where it is overcommitted."""
        column = self.columns.get(resource)
        if column is None:
            return np.zeros(self.size, dtype=np.int64)
        return self._free[column, : self.size]

    def scored_free(self) -> Numbers:
        """Return the free cpu and memory; pods without requests count with a default."""
        return self._scored[:, : self.size]

    def scored_offer(self) -> Numbers:
        """Return the allocatable cpu and memory of each node, in base units."""
        return self._allocatable[:2, : self.size]

    @property
    def rows(self) -> slice:
        """The rows of the columns."""
        return slice(self.size)

    def shared_gpus(self) -> SharedColumns:
        """Return what is left of the GPUs that pods share."""
        return self.gpus.columns(self.rows, self.size)

    def ports_taken(self) -> Mapping[int, Mapping[TakenPort, int]]:
        """Return the host ports in use, by row."""
        return self._ports

    def amounts(self, row: int) -> NodeAmounts:
        """Return all amounts of a node: nodes with equal ones score alike."""
        found = self._amounts[row]
        if found is None:
            parts = [
                each[:, row].tobytes() for each in (self._free, self._allocatable, self._scored)
            ]
            key = b"".join((*parts, self.gpus.amounts(row)))
            found = self._known_amounts.get(key)
            if found is None:
                if len(self._known_amounts) >= MOST_AMOUNTS:
                    self._forget_amounts()
                found = self._known_amounts[key] = NodeAmounts()
            self._amounts[row] = found
        return found

    def chosen_gpus(self, row: int, shares: Shares) -> tuple[int, ...]:
        """Return the GPUs of a node for a pod that shares them."""
        chosen = self.amounts(row).chosen
        found = chosen.get(shares)
        if found is None:
            found = chosen[shares] = self.gpus.chosen(row, shares)
        return found

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
            for pod in self._homeless.pop(name, {}).values():
                self._count_pod(row, pod)
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
            offer = offered(obj)
            for resource in offer:
                self._column(resource)
            before = self._allocatable[:, row].copy()
            self._set_allocatable(row, offer)
            delta = self._allocatable[:, row] - before
            self._free[:, row] += delta
            self._scored[:, row] += delta[:2]
            better = better or bool((delta > 0).any())
        return better

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods are kept in case it comes back."""
        row = self.row_of.pop(name, None)
        if row is None:
            return
        self.version += 1
        self._nodes_changed += 1
        pods = self.pods[row]
        for pod in list(pods.values()):
            self._uncount_pod(row, pod)
        if pods:
            self._homeless[name] = pods
        self._put_images(row, _images(self.objects[row]), ())
        self.names[row], self.objects[row], self.labels[row] = "", None, {}
        self.pods[row] = {}
        self._live[row] = False
        self._allocatable[:, row] = self._free[:, row] = 0
        self._scored[:, row] = 0
        self._ports.pop(row, None)
        self._vacant.append(row)
        self._touch(row)
        self._domains.clear()
        self.changed.append(row)

    # --- pods

    def add_pod(self, node: str, pod: PodInfo) -> None:
        """Count a pod on a node; a second time does nothing."""
        row = self.row_of.get(node)
        if row is None:
            self._homeless.setdefault(node, {})[pod.uid] = pod
        elif pod.uid not in self.pods[row]:
            self._count_pod(row, pod)

    def remove_pod(self, node: str, uid: str) -> PodInfo | None:
        """Stop counting a pod; return it, or None if it was not counted."""
        row = self.row_of.get(node)
        if row is None:
            held = self._homeless.get(node)
            pod = held.pop(uid, None) if held else None
            if held is not None and not held:
                del self._homeless[node]
            return pod
        pod = self.pods[row].get(uid)
        if pod is not None:
            self._uncount_pod(row, pod)
            del self.pods[row][uid]
        return pod

    def without_below(self, priority: int) -> Hashable:
        """Return a key of all nodes and pods, but single pods of lower priority."""
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

    def _forget_amounts(self) -> None:
        """Forget which amounts are equal, and what follows them."""
        for each in self._known_amounts.values():
            each.moves.clear()
        self._known_amounts.clear()
        self._amounts = [None] * len(self._amounts)

    def _touch(self, row: int) -> None:
        self.touched.add_row(row)
        self._amounts[row] = None

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
            self._amounts.append(None)
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
        self.gpus.put_labelled(row, self.labels[row].get(SHARED_GPUS, ""))
        self._set_allocatable(row, offered(obj))
        self._free[:, row] = self._allocatable[:, row]
        self._scored[:, row] = self._allocatable[:2, row]

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

    def _set_allocatable(self, row: int, offer: Mapping[str, Any]) -> None:
        for name in offer:
            self._column(name)
        self._allocatable[:, row] = 0
        for name, text in offer.items():
            self._allocatable[self.columns[name], row] = base_units(name, text)

    def _column(self, resource: str) -> int:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = len(self.columns)
            self._forget_amounts()
            empty = np.zeros((1, self._live.shape[0]), dtype=np.int64)
            self._allocatable = np.vstack([self._allocatable, empty])
            self._free = np.vstack([self._free, empty])
        return column

    def _grow(self, capacity: int) -> None:
        def wider(array: Numbers) -> Numbers:
            grown = np.zeros((*array.shape[:-1], capacity), dtype=array.dtype)
            grown[..., : array.shape[-1]] = array
            return grown

        live = np.zeros(capacity, dtype=bool)
        live[: self._live.shape[0]] = self._live
        self._live = live
        self._allocatable = wider(self._allocatable)
        self._free = wider(self._free)
        self._scored = wider(self._scored)
        self._counts = OrderedDict((key, wider(array)) for key, array in self._counts.items())
        self.repelling = {key: wider(array) for key, array in self.repelling.items()}
        self.wishes = {key: wider(array) for key, array in self.wishes.items()}

    def _count_pod(self, row: int, pod: PodInfo) -> None:
        self.pods[row][pod.uid] = pod
        self._account(row, pod, 1)

    def _uncount_pod(self, row: int, pod: PodInfo) -> None:
        self._account(row, pod, -1)

    def _account(self, row: int, pod: PodInfo, sign: int) -> None:
        self.version += 1
        priority, shares, load = pod.priority, pod.shares, pod.load
        of = None if pod.group else priority
        held = hash((pod.uid, row, pod.asking, shares))
        self._placed_sums[of] = self._placed_sums.get(of, 0) + sign * held
        count = self.priorities[priority] = self.priorities[priority] + sign
        if not count:
            del self.priorities[priority]
        columns = self.columns
        for resource, amount in load.requests:
            column = columns[resource] if resource in columns else self._column(resource)
            self._free[column, row] -= sign * amount
        self._free[2, row] -= sign
        cpu, memory = load.scored
        self._scored[0, row] -= sign * cpu
        self._scored[1, row] -= sign * memory
        move: Hashable = load, sign
        if shares is not None:
            self.gpus.take(row, shares, sign)
            # Whether this was the last pod of its kind is not in the amounts before.
            move = load, shares, int(self.gpus.kinds[row]), sign
        self.touched.add_row(row)
        before, self._amounts[row] = self._amounts[row], None
        if before is not None:
            self._move(row, before, move)
        if self._counts or pod.anti_affinity or pod.wishes or pod.ports:
            self._account_terms(row, pod, sign)

    def _move(self, row: int, before: NodeAmounts, move: Hashable) -> None:
        """Let a node have the amounts that follow others."""
        after = before.moves.get(move)
        if after is None:
            after = self.amounts(row)
            if len(before.moves) < MOST_MOVES:
                before.moves[move] = after
        self._amounts[row] = after

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
            rows: Iterable[int] = set(table.changed[self._seen :])
            self._seen = len(table.changed)
            for row in rows:
                if table.objects[row] is not None:
                    self.values[row] = self._compute(row)
        return self.values[: table.size]


def _placement(obj: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = spec_of(obj)
    return obj["metadata"].get("labels"), spec.get("taints"), spec.get("unschedulable")


def _images(obj: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = ((obj or {}).get("status") or {}).get("images") or ()
    return found
