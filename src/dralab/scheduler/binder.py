"""Binds a placed pod, in several steps that may wait.

Claims and volumes are written first; then devices and volumes may have to become ready; then the
pod is bound. Network calls are offloaded, and their results return as events.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import NamespacedName, key_of
from dralab.objects.volumes import is_bound
from dralab.runtime import resources
from dralab.runtime.cache import Cache
from dralab.runtime.manager import Manager
from dralab.scheduler import binding
from dralab.scheduler.cycle import PodPlacement
from dralab.scheduler.devices import ClusterDevices
from dralab.scheduler.pod_reports import PodReports
from dralab.scheduler.queue import QueuedPod
from dralab.values.json_types import JsonDict

AGAIN: Final = SECOND // 5  # until a server that did not answer is asked once more


class BindingListener(Protocol):
    """Is notified of the result of a binding."""

    @property
    def leads(self) -> bool:
        """Whether anything may be written now."""
        ...

    def bound(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Note that a pod is bound."""
        ...

    def failed(
        self, item: QueuedPod, placement: PodPlacement, error: Exception, *, undo: bool = False
    ) -> None:
        """Note that a pod could not be bound; `undo`: its devices are to be given back."""
        ...


@dataclass(slots=True)
class _PendingBinding:
    """A pod whose devices and volumes must be made ready before it may be bound."""

    item: QueuedPod
    placement: PodPlacement
    claims: list[NamespacedName]
    volumes: list[NamespacedName]
    until: int


class Binder:
    """Writes placements, and follows those that wait for devices or volumes."""

    def __init__(
        self,
        manager: Manager,
        devices: ClusterDevices,
        reports: PodReports,
        outcomes: BindingListener,
    ) -> None:
        self.manager = manager
        self._devices = devices
        self._reports = reports
        self._outcomes = outcomes
        self._claims: Cache = manager.cache(resources.CLAIMS)
        self._volume_claims: Cache = manager.cache(resources.VOLUME_CLAIMS)
        self._pending: dict[str, _PendingBinding] = {}

    def write(self, item: QueuedPod, placement: PodPlacement) -> None:
        """Write a placement: its claims, its volumes, then the binding."""
        now = self.manager.now()
        client = self.manager.client
        if not placement.plans and not placement.volumes:
            self._bind(item, placement)
            return

        def work() -> list[JsonDict]:
            self._check_lead()
            claims = binding.write_claims(client, placement, now)
            binding.write_volumes(client, placement)
            if not (placement.volumes or binding.awaits_conditions(claims)):
                binding.bind(client, placement)
            return claims

        self.manager.engine.offload(work, partial(self._written, item, placement))

    def _check_lead(self) -> None:
        """Refuse to write what was decided before this process was stopped. ApiError."""
        if not self._outcomes.leads:
            raise ApiError("Conflict", "another scheduler may hold the lease by now")

    def check_pending(self, key: NamespacedName) -> None:
        """Look again at the pods that wait for a claim, or for a volume claim, of this name."""
        for uid, waiting in list(self._pending.items()):
            if key in waiting.claims or key in waiting.volumes:
                self._look_at(uid)

    def forget_pod(self, uid: str) -> None:
        """Stop following a pod: it is gone."""
        self._pending.pop(uid, None)

    def _bind(self, item: QueuedPod, placement: PodPlacement) -> None:
        client = self.manager.client
        item.decided_at = self.manager.engine.clock.now()

        def work() -> None:
            self._check_lead()
            binding.bind(client, placement)

        self.manager.engine.offload(work, partial(self._bound, item, placement))

    def _written(
        self, item: QueuedPod, placement: PodPlacement, result: list[JsonDict] | Exception
    ) -> None:
        if isinstance(result, Exception):
            if binding.may_have_been_written(result, placement):
                self._find_out(item, placement, result)
            else:
                self._outcomes.failed(item, placement, result)
            return
        for claim in binding.synthetic_claims(placement, result):
            self._devices.adopt(placement.pod, claim)
        for claim in result:
            self._claims.learn(claim)
        awaits = binding.awaits_conditions(result)
        if not (awaits or placement.volumes):
            self._bound(item, placement, None)
            return
        if awaits:
            self._reports.event(
                placement.pod.obj,
                "BindingConditionsPending",
                f"waiting for binding conditions for device on node {placement.node}",
            )
        until = binding.given_up_at(result, self.manager.engine.clock.now())
        keys = [key_of(claim) for claim in result]
        volumes = [key_of(plan.claim) for plan in placement.volumes]
        self._pending[placement.pod.uid] = _PendingBinding(item, placement, keys, volumes, until)
        self.manager.engine.at(until, partial(self._look_at, placement.pod.uid))
        self._look_at(placement.pod.uid)

    def _find_out(self, item: QueuedPod, placement: PodPlacement, error: Exception) -> None:
        """Read claims again whose write failed without a definite answer.

        A server that dies may have stored what it never answered. Until it says so, the devices
        stay held: the watch might tell only after they were given to another claim.
        """
        client, namespace = self.manager.client, placement.pod.key.namespace

        def found(result: list[JsonDict] | Exception) -> None:
            if isinstance(result, Exception):
                self.manager.engine.after(AGAIN, lambda: self._find_out(item, placement, error))
                return
            for claim in result:
                self._claims.learn(claim)
            self._outcomes.failed(item, placement, error)

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
            self._bind(waiting.item, waiting.placement)
        elif isinstance(met, str) or self.manager.engine.clock.now() >= waiting.until:
            del self._pending[uid]
            why = met if isinstance(met, str) else "device or volume binding timeout"
            self._outcomes.failed(
                waiting.item, waiting.placement, ApiError("Timeout", why), undo=True
            )

    def _has_volume(self, key: NamespacedName) -> bool:
        claim = self._volume_claims.get(key)
        return claim is not None and is_bound(claim)

    def _bound(self, item: QueuedPod, placement: PodPlacement, result: Exception | None) -> None:
        if result is not None:
            self._outcomes.failed(item, placement, result)
        else:
            self._outcomes.bound(item, placement)
