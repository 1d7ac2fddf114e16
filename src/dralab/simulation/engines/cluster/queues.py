"""Queues with quotas, as Kueue has them: pods are gated until their queue has room for them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dralab.simulation.engines.cluster.tasks import Seen
from dralab.simulation.lifecycle.model import Pod, Quota


@dataclass(slots=True)
class Queues:
    """Which pods may go, by priority and arrival; of a gang all or none.

    `size` is how many pods a gang has, `admit` lets a pod go.
    """

    quotas: Mapping[str, Quota]
    size: Callable[[Pod], int]
    admit: Callable[[Seen], None]
    held: dict[str, Counter[str]] = field(default_factory=dict)
    waiting: list[Seen] = field(default_factory=list)
    admitted: set[int] = field(default_factory=set)

    def has(self, pod: Pod) -> bool:
        """Return whether a pod is in a queue with a quota."""
        return pod.queue in self.quotas

    def add(self, seen: Seen) -> None:
        """Have a task wait for its queue."""
        self.waiting.append(seen)

    def release(self, seen: Seen) -> None:
        """Take it that a task holds nothing of its queue any more."""
        if id(seen) in self.admitted:
            self.admitted.discard(id(seen))
            self._count(seen.pod, -1)

    def go(self) -> None:
        """Admit whoever fits now; say of the others why not."""
        units: dict[tuple[str, str, str], list[Seen]] = {}
        for seen in sorted(self.waiting, key=lambda seen: (-seen.pod.priority, seen.pod.arrives)):
            pod = seen.pod
            units.setdefault((pod.queue, pod.namespace, pod.gang or seen.name), []).append(seen)
        for (queue, _, _), members in units.items():
            pod = members[0].pod
            left = [seen for seen in members if seen.runs]
            if pod.gang and not left and len(members) < self.size(pod):
                self._refuse(members, "the gang is not complete")
            elif not self._fits(queue, [seen.pod for seen in members]):
                self._refuse(members, f"the quota of queue {queue!r} is used up")
            else:
                for seen in members:
                    self.waiting.remove(seen)
                    self.admitted.add(id(seen))
                    self._count(seen.pod, 1)
                    self.admit(seen)

    @staticmethod
    def _refuse(members: list[Seen], why: str) -> None:
        for seen in members:
            seen.reason = why

    def _fits(self, queue: str, pods: list[Pod]) -> bool:
        quota, held = self.quotas[queue], self.held.setdefault(queue, Counter())
        wanted = {
            "cpu": (quota.cpu, sum(pod.shape.cpu for pod in pods)),
            "gpu": (quota.gpu_milli, sum(pod.shape.demand for pod in pods)),
            "pods": (quota.pods, len(pods)),
        }
        return all(
            limit is None or held[name] + more <= limit for name, (limit, more) in wanted.items()
        )

    def _count(self, pod: Pod, sign: int) -> None:
        held = self.held.setdefault(pod.queue, Counter())
        held.update(cpu=sign * pod.shape.cpu, gpu=sign * pod.shape.demand, pods=sign)
