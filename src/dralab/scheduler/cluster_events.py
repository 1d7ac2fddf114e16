"""Forwards cluster events to the state, the waiting pods and the pods being bound."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from dralab.api.core.pods import GATED
from dralab.objects.claims import classic_pod_claims, extended_claim
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, uid_of
from dralab.objects.pod_groups import COMPOSITE, POD_GROUP, GroupKind, parent_of
from dralab.objects.pods import group_of, is_finished
from dralab.runtime import resources
from dralab.runtime.cache import Cache
from dralab.runtime.client import Resource
from dralab.runtime.manager import Manager
from dralab.scheduler.binder import Binder
from dralab.scheduler.own_gates import OwnGates
from dralab.scheduler.pod_reports import PodReports
from dralab.scheduler.queueing_hints import matters
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling.pods import DEFAULT_SCHEDULER, PodInfo
from dralab.scheduling.reasons import ClusterChange
from dralab.scheduling.state import ClusterState
from dralab.scheduling.topology import is_awaited
from dralab.values.json_types import JsonDict


class SchedulingLoop(Protocol):
    """The loop that tries waiting pods, as far as events concern it."""

    name: str

    @property
    def leads(self) -> bool:
        """Whether writing is allowed now."""
        ...

    @property
    def gates(self) -> OwnGates:
        """The feature gates of the scheduler."""
        ...

    def changed(
        self, change: ClusterChange, helps: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """Retry pods that await such a change."""
        ...

    def wake(self) -> None:
        """Try the next pod soon."""
        ...

    def info(self, obj: JsonDict) -> PodInfo:
        """Read a pod."""
        ...


class ClusterEvents:
    """Follows nodes, devices, claims, volumes and pods for a scheduler."""

    def __init__(
        self,
        manager: Manager,
        *,
        pods: Cache,
        state: ClusterState,
        waiting: WaitingPods,
        binder: Binder,
        reports: PodReports,
        loop: SchedulingLoop,
    ) -> None:
        self.manager = manager
        self.state = state
        self._waiting = waiting
        self._binder = binder
        self._reports = reports
        self._loop = loop
        self._follows_composites = False
        manager.cache(resources.NODES).subscribe(self._node)
        self._follow(resources.SLICES, self._slice, "ResourceSlice")
        self._follow(resources.TAINT_RULES, self._rule)
        self._follow(resources.CLASSES, self._class, "DeviceClass")
        self._follow(resources.STORAGE_CLASSES, lambda *_: loop.changed(ClusterChange.VOLUMES))
        self._follow(resources.VOLUMES, self._volume)
        manager.cache(resources.VOLUME_CLAIMS).subscribe(self._volume_claim)
        manager.cache(resources.CLAIMS).subscribe(self._claim)
        manager.cache(resources.POD_GROUPS).subscribe(partial(self._group, POD_GROUP))
        pods.subscribe(self._pod)

    def _follow(
        self, resource: Resource, put: Callable[[str, JsonDict | None], None], kind: str = ""
    ) -> None:
        """Follow the changes of a collection; with `kind`, without fields of disabled gates."""

        def change(old: JsonDict | None, new: JsonDict | None) -> None:
            obj = new if new is not None else old
            if obj is not None:
                name = obj["metadata"]["name"]
                put(name, new and self._loop.gates.known(kind, new))

        self.manager.cache(resource).subscribe(change)

    def _node(self, old: JsonDict | None, new: JsonDict | None) -> None:
        table = self.state.table
        if new is None:
            if old is not None:
                table.remove_node(old["metadata"]["name"])
            return
        if table.put_node(new):
            self._loop.changed(ClusterChange.NODE)

    def _slice(self, name: str, obj: JsonDict | None) -> None:
        self.state.devices.put_slice(name, obj)
        self._loop.changed(ClusterChange.DEVICES)

    def _volume(self, name: str, obj: JsonDict | None) -> None:
        if self.state.volumes is not None:
            self.state.volumes.put_volume(name, obj)
        self._loop.changed(ClusterChange.VOLUMES)

    def _volume_claim(self, old: JsonDict | None, new: JsonDict | None) -> None:
        obj = new if new is not None else old
        if obj is not None:
            self._binder.check_pending(key_of(obj))
        self._loop.changed(ClusterChange.VOLUMES)

    def _rule(self, name: str, obj: JsonDict | None) -> None:
        self.state.devices.put_rule(name, obj)
        self._loop.changed(ClusterChange.DEVICES)

    def _class(self, name: str, obj: JsonDict | None) -> None:
        self.state.demands.put_class(name, obj)
        self.state.devices.put_class(name, obj)
        self._loop.changed(ClusterChange.DEVICES)

    def _claim(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is None:
            if old is not None and self.state.devices.remove_claim(old):
                self._loop.changed(ClusterChange.DEVICES)
            return  # pods that refer to it go on waiting for one of that name
        if self.state.devices.put_claim(new):
            self._loop.changed(ClusterChange.DEVICES)
        key = key_of(new)
        self._binder.check_pending(key)
        self._waiting.wake_for_claim(key)

    def _group(self, kind: GroupKind, old: JsonDict | None, new: JsonDict | None) -> None:
        groups, obj = self.state.groups, new if new is not None else old
        if obj is None:
            return
        if new is not None:
            new = self._loop.gates.known(kind, new)
            groups.put(kind, new)
            if parent_of(new) and not self._follows_composites:
                # Few clusters have any: they are asked for when a group names its parent.
                self._follows_composites = True
                composites = self.manager.cache(resources.COMPOSITE_POD_GROUPS)
                composites.subscribe(partial(self._group, COMPOSITE))
        else:
            groups.remove(kind, key_of(obj))
        if old is not None and new is not None and not matters(old, new):
            return  # what the scheduler itself writes of a group wakes nobody
        for leaf in groups.leaves(kind, obj):
            self._wake_group(leaf)

    def _wake_group(self, group: NamespacedName) -> None:
        """Retry the pods that are scheduled together with those of a PodGroup."""
        for each in self.state.groups.tree(group):
            self._waiting.wake_for_group(each)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
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
        if new["spec"].get(
            "schedulerName", DEFAULT_SCHEDULER
        ) != self._loop.name or classic_pod_claims(new):
            return  # classic claims are negotiated with their driver: `scheduler.classic`
        if is_deleting(new):
            self._pod_gone(uid)
            return
        if uid in self.state.placed:
            return
        if old is None or old["spec"].get("nodeName"):
            self._waiting.queue.add_pod(self._waiting.follow(self._loop.info(new)))
        elif matters(old, new):
            self._waiting.queue.update_pod(self._waiting.follow(self._loop.info(new)))
        else:
            return
        if self._loop.leads and new["spec"].get("schedulingGates"):
            self._reports.unscheduled(new, "SchedulingGated", GATED)
        group = group_of(new)
        if group:
            self._wake_group(NamespacedName(key_of(new).namespace, group))
        self._loop.wake()

    def _pod_on(self, uid: str, node: str, old: JsonDict | None, new: JsonDict) -> None:
        self._waiting.remove_pod(uid)
        self.state.nominees.pop(uid, None)
        assumed = self.state.placed.get(uid)
        renamed = old is not None and old["metadata"].get("labels") != new["metadata"].get("labels")
        if assumed != node:
            if assumed is not None:
                self.state.table.remove_pod(assumed, uid)
            self._recount(uid, node, new)
        elif (
            renamed
            or (old is not None and is_deleting(new) != is_deleting(old))
            or _got_extended_claim(old, new)
        ):
            self._recount(uid, node, new)
        if renamed:
            self._loop.changed(ClusterChange.POD_GONE | ClusterChange.POD_PLACED)
        elif assumed != node or old is None or not old["spec"].get("nodeName"):
            self._arrived(uid, node)

    def _arrived(self, uid: str, node: str) -> None:
        """Retry pods that wait for such a pod, for affinity or topology spread."""
        row = self.state.table.row_of.get(node)
        pod = None if row is None else self.state.table.pods[row].get(uid)
        if pod is not None:
            self._loop.changed(ClusterChange.POD_PLACED, lambda waiting: is_awaited(waiting, pod))

    def _recount(self, uid: str, node: str, obj: JsonDict) -> None:
        self.state.table.remove_pod(node, uid)
        self.state.table.add_pod(node, self._loop.info(obj))
        self.state.placed[uid] = node

    def _pod_gone(self, uid: str) -> None:
        self._waiting.remove_pod(uid)
        self.state.nominees.pop(uid, None)
        self._binder.forget_pod(uid)
        node = self.state.placed.pop(uid, None)
        if node is not None and self.state.table.remove_pod(node, uid) is not None:
            self._loop.changed(ClusterChange.POD_GONE)


def _got_extended_claim(old: JsonDict | None, new: JsonDict) -> bool:
    """Return whether a pod on a node has just got the claim for its extended resources.

    The pod that was assumed there did not have it: only then are its devices known to be its own.
    """
    if not extended_claim(new):
        return False
    return old is None or not old["spec"].get("nodeName") or not extended_claim(old)
