"""Binds a placed pod, in several asynchronous steps.

Claims and volumes are written first. Then the scheduler waits until it has seen its own writes in
the order of all writes, and until devices and volumes are ready; then `precedence` says whether the
allocations count, and the pod is bound. Network calls are offloaded, and their results return as
events.
"""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import NamespacedName, key_of, revision_of, uid_of
from dralab.objects.volumes import is_bound
from dralab.runtime import resources
from dralab.runtime.cache import Cache
from dralab.runtime.client import WatchEvent
from dralab.runtime.manager import Manager
from dralab.scheduler import binding
from dralab.scheduler.pod_reports import PodReports
from dralab.scheduler.precedence import AllocationOrder, AllocationVerdict, Precedence
from dralab.scheduler.queue import QueuedPod
from dralab.scheduler.withdrawal import withdraw, withdrawal_of
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

AGAIN: Final = SECOND // 5  # until a server that did not answer is asked once more
# A watch that has not told of an own write for so long is given up for a list.
PATIENCE: Final = 5 * SECOND


class BindingListener(Protocol):
    """Is notified of the result of a binding."""

    @property
    def leads(self) -> bool:
        """Whether writing is allowed now."""
        ...

    def bound(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Note that a pod is bound."""
        ...

    def failed(
        self, item: QueuedPod, placement: PodPlacement, error: Exception, *, undo: bool = False
    ) -> None:
        """Note that a pod could not be bound; `undo`: release its devices."""
        ...


@dataclass(slots=True, eq=False)
class _Attempt:
    """A pod that is being bound: its written claims, and the pod before."""

    item: QueuedPod
    placement: PodPlacement
    claims: list[JsonDict] = field(default_factory=list)
    pod: JsonDict | None = None

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.placement.pod.uid


@dataclass(slots=True)
class _PendingBinding:
    """A pod whose devices and volumes must be made ready before it may be bound."""

    attempt: _Attempt
    claims: list[NamespacedName]
    volumes: list[NamespacedName]
    until: int


class Binder:
    """Writes placements, and follows those that wait for their writes, for devices or volumes.

    `name` is the scheduler's. `alone`: no other client allocates devices, so all allocations count
    at once.
    """

    def __init__(
        self,
        manager: Manager,
        devices: ClusterDevices,
        pods: Cache,
        reports: PodReports,
        outcomes: BindingListener,
        *,
        name: str,
        alone: bool = False,
    ) -> None:
        self.manager = manager
        self._devices = devices
        self._pods = pods
        self._reports = reports
        self._outcomes = outcomes
        self._alone = alone
        self._claims: Cache = manager.cache(resources.CLAIMS)
        self._volume_claims: Cache = manager.cache(resources.VOLUME_CLAIMS)
        self._pending: dict[str, _PendingBinding] = {}
        self._order = AllocationOrder()
        self._precedence = Precedence(self._order, devices, self._claims, pods, name)
        # Attempts by the revision that has to be seen first, in order.
        self._unseen: list[tuple[int, int, _Attempt]] = []
        self._count = 0
        self._restarts = 0
        if not alone:
            self._claims.follow(self)

    def write(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Write a placement: its claims, its volumes, then the binding."""
        now = self.manager.now()
        client = self.manager.client
        attempt = _Attempt(item, placement)
        if not placement.plans and not placement.volumes:
            self._bind(attempt)
            return
        # As it was before the claims are written: whoever takes one of them back changes the pod.
        if not self._alone and placement.plans:
            attempt.pod = self._pods.get(placement.pod.key) or placement.pod.obj

        def work() -> list[JsonDict]:
            self._check_lead()
            claims, attempt.pod = binding.write_claims(client, placement, now, attempt.pod)
            binding.write_volumes(client, placement)
            if self._alone and not (placement.volumes or binding.awaits_conditions(claims)):
                binding.bind(client, placement)
            return claims

        self.manager.engine.offload(work, partial(self._written, attempt))

    def _check_lead(self) -> None:
        """Refuse to write old decisions after this process was suspended. ApiError."""
        if not self._outcomes.leads:
            raise ApiError("Conflict", "another scheduler may hold the lease by now")

    def check_pending(self, key: NamespacedName) -> None:
        """Check the pods again that wait for a claim, or a volume claim, of this name."""
        for uid, waiting in list(self._pending.items()):
            if key in waiting.claims or key in waiting.volumes:
                self._look_at(uid)

    def forget_pod(self, uid: str) -> None:
        """Stop following a pod: it is gone."""
        self._pending.pop(uid, None)

    # --- written

    def _written(self, attempt: _Attempt, result: list[JsonDict] | Exception) -> None:
        item, placement = attempt.item, attempt.placement
        if isinstance(result, Exception):
            if binding.may_have_been_written(result, placement):
                self._find_claims(attempt, result)
            else:
                self._outcomes.failed(item, placement, result)
            return
        for claim in binding.synthetic_claims(placement, result):
            self._devices.adopt(placement.pod, claim)
        for claim in result:
            self._claims.learn(claim)
        attempt.claims = result
        awaited = max(map(revision_of, result), default=0)
        if self._alone or awaited <= self._order.position:
            self._seen(attempt)
            return
        if not self._unseen:
            self.manager.engine.after(PATIENCE, partial(self._check_watch, self._order.position))
        self._count += 1
        heappush(self._unseen, (awaited, self._count, attempt))

    def listed(self, items: Sequence[JsonDict], revision: str) -> None:
        """Take over all claims as of a revision."""
        self._order.listed(items, revision)

    def changed(self, event: WatchEvent) -> None:
        """Handle the next change of a claim, in the order of the server's writes."""
        self._order.changed(event)

    def caught_up(self) -> None:
        """Continue with the pods whose claims' writes have been seen by now."""
        # A server that began again may never come to the revisions it gave out before.
        anew, self._restarts = self._order.restarts != self._restarts, self._order.restarts
        while self._unseen and (anew or self._unseen[0][0] <= self._order.position):
            _, _, attempt = heappop(self._unseen)
            self._seen(attempt)

    def _check_watch(self, position: int) -> None:
        """List the claims if the watch has been silent for too long."""
        if self._unseen:
            if self._order.position == position:
                self._claims.refresh()
            self.manager.engine.after(PATIENCE, partial(self._check_watch, self._order.position))

    def _seen(self, attempt: _Attempt) -> None:
        placement = attempt.placement
        awaits = binding.awaits_conditions(attempt.claims)
        if not (awaits or placement.volumes):
            if self._alone:
                self._bound(attempt, None)
            else:
                self._bind(attempt)
            return
        if awaits:
            self._reports.event(
                placement.pod.obj,
                "BindingConditionsPending",
                f"waiting for binding conditions for device on node {placement.node}",
            )
        until = binding.given_up_at(attempt.claims, self.manager.engine.clock.now())
        keys = [key_of(claim) for claim in attempt.claims]
        volumes = [key_of(plan.claim) for plan in placement.volumes]
        self._pending[attempt.uid] = _PendingBinding(attempt, keys, volumes, until)
        self.manager.engine.at(until, partial(self._look_at, attempt.uid))
        self._look_at(attempt.uid)

    def _find_claims(self, attempt: _Attempt, error: Exception) -> None:
        """Read claims again whose write failed without a definite answer.

        A server that dies may have stored what it never answered. Until it says so, the devices
        stay held: the watch might tell only after they were given to another claim.
        """
        client, namespace = self.manager.client, attempt.placement.pod.key.namespace

        def found(result: list[JsonDict] | Exception) -> None:
            if isinstance(result, Exception):
                self.manager.engine.after(AGAIN, lambda: self._find_claims(attempt, error))
                return
            for claim in result:
                self._claims.learn(claim)
            self._outcomes.failed(attempt.item, attempt.placement, error)

        self.manager.engine.offload(
            lambda: list(client.list(resources.CLAIMS, namespace).items), found
        )

    def _look_at(self, uid: str) -> None:
        waiting = self._pending.get(uid)
        if waiting is None or not self._outcomes.leads:
            return
        claims = [claim for key in waiting.claims if (claim := self._claims.get(key)) is not None]
        met = binding.conditions_met(claims)
        if met is True and not all(map(self._has_volume, waiting.volumes)):
            met = False
        if met is True:
            del self._pending[uid]
            self._bind(waiting.attempt)
        elif isinstance(met, str) or self.manager.engine.clock.now() >= waiting.until:
            del self._pending[uid]
            why = met if isinstance(met, str) else "device or volume binding timeout"
            self._outcomes.failed(
                waiting.attempt.item,
                waiting.attempt.placement,
                ApiError("Timeout", why),
                undo=True,
            )

    def _has_volume(self, key: NamespacedName) -> bool:
        claim = self._volume_claims.get(key)
        return claim is not None and is_bound(claim)

    # --- bound

    def _bind(self, attempt: _Attempt) -> None:
        if not self._alone:
            verdict = self._verdict(attempt)
            if verdict is not None:
                self._contest(attempt, *verdict)
                return
        client = self.manager.client
        attempt.item.decided_at = self.manager.engine.clock.now()

        def work() -> None:
            self._check_lead()
            binding.bind(client, attempt.placement, attempt.pod)

        self.manager.engine.offload(work, partial(self._bound, attempt))

    def _verdict(self, attempt: _Attempt) -> tuple[JsonDict, AllocationVerdict] | None:
        """Return the first claim whose allocation does not count, and why."""
        for claim in attempt.claims:
            verdict = self._precedence.verdict(claim)
            if not verdict.counts:
                return claim, verdict
            if attempt.pod is not None and (why := withdrawal_of(attempt.pod, claim)):
                # Another scheduler is about to take it back, and may be late: this is quicker.
                return claim, AllocationVerdict(counts=False, why=why, lost=True)
        return None

    def _contest(self, attempt: _Attempt, claim: JsonDict, verdict: AllocationVerdict) -> None:
        """Withdraw an allocation that does not count, or others that conflict with it."""
        client, now = self.manager.client, self.manager.now()
        losers = [(current, self._precedence.reason(current, claim)) for current in verdict.others]
        latest = self._claims.get(key_of(claim))
        if verdict.lost and latest is not None and uid_of(latest) == uid_of(claim):
            losers.append((latest, verdict.why))

        def work() -> None:
            self._check_lead()
            for loser, why in losers:
                withdraw(client, loser, why, now)

        def done(_: Any) -> None:
            # Refused: it has changed, or its pod is bound. The next attempt will find that.
            if verdict.others:
                for loser, why in losers:
                    for pod in self._precedence.consumers(loser):
                        self._reports.event(pod, "FailedScheduling", why, warning=True)
                self.manager.engine.after(AGAIN, partial(self._bind_if_leading, attempt))
            else:
                error = ApiError("Conflict", verdict.why)
                self._outcomes.failed(attempt.item, attempt.placement, error)

        if losers:
            self.manager.engine.offload(work, done)
        else:
            done(None)

    def _bind_if_leading(self, attempt: _Attempt) -> None:
        if self._outcomes.leads:
            self._bind(attempt)
        else:
            error = ApiError("Conflict", "another scheduler may hold the lease by now")
            self._outcomes.failed(attempt.item, attempt.placement, error)

    def _bound(self, attempt: _Attempt, result: Exception | None) -> None:
        if result is None:
            self._outcomes.bound(attempt.item, attempt.placement)
        elif binding.is_unanswered(result):
            self._find_pod(attempt, result)
        else:
            self._outcomes.failed(attempt.item, attempt.placement, result)

    def _find_pod(self, attempt: _Attempt, error: Exception) -> None:
        """Read a pod again whose binding failed without a definite answer."""
        key = attempt.placement.pod.key

        def found(result: JsonDict | Exception) -> None:
            if isinstance(result, Exception):
                if binding.is_unanswered(result):
                    self.manager.engine.after(AGAIN, lambda: self._find_pod(attempt, error))
                else:
                    self._outcomes.failed(attempt.item, attempt.placement, result)
            elif uid_of(result) == attempt.uid and (
                result["spec"].get("nodeName") == attempt.placement.node
            ):
                self._outcomes.bound(attempt.item, attempt.placement)
            else:
                self._outcomes.failed(attempt.item, attempt.placement, error)

        client = self.manager.client
        self.manager.engine.offload(
            lambda: client.get(resources.PODS, key.name, key.namespace), found
        )
