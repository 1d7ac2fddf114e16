"""The two queues of k8s-cluster-simulator."""

from collections.abc import Callable

from dralab.simulation.engines.ticks.model import TickPod


class FifoQueue:
    """First in, first out."""

    def __init__(self) -> None:
        self._pods: dict[str, TickPod] = {}

    def push(self, pod: TickPod) -> None:
        """Put a pod at the end."""
        self._pods[pod.key] = pod

    def front(self) -> TickPod | None:
        """Return the first pod."""
        return next(iter(self._pods.values()), None)

    def pop(self) -> TickPod:
        """Take the first pod; KeyError if there is none."""
        first = self.front()
        if first is None:
            raise KeyError("the queue is empty")
        return self._pods.pop(first.key)

    def delete(self, key: str) -> bool:
        """Remove a pod."""
        return self._pods.pop(key, None) is not None

    def update(self, key: str, pod: TickPod) -> bool:
        """Replace a pod where it stands."""
        if key not in self._pods:
            return False
        self._pods[key] = pod
        return True

    def __len__(self) -> int:
        return len(self._pods)


def by_priority(pod: TickPod, number: int) -> tuple[int, int]:
    """Higher priority first, then the older pod."""
    return (-pod.priority, number)


class PriorityQueue(FifoQueue):
    """Ordered by `order(pod, arrival number)`, the smallest first."""

    def __init__(self, order: Callable[[TickPod, int], tuple[int, int]] = by_priority) -> None:
        super().__init__()
        self.order = order
        self._numbers: dict[str, int] = {}
        self._next = 0

    def push(self, pod: TickPod) -> None:
        """Put a pod in; one that comes back keeps its place."""
        if pod.key not in self._numbers:
            self._next += 1
            self._numbers[pod.key] = self._next
        super().push(pod)

    def front(self) -> TickPod | None:
        """Return the first pod of the order."""
        pods = self._pods.values()
        return min(pods, key=lambda pod: self.order(pod, self._numbers[pod.key]), default=None)
