"""Queues with quotas, as Kueue has them: pods are gated until their queue has room for them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dralab.simulation.engines.cluster.tasks import Seen
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.lifecycle.quotas import Quotas


@dataclass(slots=True)
class Queues:
    """Which pods may go, by priority and arrival; of a gang all or none.

    `size` is how many pods a gang has, `admit` lets a pod go.
    """

    quotas: Quotas
    size: Callable[[Pod], int]
    admit: Callable[[Seen], None]
    waiting: list[Seen] = field(default_factory=list)
    admitted: set[int] = field(default_factory=set)

    def has(self, pod: Pod) -> bool:
        """Return whether a pod is in a queue with a quota."""
        return self.quotas.covers(pod)

    def add(self, seen: Seen) -> None:
        """Have a task wait for its queue."""
        self.waiting.append(seen)

    def release(self, seen: Seen) -> None:
        """Take it that a task holds nothing of its queue any more."""
        if id(seen) in self.admitted:
            self.admitted.discard(id(seen))
            self.quotas.hold(seen.pod, -1)

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
            elif not self.quotas.allows([seen.pod for seen in members]):
                self._refuse(members, self.quotas.refusal(queue))
            else:
                for seen in members:
                    self.waiting.remove(seen)
                    self.admitted.add(id(seen))
                    self.quotas.hold(seen.pod, 1)
                    self.admit(seen)

    @staticmethod
    def _refuse(members: list[Seen], why: str) -> None:
        for seen in members:
            seen.reason = why
