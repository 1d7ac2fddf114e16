"""k8srm: releases the devices of claims whose pods are gone, and keeps every status up to date.

It replaces two components: the prototype's controller of pools and classes, and the drivers, which
report the devices of a claim as ready, network devices with an address. `dralab allocate` chooses
devices.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from dralab.api.status import ignoring
from dralab.objects.claims import has_device_claims
from dralab.objects.metadata import NamespacedName, key_of, status_of
from dralab.objects.pods import is_finished
from dralab.runtime.client import Resource, amend, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_DRIVERS,
    DEVICE_POOLS,
    PODS,
)
from dralab.values.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from dralab.prototypes.k8srm.cluster import K8srmCluster

KINDS: Final = {
    DEVICE_DRIVERS: "DeviceDriver",
    DEVICE_CLASSES: "DeviceClass",
    DEVICE_POOLS: "DevicePool",
    DEVICE_CLAIMS: "DeviceClaim",
}
OF_ALLOCATION: Final = ("allocations", "classConfigs", "claimConfigs", "deviceStatuses", "podNames")
EVERYTHING: Final = "everything"
# From the present status to the wanted one.
Status = Callable[[JsonObject], JsonDict]


class DeviceClaims:
    """Reconciles all of k8srm's objects whenever one of them changes: prototypes are small."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.caches = {resource: manager.cache(resource) for resource in KINDS}
        self.pods = manager.cache(PODS)
        self.queue = manager.queue("deviceclaims", self.reconcile)
        for cache in self.caches.values():
            cache.subscribe(self._changed)
        self.pods.subscribe_each(self._pod)

    def _changed(self, _old: JsonDict | None, _new: JsonDict | None) -> None:
        self.queue.add(EVERYTHING)

    def _pod(self, pod: JsonDict) -> None:
        if has_device_claims(pod):
            self.queue.add(EVERYTHING)

    def reconcile(self, _: str) -> int | None:
        """Release unused devices, then update every status."""
        if not any(len(cache) for cache in self.caches.values()):
            return None
        from dralab.prototypes.k8srm import statuses  # with the first objects: large

        for claim in list(self.caches[DEVICE_CLAIMS]):
            self._release(claim)
        cluster, now = self._cluster(), self.manager.now()
        for pool in cluster.pools:
            self._write(DEVICE_POOLS, pool.name, partial(statuses.pool_status, cluster, pool, now))
        for name in cluster.catalog.by_name:
            self._write(DEVICE_CLASSES, name, partial(statuses.class_status, cluster, name, now))
        taken = statuses.addresses(self.caches[DEVICE_CLAIMS])
        for claim in list(self.caches[DEVICE_CLAIMS]):
            if any(self._is_bound(pod) for pod in self._users(claim)):
                status = partial(statuses.claim_status, cluster, taken, now)
                taken |= statuses.addresses([self._amend(DEVICE_CLAIMS, claim, status)])
        return None

    def _cluster(self) -> "K8srmCluster":
        from dralab.prototypes.k8srm.cluster import K8srmCluster
        from dralab.prototypes.k8srm.normalize import normalize

        api_version = f"{DEVICE_POOLS.group}/{DEVICE_POOLS.version}"
        reports = [
            normalize({**item, "apiVersion": api_version, "kind": kind})
            for resource, kind in KINDS.items()
            for item in self.caches[resource]
        ]
        return K8srmCluster(
            (each.document for each in reports if each.state != "invalid"),
            (each for each in reports if each.state == "invalid"),
        )

    # --- users of a claim

    def _users(self, claim: JsonDict) -> Iterable[NamespacedName]:
        namespace = key_of(claim).namespace
        return [NamespacedName(namespace, name) for name in status_of(claim).get("podNames") or ()]

    def _is_bound(self, pod: NamespacedName) -> bool:
        found = self.pods.get(pod)
        return found is not None and bool(found["spec"].get("nodeName"))

    def _is_gone(self, pod: NamespacedName) -> bool:
        """Return whether a pod is gone; the cache may not have a new one yet."""
        found = self.pods.get(pod) or find(self.client, PODS, pod.name, pod.namespace)
        return found is None or is_finished(found)

    def _release(self, claim: JsonDict) -> None:
        users = list(self._users(claim))
        if not users or not all(self._is_gone(pod) for pod in users):
            return
        kept = status_of(claim).get("podNames")

        def change(item: JsonDict) -> bool:
            if status_of(item).get("podNames") != kept:
                return False  # it is in use again
            item["status"] = {
                key: value for key, value in item["status"].items() if key not in OF_ALLOCATION
            }
            return True

        self._try(DEVICE_CLAIMS, claim, change)

    # --- writing

    def _write(self, resource: Resource, name: str, status: Status) -> None:
        found = self.caches[resource].get(NamespacedName("", name))
        if found is not None:
            self._amend(resource, found, status)

    def _amend(self, resource: Resource, obj: JsonDict, status: Status) -> JsonDict:
        def change(item: JsonDict) -> bool:
            wanted = {**status_of(item), **status(status_of(item))}
            if wanted == status_of(item):
                return False
            item["status"] = wanted
            return True

        return self._try(resource, obj, change)

    def _try(
        self, resource: Resource, obj: JsonDict, change: Callable[[JsonDict], bool]
    ) -> JsonDict:
        """Update a status, unless the object was deleted meanwhile."""
        with ignoring("NotFound"):
            return amend(self.client, resource, obj, change, subresource="status")
        return obj
