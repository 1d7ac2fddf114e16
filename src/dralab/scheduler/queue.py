"""The pods that wait for a node: ready, backing off, or waiting for something to change.

Source: kube-scheduler's scheduling queue. A pod that failed waits for an event that could make
it schedulable; then it waits out its back-off (1 s, doubled to 10 s) unless nothing else is ready
(gate SchedulerPopFromBackoffQ, on since 1.33).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scheduler.pods import PodInfo

FIRST_BACKOFF: Final = 1 * SECOND
LONGEST_BACKOFF: Final = 10 * SECOND
FORGOTTEN_AFTER: Final = 300 * SECOND


class Change(Flag):
    """What happened in the cluster, as far as a waiting pod cares."""

    NODE = auto()
    POD_GONE = auto()
    POD_PLACED = auto()
    CLAIM = auto()
    DEVICES = auto()
    GROUP = auto()
    TIME = auto()
    ANY = NODE | POD_GONE | POD_PLACED | CLAIM | DEVICES | GROUP | TIME


@dataclass(slots=True)
class Waiting:
    """A pod in the queue."""

    pod: PodInfo
    since: int
    attempts: int = 0
    failed_at: int = 0
    awaits: Change = Change.ANY

    def backoff_ends(self) -> int:
        """Return when the back-off after the last attempt ends."""
        if not self.attempts:
            return 0
        return self.failed_at + min(FIRST_BACKOFF << min(self.attempts - 1, 8), LONGEST_BACKOFF)


@dataclass(slots=True, order=True)
class _Entry:
    order: tuple[int, ...]
    uid: str = field(compare=False)


class SchedulingQueue:
    """Higher priority first, then who has waited longer."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._pods: dict[str, Waiting] = {}
        self._active: list[_Entry] = []
        self._backoff: list[_Entry] = []
        self._where: dict[str, str] = {}
        # In the order in which they failed; a change asks these alone.
        self._unschedulable: dict[str, Waiting] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._pods)

    def counts(self) -> dict[str, int]:
        """Return how many pods are active, in back-off, unschedulable, gated."""
        found = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0, "trying": 0}
        for place in self._where.values():
            found[place] += 1
        return found

    def get(self, uid: str) -> Waiting | None:
        """Return a waiting pod."""
        return self._pods.get(uid)

    def waiting(self) -> list[Waiting]:
        """Return every pod in the queue, in the order in which they came."""
        return list(self._pods.values())

    def add(self, pod: PodInfo) -> None:
        """Take a new pod; gated pods wait until their gates are gone."""
        item = self._pods.get(pod.uid)
        if item is None:
            item = self._pods[pod.uid] = Waiting(pod, self._now())
        item.pod = pod
        if pod.gates:
            self._put(pod.uid, "gated")
        elif self._where.get(pod.uid) != "active":
            self._activate(item)

    def update(self, pod: PodInfo) -> None:
        """Take a pod whose object changed in a way that may matter."""
        item = self._pods.get(pod.uid)
        if item is None or pod.gates or self._where.get(pod.uid) == "gated":
            self.add(pod)
            return
        item.pod = pod
        if self._where.get(pod.uid) == "unschedulable":
            self._requeue(item)

    def refresh(self, pod: PodInfo) -> None:
        """Take a newer form of a pod without trying it again."""
        item = self._pods.get(pod.uid)
        if item is not None:
            item.pod = pod

    def remove(self, uid: str) -> None:
        """Forget a pod: it was placed, or it is gone."""
        self._pods.pop(uid, None)
        self._where.pop(uid, None)
        self._unschedulable.pop(uid, None)

    def pop(self) -> Waiting | None:
        """Return the next pod to try; it is in nobody's hands until `failed` or `remove`."""
        now = self._now()
        while self._backoff and (
            self._where.get(self._backoff[0].uid) != "backoff" or self._backoff[0].order[0] <= now
        ):
            entry = heapq.heappop(self._backoff)
            if self._where.get(entry.uid) == "backoff":
                self._activate(self._pods[entry.uid])
        while self._active:
            entry = heapq.heappop(self._active)
            if self._where.get(entry.uid) == "active":
                return self._take(entry.uid)
        while self._backoff:
            entry = heapq.heappop(self._backoff)
            if self._where.get(entry.uid) == "backoff":
                return self._take(entry.uid)
        return None

    def taken(self, uid: str) -> None:
        """Take a pod out of turn: it is tried together with another of its gang."""
        if uid in self._pods:
            self._put(uid, "trying")

    def failed(self, item: Waiting, awaits: Change) -> None:
        """Put a pod back that fits nowhere, until one of the changes it awaits."""
        if item.pod.uid not in self._pods:
            return
        item.attempts += 1
        item.failed_at = self._now()
        item.awaits = awaits
        if self._where.get(item.pod.uid) in {None, "trying"}:
            self._put(item.pod.uid, "unschedulable")

    def again(self, item: Waiting) -> None:
        """Put a pod back that could not be bound through no fault of its own."""
        if item.pod.uid in self._pods:
            item.attempts += 1
            item.failed_at = self._now()
            self._requeue(item)

    def changed(self, change: Change) -> int:
        """Let the pods that await a change be tried again; return how many."""
        if not self._unschedulable:
            return 0
        moved = [item for item in self._unschedulable.values() if item.awaits & change]
        for item in moved:
            self._requeue(item)
        return len(moved)

    def flush(self) -> int:
        """Let pods be tried again that have waited for long, whatever they await."""
        now = self._now()
        moved = [
            item for item in self._unschedulable.values() if now - item.failed_at >= FORGOTTEN_AFTER
        ]
        for item in moved:
            self._requeue(item)
        return len(moved)

    def _put(self, uid: str, place: str) -> None:
        self._where[uid] = place
        if place == "unschedulable":
            self._unschedulable[uid] = self._pods[uid]
        else:
            self._unschedulable.pop(uid, None)

    def _requeue(self, item: Waiting) -> None:
        ends = item.backoff_ends()
        if ends <= self._now():
            self._activate(item)
            return
        self._put(item.pod.uid, "backoff")
        self._number += 1
        heapq.heappush(self._backoff, _Entry((ends, self._number), item.pod.uid))

    def _activate(self, item: Waiting) -> None:
        self._put(item.pod.uid, "active")
        self._number += 1
        order = (-item.pod.priority, item.since, item.pod.created, self._number)
        heapq.heappush(self._active, _Entry(order, item.pod.uid))

    def _take(self, uid: str) -> Waiting:
        self._put(uid, "trying")
        return self._pods[uid]
