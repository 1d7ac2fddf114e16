"""Tries waiting pods one after the other, and decides: a place, a refusal, an eviction.

Who carries that out is the host's affair: the live scheduler has it written to the server, a
simulation without one acts it out. Both decide with this code.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dralab.objects.metadata import NamespacedName
from dralab.scheduler.queue import QueuedPod
from dralab.scheduler.queueing_hints import is_given_up
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling.cycle import schedule
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.group_placement import left_over, place_tree
from dralab.scheduling.group_trees import GroupTree, is_loose, tree_of, unready
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.preemption import (
    Eviction,
    eviction_for,
    group_eviction_for,
    is_under_way,
)
from dralab.scheduling.reasons import (
    CLAIM_DELETED,
    CLAIM_NOT_CREATED,
    CLAIM_NOT_FOUND,
    CLAIM_NOT_OWNED,
    ClusterChange,
    Reason,
)
from dralab.scheduling.state import ClusterState, NominatedPod, PodPlacement, Refusal
from dralab.values.json_types import JsonDict

# Such a pod is not even queued (DynamicResources' PreEnqueue).
NOT_QUEUED: Final = frozenset({CLAIM_NOT_CREATED, CLAIM_NOT_FOUND, CLAIM_DELETED, CLAIM_NOT_OWNED})


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

    def refuse(self, item: QueuedPod, message: str, nominated: str | None, *, soon: bool) -> None:
        """Report why a pod waits; `soon`: its claims are about to be created.

        It is `nominated` for a node, for none any more (""), or that stays as it was (None).
        """
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
            self._refuse(item, blocked, _as_it_was)
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
            self._refuse(item, found, self._nomination)

    def _try_group(self, item: QueuedPod, tree: GroupTree) -> None:
        if (blocked := unready(tree)) is not None:
            alone = Refusal(pod=item.pod, nodes=self.state.table.count, blocked=blocked)
            self._refuse(item, alone, _as_it_was)
            return
        result = place_tree(self.state, tree)
        nominated = self._make_room(tree) if isinstance(result, Refusal) else {}

        def nomination(pod: PodInfo, _: Refusal) -> str:
            return nominated.get(pod.uid) or self._withdraw_nomination(pod)

        chosen = {}
        if not isinstance(result, Refusal):
            chosen = {placement.pod.uid: placement for placement in result}
        late: list[QueuedPod] = []
        for pod in tree.pods:
            member = self.queue.get(pod.uid) or item
            self.queue.take_out(pod.uid)
            if isinstance(result, Refusal):
                self._refuse(member, result, nomination)
            elif (placement := chosen.get(pod.uid)) is not None:
                self._accept(member, placement)
            else:
                late.append(member)
        for member in late:
            self._refuse(member, left_over(self.state, tree, member.pod), nomination)
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
        return self.state.nominees.get(pod.uid) if is_under_way(self.state, pod) else None

    def _withdraw_nomination(self, pod: PodInfo) -> str:
        """Keep room for a pod no longer."""
        if self.state.nominees.pop(pod.uid, None) is not None:
            self.host.changed(ClusterChange.POD_GONE)
        return ""

    def _refuse(
        self,
        item: QueuedPod,
        refusal: Refusal,
        nomination: Callable[[PodInfo, Refusal], str | None],
    ) -> None:
        """Put a pod back as refused, and report which node it is nominated for."""
        message = self.host.explain(refusal)
        item.causes = refusal.causes
        self.queue.add_unschedulable(item, refusal.lifted_by, refusal.kind)
        nominated = nomination(item.pod, refusal)
        soon = item.attempts == 1 and _awaits_its_claim(refusal)
        self.host.refuse(item, message, nominated, soon=soon)

    def _nomination(self, pod: PodInfo, refusal: Refusal) -> str | None:
        """Preempt others for a pod if that helps; return the node that it is nominated for."""
        if refusal.blocked is not None and refusal.blocked.rule in NOT_QUEUED:
            return None
        hopeless = refusal.blocked or refusal.fatal or refusal.repeated
        eviction = None if hopeless else self._eviction(pod, refusal)
        if eviction is not None:
            return eviction.node
        # As preemption.Evaluator.Preempt: a nomination that no preemption leads to is withdrawn.
        if not pod.may_preempt or is_under_way(self.state, pod):
            return None
        return self._withdraw_nomination(pod)

    def _eviction(self, pod: PodInfo, refusal: Refusal) -> Eviction | None:
        """Evict others for a pod, and keep their room for it; None: that does not help."""
        if refusal.kind is None:  # pods of one kind have no allocated claims
            self._deallocate(pod)
        eviction = eviction_for(self.state, pod, self.host.budgets())
        if eviction is None:
            return None
        self.state.nominees[pod.uid] = NominatedPod(
            eviction.winner,
            eviction.node,
            frozenset(victim.uid for victim in eviction.victims),
            eviction.claims,
        )
        for victim in eviction.victims:
            self.host.evict(victim, pod, eviction.node)
        return eviction

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


def _as_it_was(pod: PodInfo, refusal: Refusal) -> None:
    """Return the nomination of a pod that is not even tried: it stays."""
    del pod, refusal


def _awaits_its_claim(refusal: Refusal) -> bool:
    return refusal.blocked is not None and refusal.blocked.rule is CLAIM_NOT_CREATED
