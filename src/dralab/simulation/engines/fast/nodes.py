"""The nodes of a run: their outages and taints, and the pods that leave because of these."""

from collections.abc import Sequence
from typing import Protocol

from dralab.controllers.node_lifecycle import GRACE
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.kernel.events import BEGINNING, ENDING, Event
from dralab.objects.metadata import spec_of
from dralab.objects.taints import leaves_at, taints_of
from dralab.scheduling.reasons import ClusterChange
from dralab.scheduling.state import ClusterState, PodPlacement
from dralab.simulation.engines.cluster.faults import taint_of
from dralab.simulation.engines.cluster.tasks import ClusterTask, ClusterTasks
from dralab.simulation.engines.objects import UNREACHABLE, taints_of_a_lost_node
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Fault
from dralab.simulation.lifecycle.pod_lives import PodLives
from dralab.values.json_types import JsonObject

Taint = tuple[str, str, str]


class PodsOnNodes(Protocol):
    """The pods of a run, and what becomes of them."""

    state: ClusterState
    tasks: ClusterTasks
    lives: PodLives[ClusterTask]
    placed: dict[str, PodPlacement]

    def changed(self, change: ClusterChange) -> None:
        """Retry pods that await a change."""
        ...

    def end_run(self, uid: str, reason: str) -> None:
        """Take a pod from its node, if it is still there."""
        ...

    def vacate(self, placement: PodPlacement) -> None:
        """Free what a pod held on its node."""
        ...


class RunNodes:
    """Nodes that go down and come back, and whose taints change."""

    def __init__(self, pods: PodsOnNodes, agenda: Agenda) -> None:
        self.pods = pods
        self.agenda = agenda
        self._silent: dict[str, Event | None] = {}
        self._stranded: dict[str, list[PodPlacement]] = {}
        self._since: dict[str, dict[Taint, int]] = {}
        agenda.methods |= {"silence": self._fall_silent, "leave": self._time_to_leave}

    def is_silent(self, node: str) -> bool:
        """Whether a node is down."""
        return node in self._silent

    def strand(self, placement: PodPlacement) -> None:
        """Free what a pod holds on a node that is down once the node is back."""
        self._stranded.setdefault(placement.node, []).append(placement)

    def lose(self, node: str) -> None:
        """Take a node down: its pods stop, which is noticed later."""
        self._silent[node] = self.agenda.schedule(
            self.agenda.now() + GRACE, ENDING, "silence", node
        )
        for task in self.tasks_on(node):
            self.pods.lives.interrupt(task, "its node went down")

    def restore(self, node: str) -> None:
        """Bring a node back: its pods that were not evicted are restarted."""
        self.agenda.cancel(self._silent.pop(node))
        self.retaint(node, [t for t in self.taints_on(node) if t["key"] != UNREACHABLE])
        for placement in self._stranded.pop(node, ()):
            self.pods.vacate(placement)
        for task in self.tasks_on(node):
            self.pods.lives.resume(task)

    def _fall_silent(self, node: str) -> None:
        """Taint a node that has been silent for the grace period."""
        self._silent[node] = None
        now = self.agenda.now()
        lost = taints_of_a_lost_node(now - now % SECOND)
        self.retaint(node, [*self.taints_on(node), *lost])

    def tasks_on(self, node: str) -> list[ClusterTask]:
        """Return the tasks on a node."""
        table, by_uid = self.pods.state.table, self.pods.tasks.by_uid
        uids = table.pods[table.row_of[node]]
        return [task for uid in uids if (task := by_uid.get(uid)) is not None]

    def tasks_by_name(self, node: str) -> list[ClusterTask]:
        """Return the tasks on a node in the order in which a controller lists their pods."""
        return sorted(self.tasks_on(node), key=lambda task: (task.pod.namespace, task.name))

    # --- taints -------------------------------------------------------------------------------

    def taints_on(self, node: str) -> Sequence[JsonObject]:
        """Return the taints of a node; none if it has gone."""
        table = self.pods.state.table
        row = table.row_of.get(node)
        return () if row is None else taints_of(table.objects[row] or {})

    def taint_for(self, fault: Fault, *, add: bool) -> None:
        """Add the taint of a fault to its node, or remove it."""
        taint = taint_of(fault)
        same = (taint["key"], taint["effect"])
        others = [t for t in self.taints_on(fault.node) if (t["key"], t["effect"]) != same]
        self.retaint(fault.node, [*others, taint] if add else others)

    def retaint(self, node: str, taints: list[JsonObject]) -> None:
        """Give a node these taints; pods that do not tolerate them leave."""
        table = self.pods.state.table
        obj = table.objects[table.row_of[node]] or {}
        if taints == list(taints_of(obj)):
            return
        known, now = self._since.get(node, {}), self.agenda.now()
        self._since[node] = {
            key: from_rfc3339(taint["timeAdded"]) if taint.get("timeAdded") else known.get(key, now)
            for taint in taints
            if taint.get("effect") == "NoExecute"
            for key in [_identity(taint)]
        }
        if table.put_node({**obj, "spec": {**spec_of(obj), "taints": taints}}):
            self.pods.changed(ClusterChange.NODE)
        for task in self.tasks_by_name(node):
            self._let_leave(task, node)

    def pod_bound(self, task: ClusterTask, node: str) -> None:
        """Let a pod leave when it no longer tolerates the taints of its new node."""
        if self._since.get(node):
            self._let_leave(task, node)

    def _leaves_at(self, task: ClusterTask, node: str) -> int | None:
        placement = self.pods.placed.get(task.uid)
        if placement is None or task.bound is None:
            return None
        since = self._since.get(node, {})
        taints = [(taint, since.get(_identity(taint), 0)) for taint in self.taints_on(node)]
        return leaves_at(placement.pod.tolerations, taints, task.bound - task.bound % SECOND)

    def _let_leave(self, task: ClusterTask, node: str) -> None:
        when = self._leaves_at(task, node)
        if when is not None:
            later = max(when, self.agenda.now())
            self.agenda.schedule(later, BEGINNING, "leave", task.key, attempts=task.attempts)

    def _time_to_leave(self, key: str, attempts: int) -> None:
        task = self.pods.lives.tasks[key]
        if task.attempts != attempts or task.uid not in self.pods.placed:
            return
        when = self._leaves_at(task, task.node)
        if when is not None and when <= self.agenda.now():
            self.pods.end_run(task.uid, task.reason or "evicted or preempted")


def _identity(taint: JsonObject) -> Taint:
    return taint["key"], taint.get("value") or "", taint["effect"]
