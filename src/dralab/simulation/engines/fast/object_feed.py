"""The objects of a run: those it begins with, and those that come, change and go.

A recorded history has pods on nodes at its beginning, and nodes that come and go.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from dralab.kernel.events import BEGINNING, ENDING, Events
from dralab.objects.claims import allocation_of, claim_names
from dralab.objects.metadata import NamespacedName, key_of, spec_of, uid_of
from dralab.objects.taints import taints_of
from dralab.scheduler.waiting_pods import WaitingPods
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.reasons import ClusterChange
from dralab.scheduling.state import ClusterState, PodPlacement
from dralab.simulation.engines.cluster.faults import rule_of
from dralab.simulation.engines.cluster.tasks import ClusterTask, ClusterTasks
from dralab.simulation.engines.fast.admitted import AdmittedObjects
from dralab.simulation.engines.fast.claim_book import ClaimBook
from dralab.simulation.engines.fast.nodes import RunNodes
from dralab.simulation.engines.fast.submission import PodSubmission
from dralab.simulation.lifecycle.model import Fault
from dralab.simulation.lifecycle.pod_lives import PodLives
from dralab.simulation.scenario.manifests import Arrival
from dralab.simulation.scenario.recorded import pod_running
from dralab.values.json_types import JsonDict, JsonObject


class ObjectUsers(Protocol):
    """The parts of a run that objects matter to."""

    events: Events
    state: ClusterState
    claims: ClaimBook
    admitted: AdmittedObjects
    tasks: ClusterTasks
    lives: PodLives[ClusterTask]
    waiting: WaitingPods
    nodes: RunNodes
    submission: PodSubmission

    def changed(self, change: ClusterChange) -> None:
        """Retry pods that await a change."""
        ...

    def end_run(self, uid: str, reason: str) -> None:
        """Take a pod from its node, if it is still there."""
        ...

    def run_on(self, placement: PodPlacement) -> None:
        """Begin a pod's life on a node."""
        ...


class ObjectFeed:
    """Passes objects on to the parts of a run that they matter to."""

    def __init__(self, run: ObjectUsers) -> None:
        self.run = run
        self._allocated: dict[NamespacedName, JsonObject | None] = {}
        self._rules = 0

    def plan(self, arrivals: Sequence[Arrival], changes: Sequence[Arrival], begin: int) -> None:
        """Schedule objects that arrive, and changes of a recorded history."""
        # Of one instant, objects come before the pods that may name them.
        for change in changes:
            self.run.events.at(
                begin + change.when, partial(self._change, change), priority=BEGINNING
            )
        for arrival in arrivals:
            bring = partial(self._bring, arrival, is_recorded=bool(changes))
            self.run.events.at(begin + arrival.when, bring, priority=BEGINNING)

    def plan_faults(self, faults: Sequence[Fault], begin: int) -> None:
        """Schedule faults that taint nodes or devices."""
        for fault in faults:
            if not fault.is_outage:
                self.run.events.at(
                    begin + fault.at, partial(self._begin_fault, fault), priority=ENDING
                )

    # --- objects as they are created ----------------------------------------------------------

    def bring(self, body: JsonObject, where: str) -> None:
        """Create an object, as the server stores it."""
        run = self.run
        made = run.admitted.create(body, where)
        if made is None:
            return
        kind = str(made["kind"])
        match kind:
            case "DeviceClass" | "ResourceSlice" | "DeviceTaintRule":
                self._put_devices(kind, made["metadata"]["name"], made)
            case "ResourceClaim":
                run.claims.put(made)
                run.waiting.wake_for_claim(key_of(made))
            case "PodGroup" | "CompositePodGroup":
                run.state.groups.put(kind, made)
                for group in run.state.groups.leaves(kind, made):
                    run.waiting.wake_for_group(group)
            case "ResourceClaimTemplate":
                run.submission.template_created()
            case _:
                pass  # no scheduler reads it; admission may have

    def _put_devices(self, kind: str, name: str, body: JsonDict | None) -> None:
        """Handle a new, changed or deleted (None) object that describes devices."""
        state = self.run.state
        match kind:
            case "DeviceClass":
                state.demands.put_class(name, body)
                state.devices.put_class(name, body)
            case "ResourceSlice":
                state.devices.put_slice(name, body)
            case "DeviceTaintRule":
                state.devices.put_rule(name, body)
            case _:
                return  # it does not describe any
        self.run.changed(ClusterChange.DEVICES)

    def _bring(self, arrival: Arrival, *, is_recorded: bool) -> None:
        if not is_recorded or not self.run.admitted.change(arrival):
            self.bring(arrival.body, "workload")

    # --- a recorded history -------------------------------------------------------------------

    def take_over(self, body: JsonDict) -> None:
        """Begin with an object of a recorded history: a pod keeps its node and its devices."""
        created = self.run.admitted.created
        if not created.knows(body):
            return
        body = created.without_gates(body)
        match body["kind"]:
            case "PodGroup" | "ResourceClaimTemplate":
                self.bring(body, "fleet")
            case "ResourceClaim":
                self._allocated[key_of(body)] = allocation_of(body)
                self.run.claims.put({**body, "status": {}})
            case "Pod":
                self._take_over_pod(body)
            case _:
                pass  # `unsupported.left_out` says so

    def _take_over_pod(self, body: JsonDict) -> None:
        run, state = self.run, self.run.state
        pod, number = pod_running(body), len(run.tasks.records)
        task = ClusterTask(pod, number, name=pod.name)
        task.created, task.uid = run.events.now(), uid_of(body)
        run.tasks.records.append(task)
        run.tasks.by_uid[task.uid] = run.lives.tasks[task.key] = task
        run.tasks.wait(task, 1)
        node = spec_of(body)["nodeName"]
        info = run.admitted.running(task.pod, body)
        plans = []
        for name in claim_names(body):
            key = NamespacedName(task.pod.namespace, name)
            claim, allocation = run.claims.get(key), self._allocated.get(key)
            if claim is not None and allocation is not None:
                consumer = {"resource": "pods", "name": task.name, "uid": task.uid}
                plans.append(ClaimPlan(claim, consumer, allocation))
        info = state.settled(info, state.table.row_of[node])
        placement = PodPlacement(info, node, tuple(plans))
        state.assume_placement(placement)
        run.run_on(placement)

    def _change(self, arrival: Arrival) -> None:
        """Let a node of a recorded history come, change or go, or what belongs to one."""
        body = dict(arrival.body)
        name, now = body["metadata"]["name"], None if arrival.gone else body
        if body["kind"] == "Node":
            self._change_node(name, now)
        else:
            self._put_devices(body["kind"], name, now)

    def _change_node(self, name: str, body: JsonDict | None) -> None:
        run, table, nodes = self.run, self.run.state.table, self.run.nodes
        if body is None:
            for task in nodes.tasks_on(name):
                run.end_run(task.uid, "its node is gone")
            table.remove_node(name)
            return
        known = name in table.row_of
        taints: list[JsonObject] = list(taints_of(body))
        held = nodes.taints_on(name) if known else taints
        if table.put_node({**body, "spec": {**spec_of(body), "taints": held}}):
            run.changed(ClusterChange.NODE)
        nodes.retaint(name, taints)

    # --- faults -------------------------------------------------------------------------------

    def _begin_fault(self, fault: Fault) -> None:
        if fault.device or not fault.node:
            self._rules += 1
            name = f"fault-{self._rules}"
            self._put_devices("DeviceTaintRule", name, rule_of(fault, name))
            mend = partial(self._put_devices, "DeviceTaintRule", name, None)
        else:
            self.run.nodes.taint_for(fault, add=True)
            mend = partial(self.run.nodes.taint_for, fault, add=False)
        if fault.duration is not None:
            self.run.events.after(fault.duration, mend, priority=ENDING)
