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
from dralab.scheduling.cycle import schedule
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.group_placement import left_over, place_tree
from dralab.scheduling.group_trees import GroupTree, is_loose, tree_of, unready
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import eviction_for, group_eviction_for, is_under_way
from dralab.scheduling.reasons import CLAIM_NOT_CREATED, ClusterChange, Reason
from dralab.scheduling.state import ClusterState, NominatedPod, PodPlacement, Refusal
from dralab.values.json_types import JsonDict


class AttemptHost(Protocol):
    """Carries out decisions."""

    def now(self) -> int:
        """Return the time."""
        ...

    def budgets(self) -> Sequence[JsonDict]:
        """Return the disruption budgets."""
        ...

    def changed(
        self, change: ClusterChange, helps: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """Retry pods that await such a change."""
        ...

    def place(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Bind a pod, which the state already counts as placed."""
        ...

    def explain(self, refusal: Refusal) -> str:
        """Return the reason that a pod waits, as text for people."""
        ...

    def refuse(self, item: QueuedPod, message: str, nominated: str, *, soon: bool) -> None:
        """Report why a pod waits; `soon`: its claims are about to be created."""
        ...

    def note_group(self, group: JsonDict, message: str | None) -> None:
        """Record that a PodGroup has started (None), or why it waits."""
        ...

    def give_back(self, pod: PodInfo, claims: list[JsonDict]) -> None:
        """Release the devices of claims that keep a pod from every node."""
        ...

    def evict(self, victim: PodInfo, winner: PodInfo, node: str) -> None:
        """Evict a pod for another one that will take its place."""
        ...


class Attempts:
    """Decides about the pods of a queue, on one state."""

    def __init__(self, state: ClusterState, waiting: WaitingPods, host: AttemptHost) -> None:
        self.state = state
        self.waiting = waiting
        self.queue = waiting.queue
        self.host = host

    def next(self) -> bool:
        """Try the next pod; False if none is ready."""
        item = self.queue.pop()
        if item is None:
            return False
        pod = item.pod
        if not pod.group:
            self._try_alone(item)
            return True
        tree = tree_of(self.state, pod, self._waiting_in)
        if isinstance(tree, Reason):
            blocked = Refusal(pod=pod, nodes=self.state.table.count, blocked=tree)
            self._refuse(item, blocked)
        elif is_loose(tree):
            self._try_alone(item)
        else:
            self._try_group(item, tree)
        return True

    def _waiting_in(self, group: NamespacedName) -> list[PodInfo]:
        """Return the pods of a PodGroup that wait, in the order in which they are tried."""
        members = [item.pod for item in self.waiting.members_of(group)]
        members = [pod for pod in members if pod.uid not in self.state.placed]
        return sorted(members, key=lambda pod: (-pod.priority, pod.created, pod.key))

    def _try_alone(self, item: QueuedPod) -> None:
        found = schedule(self.state, item.pod)
        if isinstance(found, PodPlacement):
            self._accept(item, found)
        else:
            self._refuse(item, found)

    def _try_group(self, item: QueuedPod, tree: GroupTree) -> None:
        if (blocked := unready(tree)) is not None:
            alone = Refusal(pod=item.pod, nodes=self.state.table.count, blocked=blocked)
            self._refuse(item, alone)
            return
        result = place_tree(self.state, tree)
        nominated = self._make_room(tree) if isinstance(result, Refusal) else {}
        chosen = {}
        if not isinstance(result, Refusal):
            chosen = {placement.pod.uid: placement for placement in result}
        late: list[QueuedPod] = []
        for pod in tree.pods:
            member = self.queue.get(pod.uid) or item
            self.queue.take_out(pod.uid)
            if isinstance(result, Refusal):
                self._refuse(member, result, nominated=nominated.get(pod.uid, ""))
            elif (placement := chosen.get(pod.uid)) is not None:
                self._accept(member, placement)
            else:
                late.append(member)
        for member in late:
            self._refuse(member, left_over(self.state, tree, member.pod), nominated="")
        for leaf in tree.leaves:
            if isinstance(result, Refusal):
                self.host.note_group(leaf.obj, result.message)
            elif leaf.rows or any(pod.uid in chosen for pod in leaf.waiting):
                self.host.note_group(leaf.obj, None)

    def _accept(self, item: QueuedPod, placement: PodPlacement) -> None:
        self.state.assume_placement(placement)
        promised = self.state.nominees.pop(placement.pod.uid, None)
        if promised is not None and promised.node != placement.node:
            self.host.changed(ClusterChange.POD_GONE)  # the room reserved for it is free
        self.state.placed[placement.pod.uid] = placement.node
        item.decided_at = self.host.now()
        self.queue.wake_next_like(item)
        self.host.place(item, placement)

    def _make_room(self, tree: GroupTree) -> dict[str, str]:
        """Preempt others for a group; return the nodes that its pods are nominated for, by uid."""
        eviction = group_eviction_for(self.state, tree, self.host.budgets())
        if eviction is None:
            return {pod.uid: held.node for pod in tree.pods if (held := self._promise(pod))}
        leaving = frozenset(victim.uid for victim in eviction.victims)
        for each in eviction.placements:
            self.state.nominees[each.pod.uid] = NominatedPod(
                each.pod, each.node, leaving, eviction.claims
            )
        first = eviction.placements[0]
        for victim in eviction.victims:
            self.host.evict(victim, first.pod, first.node)
        return {each.pod.uid: each.node for each in eviction.placements}

    def _promise(self, pod: PodInfo) -> NominatedPod | None:
        """Return a pod's nomination, while others are still being evicted for it."""
        if is_under_way(self.state, pod):
            return self.state.nominees.get(pod.uid)
        self.state.nominees.pop(pod.uid, None)
        return None

    def _refuse(self, item: QueuedPod, refusal: Refusal, *, nominated: str | None = None) -> None:
        """Put a pod back as refused; without a nominated node (None), preemption may be tried."""
        message = self.host.explain(refusal)
        item.causes = refusal.causes
        self.queue.add_unschedulable(item, refusal.lifted_by, refusal.kind)
        pod = item.pod
        if nominated is None:
            nominated = (
                ""
                if refusal.blocked or refusal.fatal or refusal.repeated
                else self._preempt(pod, refusal)
            )
        soon = item.attempts == 1 and _awaits_its_claim(refusal)
        self.host.refuse(item, message, nominated, soon=soon)

    def _preempt(self, pod: PodInfo, refusal: Refusal) -> str:
        """Preempt others for a pod; return the node that it is nominated for, if any."""
        if refusal.kind is None:  # pods of one kind have no allocated claims
            self._deallocate(pod)
        eviction = eviction_for(self.state, pod, self.host.budgets())
        if eviction is None:
            return ""
        self.state.nominees[pod.uid] = NominatedPod(
            eviction.winner,
            eviction.node,
            frozenset(victim.uid for victim in eviction.victims),
            eviction.claims,
        )
        for victim in eviction.victims:
            self.host.evict(victim, pod, eviction.node)
        return eviction.node

    def _deallocate(self, pod: PodInfo) -> None:
        """Release the devices of one of the pod's claims, if they keep it from every node.

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
