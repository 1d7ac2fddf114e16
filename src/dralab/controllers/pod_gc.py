"""Pod garbage collection: pods on deleted nodes, long-finished pods, pods deleted before they ran.

Source: kube-controller-manager's podgc controller. A node of k8srm may be known from its
DevicePools alone.
"""

import logging
from collections.abc import Iterable
from typing import Final

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.controllers import disruptions
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import NamespacedName, is_deleting, key_of
from dralab.objects.pods import is_finished
from dralab.runtime.manager import Manager
from dralab.runtime.resources import DEVICE_POOLS, NODES, PODS, is_served
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)
PERIOD: Final = 20 * SECOND
QUARANTINE: Final = 40 * SECOND
MOST_FINISHED: Final = 12_500


class PodGarbage:
    """Looks every 20 seconds; a node must be missing for 40 before its pods go.

    `kinds` are those of the server, where they are known.
    """

    def __init__(self, manager: Manager, kinds: Kinds | None = None) -> None:
        self.manager = manager
        self.client = manager.client
        self.pods = manager.cache(PODS)
        self.nodes = manager.cache(NODES)
        self._device_pools: Iterable[JsonDict] = ()
        if is_served(DEVICE_POOLS, kinds):
            device_pools = self._device_pools = manager.cache(DEVICE_POOLS)
            device_pools.subscribe(self._node)
        self._missing: dict[str, int] = {}
        self._failed = False
        # Looking at all pods is for when there may be something to find.
        self._due = True
        self.pods.subscribe(self._pod)
        self.nodes.subscribe(self._node)
        manager.every(PERIOD, self.collect)

    def _pod(self, _: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and is_deleting(new) and self._is_described_only(new):
            self._due = True
            self.manager.engine.soon(self._collect_now)  # who deletes it, waits for that
            return
        if new is None or self._due:
            return
        node = new["spec"].get("nodeName")
        if node:
            lost = self.nodes.get(NamespacedName("", node)) is None
            self._due = lost or (len(self.pods) > MOST_FINISHED and is_finished(new))
        else:
            self._due = is_deleting(new)

    def _node(self, _: JsonDict | None, new: JsonDict | None) -> None:
        self._due = self._due or new is None

    def _is_described_only(self, pod: JsonDict) -> bool:
        """Return whether a pod's node exists only in DevicePools, and has no kubelet."""
        node = pod["spec"].get("nodeName")
        described = any(item["spec"].get("nodeName") == node for item in self._device_pools)
        return bool(node) and described and self.nodes.get(NamespacedName("", node)) is None

    def _collect_now(self) -> None:
        if self.manager.ready:
            self.collect()

    def collect(self) -> None:
        """Delete pods that no kubelet will end; what the server refuses is tried again later."""
        if not self._due:
            return
        self._failed = False
        now = self.manager.engine.clock.now()
        described = {item["spec"].get("nodeName") for item in self._device_pools}
        finished: list[JsonDict] = []
        missing: dict[str, int] = {}
        gone: dict[str, bool] = {}
        for pod in list(self.pods):
            node = pod["spec"].get("nodeName")
            if is_finished(pod):
                finished.append(pod)
            if not node:
                if is_deleting(pod):
                    self._delete(pod)
                continue
            if self.nodes.get(NamespacedName("", node)) is not None:
                continue
            if node in described:
                if is_deleting(pod):  # no kubelet will end it
                    self._delete(pod)
            else:
                since = missing.setdefault(node, self._missing.get(node, now))
                if now - since < QUARANTINE:
                    continue
                if node not in gone:
                    gone[node] = self._is_gone(node)
                if gone[node]:
                    self._delete(pod, orphaned=True)
        self._missing = missing
        surplus = len(finished) - MOST_FINISHED
        if surplus > 0:
            finished.sort(
                key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), key_of(pod))
            )
            for pod in finished[:surplus]:
                self._delete(pod)
        self._due = bool(missing) or self._failed

    def _is_gone(self, node: str) -> bool:
        """Ask the server whether a node is missing: the cache may not have a new one yet."""
        try:
            self.client.get(NODES, node)
        except ApiError as error:
            return error.reason == "NotFound"
        return False

    def _delete(self, pod: JsonDict, *, orphaned: bool = False) -> None:
        condition = None
        if orphaned and not is_finished(pod):
            why = "PodGC: node no longer exists"
            condition = disruptions.target("DeletionByPodGC", why, self.manager.now())
        try:
            disruptions.evict(self.client, pod, condition, phase="Failed", grace=0)
        except ApiError as error:
            # The others go on; this one is looked at again in the next period.
            self._failed = True
            logger.info("pod-gc: %s cannot be deleted: %s", key_of(pod), error)


def _age(pod: JsonDict) -> tuple[str, NamespacedName]:
    return pod["metadata"].get("creationTimestamp", ""), key_of(pod)
