"""The scheduler's main loop: it tries one pod after the other, and writes the result.

`cluster_events` reports changes, `waiting_pods` holds the pods that wait; `cycle` and `gangs` find
places, `binder` has them written, `pod_reports` says why a pod waits.

Everything runs as events of one engine, so the same code schedules a live cluster and a
simulated week. `binding` may wait for a network and is offloaded; its outcome comes back as an
event.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dralab.allocation import v1
from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.problem import AllocationFeatures
from dralab.api.status import ApiError
from dralab.explanation.answers import ReasonWriter
from dralab.kernel.clock import SECOND
from dralab.kernel.events import DECIDING
from dralab.objects.event_texts import shortened
from dralab.objects.metadata import key_of, labels_of, uid_of
from dralab.objects.pod_groups import PodGroups
from dralab.runtime import resources
from dralab.runtime.manager import Manager
from dralab.scheduler import binding, withdrawal
from dralab.scheduler.attempts import Attempts
from dralab.scheduler.binder import Binder
from dralab.scheduler.cluster_events import ClusterEvents
from dralab.scheduler.own_gates import OwnGates
from dralab.scheduler.pod_reports import PodReports
from dralab.scheduler.queue import FLUSH_PERIOD, QueuedPod, SchedulingQueue
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling.cycle import ranked, schedule
from dralab.scheduling.demands import DemandReader
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import DEFAULT_SCHEDULER, PodInfo, pod_info
from dralab.scheduling.reasons import ClusterChange
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal
from dralab.scheduling.volumes import Volumes
from dralab.values import labels
from dralab.values.json_types import JsonDict

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
EARLY: Final = SECOND  # a pod's claims may come so much later than the pod

Explain = Callable[[Refusal, ClusterState], str]


def briefly(refusal: Refusal, state: ClusterState) -> str:  # noqa: ARG001 - the seam's shape
    """Return kube-scheduler's sentence alone: for simulations that need no more."""
    return refusal.message


class Scheduler:
    """Schedules the pods that name it in `schedulerName`, and leaves all others alone.

    `environment` turns the expressions of selectors into conditions; `explain` makes the text of
    a pod's condition from a refusal (by default all that can be said in 1,024 bytes); `off` are
    the feature gates of its own release that are off.
    """

    def __init__(
        self,
        manager: Manager,
        environment: v1.SelectorCompiler,
        *,
        name: str = DEFAULT_SCHEDULER,
        explain: Explain | None = None,
        budget: int = DEFAULT_BUDGET,
        alone: bool = False,
        off: frozenset[str] = frozenset(),
    ) -> None:
        self.manager = manager
        self.gates = OwnGates(off)
        self.name = name
        self._explain = explain or ReasonWriter(manager.engine.clock.now)
        self._reports = PodReports(manager, name)
        cache = manager.cache
        # Beside controllers it shares their cache; alone it need not watch finished pods.
        selector = "" if manager.caches.has(resources.PODS) else UNFINISHED
        self._pods = cache(resources.PODS, field_selector=selector)
        cache(resources.NODES)
        self._namespaces = cache(resources.NAMESPACES)
        self._claims = cache(resources.CLAIMS)
        cache(resources.POD_GROUPS)
        self._budgets = cache(resources.DISRUPTION_BUDGETS)
        table = NodeTable()
        shares = partial(manager.randomness.uuid, "scheduler/shares")

        devices = ClusterDevices(
            table,
            v1.V1Reader(environment),
            share_ids=shares,
            budget=budget,
            features=AllocationFeatures.without(off) if off else None,
        )
        volume_claims, storage = cache(resources.VOLUME_CLAIMS), cache(resources.STORAGE_CLASSES)
        volumes = Volumes(table, volume_claims, cache(resources.VOLUMES), storage)
        groups = PodGroups()
        demands = DemandReader(self._claims.get, groups.get, devices.in_flight, volumes.demand_of)
        self.state = ClusterState(table, devices, demands, volumes, groups=groups)
        self.queue = SchedulingQueue(manager.engine.clock.now)
        self._scheduled = False
        # Without the lease it only watches, and leaves all pods to the leader.
        self._leads = True
        self._may_act: Callable[[], bool] = _always
        self._waiting = WaitingPods(self.queue, self.wake)
        self._attempts = Attempts(self.state, self._waiting, self)
        self._alone = alone
        self._binder = Binder(
            manager, devices, self._pods, self._reports, self, name=name, alone=alone
        )
        ClusterEvents(
            manager,
            pods=self._pods,
            state=self.state,
            waiting=self._waiting,
            binder=self._binder,
            reports=self._reports,
            loop=self,
        )
        manager.caches.when_synced(self.wake)
        manager.every(FLUSH_PERIOD, self._flush)

    @property
    def leads(self) -> bool:
        """Whether writing is allowed now. In any thread."""
        return self._leads and self._may_act()

    def lead(self, may_act: "Callable[[], bool] | None" = None) -> None:
        """Start acting (the default); `may_act` is asked each time."""
        self._leads, self._may_act = True, may_act or _always
        self.wake()

    def rest(self) -> None:
        """Stop acting, and only watch."""
        self._leads = False

    def room_for(self, pod: JsonDict) -> list[str]:
        """Return the nodes that fit a pod apart from its claims, the best first."""
        bare = {**pod, "spec": {k: v for k, v in pod["spec"].items() if k != "resourceClaims"}}
        return ranked(self.state, self.info(bare))

    def why_not(self, pod: JsonDict) -> str:
        """Return the detailed reasons why a pod fits nowhere now; empty if it fits."""
        found = schedule(self.state, self.info(pod))
        if isinstance(found, PodPlacement):
            return ""
        return ReasonWriter(self.manager.engine.clock.now)(
            replace(found, repeated=False), self.state
        )

    def info(self, obj: JsonDict) -> PodInfo:
        """Read a pod."""
        return pod_info(self.gates.known("Pod", obj), self._select_namespaces)

    def _select_namespaces(self, selector: Any) -> list[str]:
        chosen = labels.from_mapping(selector)
        return [
            obj["metadata"]["name"] for obj in self._namespaces if chosen.accepts(labels_of(obj))
        ]

    # --- the loop

    def changed(
        self, change: ClusterChange, helps: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """Retry pods that await such a change; `helps` says which pods it may help."""
        if self.queue.wake_for(change, helps):
            self.wake()

    def _flush(self) -> None:
        if self.queue.wake_overdue():
            self.wake()

    def wake(self) -> None:
        """Try the next pod soon."""
        if not self._scheduled and self.leads and self.manager.ready:
            self._scheduled = True
            # Simulated time stands still while a cluster reacts: it is settled before a decision.
            self.manager.engine.after(0, self._next, priority=DECIDING)

    def _next(self) -> None:
        self._scheduled = False
        if self.leads and self.manager.ready and self._attempts.next():
            self.wake()

    def now(self) -> int:
        """Return the time."""
        return self.manager.engine.clock.now()

    def budgets(self) -> Sequence[JsonDict]:
        """Return the disruption budgets."""
        return list(self._budgets)

    # --- yes

    def place(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Write a placement."""
        self._binder.write(item, placement)

    def bound(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Note that a pod is bound."""
        self._waiting.remove_pod(item.pod.uid)
        self._reports.event(
            placement.pod.obj,
            "Scheduled",
            f"Successfully assigned {placement.pod.key} to {placement.node}",
            at=item.decided_at,
        )

    def failed(
        self, item: QueuedPod, placement: PodPlacement, error: Exception, *, undo: bool = False
    ) -> None:
        """Undo a placement that could not be bound, and retry its pod."""
        pod = placement.pod
        if self.state.placed.get(pod.uid) == placement.node:
            del self.state.placed[pod.uid]
        self.state.forget_placement(placement)
        self.changed(ClusterChange.POD_GONE | ClusterChange.DEVICES)
        held = [
            claim
            for plan in placement.plans
            if not plan.is_new and (claim := self._claims.get(key_of(plan.claim))) is not None
        ]
        if undo and held:
            self._give_back(pod, held, str(error))
        if isinstance(error, ApiError) and error.reason == "NotFound":
            current = self._pods.get(pod.key)
            if current is None or uid_of(current) != pod.uid:
                self._waiting.remove_pod(pod.uid)
                return
        self._reports.event(pod.obj, "FailedScheduling", str(error), warning=True)
        latest = self._pods.get(pod.key)
        if latest is not None and uid_of(latest) == pod.uid:
            item.pod = self._waiting.follow(self.info(latest))
            # An error is not a "no": schedule_one.go (handleSchedulingFailure).
            self._reports.unscheduled(latest, "SchedulerError", str(error), nominated="")
        self.queue.put_back(item)
        if self.queue.get(pod.uid) is not None:
            self.manager.engine.at(item.backoff_ends(), self.wake)

    # --- no

    def explain(self, refusal: Refusal) -> str:
        """Return the reason that a pod waits, as in its condition."""
        return shortened(self._explain(refusal, self.state))

    def refuse(self, item: QueuedPod, message: str, nominated: str | None, *, soon: bool) -> None:
        """Write why a pod waits."""
        if not soon:
            self._tell(item, message, nominated)
            return
        # Its controller is about to make the claim: two writes less for most pods.
        since = item.failed_at

        def still() -> None:
            if item.failed_at == since:
                self._tell(item, message)

        self.manager.engine.after(EARLY, still)

    def _tell(self, item: QueuedPod, message: str, nominated: str | None = None) -> None:
        """Write the reason why a waiting pod has no node."""
        pod = item.pod
        if self.queue.get(pod.uid) is not item or pod.uid in self.state.placed:
            return
        current = self._pods.get(pod.key)
        if current is not None and uid_of(current) == pod.uid:
            self._reports.unscheduled(current, "Unschedulable", message, nominated)
            self._reports.event(current, "FailedScheduling", message, warning=True)

    def note_group(self, group: JsonDict, message: str | None) -> None:
        """Write whether a PodGroup has started."""
        self._reports.group(group, message)

    def give_back(self, pod: PodInfo, claims: list[JsonDict]) -> None:
        """Release the devices of claims that keep a pod from every node."""
        self._give_back(pod, claims, "they keep the pod from every node")

    def _give_back(self, pod: PodInfo, claims: list[JsonDict], why: str) -> None:
        client, now = self.manager.client, self.manager.now()
        if self._alone:
            self.manager.engine.offload(
                lambda: withdrawal.unreserve(client, pod, claims, deallocate=True), lambda _: None
            )
        else:
            self.manager.engine.offload(
                lambda: withdrawal.give_back(client, pod, claims, why, now), lambda _: None
            )

    def evict(self, victim: PodInfo, winner: PodInfo, node: str) -> None:
        """Evict a pod for another one that will take its place."""
        client, now, name = self.manager.client, self.manager.now(), self.name
        self.manager.engine.offload(
            lambda: binding.evict(client, victim, name, now), lambda _: None
        )
        self._reports.event(
            victim.obj, "Preempted", f"Preempted by pod {winner.uid} on node {node}"
        )


def _always() -> bool:
    """Return that a scheduler without leader election may act at any time."""
    return True
