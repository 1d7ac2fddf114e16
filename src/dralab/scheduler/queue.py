"""The pods that wait for a node: ready, backing off, or waiting for something to change.

Source: kube-scheduler's scheduling queue. A pod that failed waits for an event that could make
it schedulable; then it waits out its back-off (1 s, doubled to 10 s) unless nothing else is ready
(gate SchedulerPopFromBackoffQ, on since 1.33). One whose binding failed waits it out in any case.

Pods of one kind (see `cycle.kind_of`) fit or fail alike, so a change wakes the first of each kind;
the next follows when that one was placed. A release of one device costs one try, however many
wait for it.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import ClusterChange

FIRST_BACKOFF: Final = 1 * SECOND
LONGEST_BACKOFF: Final = 10 * SECOND
FORGOTTEN_AFTER: Final = 300 * SECOND


@dataclass(slots=True)
class QueuedPod:
    """A pod in the queue."""

    pod: PodInfo
    since: int
    attempts: int = 0
    failed_at: int = 0
    # When a place was found for it.
    decided_at: int = 0
    kind: Hashable = None
    # Whether those of its kind wait for the outcome of its next try.
    leads: bool = False

    def backoff_ends(self) -> int:
        """Return when the back-off after the last attempt ends."""
        if not self.attempts:
            return 0
        return self.failed_at + min(FIRST_BACKOFF << min(self.attempts - 1, 8), LONGEST_BACKOFF)

    @property
    def order(self) -> tuple[int, int, int]:
        """The sort key: priority, then the time of waiting."""
        return (-self.pod.priority, self.since, self.pod.created)


@dataclass(slots=True, order=True)
class _Entry:
    order: tuple[int, ...]
    uid: str = field(compare=False)


class SchedulingQueue:
    """Higher priority first, then longer waiting.

    In a `strict` order the first pod that fits nowhere holds up all that are behind it.
    """

    def __init__(self, now: Callable[[], int], *, strict: bool = False) -> None:
        self._now = now
        self._strict = strict
        self._holding_up: QueuedPod | None = None
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[_Entry] = []
        # Those in back-off twice: by its end, and by the next pod if no other is ready.
        self._backoff: list[_Entry] = []
        self._eager: list[_Entry] = []
        self._where: dict[str, str] = {}
        # Failed pods by kind; each kind's are a heap whose first is the one that a change wakes.
        self._failed: dict[Hashable, list[_Entry]] = {}
        # What could help a kind, as found by the last failed try of it.
        self._awaits: dict[Hashable, ClusterChange] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._pods)

    def counts(self) -> dict[str, int]:
        """Return how many pods are active, in back-off, unschedulable, gated, being tried."""
        found = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0, "trying": 0}
        for place in self._where.values():
            found[place] += 1
        return found

    def get(self, uid: str) -> QueuedPod | None:
        """Return a waiting pod."""
        return self._pods.get(uid)

    def add_pod(self, pod: PodInfo) -> None:
        """Take a new pod; gated pods wait until their gates are gone."""
        item = self._pods.get(pod.uid)
        if item is None:
            item = self._pods[pod.uid] = QueuedPod(pod, self._now())
        item.pod = pod
        if pod.gates:
            self._where[pod.uid] = "gated"
        elif self._where.get(pod.uid) != "active":
            self._activate(item)

    def update_pod(self, pod: PodInfo) -> None:
        """Take a pod whose object changed in a way that may matter."""
        item = self._pods.get(pod.uid)
        if item is None or pod.gates or self._where.get(pod.uid) == "gated":
            self.add_pod(pod)
            return
        item.pod = pod
        self.wake_pods([pod.uid])

    def remove_pod(self, uid: str) -> None:
        """Forget a pod: it was placed, or it is gone."""
        item = self._pods.pop(uid, None)
        self._where.pop(uid, None)
        if item is self._holding_up:
            self._holding_up = None
        if item is not None and item.leads:
            self.wake_next_like(item)

    def pop(self) -> QueuedPod | None:
        """Return the next pod to try; the caller holds it until `failed` or `remove`."""
        now = self._now()
        if self._holding_up is not None:
            return None
        while self._backoff and self._backoff[0].order[0] <= now:
            entry = heapq.heappop(self._backoff)
            if self._backs_off(entry.uid, entry.order[0]):
                self._activate(self._pods[entry.uid])
        while self._active:
            entry = heapq.heappop(self._active)
            if self._where.get(entry.uid) == "active":
                return self._take(entry.uid)
        while self._eager:
            entry = heapq.heappop(self._eager)
            if self._backs_off(entry.uid, entry.order[1]):
                return self._take(entry.uid)
        return None

    def _backs_off(self, uid: str, ends: int) -> bool:
        """Return whether a pod is in the back-off that ends then: an entry may be of an earlier."""
        return self._where.get(uid) == "backoff" and self._pods[uid].backoff_ends() == ends

    def take_out(self, uid: str) -> None:
        """Take a pod out of order: it is tried together with another of its gang."""
        if uid in self._pods:
            self._where[uid] = "trying"

    def add_unschedulable(
        self, item: QueuedPod, awaits: ClusterChange, kind: Hashable = None
    ) -> None:
        """Put a pod back that fits nowhere, until one of the changes it awaits."""
        uid = item.pod.uid
        if uid not in self._pods:
            return
        item.attempts += 1
        item.failed_at = self._now()
        item.kind = kind if kind is not None else uid
        self._awaits[item.kind] = awaits
        item.leads = False
        if self._strict:
            self._activate(item)
            if self._holding_up is None or item.order <= self._holding_up.order:
                self._holding_up = item
            return
        self._where[uid] = "unschedulable"
        self._number += 1
        entry = _Entry((*item.order, self._number), uid)
        heapq.heappush(self._failed.setdefault(item.kind, []), entry)

    def put_back(self, item: QueuedPod) -> None:
        """Put a pod back that could not be bound through no fault of its own.

        It waits its back-off out, whether another pod is ready or not: a server that refuses what
        is written must not be asked without end (kube-scheduler's podErrorBackoffQ).
        """
        if item.pod.uid in self._pods:
            item.attempts += 1
            item.failed_at = self._now()
            self._requeue(item, eager=False)

    def wake_next_like(self, item: QueuedPod) -> None:
        """Let the next of a pod's kind be tried, for this one was placed or is gone."""
        item.leads = False
        if item.kind is not None:
            self._wake_first(item.kind)

    def wake_for(
        self, change: ClusterChange, helps: Callable[[PodInfo], bool] | None = None
    ) -> int:
        """Let pods be retried that await a change: the first of each kind; return how many.

        `helps` says whether this very change may help a pod.
        """
        held = self._holding_up
        if held is not None and self._awaits[held.kind] & change:
            self._holding_up = None
            return 1
        moved = 0
        for kind in list(self._failed):
            if not self._awaits[kind] & change:
                continue
            first = None if helps is None else self._first(kind)
            if helps is None or (first is not None and helps(first.pod)):
                moved += self._wake_first(kind)
        return moved

    def wake_pods(self, uids: Iterable[str]) -> int:
        """Let these very pods be retried, if they wait; return how many do."""
        if self._holding_up is not None and self._holding_up.pod.uid in (uids := set(uids)):
            self._holding_up = None
            return 1
        waiting = [self._pods[uid] for uid in uids if self._where.get(uid) == "unschedulable"]
        for item in sorted(waiting, key=lambda item: (*item.order, item.pod.uid)):
            self._requeue(item)
        return len(waiting)

    def wake_overdue(self) -> int:
        """Let pods be retried that have waited for long, whatever they await."""
        now, moved = self._now(), 0
        for kind in list(self._failed):
            first = self._first(kind)
            if first is not None and now - first.failed_at >= FORGOTTEN_AFTER:
                moved += self._wake_first(kind)
        return moved

    def _first(self, kind: Hashable) -> QueuedPod | None:
        heap = self._failed.get(kind, [])
        while heap:
            item = self._pods.get(heap[0].uid)
            waits = item is not None and self._where.get(heap[0].uid) == "unschedulable"
            if item is not None and waits and item.kind == kind:
                return item
            heapq.heappop(heap)
        self._failed.pop(kind, None)
        self._awaits.pop(kind, None)
        return None

    def _wake_first(self, kind: Hashable) -> int:
        item = self._first(kind)
        if item is None:
            return 0
        item.leads = True
        self._requeue(item)
        return 1

    def _requeue(self, item: QueuedPod, *, eager: bool = True) -> None:
        ends = item.backoff_ends()
        if ends <= self._now():
            self._activate(item)
            return
        self._where[item.pod.uid] = "backoff"
        self._number += 1
        heapq.heappush(self._backoff, _Entry((ends, self._number), item.pod.uid))
        if eager:
            order = (-item.pod.priority, ends, self._number)
            heapq.heappush(self._eager, _Entry(order, item.pod.uid))

    def _activate(self, item: QueuedPod) -> None:
        self._where[item.pod.uid] = "active"
        if self._holding_up is not None and item.order < self._holding_up.order:
            self._holding_up = None
        self._number += 1
        heapq.heappush(self._active, _Entry((*item.order, self._number), item.pod.uid))

    def _take(self, uid: str) -> QueuedPod:
        self._where[uid] = "trying"
        return self._pods[uid]
