"""The pods that wait for a node, and the objects that each of them waits for."""

from collections.abc import Callable

from dralab.objects.metadata import NamespacedName
from dralab.scheduler.queue import QueuedPod, SchedulingQueue
from dralab.scheduling.pods import PodInfo


class WaitingPods:
    """The queue, with indexes by claims and pod groups.

    `wake` is called when some pod may be tried.
    """

    def __init__(self, queue: SchedulingQueue, wake: Callable[[], None]) -> None:
        self.queue = queue
        self._wake = wake
        self._by_claim: dict[NamespacedName, set[str]] = {}
        self._by_group: dict[NamespacedName, set[str]] = {}

    def follow(self, pod: PodInfo) -> PodInfo:
        """Index a waiting pod by its claims and group; return it."""
        for name in pod.claim_names:
            self._by_claim.setdefault(NamespacedName(pod.key.namespace, name), set()).add(pod.uid)
        if pod.group:
            self._by_group.setdefault(NamespacedName(pod.key.namespace, pod.group), set()).add(
                pod.uid
            )
        return pod

    def remove_pod(self, uid: str) -> None:
        """Forget a pod: it was placed, or is gone."""
        item = self.queue.get(uid)
        if item is None:
            return
        namespace = item.pod.key.namespace
        if item.pod.group:
            _remove_waiter(self._by_group, NamespacedName(namespace, item.pod.group), uid)
        if self._by_claim:
            for name in item.pod.claim_names:
                _remove_waiter(self._by_claim, NamespacedName(namespace, name), uid)
        self.queue.remove_pod(uid)
        self._wake()

    def wake_for_claim(self, claim: NamespacedName) -> None:
        """Let the pods be retried that wait for a claim."""
        if self.queue.wake_pods(self._by_claim.get(claim, ())):
            self._wake()

    def wake_for_group(self, group: NamespacedName) -> None:
        """Let the members of a pod group be retried."""
        if self.queue.wake_pods(self._by_group.get(group, ())):
            self._wake()

    def members_of(self, group: NamespacedName) -> list[QueuedPod]:
        """Return the members of a pod group that wait and have no gates, in no order."""
        return [
            item
            for uid in self._by_group.get(group, ())
            if (item := self.queue.get(uid)) is not None and not item.pod.gates
        ]


def _remove_waiter(index: dict[NamespacedName, set[str]], key: NamespacedName, uid: str) -> None:
    """Take a pod out of an index of those who wait."""
    held = index.get(key)
    if held is not None:
        held.discard(uid)
        if not held:
            del index[key]
