"""The scheduler at work: it watches, tries one pod after the other, and has the result written.

Everything runs as events of one engine, so the same code schedules a live cluster and a
simulated week. `binding` may wait for a network and is offloaded; its outcome comes back as an
event.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from dralab.allocation import v1
from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.objects.claims import claim_names, classic_sources
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import Key, is_deleting, key_of, uid_of
from dralab.objects.pods import group_of, is_finished
from dralab.objects.volumes import is_bound
from dralab.runtime import resources
from dralab.runtime.cache import Cache
from dralab.runtime.client import Object, Resource
from dralab.runtime.events import shortened
from dralab.runtime.manager import Manager
from dralab.scheduler import binding, gangs
from dralab.scheduler.cycle import ClusterState, Nominee, PodPlacement, Refusal, ranked, schedule
from dralab.scheduler.demands import NOT_CREATED_YET, Blocked, Demands
from dralab.scheduler.devices import Devices
from dralab.scheduler.nodes import NodeTable
from dralab.scheduler.pods import DEFAULT_SCHEDULER, PodInfo, pod_info
from dralab.scheduler.preemption import eviction_for
from dralab.scheduler.queue import Change, SchedulingQueue, Waiting
from dralab.scheduler.queueing_hints import (
    awaited,
    is_given_up,
    matters,
    remove_waiter,
)
from dralab.scheduler.reasons import Reasons
from dralab.scheduler.topology import is_awaited
from dralab.scheduler.volumes import Volumes
from dralab.values import labels

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
AGAIN: Final = SECOND // 5  # until a server that did not answer is asked once more
EARLY: Final = SECOND  # a pod's claims may come so much later than the pod
GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
FLUSH_PERIOD: Final = 30 * SECOND

Explain = Callable[[Refusal, ClusterState], str]


def briefly(refusal: Refusal, state: ClusterState) -> str:  # noqa: ARG001 - the seam's shape
    """Return kube-scheduler's sentence alone: for simulations, where nobody reads more."""
    return refusal.message


@dataclass(slots=True)
class _Pending:
    """A pod whose devices and volumes must be made ready before it may be bound."""

    item: Waiting
    placement: PodPlacement
    claims: list[Key]
    volumes: list[Key]
    until: int


class Scheduler:
    """Schedules the pods that name it in `schedulerName`, and leaves all others alone.

    `environment` turns the expressions of selectors into conditions; `explain` makes the text of
    a pod's condition from a refusal (by default all that can be said in 1,024 bytes).
    """

    def __init__(
        self,
        manager: Manager,
        environment: v1.Environment,
        *,
        name: str = DEFAULT_SCHEDULER,
        explain: Explain | None = None,
        budget: int = DEFAULT_BUDGET,
    ) -> None:
        self.manager = manager
        self.name = name
        self._explain = explain or Reasons(manager.engine.clock.now)
        self._recorder = manager.recorder(name)
        cache = manager.cache
        # Beside controllers their cache will do; alone it need not know of what has ended.
        selector = "" if manager.caches.has(resources.PODS) else UNFINISHED
        self._pods = cache(resources.PODS, field_selector=selector)
        self._nodes = cache(resources.NODES)
        self._namespaces = cache(resources.NAMESPACES)
        self._claims = cache(resources.CLAIMS)
        self._groups = cache(resources.POD_GROUPS)
        self._budgets = cache(resources.DISRUPTION_BUDGETS)
        table = NodeTable()
        shares = partial(manager.randomness.uuid, "scheduler/shares")

        devices = Devices(table, v1.Reader(environment), share_ids=shares, budget=budget)
        self._volume_claims = cache(resources.VOLUME_CLAIMS)
        storage = cache(resources.STORAGE_CLASSES)
        volumes = Volumes(table, self._volume_claims, cache(resources.VOLUMES), storage)
        self._demands = Demands(self._claims.get, self._groups.get, devices.in_flight, volumes.of)
        self.state = ClusterState(table, devices, self._demands, volumes)
        self.queue = SchedulingQueue(manager.engine.clock.now)
        self._placed: dict[str, str] = {}
        self._pending: dict[str, _Pending] = {}
        # Who waits in the queue for a claim, or with a pod group.
        self._by_claim: dict[Key, set[str]] = {}
        self._by_group: dict[Key, set[str]] = {}
        self._scheduled = False
        # Without the lead it watches, and leaves all pods to whoever has it.
        self.leads = True
        self._subscribe()
        manager.caches.when_synced(self._wake)
        manager.every(FLUSH_PERIOD, self._flush)

    def lead(self) -> None:
        """Act from now on, as it does unless it is told to rest."""
        self.leads = True
        self._wake()

    def rest(self) -> None:
        """Watch only, ready to take over."""
        self.leads = False

    # --- what happens in the cluster

    def _subscribe(self) -> None:
        self._nodes.subscribe(self._node)
        self._follow(resources.SLICES, self._slice)
        self._follow(resources.TAINT_RULES, self._rule)
        self._follow(resources.CLASSES, self._class)
        self._follow(resources.STORAGE_CLASSES, lambda *_: self._changed(Change.VOLUMES))
        self._follow(resources.VOLUMES, self._volume)
        self._volume_claims.subscribe(self._volume_claim)
        self._claims.subscribe(self._claim)
        self._groups.subscribe(self._group)
        self._pods.subscribe(self._pod)

    def _follow(self, resource: Resource, put: Callable[[str, Object | None], None]) -> Cache:
        cache = self.manager.cache(resource)

        def change(old: Object | None, new: Object | None) -> None:
            obj = new if new is not None else old
            if obj is not None:
                put(obj["metadata"]["name"], new)

        cache.subscribe(change)
        return cache

    def _node(self, old: Object | None, new: Object | None) -> None:
        table = self.state.table
        if new is None:
            if old is not None:
                table.remove_node(old["metadata"]["name"])
            return
        if table.put_node(new):
            self._changed(Change.NODE)

    def _slice(self, name: str, obj: Object | None) -> None:
        self.state.devices.put_slice(name, obj)
        self._changed(Change.DEVICES)

    def _volume(self, name: str, obj: Object | None) -> None:
        if self.state.volumes is not None:
            self.state.volumes.put_volume(name, obj)
        self._changed(Change.VOLUMES)

    def _volume_claim(self, old: Object | None, new: Object | None) -> None:
        obj = new if new is not None else old
        if obj is not None and self._pending:
            self._check_pending(key_of(obj))
        self._changed(Change.VOLUMES)

    def _rule(self, name: str, obj: Object | None) -> None:
        self.state.devices.put_rule(name, obj)
        self._changed(Change.DEVICES)

    def _class(self, name: str, obj: Object | None) -> None:
        self._demands.put_class(name, obj)
        self.state.devices.put_class(name, obj)
        self._changed(Change.DEVICES)

    def _claim(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            if old is not None and self.state.devices.remove_claim(old):
                self._changed(Change.DEVICES)
            return  # a pod that refers to it goes on waiting for one of that name
        if self.state.devices.put_claim(new):
            self._changed(Change.DEVICES)
        key = key_of(new)
        if self._pending:
            self._check_pending(key)
        if self.queue.wake_pods(self._by_claim.get(key, ())):
            self._wake()

    def _group(self, old: Object | None, new: Object | None) -> None:
        group = new if new is not None else old
        if group is not None and self.queue.wake_pods(self._by_group.get(key_of(group), ())):
            self._wake()

    def _pod(self, old: Object | None, new: Object | None) -> None:
        if new is None or is_finished(new):
            gone = new if new is not None else old
            if gone is not None:
                self._pod_gone(uid_of(gone))
            return
        uid = uid_of(new)
        node = new["spec"].get("nodeName")
        if node:
            self._pod_on(uid, node, old, new)
            return
        if new["spec"].get("schedulerName", DEFAULT_SCHEDULER) != self.name or classic_sources(new):
            return  # classic claims are negotiated with their driver: `scheduler.classic`
        if is_deleting(new):
            self._pod_gone(uid)
            return
        if uid in self._placed:
            return
        if old is None or old["spec"].get("nodeName"):
            self.queue.add_pod(self._noted(new))
        elif matters(old, new):
            self.queue.update_pod(self._noted(new))
        else:
            return
        if self.leads and new["spec"].get("schedulingGates"):
            self._report(new, "SchedulingGated", GATED)
        group = group_of(new)
        if group:
            self.queue.wake_pods(self._by_group[Key(key_of(new).namespace, group)])
        self._wake()

    def _noted(self, obj: Object) -> PodInfo:
        """Return a waiting pod, having noted whose news it must hear."""
        pod = self._info(obj)
        for name in claim_names(obj):
            self._by_claim.setdefault(Key(pod.key.namespace, name), set()).add(pod.uid)
        if pod.group:
            self._by_group.setdefault(Key(pod.key.namespace, pod.group), set()).add(pod.uid)
        return pod

    def _dequeue(self, uid: str) -> None:
        item = self.queue.get(uid)
        if item is None:
            return
        namespace = item.pod.key.namespace
        remove_waiter(self._by_group, Key(namespace, item.pod.group), uid)
        for name in claim_names(item.pod.obj):
            remove_waiter(self._by_claim, Key(namespace, name), uid)
        self.queue.remove_pod(uid)
        self._wake()

    def _pod_on(self, uid: str, node: str, old: Object | None, new: Object) -> None:
        self._dequeue(uid)
        self.state.nominees.pop(uid, None)
        assumed = self._placed.get(uid)
        renamed = old is not None and old["metadata"].get("labels") != new["metadata"].get("labels")
        if assumed != node:
            if assumed is not None:
                self.state.table.remove_pod(assumed, uid)
            self._recount(uid, node, new)
        elif renamed or (old is not None and is_deleting(new) != is_deleting(old)):
            self._recount(uid, node, new)
        if renamed:
            self._changed(Change.POD_GONE | Change.POD_PLACED)
        elif assumed != node or old is None or not old["spec"].get("nodeName"):
            self._arrived(uid, node)

    def _arrived(self, uid: str, node: str) -> None:
        """Let those be tried again that wait for such a pod: it may be a friend, or even it out."""
        row = self.state.table.row_of.get(node)
        pod = None if row is None else self.state.table.pods[row].get(uid)
        if pod is not None and self.queue.wake_for(
            Change.POD_PLACED, lambda waiting: is_awaited(waiting, pod)
        ):
            self._wake()

    def _recount(self, uid: str, node: str, obj: Object) -> None:
        self.state.table.remove_pod(node, uid)
        self.state.table.add_pod(node, self._info(obj))
        self._placed[uid] = node

    def _pod_gone(self, uid: str) -> None:
        self._dequeue(uid)
        self.state.nominees.pop(uid, None)
        self._pending.pop(uid, None)
        node = self._placed.pop(uid, None)
        if node is not None and self.state.table.remove_pod(node, uid) is not None:
            self._changed(Change.POD_GONE)

    def room_for(self, pod: Object) -> list[str]:
        """Return the nodes that a pod fits on but for its claims, the best first."""
        bare = {**pod, "spec": {k: v for k, v in pod["spec"].items() if k != "resourceClaims"}}
        return ranked(self.state, self._info(bare))

    def why_not(self, pod: Object) -> str:
        """Return all that can be said of why a pod fits nowhere now; empty where it fits."""
        found = schedule(self.state, self._info(pod))
        if isinstance(found, PodPlacement):
            return ""
        return Reasons(self.manager.engine.clock.now)(replace(found, repeated=False), self.state)

    def _info(self, obj: Object) -> PodInfo:
        return pod_info(obj, self._select_namespaces)

    def _select_namespaces(self, selector: Any) -> list[str]:
        chosen = labels.from_mapping(selector)
        return [
            obj["metadata"]["name"]
            for obj in self._namespaces
            if chosen.accepts(obj["metadata"].get("labels") or {})
        ]

    # --- the loop

    def _changed(self, change: Change) -> None:
        if self.queue.wake_for(change):
            self._wake()

    def _flush(self) -> None:
        if self.queue.wake_overdue():
            self._wake()

    def _wake(self) -> None:
        if not self._scheduled and self.leads and self.manager.ready:
            self._scheduled = True
            self.manager.engine.soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        if not (self.leads and self.manager.ready):
            return
        item = self.queue.pop()
        if item is None:
            return
        self._try(item)
        self._wake()

    def _try(self, item: Waiting) -> None:
        pod = item.pod
        if pod.group:
            self._try_gang(item)
            return
        found = schedule(self.state, pod)
        if isinstance(found, PodPlacement):
            self._accept(item, found)
        else:
            self._refuse(item, found)

    def _try_gang(self, item: Waiting) -> None:
        pod = item.pod
        group = self._groups.get(Key(pod.key.namespace, pod.group))
        count = self.state.table.count
        if group is None:
            why = f'podgroup.scheduling.k8s.io "{pod.group}" not found'
            self._refuse(item, Refusal(pod=pod, nodes=count, blocked=why))
            return
        policy = (group.get("spec") or {}).get("schedulingPolicy") or {}
        gang = policy.get("gang")
        if gang is None:
            found = schedule(self.state, pod)
            if isinstance(found, PodPlacement):
                self._accept(item, found)
            else:
                self._refuse(item, found)
            return
        least = int(gang.get("minCount") or 1)
        members = [
            other
            for uid in self._by_group.get(Key(pod.key.namespace, pod.group), ())
            if (other := self.queue.get(uid)) is not None
            and not other.pod.gates
            and uid not in self._placed
        ]
        placed = self._placed_members(pod)
        if len(members) + placed < least:
            why = f"waiting for {least} pods of gang {pod.group}: {len(members) + placed} exist"
            self._refuse(item, Refusal(pod=pod, nodes=count, blocked=why))
            return
        members.sort(key=lambda other: (-other.pod.priority, other.pod.created, other.pod.key))
        need = min(len(members), max(1, least - placed))
        result = gangs.schedule_gang(self.state, [other.pod for other in members], need)
        if isinstance(result, Refusal):
            for other in members:
                self.queue.take_out(other.pod.uid)
                self._refuse(other, result, preempt=False)
            return
        chosen = {placement.pod.uid: placement for placement in result}
        for other in members:
            placement = chosen.get(other.pod.uid)
            if placement is not None:
                self.queue.take_out(other.pod.uid)
                self._accept(other, placement)

    def _placed_members(self, pod: PodInfo) -> int:
        return sum(
            other.group == pod.group and other.key.namespace == pod.key.namespace
            for pods in self.state.table.pods
            for other in pods.values()
        )

    # --- yes

    def _accept(self, item: Waiting, placement: PodPlacement) -> None:
        self.state.assume_placement(placement)
        promised = self.state.nominees.pop(placement.pod.uid, None)
        if promised is not None and promised.node != placement.node:
            self._changed(Change.POD_GONE)  # the room that was kept for it is free
        self._placed[placement.pod.uid] = placement.node
        item.decided_at = self.manager.engine.clock.now()
        self.queue.wake_next_like(item)
        now = self.manager.now()
        client = self.manager.client
        if not placement.plans and not placement.volumes:
            self._bind(item, placement)
            return

        def work() -> list[Object]:
            claims = binding.write_claims(client, placement, now)
            binding.write_volumes(client, placement)
            if not (placement.volumes or binding.awaits_conditions(claims)):
                binding.bind(client, placement)
            return claims

        self.manager.engine.offload(work, partial(self._claims_written, item, placement))

    def _bind(self, item: Waiting, placement: PodPlacement) -> None:
        client = self.manager.client
        item.decided_at = self.manager.engine.clock.now()
        self.manager.engine.offload(
            lambda: binding.bind(client, placement), partial(self._bound, item, placement)
        )

    def _claims_written(
        self, item: Waiting, placement: PodPlacement, result: list[Object] | Exception
    ) -> None:
        if isinstance(result, Exception):
            if binding.may_have_been_written(result, placement):
                self._find_out(item, placement, result)
            else:
                self._failed(item, placement, result)
            return
        for claim in binding.synthetic_claims(placement, result):
            self.state.devices.adopt(placement.pod, claim)
        for claim in result:
            self._claims.learn(claim)
        awaits = binding.awaits_conditions(result)
        if not (awaits or placement.volumes):
            self._bound(item, placement, None)
            return
        if awaits:
            self._recorder.event(
                placement.pod.obj,
                "Pod",
                "BindingConditionsPending",
                f"waiting for binding conditions for device on node {placement.node}",
            )
        until = binding.given_up_at(result, self.manager.engine.clock.now())
        keys = [key_of(claim) for claim in result]
        volumes = [key_of(plan.claim) for plan in placement.volumes]
        self._pending[placement.pod.uid] = _Pending(item, placement, keys, volumes, until)
        self.manager.engine.at(until, partial(self._look_at, placement.pod.uid))
        self._look_at(placement.pod.uid)

    def _find_out(self, item: Waiting, placement: PodPlacement, error: Exception) -> None:
        """Learn what became of claims that may have been written all the same.

        A server that dies may have stored what it never answered. Until it says so, the devices
        stay held: the watch might tell only after they were given to another claim.
        """
        client, namespace = self.manager.client, placement.pod.key.namespace

        def found(result: list[Object] | Exception) -> None:
            if isinstance(result, Exception):
                self.manager.engine.after(AGAIN, lambda: self._find_out(item, placement, error))
                return
            for claim in result:
                self._claims.learn(claim)
            self._failed(item, placement, error)

        self.manager.engine.offload(
            lambda: list(client.list(resources.CLAIMS, namespace).items), found
        )

    def _check_pending(self, key: Key) -> None:
        for uid, waiting in list(self._pending.items()):
            if key in waiting.claims or key in waiting.volumes:
                self._look_at(uid)

    def _look_at(self, uid: str) -> None:
        waiting = self._pending.get(uid)
        if waiting is None or not self.leads:
            return
        claims = [claim for key in waiting.claims if (claim := self._claims.get(key)) is not None]
        met = binding.conditions_met(claims)
        if met is True and not all(map(self._has_volume, waiting.volumes)):
            met = False
        if met is True:
            del self._pending[uid]
            self._bind(waiting.item, waiting.placement)
        elif isinstance(met, str) or self.manager.engine.clock.now() >= waiting.until:
            del self._pending[uid]
            why = met if isinstance(met, str) else "device or volume binding timeout"
            self._failed(waiting.item, waiting.placement, ApiError("Timeout", why), undo=True)

    def _has_volume(self, key: Key) -> bool:
        claim = self._volume_claims.get(key)
        return claim is not None and is_bound(claim)

    def _bound(self, item: Waiting, placement: PodPlacement, result: Exception | None) -> None:
        if result is not None:
            self._failed(item, placement, result)
            return
        self._dequeue(item.pod.uid)
        self._recorder.event(
            placement.pod.obj,
            "Pod",
            "Scheduled",
            f"Successfully assigned {placement.pod.key} to {placement.node}",
            at=item.decided_at,
        )

    def _failed(
        self, item: Waiting, placement: PodPlacement, error: Exception, *, undo: bool = False
    ) -> None:
        pod = placement.pod
        if self._placed.get(pod.uid) == placement.node:
            del self._placed[pod.uid]
        self.state.forget_placement(placement)
        self._changed(Change.POD_GONE | Change.DEVICES)
        held = [
            claim
            for plan in placement.plans
            if plan.claim["metadata"].get("name")
            and (claim := self._claims.get(key_of(plan.claim))) is not None
        ]
        if undo and held:
            self.manager.engine.offload(
                lambda: binding.unreserve(self.manager.client, pod, held, deallocate=True),
                lambda _: None,
            )
        if isinstance(error, ApiError) and error.reason == "NotFound":
            current = self._pods.get(pod.key)
            if current is None or uid_of(current) != pod.uid:
                self._dequeue(pod.uid)
                return
        self._recorder.event(pod.obj, "Pod", "FailedScheduling", str(error), type="Warning")
        latest = self._pods.get(pod.key)
        if latest is not None and uid_of(latest) == pod.uid:
            item.pod = self._noted(latest)
        self.queue.put_back(item)
        if self.queue.get(pod.uid) is not None:
            self.manager.engine.at(item.backoff_ends(), self._wake)

    # --- no

    def _refuse(self, item: Waiting, refusal: Refusal, *, preempt: bool = True) -> None:
        message = shortened(self._explain(refusal, self.state))
        self.queue.add_unschedulable(item, awaited(refusal), refusal.kind)
        pod = item.pod
        nominated = ""
        if preempt and not (refusal.blocked or refusal.fatal or refusal.repeated):
            self._deallocate(pod)
            eviction = eviction_for(self.state, pod, list(self._budgets))
            if eviction is not None:
                nominated = eviction.node
                self.state.nominees[pod.uid] = Nominee(eviction.winner, eviction.node)
                for victim in eviction.victims:
                    self._evict(victim, pod, eviction.node)
        if item.attempts == 1 and refusal.blocked.endswith(NOT_CREATED_YET):
            # Its controller is about to make the claim: two writes less for most pods.
            since = item.failed_at

            def still() -> None:
                if item.failed_at == since:
                    self._tell(item, message)

            self.manager.engine.after(EARLY, still)
        else:
            self._tell(item, message, nominated)

    def _tell(self, item: Waiting, message: str, nominated: str = "") -> None:
        """Write down why a pod that waits has no node."""
        pod = item.pod
        if self.queue.get(pod.uid) is not item or pod.uid in self._placed:
            return
        current = self._pods.get(pod.key)
        if current is not None and uid_of(current) == pod.uid:
            self._report(current, "Unschedulable", message, nominated)
            self._recorder.event(current, "Pod", "FailedScheduling", message, type="Warning")

    def _deallocate(self, pod: PodInfo) -> None:
        """Give the devices of one of the pod's claims back, where they keep it from every node.

        As DynamicResources' PostFilter: only a claim that nobody else uses, one at a time.
        """
        demand = self._demands.of(pod)
        if isinstance(demand, Blocked):
            return
        claim = next((item.claim for item in demand.wanted if is_given_up(item)), None)
        if claim is not None:
            client = self.manager.client
            self.manager.engine.offload(
                lambda: binding.unreserve(client, pod, [claim], deallocate=True), lambda _: None
            )

    def _report(self, pod: Object, reason: str, message: str, nominated: str = "") -> None:
        known = condition_of(pod, "PodScheduled") or {}
        same = (known.get("status"), known.get("reason"), known.get("message")) == (
            "False",
            reason,
            message,
        )
        if same and not nominated:
            return
        now = self.manager.now()
        since = known.get("lastTransitionTime", now) if known.get("status") == "False" else now
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        status: dict[str, Any] = {"conditions": [condition]}
        if nominated:
            status["nominatedNodeName"] = nominated
        key = key_of(pod)
        patch: Object = {"metadata": {"uid": uid_of(pod)}, "status": status}
        self.manager.engine.offload(
            lambda: self.manager.client.patch(
                resources.PODS,
                key.name,
                patch,
                key.namespace,
                type="strategic",
                subresource="status",
            ),
            lambda _: None,
        )

    def _evict(self, victim: PodInfo, winner: PodInfo, node: str) -> None:
        client, now, name = self.manager.client, self.manager.now(), self.name
        self.manager.engine.offload(
            lambda: binding.evict(client, victim, name, now), lambda _: None
        )
        self._recorder.event(
            victim.obj, "Pod", "Preempted", f"Preempted by pod {winner.uid} on node {node}"
        )
