"""The run: pods arrive, dralab's scheduler decides, pods start, end and fail, nodes go down.

Decisions are those of `scheduler.attempts` on one `ClusterState`. As in a whole cluster on a
simulated clock, everything that an instant brings has happened before the next pod is tried.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from dralab.components.simulated import BEGINNING as CLUSTER_BEGINS
from dralab.components.simulated import MOMENT
from dralab.kernel.clock import SECOND, ManualClock, from_rfc3339, rfc3339
from dralab.kernel.events import BEGINNING, DECIDING, Events
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import NamespacedName, spec_of
from dralab.objects.pod_groups import POD_GROUP, least_of
from dralab.scheduler.attempts import Attempts
from dralab.scheduler.queue import FLUSH_PERIOD, QueuedPod, SchedulingQueue
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import ClusterChange
from dralab.scheduling.scores import KUBERNETES
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal
from dralab.scheduling.topology import is_awaited
from dralab.simulation.engines.cluster.tasks import ClusterTask, ClusterTasks
from dralab.simulation.engines.fast.admitted import AdmittedObjects
from dralab.simulation.engines.fast.claim_book import ClaimBook
from dralab.simulation.engines.fast.nodes import RunNodes
from dralab.simulation.engines.fast.object_feed import ObjectFeed
from dralab.simulation.engines.fast.submission import PodSubmission
from dralab.simulation.engines.objects import gpu_names
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Quotas, RunConditions
from dralab.simulation.lifecycle.pod_lives import PodLives
from dralab.simulation.scenario.manifests import Arrival
from dralab.values.json_types import JsonDict

# A whole cluster needs so long before its run begins; times of day decide where seconds end.
STARTED: Final = from_rfc3339(CLUSTER_BEGINS)
BEGIN: Final = STARTED + MOMENT + SECOND


class PodObserver(Protocol):
    """Who has to know what becomes of pods: the machines of pools, and their autoscaler."""

    def pod_placed(self, asked: PodInfo, placement: PodPlacement) -> None:
        """A pod, which asked for this, has got a place."""
        ...

    def pod_left(self, uid: str, node: str) -> None:
        """A pod has left its node."""
        ...

    def pod_refused(self, uid: str, nominated: str | None) -> None:
        """There is no place for a pod; on a node that it is nominated for there will be."""
        ...

    def look(self) -> None:
        """Something has changed."""
        ...


class FastSimulation:
    """One run. `go` may be called again after a stop. `gpus` are how many each node has."""

    def __init__(
        self,
        state: ClusterState,
        claims: ClaimBook,
        admitted: AdmittedObjects,
        tasks: ClusterTasks,
        *,
        how: RunConditions,
        gpus: Mapping[str, int],
        arrivals: Sequence[Arrival] = (),
        changes: Sequence[Arrival] = (),
    ) -> None:
        self.state = state
        self.claims = claims
        self.admitted = admitted
        self.tasks = tasks
        self.how = how
        self.events = Events(ManualClock(BEGIN))
        self.chance = Randomness(how.seed)
        self.agenda = Agenda(self.events)
        self.queue = SchedulingQueue(self.events.now, strict=how.blocking)
        self.waiting = WaitingPods(self.queue, self.wake)
        self.attempts = Attempts(state, self.waiting, self)
        by_key = {task.key: task for task in tasks.records}
        self.lives: PodLives[ClusterTask] = PodLives(
            self, self.agenda, by_key, how, self.chance.stream, fenced=False
        )
        self.submission = PodSubmission(
            self.events,
            admitted,
            claims,
            tasks,
            self.waiting,
            state.groups,
            quotas=Quotas(how.quotas),
            begin=BEGIN,
            wake=self.wake,
        )
        self.admission = self.submission.admission
        self.observer: PodObserver | None = None
        self.steps = 0
        self.placed: dict[str, PodPlacement] = {}
        self.nodes = RunNodes(self, self.agenda)
        self.objects = ObjectFeed(self)
        self._devices: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._woken = False
        self._flush = _next_flush(BEGIN)
        self.objects.plan(arrivals, changes, BEGIN)
        # Pods arrive one after the other; an event for each of a million takes its place.
        self._to_come = iter(sorted(tasks.records, key=lambda task: task.pod.arrives))
        self._arriving: ClusterTask | None = None
        self._arrivals = self.events.reserve(len(tasks.records))
        self._plan_arrival()
        for task in tasks.records:
            if task.pod.leaves is not None:
                self.events.at(
                    BEGIN + task.pod.leaves, partial(self._leave, task), priority=BEGINNING
                )
        self.lives.plan_outages(gpus, BEGIN)
        self.objects.plan_faults(how.faults, BEGIN)

    def go(
        self,
        progress: Callable[[int, int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
        steps: int | None = None,
    ) -> bool:
        """Run to the end; False if `stop` or the limit of steps ended it earlier."""
        events, lives, tasks = self.events, self.lives, self.tasks
        until = None if self.how.until is None else BEGIN + self.how.until
        last: int = events.now()
        while True:
            # A decision is no event: nothing can come between it and the end of its instant.
            is_decision = self._woken and not events.next_before(DECIDING)
            when = events.now() if is_decision else self._next_time()
            if when is None:
                break
            if when != last:
                self._sample(last)
                last = when
            if until is not None and when > until:
                events.run(until)
                break
            # Nodes go on failing for ever; once every pod is over, nothing of interest follows.
            if not lives.running and self.finished:
                break
            if self.how.ended is not None and lives.over >= self.how.ended:
                break
            if steps is not None and self.steps >= steps:
                return False
            if not is_decision:
                events.step()
            elif not self._decide():
                continue
            self.steps += 1
            if self.steps % 256 == 0:
                if progress is not None:
                    progress(events.now() - BEGIN, lives.over, len(tasks.records))
                if stop is not None and stop():
                    self._sample(events.now())
                    return False
        self._sample(events.now())
        return True

    def _next_time(self) -> int | None:
        """Return the time of the next event; before it, overdue pods are retried.

        As the live scheduler looks for them each period; when nothing else is to come, no more.
        """
        when: int | None = self.events.next_time()
        if when is None or when < self._flush:
            return when
        due = self.queue.overdue_at()
        if due is not None and (due := max(self._flush, _next_flush(due))) <= when:
            self._flush = due + FLUSH_PERIOD
            self.events.at(due, self._wake_overdue)
            return due
        self._flush = _next_flush(when + 1)
        return when

    def _wake_overdue(self) -> None:
        if self.queue.wake_overdue():
            self.wake()

    @property
    def finished(self) -> bool:
        """Whether every pod is over."""
        return self.lives.finished

    def _sample(self, now: int) -> None:
        self.tasks.over, self.tasks.evicted = self.lives.over, self.lives.evictions
        self.tasks.sample(now - BEGIN)

    # --- arrival and decision -----------------------------------------------------------------

    def _plan_arrival(self) -> None:
        self._arriving = task = next(self._to_come, None)
        if task is not None:
            when = BEGIN + task.pod.arrives
            self.events.at(when, self._arrive, priority=BEGINNING, number=self._arrivals)
            self._arrivals += 1

    def _arrive(self) -> None:
        task = self._arriving
        self._plan_arrival()
        if task is not None:
            self.lives.queue(task)

    def submit(self, task: ClusterTask) -> None:
        """Queue a pod that arrives or is submitted again."""
        self.submission.submit(task)

    def _leave(self, task: ClusterTask) -> None:
        """Delete a pod that still waits, as its user did."""
        item = self.queue.get(task.uid)
        if item is None or task.bound is not None:
            return
        self.waiting.remove_pod(task.uid)
        self.submission.forget_task(task)
        self.claims.forget_made(item.pod)
        self.lives.give_up(task, "deleted while it waited")
        self.changed()

    def wake(self) -> None:
        """Try the next pod at the end of this instant, if there is one."""
        self._woken = True

    def _decide(self) -> bool:
        """Try the next pod; False if there is none."""
        self._woken = bool(self.queue) and self.attempts.next()
        return self._woken

    def changed(
        self,
        change: ClusterChange = ClusterChange.NOTHING,
        helps: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Retry pods that await a change."""
        if change is not ClusterChange.NOTHING and self.queue.wake_for(change, helps):
            self.wake()
        if self.observer is not None:
            self.observer.look()

    def now(self) -> int:
        """Return the time."""
        return self.events.now()

    def budgets(self) -> Sequence[JsonDict]:
        """Return nothing: scenarios with disruption budgets are refused."""
        return ()

    def explain(self, refusal: Refusal) -> str:
        """Return kube-scheduler's sentence alone."""
        return refusal.message

    def refuse(self, item: QueuedPod, message: str, nominated: str | None, *, soon: bool) -> None:
        """Record why a pod waits."""
        if not soon:
            task = self.tasks.by_uid[item.pod.uid]
            self.tasks.refused(task, message, (cause.title for cause in item.causes))
        if self.observer is not None:
            self.observer.pod_refused(item.pod.uid, nominated)

    def note_group(self, group: JsonDict, message: str | None) -> None:
        """Do nothing: results are those of pods."""

    def give_back(self, pod: PodInfo, claims: list[JsonDict]) -> None:
        """Do nothing: claims are given back by the pods that used them."""

    def place(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Bind a pod: its life on the node begins."""
        self.run_on(placement, item.pod)

    def run_on(self, placement: PodPlacement, asked: PodInfo | None = None) -> None:
        """Begin a pod's life on a node, whatever it `asked` for."""
        pod, node = placement.pod, placement.node
        task = self.tasks.by_uid[pod.uid]
        self.waiting.remove_pod(pod.uid)
        for plan in placement.plans:
            shared = self.claims.reserve(plan)
            if shared is not None:
                self.waiting.wake_for_claim(shared)
        devices = tuple([name for plan in placement.plans for name in plan.devices])
        if pod.shares is not None:
            devices += gpu_names(pod.shares.taken)
        # Many pods have devices of the same names.
        task.devices = self._devices.setdefault(devices, devices)
        # What its own claims hold is known from them.
        kept = tuple([plan for plan in placement.plans if not self.claims.is_made_for(pod, plan)])
        self.placed[pod.uid] = (
            placement
            if len(kept) == len(placement.plans)
            else PodPlacement(pod, node, kept, placement.volumes)
        )
        self.tasks.wait(task, -1)
        self.lives.bind(task, node, silent=self.nodes.is_silent(node))
        self.tasks.count_held(task, 1)
        if self.observer is not None:
            self.observer.pod_placed(asked or pod, placement)
        self.nodes.pod_bound(task, node)
        self.changed(ClusterChange.POD_PLACED, lambda waiting: is_awaited(waiting, pod))

    # --- what a life does to nodes ------------------------------------------------------------

    def lose(self, node: str) -> None:
        """Take a node down."""
        self.nodes.lose(node)

    def restore(self, node: str) -> None:
        """Bring a node back."""
        self.nodes.restore(node)

    def start(self, task: ClusterTask) -> None:
        """Do nothing: starting a pod only changes its record."""

    def release(self, task: ClusterTask) -> None:
        """Release a pod's resources on its node; on a node that is down, when it is back."""
        placement = self.placed.pop(task.uid)
        self.state.placed.pop(task.uid, None)
        self.tasks.count_held(task, -1)
        if self.observer is not None:
            self.observer.pod_left(task.uid, placement.node)
        if self.nodes.is_silent(placement.node):
            self.nodes.strand(self._marked(placement))
        else:
            self.vacate(placement)
        if self.admission.has(task.pod):
            self.admission.release_task(task)

    def _marked(self, placement: PodPlacement) -> PodPlacement:
        """Return the placement of a pod that is being deleted."""
        pod, table = placement.pod, self.state.table
        metadata = {**pod.obj["metadata"], "deletionTimestamp": rfc3339(self.events.now())}
        # A gang that is made again is another group.
        group = "" if self.how.life.gangs == "recreate" else pod.group
        leaving = replace(pod, obj={**pod.obj, "metadata": metadata}, group=group)
        table.remove_pod(placement.node, pod.uid)
        table.add_pod(placement.node, leaving)
        return placement._replace(pod=leaving)

    def vacate(self, placement: PodPlacement) -> None:
        """Free what a pod held on its node."""
        pod, devices = placement.pod, self.state.devices
        held = devices.version
        self.state.forget_placement(placement)
        devices.forget_claims(self.claims.forget_made(pod), pod)
        self.changed(ClusterChange.POD_GONE)
        if devices.version != held:
            self.changed(ClusterChange.DEVICES)
        for plan in placement.plans:
            shared = self.claims.release(plan)
            if shared is not None:
                self.waiting.wake_for_claim(shared)

    def comes_again(self, task: ClusterTask) -> bool:
        """Whether an evicted or failed pod is submitted again."""
        return task.pod.returns

    def withdraw(self, task: ClusterTask) -> None:
        """Forget the old pod of a task that gets a new one."""
        self.tasks.by_uid.pop(task.uid, None)
        task.runs += 1
        task.name = f"{task.pod.name}-again-{task.runs}"
        task.devices = ()

    def cancel(self, task: ClusterTask) -> None:
        """Remove a pod that waits, and what was made for it."""
        item = self.queue.get(task.uid)
        if item is not None:
            self.waiting.remove_pod(task.uid)
            self.state.devices.forget_claims(self.claims.forget_made(item.pod), item.pod)
        self.submission.forget_task(task)
        if self.admission.has(task.pod):
            self.admission.cancel_task(task)
        self.finish(task)
        self.changed()

    def finish(self, task: ClusterTask) -> None:
        """Forget a pod that is over."""
        if task.pod.gang:
            self._shrink(NamespacedName(task.pod.namespace, task.pod.gang))
        self.tasks.by_uid.pop(task.uid, None)

    def _shrink(self, gang: NamespacedName) -> None:
        """Shrink a gang, so that resubmitted pods do not wait for finished members."""
        found = self.state.groups.get(gang)
        least = None if found is None else least_of(found)
        if found is not None and least is not None and self.state.choice is not KUBERNETES:
            policy = {"gang": {"minCount": max(1, least - 1)}}
            spec = {**spec_of(found), "schedulingPolicy": policy}
            self.state.groups.put(POD_GROUP, {**found, "spec": spec})

    # --- pods that have to go -----------------------------------------------------------------

    def evict(self, victim: PodInfo, winner: PodInfo, node: str) -> None:
        """Evict a pod for another one that will take its place."""
        del winner, node
        self.events.after(0, partial(self.end_run, victim.uid, "evicted or preempted"))

    def end_run(self, uid: str, reason: str) -> None:
        """Take a pod from its node, if it is still there."""
        task = self.tasks.by_uid.get(uid)
        if task is not None and uid in self.placed:
            self.lives.evict(task, reason)


def _next_flush(when: int) -> int:
    """Return the next time at which a live scheduler retries overdue pods."""
    return when + (STARTED - when) % FLUSH_PERIOD
