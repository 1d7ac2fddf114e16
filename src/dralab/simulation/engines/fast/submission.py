"""Puts pods into the queue as they are created: with their claims, once their gates are open."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dralab.kernel.events import BEGINNING, Events
from dralab.objects.metadata import NamespacedName
from dralab.objects.pod_groups import POD_GROUP, PodGroups
from dralab.runtime.resources import POD_GROUPS
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.queues import AdmissionQueues
from dralab.simulation.engines.cluster.submission import GATE
from dralab.simulation.engines.cluster.tasks import ClusterTask, ClusterTasks
from dralab.simulation.engines.fast.admitted import AdmittedObjects, PodRefusedError
from dralab.simulation.engines.fast.claim_book import ClaimBook
from dralab.simulation.lifecycle.model import Quotas


class PodSubmission:
    """The pods that are created during a run; `begin` is its beginning by the clock of `events`."""

    def __init__(  # noqa: PLR0917 - the parts of a run
        self,
        events: Events,
        admitted: AdmittedObjects,
        claims: ClaimBook,
        tasks: ClusterTasks,
        waiting: WaitingPods,
        groups: PodGroups,
        *,
        quotas: Quotas,
        begin: int,
        wake: Callable[[], None],
    ) -> None:
        self.events = events
        self.admitted = admitted
        self.claims = claims
        self.tasks = tasks
        self.waiting = waiting
        self.groups = groups
        self.begin = begin
        self.wake = wake
        self.admission = AdmissionQueues(
            quotas,
            events,
            lambda pod: admitted.gangs[pod.namespace, pod.gang],
            self._open_gate,
        )
        # Those whose gates are closed, as they will be; those whose claims lack a template.
        self._gated: dict[str, PodInfo] = {}
        self._lacking: list[ClusterTask] = []

    def submit(self, task: ClusterTask) -> None:
        """Queue a pod that arrives or is submitted again."""
        task.uid = f"{task.number}.{task.runs}"
        self.tasks.by_uid[task.uid] = task
        self.tasks.wait(task, 1)
        try:
            kind = self.admitted.kind_of(task.pod)
        except PodRefusedError as error:
            self.tasks.refused(task, error.problem, [error.problem])
            return
        made = self.claims.make_for(kind, task) if kind.entries else {}
        if made is None:
            self._lacking.append(task)
        now = self.events.now()
        pod = kind.pod(task, now, made or {})
        opens = self.begin + (task.pod.opens or 0)
        if is_queued := self.admission.has(task.pod):
            self.admission.add_task(task)
        elif opens > now:
            self.events.at(opens, partial(self._open_gate, task), priority=BEGINNING)
        if is_queued or opens > now:
            self._gated[task.uid] = pod
            pod = replace(pod, gates=(*pod.gates, GATE))
        self.waiting.follow(pod)
        self.waiting.queue.add_pod(pod)
        if pod.group:
            key, groups = NamespacedName(pod.key.namespace, pod.group), self.groups
            # The group of a gang is made with the first of its pods.
            if groups.get(key) is None and (made_too := self.admitted.stored(POD_GROUPS, key)):
                groups.put(POD_GROUP, made_too)
            for group in groups.tree(key):
                self.waiting.wake_for_group(group)
        self.wake()

    def template_created(self) -> None:
        """Create the claims of pods that lacked a template."""
        lacking, self._lacking = self._lacking, []
        for task in lacking:
            self._follow_claims(task)

    def _follow_claims(self, task: ClusterTask) -> None:
        """Create the missing claims of a waiting pod, if their templates exist by now."""
        item = self.waiting.queue.get(task.uid)
        if item is None:
            return
        kind = self.admitted.kind_of(task.pod)
        made = self.claims.make_for(kind, task)
        if made is None:
            self._lacking.append(task)
            return
        pod = replace(kind.pod(task, item.pod.created, made), gates=item.pod.gates)
        self.waiting.follow(pod)
        self.waiting.queue.update_pod(pod)
        self.wake()

    def _open_gate(self, task: ClusterTask) -> None:
        pod = self._gated.pop(task.uid, None)
        if pod is not None:  # it was not deleted meanwhile
            self.waiting.queue.update_pod(pod)
            self.wake()

    def forget_task(self, task: ClusterTask) -> None:
        """Forget a pod that does not wait any more, though it has no node."""
        self._gated.pop(task.uid, None)
        self._lacking = [each for each in self._lacking if each is not task]
        self.tasks.wait(task, -1)
