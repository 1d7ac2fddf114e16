"""Queues with quotas, like Kueue's: pods are gated until their queue has room."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dralab.kernel.events import ADMITTING, Events
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.lifecycle.model import Pod, Quotas


@dataclass(slots=True)
class AdmissionQueues:
    """Admits pods by priority and arrival; of a gang all or none.

    `size` is how many pods a gang has, `admit` lets a pod go. A queue is looked at once every
    arrival and end of an instant has happened, and before a scheduler decides.
    """

    quotas: Quotas
    events: Events
    size: Callable[[Pod], int]
    admit: Callable[[ClusterTask], None]
    waiting: list[ClusterTask] = field(default_factory=list)
    admitted: set[int] = field(default_factory=set)
    _due: bool = False

    def has(self, pod: Pod) -> bool:
        """Return whether a pod is in a queue with a quota."""
        return self.quotas.has_quota(pod)

    def add_task(self, task: ClusterTask) -> None:
        """Add a task to its queue."""
        self.waiting.append(task)
        self._look_soon()

    def release_task(self, task: ClusterTask) -> None:
        """Release what a task holds of its queue."""
        if id(task) in self.admitted:
            self.admitted.discard(id(task))
            self.quotas.count_held(task.pod, -1)
        self._look_soon()

    def cancel_task(self, task: ClusterTask) -> None:
        """Forget a task that waits, whether it was admitted or not."""
        if task in self.waiting:
            self.waiting.remove(task)
        self.release_task(task)

    def _look_soon(self) -> None:
        if not self._due:
            self._due = True
            self.events.after(0, self._admit_ready, priority=ADMITTING)

    def _admit_ready(self) -> None:
        """Admit all tasks that fit now; record the reason for the others."""
        self._due = False
        units: dict[tuple[str, str, str], list[ClusterTask]] = {}
        for task in sorted(self.waiting, key=lambda task: (-task.pod.priority, task.pod.arrives)):
            pod = task.pod
            units.setdefault((pod.queue, pod.namespace, pod.gang or task.name), []).append(task)
        for (queue, _, _), members in units.items():
            pod = members[0].pod
            left = [task for task in members if task.runs]
            if pod.gang and not left and len(members) < self.size(pod):
                self._refuse(members, "the gang is not complete")
            elif not self.quotas.allows([task.pod for task in members]):
                self._refuse(members, self.quotas.refusal(queue))
            else:
                for task in members:
                    self.waiting.remove(task)
                    self.admitted.add(id(task))
                    self.quotas.count_held(task.pod, 1)
                    self.admit(task)

    @staticmethod
    def _refuse(members: list[ClusterTask], why: str) -> None:
        for task in members:
            task.reason = why
