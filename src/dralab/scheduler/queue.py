"""The pods that wait for a node: ready, backing off, or waiting for something to change.

Source: kube-scheduler's scheduling queue. A pod that failed waits for an event that could make
it schedulable; then it waits out its back-off (1 s, doubled to 10 s) unless nothing else is ready
(gate SchedulerPopFromBackoffQ, on since 1.33). One whose binding failed waits it out in any case.
Of equal priority, the pod goes first that was added or last failed earliest (PrioritySort).

Pods of one kind (see `cycle.kind_of`) fit or fail alike, so a change wakes the first of each kind;
the next follows when that one was placed. A release of one device costs one try, however many
wait for it.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from dralab.kernel.clock import SECOND
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import ClusterChange, Reason
from dralab.values.records import dataclass

FIRST_BACKOFF: Final = 1 * SECOND
LONGEST_BACKOFF: Final = 10 * SECOND
# Back-offs end at multiples of this, and those that end together go by the order of the queue.
WINDOW: Final = 1 * SECOND
# Pods that have waited for so long are looked for once in a period.
FORGOTTEN_AFTER: Final = 300 * SECOND
FLUSH_PERIOD: Final = 30 * SECOND


@dataclass(slots=True)
class QueuedPod:
    """A pod in the queue; `since` is when it was added or last failed, `number` its place then."""

    pod: PodInfo
    since: int
    number: int
    attempts: int = 0
    failed_at: int = 0
    # When a place was found for it.
    decided_at: int = 0
    kind: Hashable = None
    # Why it was refused last.
    causes: tuple[Reason, ...] = ()
    # Where a policy of a simulation wants it; None: by its priority.
    wish: tuple[float, ...] | None = None
    # Whether those of its kind wait for the outcome of its next try.
    leads: bool = False
    where: str = "trying"
    # Which entry of a heap is that of its present place; others are left from earlier ones.
    entry: int = 0

    def backoff_ends(self) -> int:
        """Return when the back-off after the last attempt ends: its window's end."""
        if not self.attempts:
            return 0
        ends = self.failed_at + min(FIRST_BACKOFF << min(self.attempts - 1, 8), LONGEST_BACKOFF)
        return ends - ends % WINDOW + WINDOW

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key: priority, then the time of waiting."""
        first = -self.pod.priority if self.wish is None else self.wish
        return (first, self.since, self.pod.created, self.number)

    @property
    def order_in_kind(self) -> tuple[Any, ...]:
        """The sort key among pods that fail together."""
        first = -self.pod.priority if self.wish is None else self.wish
        return (first, self.pod.created, self.number)


class _Failure(NamedTuple):
    """The last failed try of a kind: what could help it, and when it was."""

    awaits: int
    when: int


# An item's sort key, the number of the entry, the pod's uid.
_Heap = list[tuple[tuple[Any, ...], int, str]]


class SchedulingQueue:
    """Higher priority first, then longer waiting.

    In a `strict` order the first pod that fits nowhere holds up all that are behind it. A policy of
    a simulation may `rank` pods instead of their priority; it is asked when a pod may be tried.
    """

    rank: Callable[[PodInfo], tuple[float, ...]] | None = None

    def __init__(self, now: Callable[[], int], *, strict: bool = False) -> None:
        self._now = now
        self._strict = strict
        self._holding_up: QueuedPod | None = None
        self._pods: dict[str, QueuedPod] = {}
        self._active: _Heap = []
        # Those in back-off, by its end; the second must wait it out.
        self._backoff: _Heap = []
        self._errors: _Heap = []
        # Failed pods by kind; each kind's are a heap whose first is the one that a change wakes.
        self._failed: dict[Hashable, _Heap] = {}
        self._failures: dict[Hashable, _Failure] = {}
        # Kinds whose first is awake: the others wait for its outcome, whatever else changes.
        self._led: set[Hashable] = set()
        self._number = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def counts(self) -> dict[str, int]:
        """Return how many pods are active, in back-off, unschedulable, gated, being tried."""
        found = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0, "trying": 0}
        for item in self._pods.values():
            found[item.where] += 1
        return found

    def get(self, uid: str) -> QueuedPod | None:
        """Return a waiting pod."""
        return self._pods.get(uid)

    def add_pod(self, pod: PodInfo) -> None:
        """Add a new pod; gated pods wait until their gates are removed."""
        item = self._pods.get(pod.uid)
        if item is None:
            self._number += 1
            item = self._pods[pod.uid] = QueuedPod(pod, self._now(), self._number)
        item.pod = pod
        if pod.gates:
            self._take(item, "gated")
        elif item.where != "active":
            self._activate(item)

    def update_pod(self, pod: PodInfo) -> None:
        """Update a pod after a relevant change of its object."""
        item = self._pods.get(pod.uid)
        if item is None or pod.gates or item.where == "gated":
            self.add_pod(pod)
            return
        item.pod = pod
        self.wake_pods([pod.uid])

    def remove_pod(self, uid: str) -> None:
        """Forget a pod: it was placed, or it is gone."""
        item = self._pods.pop(uid, None)
        if item is self._holding_up:
            self._holding_up = None
        if item is not None and item.leads:
            self.wake_next_like(item)

    def pop(self) -> QueuedPod | None:
        """Return the next pod to try; the caller holds it until `failed` or `remove`."""
        if self._holding_up is not None:
            return None
        backoff, errors, now = self._backoff, self._errors, self._now()
        while backoff and (item := self._first(backoff)) and backoff[0][0][0] <= now:
            self._activate(item)
        while errors and (item := self._first(errors)) and errors[0][0][0] <= now:
            self._activate(item)
        item = self._first(self._active) or self._first(backoff)
        return None if item is None else self._take(item, "trying")

    def take_out(self, uid: str) -> None:
        """Remove a pod out of order: it is tried together with another of its gang."""
        item = self._pods.get(uid)
        if item is not None:
            self._take(item, "trying")

    def add_unschedulable(
        self, item: QueuedPod, awaits: ClusterChange, kind: Hashable = None
    ) -> None:
        """Put back a pod that fits nowhere, until one of the changes that it awaits."""
        uid = item.pod.uid
        if uid not in self._pods:
            return
        self._note_failure(item)
        self._follow(item)
        item.kind = kind if kind is not None else uid
        self._failures[item.kind] = _Failure(awaits.value, item.since)
        if self._strict:
            self._activate(item)
            if self._holding_up is None or item.order <= self._holding_up.order:
                self._holding_up = item
            return
        heap = self._failed.setdefault(item.kind, [])
        self._put(item, "unschedulable", heap, item.order_in_kind)

    def put_back(self, item: QueuedPod) -> None:
        """Put back a pod whose binding failed for external reasons.

        It waits its back-off out, whether another pod is ready or not: a server that refuses what
        is written must not be asked without end (kube-scheduler's podErrorBackoffQ).
        """
        if item.pod.uid in self._pods:
            self._note_failure(item)
            self._requeue(item, self._errors)

    def _note_failure(self, item: QueuedPod) -> None:
        item.attempts += 1
        item.failed_at = self._now()
        if not self._strict:
            item.since = item.failed_at

    def wake_next_like(self, item: QueuedPod) -> None:
        """Retry the next pod of a kind, because this one was placed or deleted."""
        self._follow(item)
        if item.kind is not None:
            self._wake_first(item.kind)

    def wake_for(
        self, change: ClusterChange, helps: Callable[[PodInfo], bool] | None = None
    ) -> int:
        """Retry pods that await a change: the first of each kind; return how many.

        `helps` says whether this very change may help a pod.
        """
        held = self._holding_up
        if held is None and not self._failed:
            return 0
        changes = change.value
        if held is not None and self._failures[held.kind].awaits & changes:
            self._holding_up = None
            return 1
        moved = 0
        for kind in list(self._failed):
            if kind in self._led or not self._failures[kind].awaits & changes:
                continue
            first = None if helps is None else self._first_of(kind)
            if helps is None or (first is not None and helps(first.pod)):
                moved += self._wake_first(kind)
        return moved

    def wake_pods(self, uids: Iterable[str]) -> int:
        """Retry these pods, if they wait; return how many do."""
        if self._holding_up is not None and self._holding_up.pod.uid in (uids := set(uids)):
            self._holding_up = None
            return 1
        found = [item for uid in uids if (item := self._pods.get(uid)) is not None]
        waiting = [item for item in found if item.where == "unschedulable"]
        for item in waiting:
            self._requeue(item, self._backoff)
        return len(waiting)

    def wake_overdue(self) -> int:
        """Retry pods that have waited for long, whatever they await."""
        before, moved = self._now() - FORGOTTEN_AFTER, 0
        for kind in list(self._failed):
            if self._failures[kind].when <= before:
                moved += self._wake_first(kind)
        return moved

    def overdue_at(self) -> int | None:
        """Return when the next pod will have waited for long; None if none waits."""
        failures = (
            self._failures[kind].when for kind in list(self._failed) if self._first_of(kind)
        )
        first = min(failures, default=None)
        return None if first is None else first + FORGOTTEN_AFTER

    def _first_of(self, kind: Hashable) -> QueuedPod | None:
        item = self._first(self._failed.get(kind, []))
        if item is None:
            self._failed.pop(kind, None)
            self._failures.pop(kind, None)
        return item

    def _follow(self, item: QueuedPod) -> None:
        if item.leads:
            item.leads = False
            self._led.discard(item.kind)

    def _wake_first(self, kind: Hashable) -> int:
        item = self._first_of(kind)
        if item is None or kind in self._led:
            return 0
        if self.rank is not None:
            item = self._rank_again(kind, self.rank) or item
        item.leads = True
        self._led.add(kind)
        # The others of a kind count as tried with the one that was.
        item.since = max(item.since, self._failures[kind].when)
        self._requeue(item, self._backoff)
        return 1

    def _rank_again(
        self, kind: Hashable, rank: Callable[[PodInfo], tuple[float, ...]]
    ) -> QueuedPod | None:
        """Return the first of the pods of a kind, as they are ranked now."""
        heap = self._failed[kind]
        waiting = [item for _, entry, uid in heap if (item := self._pods.get(uid)) is not None
                   and item.entry == entry]  # fmt: skip
        heap.clear()
        for item in waiting:
            item.wish = rank(item.pod)
            heapq.heappush(heap, (item.order_in_kind, item.entry, item.pod.uid))
        return self._first(heap)

    def _requeue(self, item: QueuedPod, backoff: _Heap) -> None:
        ends = item.backoff_ends()
        if ends <= self._now():
            self._activate(item)
        else:
            self._put(item, "backoff", backoff, (ends, *item.order))

    def _activate(self, item: QueuedPod) -> None:
        if self.rank is not None:
            item.wish = self.rank(item.pod)
        if self._holding_up is not None and item.order < self._holding_up.order:
            self._holding_up = None
        self._put(item, "active", self._active, item.order)

    def _put(self, item: QueuedPod, where: str, heap: _Heap, order: tuple[Any, ...]) -> None:
        self._number += 1
        item.where, item.entry = where, self._number
        heapq.heappush(heap, (order, self._number, item.pod.uid))

    def _first(self, heap: _Heap) -> QueuedPod | None:
        """Return the first pod of a heap; drops outdated entries."""
        while heap:
            _, entry, uid = heap[0]
            item = self._pods.get(uid)
            if item is not None and item.entry == entry:
                return item
            heapq.heappop(heap)
        return None

    def _take(self, item: QueuedPod, where: str) -> QueuedPod:
        item.where, item.entry = where, 0
        return item
