"""Tries waiting pods one after the other, and decides: a place, a refusal, an eviction.

Who carries that out is the host's affair: the live scheduler has it written to the server, a
simulation without one acts it out. Both decide with this code.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from dralab.objects.metadata import NamespacedName
from dralab.scheduler.queue import QueuedPod
from dralab.scheduler.queueing_hints import is_given_up
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling import gangs
from dralab.scheduling.cycle import schedule
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.reasons import CLAIM_NOT_CREATED, ClusterChange
from dralab.scheduling.state import ClusterState, NominatedPod, PodPlacement, Refusal
from dralab.values.json_types import JsonDict


class AttemptHost(Protocol):
    """Carries decisions out."""

    def now(self) -> int:
        """Return the time."""
        ...

    def group(self, key: NamespacedName) -> JsonDict | None:
        """Return a PodGroup; None if there is none of that name."""
        ...

    def budgets(self) -> Sequence[JsonDict]:
        """Return the disruption budgets."""
        ...

    def changed(
        self, change: ClusterChange, helps: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """Let pods be retried that await such a change."""
        ...

    def place(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Bind a pod; the state counts it as placed already."""
        ...

    def explain(self, refusal: Refusal) -> str:
        """Return why a pod waits, for people."""
        ...

    def refuse(self, item: QueuedPod, message: str, nominated: str, *, soon: bool) -> None:
        """Tell why a pod waits; `soon`: its claims are about to be made, so it may not have to."""
        ...

    def give_back(self, pod: PodInfo, claims: list[JsonDict]) -> None:
        """Free the devices of claims that keep a pod from every node."""
        ...

    def evict(self, victim: PodInfo, winner: PodInfo, node: str) -> None:
        """End a pod, for another one that will take its place."""
        ...


class Attempts:
    """Decides about the pods of a queue, on one state."""

    def __init__(self, state: ClusterState, waiting: WaitingPods, host: AttemptHost) -> None:
        self.state = state
        self.waiting = waiting
        self.queue = waiting.queue
        self.host = host

    def next(self) -> bool:
        """Try the next pod; False: none is ready."""
        item = self.queue.pop()
        if item is None:
            return False
        pod = item.pod
        if not pod.group:
            self._try_alone(item)
            return True
        group = self.host.group(NamespacedName(pod.key.namespace, pod.group))
        if group is None:
            self._refuse(item, gangs.not_found(self.state, pod))
            return True
        least = gangs.least_members(group)
        if least is None:
            self._try_alone(item)
        else:
            self._try_gang(item, least)
        return True

    def _try_alone(self, item: QueuedPod) -> None:
        found = schedule(self.state, item.pod)
        if isinstance(found, PodPlacement):
            self._accept(item, found)
        else:
            self._refuse(item, found)

    def _try_gang(self, item: QueuedPod, least: int) -> None:
        pod = item.pod
        members = [
            other
            for other in self.waiting.members_of(NamespacedName(pod.key.namespace, pod.group))
            if other.pod.uid not in self.state.placed
        ]
        placed = gangs.placed_members(self.state, pod)
        if len(members) + placed < least:
            self._refuse(item, gangs.too_few(self.state, pod, least, len(members) + placed))
            return
        members.sort(key=lambda other: (-other.pod.priority, other.pod.created, other.pod.key))
        need = min(len(members), max(1, least - placed))
        result = gangs.schedule_gang(self.state, [other.pod for other in members], need)
        chosen = {}
        if not isinstance(result, Refusal):
            chosen = {placement.pod.uid: placement for placement in result}
        for other in members:
            if isinstance(result, Refusal):
                self.queue.take_out(other.pod.uid)
                self._refuse(other, result, preempt=False)
            elif (placement := chosen.get(other.pod.uid)) is not None:
                self.queue.take_out(other.pod.uid)
                self._accept(other, placement)

    def _accept(self, item: QueuedPod, placement: PodPlacement) -> None:
        self.state.assume_placement(placement)
        promised = self.state.nominees.pop(placement.pod.uid, None)
        if promised is not None and promised.node != placement.node:
            self.host.changed(ClusterChange.POD_GONE)  # the room reserved for it is free
        self.state.placed[placement.pod.uid] = placement.node
        item.decided_at = self.host.now()
        self.queue.wake_next_like(item)
        self.host.place(item, placement)

    def _refuse(self, item: QueuedPod, refusal: Refusal, *, preempt: bool = True) -> None:
        message = self.host.explain(refusal)
        self.queue.add_unschedulable(item, refusal.lifted_by, refusal.kind)
        pod = item.pod
        nominated = ""
        if preempt and not (refusal.blocked or refusal.fatal or refusal.repeated):
            if refusal.kind is None:  # pods of one kind have no allocated claims
                self._deallocate(pod)
            eviction = eviction_for(self.state, pod, self.host.budgets())
            if eviction is not None:
                nominated = eviction.node
                self.state.nominees[pod.uid] = NominatedPod(
                    eviction.winner,
                    eviction.node,
                    frozenset(victim.uid for victim in eviction.victims),
                    eviction.claims,
                )
                for victim in eviction.victims:
                    self.host.evict(victim, pod, eviction.node)
        soon = item.attempts == 1 and _awaits_its_claim(refusal)
        self.host.refuse(item, message, nominated, soon=soon)

    def _deallocate(self, pod: PodInfo) -> None:
        """Give the devices of one of the pod's claims back, where they keep it from every node.

        As DynamicResources' PostFilter: only a claim that no other pod uses, one at a time.
        """
        demand = self.state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod):
            return
        claim = next((item.claim for item in demand.claims if is_given_up(item)), None)
        if claim is not None:
            self.host.give_back(pod, [claim])


def _awaits_its_claim(refusal: Refusal) -> bool:
    return refusal.blocked is not None and refusal.blocked.rule is CLAIM_NOT_CREATED
